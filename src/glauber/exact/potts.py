"""Which law has several modes at once? The Potts model: as the Ising model, with more colours.

p(x) ~ exp( sum_i h_i(x_i) + sum_{i != j} J_ij [x_i = x_j] ),  x_i = 0, …, colours - 1.
As in ising.py the second sum runs over ordered pairs, so each pair of sites counts twice. With two
colours it is the Ising model of couplings J/2 and fields (h_i(1) - h_i(0)) / 2.
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


@dataclass(frozen=True, eq=False)
class Potts:
    """Fields h (N, colours) and symmetric couplings J (N, N) with a zero diagonal."""

    fields: Floats
    couplings: Floats

    def __post_init__(self) -> None:
        n = len(self.fields)
        if self.fields.ndim != 2 or 0 in self.fields.shape or self.couplings.shape != (n, n):
            raise GlauberError(
                f"the fields have shape {self.fields.shape} and the couplings "
                f"{self.couplings.shape}, but they must be (N, colours) and (N, N)."
            )
        if not (np.isfinite(self.fields).all() and np.isfinite(self.couplings).all()):
            raise GlauberError("a field or a coupling is not a finite number.")
        if not np.array_equal(self.couplings, self.couplings.T):
            raise GlauberError("the couplings are not symmetric, so they belong to no Potts model.")
        if np.diag(self.couplings).any():
            raise GlauberError("a site is coupled to itself, but the diagonal must be zero.")

    @classmethod
    def make(cls, fields: ArrayLike, couplings: ArrayLike) -> Self:
        """The model of lists or arrays."""
        return cls(np.asarray(fields, np.float64), np.asarray(couplings, np.float64))

    @classmethod
    def random(cls, n_sites: int, colours: int, *, seed: int = 0, strength: float = 0.5) -> Self:
        """Fields and couplings that are independent normals times strength."""
        generator = np.random.default_rng(seed)
        upper = np.triu(generator.normal(size=(n_sites, n_sites)) * strength, 1)
        return cls(generator.normal(size=(n_sites, colours)) * strength, upper + upper.T)

    @property
    def n_sites(self) -> int:
        return len(self.fields)

    @property
    def space(self) -> Space:
        return Space(self.fields.shape[1], self.n_sites)

    @cached_property
    def log_weights(self) -> Floats:
        """The exponent at each state (colours ** N,)."""
        states = self.space.states().numpy()
        found = np.asarray(self.fields[np.arange(self.n_sites), states].sum(axis=1))
        for i, j in zip(*np.nonzero(self.couplings), strict=True):
            found += self.couplings[i, j] * (states[:, i] == states[:, j])
        return found

    @cached_property
    def probabilities(self) -> Floats:
        """The law (colours ** N,)."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return np.asarray(weights / weights.sum())

    def joint(self) -> Joint:
        """The same law as conditionals over the colours."""
        shape = (self.space.vocab_size,) * self.n_sites
        return Joint(torch.from_numpy(self.log_weights).reshape(shape))

    def sample(self, count: int, seed: int = 0) -> NDArray[np.int64]:
        """Independent draws (count, N) of colours."""
        generator = np.random.default_rng(seed)
        chosen = generator.choice(self.space.size, size=count, p=self.probabilities)
        return np.asarray(self.space.states().numpy()[chosen])
