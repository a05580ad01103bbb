"""All sequences of a length as numbered states, and marginals and conditionals of blocks of sites.

The states are in lexicographic order, site 0 slowest. A distribution is an array whose last axis
runs over the states; axes before it are preserved, so that many distributions are treated at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.foundation.errors import GlauberError

__all__ = ["Space", "conditional", "log_conditional", "marginal"]

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = NDArray[Any]  # floats, or exact fractions


@dataclass(frozen=True)
class Space:
    """All sequences of `length` tokens out of `vocab_size`, numbered with site 0 slowest."""

    vocab_size: int
    length: int
    limit: int = 2**20  # states; more are refused

    def __post_init__(self) -> None:
        if self.vocab_size < 1 or self.length < 1:
            raise GlauberError(
                f"a space needs at least one token and one site, but it has {self.vocab_size} "
                f"tokens and {self.length} sites."
            )
        longest = int(log(self.limit) / log(max(self.vocab_size, 2)) + 1e-9)
        if self.vocab_size > 1 and self.length > longest:
            is_huge = self.length > 4 * longest + 60  # a power too long to be written out
            size = f"{self.vocab_size}^{self.length}" if is_huge else f"{self.size:,}"
            raise GlauberError(
                f"{self.vocab_size:,} tokens at {self.length:,} sites make {size} states, "
                f"more than the limit of {self.limit:,}; {longest} sites would fit."
            )

    @property
    def size(self) -> int:
        """The number of states."""
        return int(self.vocab_size**self.length)

    @property
    def strides(self) -> Tensor:
        """By how much the number of a state grows per token at each site: (length,) int64."""
        return torch.tensor([self.vocab_size**power for power in reversed(range(self.length))])

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

    def offsets(self, hidden: Sequence[int]) -> Integers:
        """What each filling (vocab**k,) of a block adds to the number of a state with zeros there.

        Increasing, since a block is in increasing order.
        """
        fillings = Space(self.vocab_size, len(hidden)).states()
        return np.asarray((fillings * self.strides[list(hidden)]).sum(1).numpy())

    def contexts(self, hidden: Sequence[int]) -> Integers:
        """The number (size,) of each state with token 0 at the hidden sites: its context."""
        filled = (self.states()[:, list(hidden)] * self.strides[list(hidden)]).sum(1)
        return np.asarray((torch.arange(self.size) - filled).numpy())


def over_block(
    values: Numbers, space: Space, hidden: Sequence[int], reduction: np.ufunc = np.add
) -> Numbers:
    """At each state (…, size) the sum of values over all fillings of the hidden sites.

    The reduction may be np.maximum instead of np.add. Exact fractions stay exact.
    """
    lead = values.shape[:-1]
    shape = (*lead, *(space.vocab_size,) * space.length)
    cube = values.reshape(shape)
    for site in hidden:
        cube = reduction.reduce(cube, axis=len(lead) + site, keepdims=True)
    return np.broadcast_to(cube, shape).reshape(values.shape)


def conditional(weights: Numbers, space: Space, hidden: Sequence[int]) -> Numbers:
    """p(x_K | the rest) (…, size) at each state x, for weights that are p up to a constant."""
    return weights / over_block(weights, space, hidden)


def log_conditional(log_weights: Floats, space: Space, hidden: Sequence[int]) -> Floats:
    """log p(x_K | the rest) (…, size), from log weights; -inf where a weight is zero."""
    peak = over_block(log_weights, space, hidden, np.maximum)
    peak = np.where(np.isneginf(peak), 0.0, peak)  # a context that has no weight at all
    shifted = log_weights - peak
    total = over_block(np.exp(shifted), space, hidden)
    return np.asarray(shifted - np.log(np.where(total > 0, total, 1.0)))


def marginal(distribution: Floats, space: Space, sites: Sequence[int]) -> Floats:
    """The distribution (…, vocab ** k) of the tokens at k sites, in the order of their names."""
    if not sites or len(set(sites)) < len(sites):
        raise GlauberError(f"the sites {tuple(sites)} are no block: name each one once.")
    if min(sites) < 0 or max(sites) >= space.length:
        raise GlauberError(f"a site of {tuple(sites)} lies outside 0 to {space.length - 1}.")
    lead = distribution.shape[:-1]
    cube = distribution.reshape(*lead, *(space.vocab_size,) * space.length)
    summed = cube.sum(axis=tuple(len(lead) + s for s in range(space.length) if s not in sites))
    order = [*range(len(lead)), *(len(lead) + sorted(sites).index(site) for site in sites)]
    return np.asarray(summed.transpose(order).reshape(*lead, -1))


def softmax(log_weights: Floats) -> Floats:
    """The distribution (…, size) of log weights (…, size)."""
    weights = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def check_positive(distribution: Floats, space: Space) -> None:
    """Refuses anything but a distribution with a positive probability for every state."""
    check_size(distribution, space)
    if not (distribution.min() > 0 and abs(distribution.sum() - 1) < 1e-9):
        raise GlauberError(
            "the distribution must give every state a positive probability, and they must sum to 1."
        )


def check_size(distribution: Floats, space: Space) -> None:
    """Refuses a distribution that is not over the states of the space."""
    if distribution.shape != (space.size,):
        raise GlauberError(
            f"the distribution has shape {distribution.shape}, but there are {space.size:,} states."
        )
