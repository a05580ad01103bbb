"""What does a law say about a block of sites? Marginals and conditionals of any block.

A law over a space is an array whose last axis runs over the states, site 0 slowest. All functions
keep the axes in front of it, so that many laws are treated at once.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.space import Space

Anything: TypeAlias = NDArray[Any]  # floats, or exact fractions


def over_block(
    values: Anything, space: Space, hidden: Sequence[int], how: np.ufunc = np.add
) -> Anything:
    """At each state (…, size) the sum of values over all fillings of the hidden sites.

    `how` may be np.maximum instead of np.add. Exact fractions in an object array stay exact.
    """
    lead = values.shape[:-1]
    cube = values.reshape(*lead, *(space.vocab_size,) * space.length)
    whole = cube.shape
    for site in hidden:
        cube = how.reduce(cube, axis=len(lead) + site, keepdims=True)
    return np.broadcast_to(cube, whole).reshape(values.shape)


def conditional(weights: Anything, space: Space, hidden: Sequence[int]) -> Anything:
    """p(x_K | the rest) (…, size) at each state x, for weights that are p up to a constant."""
    return weights / over_block(weights, space, hidden)


def log_conditional(log_weights: Floats, space: Space, hidden: Sequence[int]) -> Floats:
    """log p(x_K | the rest) (…, size), from log weights; -inf where a weight is zero."""
    peak = over_block(log_weights, space, hidden, np.maximum)
    peak = np.where(np.isneginf(peak), 0.0, peak)  # a context that has no weight at all
    moved = log_weights - peak
    total = over_block(np.exp(moved), space, hidden)
    return np.asarray(moved - np.log(np.where(total > 0, total, 1.0)))


def marginal(law: Floats, space: Space, sites: Sequence[int]) -> Floats:
    """The law (…, vocab ** k) of the tokens at k sites, in the order in which they are named."""
    check_sites(space, sites)
    lead = law.shape[:-1]
    cube = law.reshape(*lead, *(space.vocab_size,) * space.length)
    others = tuple(len(lead) + s for s in range(space.length) if s not in sites)
    kept = sorted(sites)
    summed = cube.sum(axis=others)
    order = [*range(len(lead)), *(len(lead) + kept.index(site) for site in sites)]
    return np.asarray(summed.transpose(order).reshape(*lead, -1))


def check_sites(space: Space, sites: Sequence[int]) -> None:
    """Refuses a block that is empty, repeats a site, or leaves the space."""
    if not sites or len(set(sites)) < len(sites):
        raise GlauberError(f"the sites {tuple(sites)} are no block: name each one once.")
    if min(sites) < 0 or max(sites) >= space.length:
        raise GlauberError(f"a site of {tuple(sites)} lies outside 0 to {space.length - 1}.")


def check_law(law: Floats, space: Space) -> None:
    """Refuses what is no law with a positive probability for every state."""
    if law.shape != (space.size,):
        raise GlauberError(f"the law has shape {law.shape}, but there are {space.size:,} states.")
    if not (law.min() > 0 and abs(law.sum() - 1) < 1e-9):
        raise GlauberError(
            "the law must give every state a positive probability, and they must sum to 1."
        )
