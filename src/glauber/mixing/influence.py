"""How much does the token at one site change what another site is likely to hold?

c_ij = sup over contexts and over two tokens at j of TV(pi_i, pi_i'), and delta_ij = sup of
max_v - min_v of the difference of the two score vectors at i. Here i is the row and j the column:
the column sum is all the influence that site j exerts, and the contraction theorem speaks of the
largest column sum alpha.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals, check_temperature, scores_alone
from glauber.conditionals.batching import in_parts
from glauber.errors import GlauberError
from glauber.mixing.contexts import Contexts
from glauber.mixing.threshold import contraction_temperature

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Influence:
    """Suprema over some contexts (lower bounds) or over all of them (exact)."""

    total_variation: Floats  # (n, n): c_ij, the influence of site j on site i; 0 at i = j
    oscillation: Floats  # (n, n): delta_ij, of the scores, before the temperature
    sites: tuple[int, ...]  # the n free sites, numbered in the row of tokens
    temperature: float
    kind: Literal["exact", "lower bound"]  # of both matrices, and of alpha

    @property
    def column_sums(self) -> Floats:
        """All the influence that each site exerts (n,)."""
        return np.asarray(self.total_variation.sum(axis=0))

    @property
    def alpha(self) -> float:
        """The largest column sum; below 1 the chain contracts."""
        return float(self.column_sums.max())

    @property
    def threshold(self) -> float:
        """The temperature above which the tanh bound on alpha is below 1 (see threshold_kind)."""
        return contraction_temperature(self.oscillation)

    @property
    def threshold_kind(self) -> Literal["upper bound", "estimate"]:
        """An upper bound on where contraction sets in, or an estimate from sampled suprema."""
        return "upper bound" if self.kind == "exact" else "estimate"

    def mixing_time(self, epsilon: float = 0.25) -> int | None:
        """ceil(n / (1 - alpha) * log(n / epsilon)), or None where alpha >= 1.

        An upper bound on t_mix(epsilon) for an exact alpha, an estimate for a sampled one.
        """
        if not 0 < epsilon < 1:
            raise GlauberError(f"epsilon is {epsilon}, but it must lie between 0 and 1.")
        if self.alpha >= 1:
            return None
        n = len(self.sites)
        return math.ceil(n / (1 - self.alpha) * math.log(n / epsilon))


def influence(
    conditionals: Conditionals, contexts: Contexts, *, temperature: float = 1.0
) -> Influence:
    """c_ij and delta_ij as suprema over the contexts and all pairs of tokens tried at j."""
    check_temperature(temperature)
    n = len(contexts.sites)
    variation, oscillation = np.zeros((n, n)), np.zeros((n, n))
    n_values = contexts.values.shape[2] + 1
    parts = in_parts(torch.arange(len(contexts.tokens)), n * n_values * conditionals.vocab_size)
    for rows in parts:
        part = replace(contexts, tokens=contexts.tokens[rows], values=contexts.values[rows])
        for j, scores in scores_by_value(conditionals, part):
            others = np.arange(n) != j
            laws = torch.softmax(scores / temperature, dim=-1)
            variation[others, j] = np.maximum(variation[others, j], _largest_variation(laws))
            oscillation[others, j] = np.maximum(oscillation[others, j], _largest_swing(scores))
    sites = tuple(contexts.sites.tolist())
    return Influence(variation, oscillation, sites, temperature, contexts.kind)


def scores_by_value(conditionals: Conditionals, contexts: Contexts) -> Iterator[tuple[int, Tensor]]:
    """For each j: scores (1 + m, rows, n - 1, vocab) at the other sites, by the token at the j-th.

    The first is the state as it is, the others have the m replacements at that site.
    """
    tokens, sites = contexts.tokens, contexts.sites
    before = scores_alone(conditionals, tokens, sites)
    for j, site in enumerate(sites.tolist()):
        changed = tokens.repeat(contexts.values.shape[2], 1)
        changed[:, site] = contexts.values[:, j].T.flatten()
        others = torch.arange(len(sites), device=sites.device) != j
        after = scores_alone(conditionals, changed, sites[others])
        yield j, torch.cat([before[None, :, others], after.view(-1, *before[:, others].shape)])


def _largest_variation(laws: Tensor) -> Floats:
    """The largest total variation (n - 1,) between laws (values, rows, n - 1, vocab) of a row."""
    best = laws.new_zeros(laws.shape[2])
    for a, law in enumerate(laws):
        distances = (laws[a + 1 :] - law).abs().sum(-1) / 2
        best = torch.cat([best[None], distances.flatten(0, 1)]).amax(0)
    return np.asarray(best.clamp(max=1).cpu().numpy())


def _largest_swing(scores: Tensor) -> Floats:
    """The largest max - min over tokens (n - 1,) of the difference of two score vectors of a row.

    Tokens that are forbidden in both contexts do not count.
    """
    best = scores.new_zeros(scores.shape[2])
    for a, first in enumerate(scores):
        difference = scores[a + 1 :] - first  # nan where both are -inf
        top = torch.where(difference.isnan(), -torch.inf, difference).amax(-1)
        bottom = torch.where(difference.isnan(), torch.inf, difference).amin(-1)
        best = torch.cat([best[None], (top - bottom).flatten(0, 1)]).amax(0)
    return np.asarray(best.cpu().numpy())
