"""The exact influence of one site's token on another site, and what follows from it.

Over all pairs of states x, y that differ at site j alone:
    c_ij     = sup of TV(pi_i(. | x_-i), pi_i(. | y_-i)), the influence of j on i,
    delta_ij = sup of [max over v - min over v] of s_i(v | x_-i) - s_i(v | y_-i), the oscillation,
and c_ij <= tanh(delta_ij / (4 temperature)).
"""

from dataclasses import dataclass
from itertools import combinations
from math import ceil, inf, log
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from torch import Tensor

from glauber.exact.conditionals import context_scores, free_sites
from glauber.exact.space import Floats, Space, softmax
from glauber.foundation.errors import GlauberError
from glauber.models.base import Conditionals, check_temperature

__all__ = ["Influence", "exact_influence", "mixing_bound", "threshold_temperature"]


@dataclass(frozen=True, eq=False)
class Influence:
    """The influence c (n, n) at a temperature and the oscillation delta (n, n) of the scores.

    Row i is the site that is influenced, column j the one that exerts it, both among the free
    `sites`. Every context was tried, so both are exact, and what follows from them are bounds.
    """

    sites: tuple[int, ...]
    temperature: float
    influence: Floats
    oscillation: Floats
    kind: Literal["exact"] = "exact"  # every context was tried

    @property
    def alpha(self) -> float:
        """The largest column sum of c: all the influence that one site exerts."""
        return float(self.influence.sum(axis=0).max())

    @property
    def threshold_temperature(self) -> float:
        """A temperature above which alpha < 1: see threshold_temperature."""
        return threshold_temperature(self.oscillation)

    def mixing_bound(self, epsilon: float = 0.25) -> int | None:
        """An upper bound on t_mix(epsilon), or None if alpha >= 1: see mixing_bound."""
        return mixing_bound(self.alpha, len(self.sites), epsilon)


def exact_influence(
    conditionals: Conditionals,
    space: Space,
    *,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> Influence:
    """The influence of every free site on every other, by all contexts and replacements."""
    check_temperature(temperature)
    sites = free_sites(space, free)
    influence, oscillation = np.zeros((2, len(sites), len(sites)))
    for row, site in enumerate(sites):
        scores = context_scores(conditionals, space, site)
        distributions = softmax(scores / temperature)
        for column, other in enumerate(sites):
            if other != site:
                axis = other if other < site else other - 1
                influence[row, column] = _largest_shift(distributions, axis)
                oscillation[row, column] = _largest_swing(scores, axis)
    return Influence(tuple(sites), temperature, influence, oscillation)


def mixing_bound(alpha: float, n_sites: int, epsilon: float = 0.25) -> int | None:
    """ceil(n / (1 - alpha) * log(n / epsilon)), which t_mix(epsilon) does not exceed if alpha < 1.

    From the contraction E d_H(X_t, Y_t) <= (1 - (1 - alpha)/n)^t d_H(X_0, Y_0). None otherwise.
    An estimate, not a bound, where alpha was sampled.
    """
    if not 0 < epsilon < 1:
        raise GlauberError(f"epsilon is {epsilon}, but it must lie between 0 and 1.")
    if not alpha < 1:
        return None
    return ceil(n_sites / (1 - alpha) * log(n_sites / epsilon))


def threshold_temperature(oscillation: Floats) -> float:
    """The temperature at which max_j sum_i tanh(delta_ij / (4 temperature)) = 1.

    Above it alpha < 1. Zero where the sum stays below 1 at every temperature: where each site
    moves one other at most, as at two sites. Infinite if tokens are forbidden in some contexts
    only, and the sum therefore exceeds 1 at every temperature.
    """

    def excess(temperature: float) -> float:
        return float(np.tanh(oscillation / (4 * temperature)).sum(axis=0).max() - 1)

    n_influenced = (oscillation > 0).sum(axis=0)
    if n_influenced.max() < 2:
        return 0.0
    if (np.isinf(oscillation).any(axis=0) & (n_influenced > 1)).any():
        return inf
    finite = np.where(np.isinf(oscillation), 0.0, oscillation)
    high = float(finite.sum(axis=0).max() / 4)  # tanh x <= x, so the excess is not positive here
    low = high
    while excess(low) <= 0:
        low /= 2
    return float(brentq(excess, low, high, xtol=1e-14 * high, rtol=1e-14))


def _largest_shift(distributions: Floats, axis: int) -> float:
    """The largest total variation between (…, vocab) whose contexts differ on one axis."""
    turned = np.moveaxis(distributions, axis, 0)
    pairs = combinations(range(len(turned)), 2)
    return max(
        (float(np.abs(turned[a] - turned[b]).sum(-1).max()) / 2 for a, b in pairs), default=0
    )


def _largest_swing(scores: Floats, axis: int) -> float:
    """The largest range over tokens of the difference of two such scores (…, vocab).

    A token that neither context allows says nothing; one that only one allows makes it infinite.
    """
    turned, swing = np.moveaxis(scores, axis, 0), 0.0
    for a, b in combinations(range(len(turned)), 2):
        both = np.isneginf(turned[a]) & np.isneginf(turned[b])
        change = np.subtract(turned[a], turned[b], out=np.zeros(both.shape), where=~both)
        high = np.where(both, -inf, change).max(axis=-1)
        low = np.where(both, inf, change).min(axis=-1)
        swing = max(swing, float((high - low).max()))
    return swing
