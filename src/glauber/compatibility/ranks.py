"""Do potential, pseudo-log-likelihood and the chain itself put texts in the same order?

For a joint law whose sites are independent they do. In general even a joint law and its
pseudo-log-likelihood rank texts differently; incompatibility adds to that.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr

from glauber.compatibility.potential import Potential, potential
from glauber.compatibility.pseudo_likelihood import pseudo_likelihood
from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError

DIGITS = 9  # values closer than this many decimals (in nats) count as tied: rounding is no rank


@dataclass(frozen=True)
class Ranks:
    """Spearman's rank correlations over the same states."""

    pll_law: float
    potential_law: float
    potential_pll: float
    n_states: int
    kind: str  # exact with a stationary law, an estimate with visit frequencies


def rank_correlation(left: ArrayLike, right: ArrayLike) -> float:
    """Spearman's correlation of two lists (states,) of logarithms; ties share their mean rank."""
    a, b = (np.round(np.asarray(values, np.float64), DIGITS) for values in (left, right))
    if a.shape != b.shape or a.ndim != 1:
        raise GlauberError(f"the two lists to rank have shapes {a.shape} and {b.shape}.")
    if len(a) < 2 or (a == a[0]).all() or (b == b[0]).all():
        raise GlauberError("all values of a list are equal, so there is no ranking to compare.")
    return float(spearmanr(a, b).statistic)


def ranks(
    conditionals: Conditionals,
    states: torch.Tensor,
    law: ArrayLike,
    *,
    temperature: float = 1.0,
    kind: str = "exact",
) -> Ranks:
    """How potential, pseudo-log-likelihood and law rank the states (states, length), each once.

    law (states,) is the stationary law, `stationary(transition_matrix(…))`, or how often a chain
    visited each state (then kind is "estimate"). Values of the potential compare only within a
    connected set of states, so the largest set is ranked; states of probability zero are left out.
    """
    weights = np.asarray(law, np.float64)
    states, weights = _in_order(states, weights)
    split = potential(conditionals, states, temperature=temperature)
    chosen = split.largest
    pll = pseudo_likelihood(conditionals, states[chosen], temperature=temperature).totals.numpy()
    return _ranks(split, chosen, pll, np.log(weights[chosen]), kind)


def _ranks(
    split: Potential,
    chosen: NDArray[np.int64],
    pll: NDArray[np.float64],
    log_law: NDArray[np.float64],
    kind: str,
) -> Ranks:
    values = split.values[chosen]
    return Ranks(
        pll_law=rank_correlation(pll, log_law),
        potential_law=rank_correlation(values, log_law),
        potential_pll=rank_correlation(values, pll),
        n_states=len(chosen),
        kind=kind,
    )


def _in_order(
    states: torch.Tensor, weights: NDArray[np.float64]
) -> tuple[torch.Tensor, NDArray[np.float64]]:
    """The states of positive weight, in the order that `potential` keeps them, and the weights."""
    if weights.shape != (len(states),):
        raise GlauberError(f"there are {len(states)} states, but {weights.shape} probabilities.")
    possible = np.flatnonzero(weights > 0)
    ordered, place = torch.unique(states[possible], dim=0, return_inverse=True)
    if len(ordered) < len(possible):
        raise GlauberError("a state is listed twice, so its probability is not one number.")
    sorted_weights = np.empty(len(possible))
    sorted_weights[place.numpy()] = weights[possible]
    return ordered, sorted_weights
