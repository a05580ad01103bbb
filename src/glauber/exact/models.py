"""Small distributions known in full: Ising models, the paper's clique, exponential families.

Ising   p(x) ~ exp( sum_i h_i x_i + sum_{i != j} J_ij x_i x_j ),  x_i = -1 or 1 (tokens 0 and 1)
family  log p_theta(x) = base(x) + theta . T(x) - log Z

The sum over pairs runs over ordered ones, so each pair of sites counts twice (paper B). Every
pseudolikelihood of a family is convex in theta: log p(x_K | x_{-K}) is linear less a log-sum-exp.

Clique. Sites outside the clique are coupled to nothing, and sites in it are all alike. So the
number a of sites of the clique that are 1 is a Markov chain by itself, under k-Gibbs and under the
independent parallel sampler: |C| + 1 states instead of 2^N. Everything is in logarithms.

Paper B calls the model strongly ferromagnetic if
    h_G = sum of the clique's fields > sum of |h_i| outside it,   and   J - ||h|| >= J_0 > 0.
R1 are the states with the clique all 1, R-1 those with it all -1. With ||h|| the largest |h_i|,
any state of either is e^(2 J_0) times as likely as one that agrees with it outside the clique and
is in neither. For states that differ outside the clique too, ||h|| must be the sum of the |h_i|.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb, log
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from glauber.exact.space import Bools, Floats, Space, softmax
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint

__all__ = [
    "Clique",
    "Family",
    "Ferromagnet",
    "Ising",
    "ising_family",
    "ising_model",
    "ising_theta",
    "mode_ratios",
    "state_counts",
]

MEMORY = 2**30  # bytes that one array may take
STRONGEST = 1e6  # field or coupling; far beyond what floats can tell apart from certainty


@dataclass(frozen=True, eq=False)
class Ising:
    """Fields h (N,) and symmetric couplings J (N, N) with a zero diagonal."""

    fields: Floats  # (N,)
    couplings: Floats

    def __post_init__(self) -> None:
        n = len(self.fields) if self.fields.ndim == 1 else 0
        if n == 0 or self.couplings.shape != (n, n):
            raise GlauberError(
                f"the fields have shape {self.fields.shape} and the couplings "
                f"{self.couplings.shape}, but they must be (N,) and (N, N)."
            )
        for values in (self.fields, self.couplings):
            if not np.isfinite(values).all():
                raise GlauberError("a field or a coupling is not a finite number.")
            if np.abs(values).max() > STRONGEST:
                raise GlauberError(
                    f"a field or a coupling is {np.abs(values).max():g} in size, but at most "
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
        return cls(np.asarray(fields, np.float64), np.asarray(couplings, np.float64))

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
    def n_sites(self) -> int:
        """The number N of sites."""
        return len(self.fields)

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

    @cached_property
    def probabilities(self) -> Floats:
        """The distribution (2**N,)."""
        return softmax(self.log_weights)

    def joint(self) -> Joint:
        """The same distribution as conditionals over tokens."""
        return Joint(torch.from_numpy(self.log_weights).reshape((2,) * self.n_sites))

    def sample(self, count: int, seed: int = 0) -> Floats:
        """Independent draws (count, N) of -1 and 1."""
        generator = np.random.default_rng(seed)
        return self.spins[generator.choice(self.space.size, size=count, p=self.probabilities)]


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


def state_counts(space: Space, tokens: ArrayLike) -> Floats:
    """How often each state (size,) occurs in rows of tokens (n, length)."""
    numbers = space.index(torch.as_tensor(np.asarray(tokens, np.int64)))
    return np.bincount(numbers.numpy(), minlength=space.size).astype(np.float64)


def check_fits(vocab_size: int, n_sites: int, rows: Callable[[int], int], content: str) -> None:
    """Refuses arrays (rows(n_sites), states) that are too large; says how many sites would fit."""

    def fits(n: int) -> bool:
        return 8 * rows(n) * vocab_size**n <= MEMORY and vocab_size**n <= Space.limit

    if n_sites <= 64 and fits(n_sites):
        return
    largest = next((n for n in range(min(n_sites, 64), 0, -1) if fits(n)), 0)
    raise GlauberError(
        f"{n_sites:,} sites have {vocab_size}^{n_sites} states, and with their {content} they do "
        f"not fit an array of {MEMORY / 1e9:.1f} GB; {largest} sites would fit."
    )


@dataclass(frozen=True)
class Clique:
    """N sites, the first `size` coupled by J; a field in the clique, and one at the other sites."""

    n_sites: int  # N
    size: int
    coupling: float  # J
    field: float = 0.0
    outside: float | None = None  # the field outside the clique, by default the same

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.n_sites:
            raise GlauberError(f"a clique has {self.size} sites, but there are {self.n_sites}.")
        for value in (self.coupling, self.field, self.field_outside):
            if not abs(value) <= STRONGEST:  # not a number either
                raise GlauberError(
                    f"a field or a coupling is {value:g}, but at most {STRONGEST:g} in size is "
                    "computed."
                )

    @property
    def field_outside(self) -> float:
        """The field at the sites outside the clique."""
        return self.field if self.outside is None else self.outside

    def ising(self) -> Ising:
        """The same model in full."""
        couplings = Ising.clique(self.n_sites, self.size, coupling=self.coupling).couplings
        inside = np.arange(self.n_sites) < self.size
        return Ising(np.where(inside, self.field, self.field_outside), couplings)

    @property
    def ferromagnet(self) -> "Ferromagnet":
        """The constants of the paper's condition."""
        others = self.n_sites - self.size
        sizes = [abs(self.field)] * self.size + [abs(self.field_outside)] * others
        return Ferromagnet(
            clique_field=self.size * self.field,
            outside_field=others * abs(self.field_outside),
            margin=self.coupling - max(sizes),
            margin_of_sum=self.coupling - sum(sizes),
        )

    @cached_property
    def log_weights(self) -> Floats:
        """The exponent (size + 1,) of one state with a ones: h m + J (m^2 - |C|), m = 2a - |C|."""
        total = 2.0 * np.arange(self.size + 1) - self.size
        return np.asarray(self.field * total + self.coupling * (total**2 - self.size))

    @cached_property
    def log_distribution(self) -> Floats:
        """log of the distribution (size + 1,) of a."""
        weights = _log_choices(self.size) + self.log_weights
        return np.asarray(weights - logsumexp(weights))

    def log_gibbs(self, k: int) -> Floats:
        """log of the matrix (size + 1, size + 1) of a under k-Gibbs.

        j of the k sites are in the clique, u of these are 1: both hypergeometric. Then the j
        sites get v ones with weight C(j, v) exp(weight of a - u + v).
        """
        check_block_size(k, self.n_sites)
        others = self.n_sites - self.size
        result = np.full((self.size + 1,) * 2, -np.inf)
        for j in range(max(0, k - others), min(k, self.size) + 1):
            chosen = log(comb(self.size, j) * comb(others, k - j)) - log(comb(self.n_sites, k))
            for a in range(self.size + 1):
                self._add_redraws(result[a], a, j, chosen)
        return result

    def _add_redraws(self, row: Floats, a: int, j: int, chosen: float) -> None:
        """Adds to a's row (size + 1,) what happens if j sites of the clique are redrawn."""
        for u in range(max(0, j - (self.size - a)), min(a, j) + 1):
            ones = log(comb(a, u) * comb(self.size - a, j - u)) - log(comb(self.size, j))
            reached = slice(a - u, a - u + j + 1)
            distribution = _log_choices(j) + self.log_weights[reached]
            row[reached] = np.logaddexp(
                row[reached], chosen + ones + distribution - logsumexp(distribution)
            )

    def log_parallel(self) -> Floats:
        """log of the matrix (size + 1, size + 1) of a under the independent parallel sampler.

        A site of spin x sees the field h + 2 J (m - x), so that the ones that stay and those that
        are new are two binomials.
        """
        result = np.full((self.size + 1,) * 2, -np.inf)
        for a in range(self.size + 1):
            total = 2 * a - self.size
            stay = _log_binomial(a, self.field + 2 * self.coupling * (total - 1))
            new = _log_binomial(self.size - a, self.field + 2 * self.coupling * (total + 1))
            for n_ones, chance in enumerate(stay):
                reached = slice(n_ones, n_ones + len(new))
                result[a, reached] = np.logaddexp(result[a, reached], chance + new)
        return result

    @property
    def all_ones(self) -> Bools:
        """R1 as a set of values of a: (size + 1,)."""
        return np.arange(self.size + 1) == self.size


def mode_ratios(model: Ising, size: int) -> tuple[float, float]:
    """Least p(R1) / p(R-1) and least p(R-1) / p(elsewhere), state by state, of the first sites.

    Paper B, Proposition 8: with J_0 = J - the sum of the |h_i| the second is above e^(2 J_0); with
    the largest |h_i| in its place it need not be.
    """
    inside, logs = model.spins[:, :size].sum(axis=1), model.log_weights
    up, down = logs[inside == size], logs[inside == -size]
    elsewhere = logs[np.abs(inside) < size]
    return math.exp(up.min() - down.max()), math.exp(down.min() - elsewhere.max())


@dataclass(frozen=True)
class Ferromagnet:
    """The constants of the condition, exact up to rounding.

    margin is J_0 with the largest |h_i|; margin_of_sum is J_0 with the sum of the |h_i|.
    """

    clique_field: float  # h_G
    outside_field: float  # the sum of |h_i| outside the clique
    margin: float
    margin_of_sum: float

    @property
    def holds(self) -> bool:
        """Whether the model is strongly ferromagnetic, with ||h|| the largest |h_i|."""
        return self.clique_field > self.outside_field and self.margin > 0

    @property
    def mode_ratio(self) -> float:
        """e^(2 h_G): how much likelier R1 is than R-1, state for flipped clique."""
        return math.exp(2 * self.clique_field)

    @property
    def condition(self) -> str:
        """The condition in words: that it holds, or which parts fail."""
        failures = []
        if not self.clique_field > self.outside_field:
            failures.append(
                f"h_G = {self.clique_field:g} is not above {self.outside_field:g} outside"
            )
        if not self.margin > 0:
            failures.append(f"J_0 = J - max|h| = {self.margin:g} is not positive")
        return " and ".join(failures) or "strongly ferromagnetic"


def check_block_size(k: int, n_sites: int) -> None:
    """Refuses a block size that is no whole number from 1 to N."""
    if not isinstance(k, int | np.integer) or not 1 <= k <= n_sites:
        raise GlauberError(f"the block has k = {k} sites, but k must be from 1 to {n_sites}.")


def _log_choices(n: int) -> Floats:
    """log C(n, v) for v = 0 to n."""
    return np.array([log(comb(n, v)) for v in range(n + 1)])


def _log_binomial(n: int, field: float) -> Floats:
    """log chances (n + 1,) of v ones among n spins in a field: p(1) = 1 / (1 + exp(-2 field))."""
    log_one, log_zero = -np.logaddexp(0, -2 * field), -np.logaddexp(0, 2 * field)
    v = np.arange(n + 1)
    return np.asarray(_log_choices(n) + v * log_one + (n - v) * log_zero)
