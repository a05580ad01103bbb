"""What does the paper's clique model do, at any size, and has it two modes?

Sites outside the clique are coupled to nothing, and sites in it are all alike. So the number a of
sites of the clique that hold 1 is a Markov chain by itself, under k-Gibbs and under the
independent parallel sampler: |C| + 1 states instead of 2^N. Everything is kept as logarithms.

Paper B calls the model strongly ferromagnetic if
    h_G = sum of the clique's fields > sum of |h_i| outside it,   and   J - ||h|| >= J_0 > 0.
R1 are the states with the clique all 1, R-1 those with it all -1. With ||h|| the largest |h_i|,
any state of either is e^(2 J_0) times as likely as one that agrees with it outside the clique and
is in neither. For states that differ outside the clique too, ||h|| must be the sum of the |h_i|.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb, log

import numpy as np
from scipy.special import logsumexp

from glauber.errors import GlauberError
from glauber.exact.blocks.masks import check_block
from glauber.exact.models import STRONGEST, Ising
from glauber.exact.space import Floats


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
        plain = Ising.clique(self.n_sites, self.size, coupling=self.coupling)
        inside = np.arange(self.n_sites) < self.size
        return Ising(np.where(inside, self.field, self.field_outside), plain.couplings)

    @property
    def ferromagnet(self) -> "Ferromagnet":
        """The constants of the paper's condition."""
        others = self.n_sites - self.size
        sizes = [abs(self.field)] * self.size + [abs(self.field_outside)] * others
        return Ferromagnet(
            clique=tuple(range(self.size)),
            coupling=self.coupling,
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
            distribution = _log_choices(j) + self.log_weights[reached]
            row[reached] = np.logaddexp(
                row[reached], chosen + ones + distribution - logsumexp(distribution)
            )

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


@dataclass(frozen=True)
class Ferromagnet:
    """The constants of the condition, exact up to rounding.

    margin is J_0 with the largest |h_i|; margin_of_sum is J_0 with the sum of the |h_i|.
    """

    clique: tuple[int, ...]  # its sites
    coupling: float  # J, between all its sites
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
    def broken(self) -> str | None:
        """Which part of the condition fails, in words; None if it holds."""
        parts = []
        if not self.clique_field > self.outside_field:
            parts.append(f"h_G = {self.clique_field:g} is not above {self.outside_field:g} outside")
        if not self.margin > 0:
            parts.append(f"J_0 = J - max|h| = {self.margin:g} is not positive")
        return " and ".join(parts) or None

    @property
    def condition(self) -> str:
        """The condition in words: that it holds, or what breaks it."""
        return self.broken or "strongly ferromagnetic"


def ferromagnet(model: Ising, clique: Sequence[int]) -> Ferromagnet:
    """The constants of a model whose clique is coupled alike, with no other coupling."""
    inside = sorted(set(clique))
    if len(inside) < 2 or inside[0] < 0 or inside[-1] >= model.n_sites:
        raise GlauberError(
            f"a clique needs at least two of the sites 0 to {model.n_sites - 1}, "
            f"but it was given as {tuple(clique)}."
        )
    coupling = float(model.couplings[inside[0], inside[1]])
    wanted = np.zeros_like(model.couplings)
    wanted[np.ix_(inside, inside)] = coupling * (1 - np.eye(len(inside)))
    if not np.array_equal(wanted, model.couplings):
        raise GlauberError(
            "the condition is for a clique coupled alike and no other coupling, "
            "but these couplings are different."
        )
    sizes = np.abs(model.fields)
    return Ferromagnet(
        clique=tuple(inside),
        coupling=coupling,
        clique_field=float(model.fields[inside].sum()),
        outside_field=float(np.delete(sizes, inside).sum()),
        margin=coupling - float(sizes.max()),
        margin_of_sum=coupling - float(sizes.sum()),
    )


def _log_choices(n: int) -> Floats:
    """log C(n, v) for v = 0 to n."""
    return np.array([log(comb(n, v)) for v in range(n + 1)])


def _log_binomial(n: int, field: float) -> Floats:
    """log chances (n + 1,) of v ones among n spins in a field: p(1) = 1 / (1 + exp(-2 field))."""
    one, zero = -np.logaddexp(0, -2 * field), -np.logaddexp(0, 2 * field)
    v = np.arange(n + 1)
    return np.asarray(_log_choices(n) + v * one + (n - v) * zero)
