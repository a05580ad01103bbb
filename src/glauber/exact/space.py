"""Which states are there, and what does a distribution over them say about a block of sites?

The states are all sequences of a given length, in lexicographic order. A distribution is an array
whose last axis runs over the states, site 0 slowest; axes in front of it are kept, so that many
distributions are treated at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.errors import GlauberError

Floats: TypeAlias = NDArray[np.float64]
Anything: TypeAlias = NDArray[Any]  # floats, or exact fractions


@dataclass(frozen=True)
class Space:
    """All sequences of `length` tokens out of `vocab_size`, numbered with site 0 slowest."""

    vocab_size: int
    length: int
    limit: int = 2**20  # states; more are refused

    def __post_init__(self) -> None:
        if self.vocab_size < 1 or self.length < 1:
            raise GlauberError(
                f"a space needs at least one token and one site, but it was given "
                f"{self.vocab_size} tokens and {self.length} sites."
            )
        fits = int(log(self.limit) / log(max(self.vocab_size, 2)) + 1e-9)
        if self.vocab_size > 1 and self.length > fits:
            many = self.length > 4 * fits + 60  # a power too long to be written out
            size = f"{self.vocab_size}^{self.length}" if many else f"{self.size:,}"
            raise GlauberError(
                f"{self.vocab_size:,} tokens at {self.length:,} sites make {size} states, "
                f"more than the limit of {self.limit:,}; {fits} sites would fit."
            )

    @property
    def size(self) -> int:
        """How many states there are."""
        return int(self.vocab_size**self.length)

    @property
    def strides(self) -> Tensor:
        """By how much the number of a state grows per token at each site: (length,) int64."""
        places = reversed(range(self.length))
        return torch.tensor([self.vocab_size**place for place in places])

    def states(self) -> Tensor:
        """All states (size, length) int64, in the order of their numbers."""
        return torch.arange(self.size)[:, None] // self.strides % self.vocab_size

    def index(self, tokens: Tensor) -> Tensor:
        """The numbers (rows,) int64 of the states tokens (rows, length)."""
        if tokens.dim() != 2 or tokens.shape[1] != self.length:
            raise GlauberError(
                f"the tokens have shape {tuple(tokens.shape)}, "
                f"but the states of this space have {self.length} sites."
            )
        if bool(((tokens < 0) | (tokens >= self.vocab_size)).any()):
            raise GlauberError(f"a token lies outside 0 to {self.vocab_size - 1}.")
        return (tokens * self.strides.to(tokens.device)).sum(1)


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


def marginal(distribution: Floats, space: Space, sites: Sequence[int]) -> Floats:
    """The distribution (…, vocab ** k) of the tokens at k sites, in the order of their names."""
    check_sites(space, sites)
    lead = distribution.shape[:-1]
    cube = distribution.reshape(*lead, *(space.vocab_size,) * space.length)
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


def check_positive(distribution: Floats, space: Space) -> None:
    """Refuses what is no distribution with a positive probability for every state."""
    if distribution.shape != (space.size,):
        raise GlauberError(
            f"the distribution has shape {distribution.shape}, but there are {space.size:,} states."
        )
    if not (distribution.min() > 0 and abs(distribution.sum() - 1) < 1e-9):
        raise GlauberError(
            "the distribution must give every state a positive probability, and they must sum to 1."
        )
