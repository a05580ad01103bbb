"""Which small law shows two modes and nothing else? The Ising model, and the paper's clique.

p(x) ~ exp( sum_i h_i x_i + sum_{i != j} J_ij x_i x_j ),  x_i = -1 or 1.
The second sum runs over ordered pairs, so each pair of sites counts twice (paper B). As tokens,
0 stands for -1 and 1 for 1.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from glauber.conditionals.table import Joint
from glauber.errors import GlauberError
from glauber.exact.space import Space

Floats = NDArray[np.float64]
LARGEST = 20  # sites: a million states


@dataclass(frozen=True, eq=False)
class Ising:
    """Fields h (N,) and symmetric couplings J (N, N) with a zero diagonal."""

    fields: Floats
    couplings: Floats

    def __post_init__(self) -> None:
        n = len(self.fields)
        if self.fields.ndim != 1 or n == 0 or self.couplings.shape != (n, n):
            raise GlauberError(
                f"the fields have shape {self.fields.shape} and the couplings "
                f"{self.couplings.shape}, but they must be (N,) and (N, N)."
            )
        if not (np.isfinite(self.fields).all() and np.isfinite(self.couplings).all()):
            raise GlauberError("a field or a coupling is not a finite number.")
        if not np.array_equal(self.couplings, self.couplings.T):
            raise GlauberError("the couplings are not symmetric, so they belong to no Ising model.")
        if np.diag(self.couplings).any():
            raise GlauberError("a site is coupled to itself, but the diagonal must be zero.")

    @classmethod
    def make(cls, fields: ArrayLike, couplings: ArrayLike) -> Self:
        """The model of lists or arrays."""
        return cls(np.asarray(fields, np.float64), np.asarray(couplings, np.float64))

    @classmethod
    def clique(cls, n_sites: int, size: int, *, coupling: float, field: float = 0.0) -> Self:
        """The paper's model: the first `size` sites all coupled alike, one field everywhere."""
        if not 1 <= size <= n_sites:
            raise GlauberError(f"a clique has {size} sites, but there are {n_sites}.")
        couplings = np.zeros((n_sites, n_sites))
        couplings[:size, :size] = coupling * (1 - np.eye(size))
        return cls(np.full(n_sites, float(field)), couplings)

    @classmethod
    def random(cls, n_sites: int, seed: int = 0, strength: float = 0.5) -> Self:
        """Fields and couplings that are independent normals times strength."""
        generator = np.random.default_rng(seed)
        upper = np.triu(generator.normal(size=(n_sites, n_sites)) * strength, 1)
        return cls(generator.normal(size=n_sites) * strength, upper + upper.T)

    @property
    def n_sites(self) -> int:
        return len(self.fields)

    @cached_property
    def spins(self) -> Floats:
        """All states (2**N, N) of -1 and 1, in lexicographic order, site 0 slowest."""
        if self.n_sites > LARGEST:
            raise GlauberError(
                f"{self.n_sites} sites have 2^{self.n_sites} states, but at most "
                f"2^{LARGEST} are enumerated."
            )
        return np.asarray(Space(2, self.n_sites).states().numpy() * 2.0 - 1.0)

    @cached_property
    def log_weights(self) -> Floats:
        """The exponent at each state (2**N,)."""
        x = self.spins
        return np.asarray(x @ self.fields + ((x @ self.couplings) * x).sum(axis=1))

    @cached_property
    def probabilities(self) -> Floats:
        """The law (2**N,)."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return np.asarray(weights / weights.sum())

    def joint(self) -> Joint:
        """The same law as conditionals over the tokens 0 and 1."""
        return Joint(torch.from_numpy(self.log_weights).reshape((2,) * self.n_sites))

    def sample(self, count: int, seed: int = 0) -> Floats:
        """Independent draws (count, N) of -1 and 1."""
        generator = np.random.default_rng(seed)
        chosen = generator.choice(len(self.probabilities), size=count, p=self.probabilities)
        return np.asarray(self.spins[chosen])
