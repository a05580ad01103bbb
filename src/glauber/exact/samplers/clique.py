"""What does the paper's clique model do, at any size? Only the number of 1s in the clique counts.

Sites outside the clique are coupled to nothing, and sites in it are all alike. So the number a of
sites of the clique that hold 1 is a Markov chain by itself, under k-Gibbs and under the
independent parallel sampler: |C| + 1 states instead of 2^N. Everything is kept as logarithms.
"""

from dataclasses import dataclass
from functools import cached_property
from math import comb, log

import numpy as np
from scipy.special import logsumexp

from glauber.errors import GlauberError
from glauber.exact.ising import Ising
from glauber.exact.laws import Floats
from glauber.exact.samplers.masks import check_block


@dataclass(frozen=True)
class Clique:
    """N sites, the first `size` coupled by J; a field in the clique, and one at the other sites."""

    n_sites: int
    size: int
    coupling: float
    field: float = 0.0
    outside: float | None = None  # the field outside the clique, by default the same

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.n_sites:
            raise GlauberError(f"a clique has {self.size} sites, but there are {self.n_sites}.")
        if not np.isfinite([self.coupling, self.field, self.outside or 0.0]).all():
            raise GlauberError("a field or a coupling is not a finite number.")

    @property
    def field_outside(self) -> float:
        return self.field if self.outside is None else self.outside

    def ising(self) -> Ising:
        """The same model in full."""
        plain = Ising.clique(self.n_sites, self.size, coupling=self.coupling)
        inside = np.arange(self.n_sites) < self.size
        return Ising(np.where(inside, self.field, self.field_outside), plain.couplings)

    @cached_property
    def log_weights(self) -> Floats:
        """The exponent (size + 1,) of one state with a ones: h m + J (m^2 - |C|), m = 2a - |C|."""
        total = 2.0 * np.arange(self.size + 1) - self.size
        return np.asarray(self.field * total + self.coupling * (total**2 - self.size))

    @cached_property
    def log_law(self) -> Floats:
        """log of the law (size + 1,) of a."""
        weights = _log_choices(self.size) + self.log_weights
        return np.asarray(weights - logsumexp(weights))

    def log_gibbs(self, k: int) -> Floats:
        """log of the matrix (size + 1, size + 1) of a under k-Gibbs.

        j of the k sites are in the clique, u of these hold 1: both hypergeometric. Then the j
        sites get v ones with weight C(j, v) exp(weight of a - u + v).
        """
        check_block(k, self.n_sites)
        others = self.n_sites - self.size
        found = np.full((self.size + 1,) * 2, -np.inf)
        for j in range(max(0, k - others), min(k, self.size) + 1):
            chosen = log(comb(self.size, j) * comb(others, k - j)) - log(comb(self.n_sites, k))
            for a in range(self.size + 1):
                self._add_redraws(found[a], a, j, chosen)
        return found

    def _add_redraws(self, row: Floats, a: int, j: int, chosen: float) -> None:
        """Adds to a's row (size + 1,) what happens if j sites of the clique are redrawn."""
        for u in range(max(0, j - (self.size - a)), min(a, j) + 1):
            ones = log(comb(a, u) * comb(self.size - a, j - u)) - log(comb(self.size, j))
            reached = slice(a - u, a - u + j + 1)
            law = _log_choices(j) + self.log_weights[reached]
            row[reached] = np.logaddexp(row[reached], chosen + ones + law - logsumexp(law))

    def log_parallel(self) -> Floats:
        """log of the matrix (size + 1, size + 1) of a under the independent parallel sampler.

        A site that holds x sees the field h + 2 J (m - x), so that the ones that stay and those
        that are new are two binomials.
        """
        found = np.full((self.size + 1,) * 2, -np.inf)
        for a in range(self.size + 1):
            total = 2 * a - self.size
            stay = _log_binomial(a, self.field + 2 * self.coupling * (total - 1))
            new = _log_binomial(self.size - a, self.field + 2 * self.coupling * (total + 1))
            for kept, chance in enumerate(stay):
                reached = slice(kept, kept + len(new))
                found[a, reached] = np.logaddexp(found[a, reached], chance + new)
        return found

    @property
    def all_ones(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """R1 as a set of values of a: (size + 1,)."""
        return np.arange(self.size + 1) == self.size


def _log_choices(n: int) -> Floats:
    """log C(n, v) for v = 0 to n."""
    return np.array([log(comb(n, v)) for v in range(n + 1)])


def _log_binomial(n: int, field: float) -> Floats:
    """log chances (n + 1,) of v ones among n spins in a field: p(1) = 1 / (1 + exp(-2 field))."""
    one, zero = -np.logaddexp(0, -2 * field), -np.logaddexp(0, 2 * field)
    v = np.arange(n + 1)
    return np.asarray(_log_choices(n) + v * one + (n - v) * zero)
