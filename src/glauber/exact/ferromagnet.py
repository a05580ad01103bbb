"""Is an Ising model strongly ferromagnetic, so that it has two modes and knows which is larger?

Paper B asks for a clique of sites coupled alike by J, with
    h_G = sum of the clique's fields > sum of |h_i| outside it,   and   J - ||h|| >= J_0 > 0.
R1 are the states with the clique all 1, R-1 those with it all -1. With ||h|| the largest |h_i|,
any state of either is e^(2 J_0) times as likely as one that agrees with it outside the clique and
is in neither. For states that differ outside the clique too, ||h|| must be the sum of the |h_i|.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glauber.errors import GlauberError
from glauber.exact.ising import Ising


@dataclass(frozen=True)
class Ferromagnet:
    """The constants of the condition, exact up to rounding.

    margin is J_0 with the largest |h_i|; margin_of_sum is J_0 with the sum of the |h_i|.
    """

    clique: tuple[int, ...]
    coupling: float
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
    def says(self) -> str:
        """The condition in one sentence."""
        if self.holds:
            return (
                f"strongly ferromagnetic with J_0 = {self.margin:g} and h_G = {self.clique_field:g}"
            )
        if self.clique_field <= self.outside_field:
            return (
                f"not strongly ferromagnetic: h_G = {self.clique_field:g} is not above the "
                f"{self.outside_field:g} of the other sites"
            )
        return (
            f"not strongly ferromagnetic: J = {self.coupling:g} is not above the largest field, "
            f"so that J_0 = {self.margin:g}"
        )


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
