"""How much does the token at one site change what another site is likely to hold?

c_ij = sup over contexts and over two tokens at j of TV(pi_i, pi_i'), and delta_ij = sup of
max_v - min_v of the difference of the two score vectors at i. Here i is the row and j the column:
the column sum is all the influence that site j exerts, and the contraction theorem speaks of the
largest column sum alpha. A token that only one of two contexts allows makes delta infinite.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

from glauber.conditionals.base import Conditionals, check_temperature, scores_alone
from glauber.conditionals.batching import in_parts
from glauber.errors import GlauberError
from glauber.mixing.contexts import Contexts, chain_states, free_sites, replacements
from glauber.progress import check_count, track
from glauber.statistics import standard_error

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class InfluenceMatrix:
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
        check_epsilon(epsilon)
        if self.alpha >= 1:
            return None
        n = len(self.sites)
        return math.ceil(n / (1 - self.alpha) * math.log(n / epsilon))


def measure_influence(
    conditionals: Conditionals, contexts: Contexts, *, temperature: float = 1.0
) -> InfluenceMatrix:
    """c_ij and delta_ij as suprema over the contexts and all pairs of tokens tried at j."""
    check_temperature(temperature)
    n = len(contexts.sites)
    variation, oscillation = np.zeros((n, n)), np.zeros((n, n))
    n_values = contexts.values.shape[2] + 1
    every = torch.arange(len(contexts.tokens))
    parts = list(in_parts(every, n * n_values * conditionals.vocab_size))
    with track("changed sites", n * len(parts)) as advance:
        for rows in parts:
            part = replace(contexts, tokens=contexts.tokens[rows], values=contexts.values[rows])
            for j, scores in scores_by_value(conditionals, part):
                others = np.arange(n) != j
                shift = _largest_variation(_probabilities(scores, temperature))
                variation[others, j] = np.maximum(variation[others, j], shift)
                oscillation[others, j] = np.maximum(oscillation[others, j], _largest_swing(scores))
                advance()
    sites = tuple(contexts.sites.tolist())
    return InfluenceMatrix(variation, oscillation, sites, temperature, contexts.kind)


def contraction_temperature(oscillation: Floats) -> float:
    """The temperature at which max_j sum_{i != j} tanh(delta_ij / (4 temperature)) is 1.

    oscillation (n, n) holds delta_ij, the influence of j on i in column j. Above the root alpha
    is below 1, because c_ij <= tanh(delta_ij / (4 temperature)). Every term is at most 1, so
    columns with fewer than two entries above zero never exceed 1: then the answer is zero, as
    always at n = 2. It is infinite where a column has an infinite entry and another one.
    """
    if np.isnan(oscillation).any() or oscillation.min() < 0:
        raise GlauberError("an oscillation is negative or no number, so there is no threshold.")
    delta = np.where(np.eye(len(oscillation), dtype=bool), 0.0, oscillation)
    several = (delta > 0).sum(axis=0) > 1
    if (np.isinf(delta).any(axis=0) & several).any():
        return math.inf
    delta = delta[:, several]
    if delta.size == 0:
        return 0.0

    def excess(temperature: float) -> float:
        return float(np.tanh(delta / (4 * temperature)).sum(axis=0).max()) - 1

    high = float(delta.sum(axis=0).max()) / 4  # tanh(x) < x, so the sum is below 1 here
    low = high
    while excess(low) <= 0:
        low /= 2
    return float(brentq(excess, low, high, xtol=1e-12 * high)) if low < high else high


@dataclass(frozen=True, eq=False)
class AveragedInfluence:
    """The influence that a chain meets on average, where the theorem asks for the worst.

    The average is over states x of n_chains independent chains and over one change at j, drawn
    from pi_j(. | x_-j) among the tokens other than x_j: what a disagreement of two chains would
    look like. Estimates.
    """

    by_chain: Floats  # (n_chains, n, n): of the change at site j on site i, in column j
    temperature: float

    @property
    def matrix(self) -> Floats:
        """The mean over the chains (n, n)."""
        return np.asarray(self.by_chain.mean(axis=0))

    @property
    def mean(self) -> float:
        """The mean over sites j of the influence that j exerts: 1 is where disagreement grows."""
        return float(self.per_chain.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean, from the spread between chains (nan for a single one)."""
        return float("nan") if len(self.by_chain) < 2 else standard_error(self.per_chain)

    @property
    def per_chain(self) -> Floats:
        """The same mean for each chain (n_chains,)."""
        return np.asarray(self.by_chain.sum(axis=1).mean(axis=1))


def averaged_influence(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    *,
    temperature: float,
    n_chains: int = 8,
    n_sweeps: int = 5,
    seed: int = 0,
) -> AveragedInfluence:
    """The influence met by chains n_sweeps * n steps after the text; tokens and free (length,)."""
    check_temperature(temperature)
    check_count("chains", n_chains)
    sites = free_sites(free)
    states = chain_states(
        conditionals, tokens, free, n_chains=n_chains, n_steps=n_sweeps * len(sites),
        temperature=temperature, seed=seed,
    )  # fmt: skip
    values = replacements(
        conditionals, states, sites, n_values=1, temperature=temperature,
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    variation = np.zeros((n_chains, len(sites), len(sites)))
    contexts = Contexts(states, sites, values, "lower bound")
    with track(f"changed sites at temperature {temperature:g}", len(sites)) as advance:
        for j, scores in scores_by_value(conditionals, contexts):
            before, after = _probabilities(scores, temperature)
            others = np.arange(len(sites)) != j
            variation[:, others, j] = ((after - before).abs().sum(-1) / 2).cpu().numpy()
            advance()
    return AveragedInfluence(variation, temperature)


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


def check_epsilon(epsilon: float) -> None:
    """Refuses a distance that no two laws have, or that all have."""
    if not 0 < epsilon < 1:
        raise GlauberError(f"epsilon is {epsilon}, but it must lie between 0 and 1.")


def _probabilities(scores: Tensor, temperature: float) -> Tensor:
    """Softmax over the last axis; the largest score first, so that no quotient overflows."""
    return torch.softmax((scores - scores.amax(dim=-1, keepdim=True)) / temperature, dim=-1)


def _largest_variation(probabilities: Tensor) -> Floats:
    """The largest total variation (n - 1,) within a row of (values, rows, n - 1, vocab)."""
    best = probabilities.new_zeros(probabilities.shape[2])
    for a, first in enumerate(probabilities):
        distances = (probabilities[a + 1 :] - first).abs().sum(-1) / 2
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
