"""Which small distributions are known in full? Ising and Potts models, exponential families.

Ising   p(x) ~ exp( sum_i h_i x_i + sum_{i != j} J_ij x_i x_j ),  x_i = -1 or 1 (tokens 0 and 1)
Potts   p(x) ~ exp( sum_i h_i(x_i) + sum_{i != j} J_ij [x_i = x_j] ),  x_i = 0, …, colours - 1
family  log p_theta(x) = base(x) + theta . T(x) - log Z

The sums over pairs run over ordered ones, so each pair of sites counts twice (paper B). A Potts
model of two colours is the Ising model of couplings J/2 and fields (h_i(1) - h_i(0)) / 2. Every
pseudolikelihood of a family is convex in theta: log p(x_K | x_{-K}) is linear less a log-sum-exp.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from glauber.conditionals.table import Joint
from glauber.errors import GlauberError
from glauber.exact.space import Floats, Space

MEMORY = 2**30  # bytes that one array may take
STRONGEST = 1e6  # field or coupling; far beyond what floats can tell apart from certainty


class Pairwise:
    """What Ising and Potts models share: fields, symmetric couplings and the states of a space."""

    fields: Floats
    couplings: Floats

    def _check(self, shape: str) -> None:
        n = len(self.fields)
        if 0 in self.fields.shape or self.couplings.shape != (n, n):
            raise GlauberError(
                f"the fields have shape {self.fields.shape} and the couplings "
                f"{self.couplings.shape}, but they must be {shape} and (N, N)."
            )
        for given in (self.fields, self.couplings):
            if not np.isfinite(given).all():
                raise GlauberError("a field or a coupling is not a finite number.")
            if np.abs(given).max() > STRONGEST:
                raise GlauberError(
                    f"a field or a coupling is {np.abs(given).max():g} in size, but at most "
                    f"{STRONGEST:g} is computed."
                )
        if not np.array_equal(self.couplings, self.couplings.T):
            raise GlauberError(
                "the couplings are not symmetric, so no joint distribution has them."
            )
        if np.diag(self.couplings).any():
            raise GlauberError("a site is coupled to itself, but the diagonal must be zero.")

    @classmethod
    def make(cls, fields: ArrayLike, couplings: ArrayLike) -> Self:
        """The model of lists or arrays."""
        return cls(np.asarray(fields, np.float64), np.asarray(couplings, np.float64))  # type: ignore[call-arg]

    @property
    def n_sites(self) -> int:
        """The number N of sites."""
        return len(self.fields)

    @property
    def space(self) -> Space:
        raise NotImplementedError

    @property
    def log_weights(self) -> Floats:
        """The exponent at each state (size,)."""
        raise NotImplementedError

    @cached_property
    def probabilities(self) -> Floats:
        """The distribution (size,)."""
        return softmax(self.log_weights)

    def joint(self) -> Joint:
        """The same distribution as conditionals over tokens."""
        shape = (self.space.vocab_size,) * self.n_sites
        return Joint(torch.from_numpy(self.log_weights).reshape(shape))

    def _draw(self, count: int, seed: int) -> NDArray[np.int64]:
        """Independent draws (count, N) of tokens."""
        generator = np.random.default_rng(seed)
        chosen = generator.choice(self.space.size, size=count, p=self.probabilities)
        return np.asarray(self.space.states().numpy()[chosen])


@dataclass(frozen=True, eq=False)
class Ising(Pairwise):
    """Fields h (N,) and symmetric couplings J (N, N) with a zero diagonal."""

    fields: Floats  # (N,)
    couplings: Floats

    def __post_init__(self) -> None:
        if self.fields.ndim != 1:
            raise GlauberError(f"the fields have shape {self.fields.shape}, but it must be (N,).")
        self._check("(N,)")

    @classmethod
    def clique(cls, n_sites: int, size: int, *, coupling: float, field: float = 0.0) -> Self:
        """The paper's model: the first `size` sites all coupled alike, one field everywhere."""
        Space(2, n_sites)  # refuses what cannot be enumerated before anything is allocated
        if not 1 <= size <= n_sites:
            raise GlauberError(f"a clique has {size} sites, but there are {n_sites}.")
        couplings = np.zeros((n_sites, n_sites))
        couplings[:size, :size] = coupling * (1 - np.eye(size))
        return cls(np.full(n_sites, float(field)), couplings)

    @classmethod
    def random(cls, n_sites: int, seed: int = 0, strength: float = 0.5) -> Self:
        """Fields and couplings that are independent normals times strength."""
        Space(2, n_sites)
        generator = np.random.default_rng(seed)
        upper = np.triu(generator.normal(size=(n_sites, n_sites)) * strength, 1)
        return cls(generator.normal(size=n_sites) * strength, upper + upper.T)

    @property
    def space(self) -> Space:
        """All states, of tokens 0 and 1 for -1 and 1."""
        return Space(2, self.n_sites)

    @cached_property
    def spins(self) -> Floats:
        """All states (2**N, N) of -1 and 1, in lexicographic order, site 0 slowest."""
        return np.asarray(self.space.states().numpy() * 2.0 - 1.0)

    @cached_property
    def log_weights(self) -> Floats:
        """The exponent at each state (2**N,)."""
        x = self.spins
        return np.asarray(x @ self.fields + ((x @ self.couplings) * x).sum(axis=1))

    def sample(self, count: int, seed: int = 0) -> Floats:
        """Independent draws (count, N) of -1 and 1."""
        return np.asarray(self._draw(count, seed) * 2.0 - 1.0)


@dataclass(frozen=True, eq=False)
class Potts(Pairwise):
    """Fields h (N, colours) and symmetric couplings J (N, N) with a zero diagonal."""

    fields: Floats  # (N, colours)
    couplings: Floats

    def __post_init__(self) -> None:
        if self.fields.ndim != 2:
            raise GlauberError(
                f"the fields have shape {self.fields.shape}, but it must be (N, colours)."
            )
        self._check("(N, colours)")

    @classmethod
    def random(cls, n_sites: int, colours: int, *, seed: int = 0, strength: float = 0.5) -> Self:
        """Fields and couplings that are independent normals times strength."""
        Space(colours, n_sites)
        generator = np.random.default_rng(seed)
        upper = np.triu(generator.normal(size=(n_sites, n_sites)) * strength, 1)
        return cls(generator.normal(size=(n_sites, colours)) * strength, upper + upper.T)

    @property
    def space(self) -> Space:
        """All states, one token for each colour."""
        return Space(self.fields.shape[1], self.n_sites)

    @cached_property
    def log_weights(self) -> Floats:
        """The exponent at each state (colours ** N,)."""
        states = self.space.states().numpy()
        found = np.asarray(self.fields[np.arange(self.n_sites), states].sum(axis=1))
        for i, j in zip(*np.nonzero(self.couplings), strict=True):
            found += self.couplings[i, j] * (states[:, i] == states[:, j])
        return found

    def sample(self, count: int, seed: int = 0) -> NDArray[np.int64]:
        """Independent draws (count, N) of colours."""
        return self._draw(count, seed)


def softmax(log_weights: Floats) -> Floats:
    """The distribution (…, size) of log weights (…, size)."""
    weights = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Family:
    """Statistics T (d, size) and a base (size,), both in the order of the states."""

    space: Space
    statistics: Floats  # (d, size)
    base: Floats
    names: tuple[str, ...]  # (d,) of the parameters

    @property
    def n_parameters(self) -> int:
        """The number d of statistics."""
        return len(self.statistics)

    def log_weights(self, theta: Floats) -> Floats:
        """The exponent (…, size) for parameters theta (…, d)."""
        if theta.shape[-1:] != (self.n_parameters,):
            raise GlauberError(
                f"theta has shape {theta.shape}, but there are {self.n_parameters} parameters."
            )
        return np.asarray(theta @ self.statistics + self.base)

    def distribution(self, theta: Floats) -> Floats:
        """The distribution (…, size)."""
        return softmax(self.log_weights(theta))


def ising_family(n_sites: int) -> Family:
    """All Ising models: theta = (h_i; J_ij for i < j), T = (x_i; 2 x_i x_j)."""
    check_ising_fits(n_sites)
    space = Space(2, n_sites)
    pairs = list(combinations(range(n_sites), 2))
    spins = space.states().numpy().T * 2.0 - 1.0  # (N, size)
    rows = [*spins, *(2 * spins[i] * spins[j] for i, j in pairs)]
    names = [*(f"h{i}" for i in range(n_sites)), *(f"J{i},{j}" for i, j in pairs)]
    return Family(space, np.stack(rows), np.zeros(space.size), tuple(names))


def check_ising_fits(n_sites: int) -> None:
    """Refuses sites whose states and statistics do not fit memory, before any is allocated."""
    check_fits(2, n_sites, lambda n: n + comb(n, 2), "statistics")


def ising_theta(model: Ising) -> Floats:
    """theta (d,) of a model."""
    return np.concatenate([model.fields, model.couplings[np.triu_indices(model.n_sites, 1)]])


def ising_model(theta: Floats, n_sites: int) -> Ising:
    """The model of theta (d,)."""
    couplings = np.zeros((n_sites, n_sites))
    couplings[np.triu_indices(n_sites, 1)] = theta[n_sites:]
    return Ising(theta[:n_sites], couplings + couplings.T)


def potts_family(n_sites: int, colours: int) -> Family:
    """All Potts models, the fields of colour 0 held at zero: they would say nothing new."""
    check_fits(colours, n_sites, lambda n: n * (colours - 1) + comb(n, 2), "statistics")
    space = Space(colours, n_sites)
    pairs = list(combinations(range(n_sites), 2))
    states = space.states().numpy().T
    singles = [(i, c) for i in range(n_sites) for c in range(1, colours)]
    rows = [
        *(states[i] == c for i, c in singles),
        *(2 * (states[i] == states[j]) for i, j in pairs),
    ]
    names = [*(f"h{i}({c})" for i, c in singles), *(f"J{i},{j}" for i, j in pairs)]
    return Family(space, np.stack(rows).astype(np.float64), np.zeros(space.size), tuple(names))


def potts_theta(model: Potts) -> Floats:
    """theta (d,) of a model, its fields taken relative to colour 0."""
    fields = (model.fields - model.fields[:, :1])[:, 1:].ravel()
    return np.concatenate([fields, model.couplings[np.triu_indices(model.n_sites, 1)]])


def tilted_family(distribution: Floats, space: Space, statistics: Floats) -> Family:
    """Any distribution (size,), tilted by statistics (d, size); it has theta = 0 itself."""
    if distribution.shape != (space.size,) or not distribution.min() > 0:
        raise GlauberError("a distribution to be tilted gives every state a positive probability.")
    if statistics.ndim != 2 or statistics.shape[1] != space.size:
        raise GlauberError(
            f"the statistics have shape {statistics.shape}, but they must be (d, {space.size})."
        )
    names = tuple(f"theta{i}" for i in range(len(statistics)))
    return Family(space, statistics, np.log(distribution), names)


def state_counts(space: Space, tokens: ArrayLike) -> Floats:
    """How often each state (size,) occurs in rows of tokens (n, length)."""
    numbers = space.index(torch.as_tensor(np.asarray(tokens, np.int64)))
    return np.bincount(numbers.numpy(), minlength=space.size).astype(np.float64)


def check_fits(vocab_size: int, n_sites: int, rows: Callable[[int], int], what: str) -> None:
    """Refuses arrays (rows(n_sites), states) that are too large; says how many sites would fit."""

    def fit(n: int) -> bool:
        return 8 * rows(n) * vocab_size**n <= MEMORY and vocab_size**n <= Space.limit

    if n_sites <= 64 and fit(n_sites):
        return
    most = next((n for n in range(min(n_sites, 64), 0, -1) if fit(n)), 0)
    raise GlauberError(
        f"{n_sites:,} sites have {vocab_size}^{n_sites} states, and with their {what} they do not "
        f"fit an array of {MEMORY / 1e9:.1f} GB; {most} sites would fit."
    )
