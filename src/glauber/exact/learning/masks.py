"""Which sites are hidden together? Laws over masks, fixed or depending on the state.

K is the set of hidden sites. A fixed law draws K without looking at x; an adaptive one draws it
from p_K(. | x), and then K itself tells something about x.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from glauber.errors import GlauberError
from glauber.exact.blocks import check_sites, conditional
from glauber.exact.laws import Floats
from glauber.exact.learning.family import check_memory
from glauber.exact.space import Space

Block = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Masks:
    """Blocks and their chances: (masks,) if fixed, (masks, size) if they depend on the state."""

    space: Space
    hidden: tuple[Block, ...]
    chances: Floats

    def __post_init__(self) -> None:
        for block in self.hidden:
            check_sites(self.space, block)
        if self.chances.shape not in ((len(self.hidden),), (len(self.hidden), self.space.size)):
            raise GlauberError(
                f"the chances have shape {self.chances.shape}, but there are {len(self.hidden)} "
                f"masks and {self.space.size} states."
            )
        if not self.chances.min() >= 0 or np.abs(self.chances.sum(axis=0) - 1).max() > 1e-9:
            raise GlauberError("the chances of the masks must not be negative and must sum to 1.")
        self._check_cover()

    @property
    def adaptive(self) -> bool:
        """Whether the chances depend on the state."""
        return self.chances.ndim == 2

    @property
    def per_state(self) -> Floats:
        """p_K(K | x) as (masks, size)."""
        if self.adaptive:
            return self.chances
        return np.broadcast_to(self.chances[:, None], (len(self.hidden), self.space.size))

    def _check_cover(self) -> None:
        often = self.chances.reshape(len(self.hidden), -1).sum(axis=1)
        reached = {s for block, chance in zip(self.hidden, often, strict=True) if chance > 0
                   for s in block}  # fmt: skip
        missed = sorted(set(range(self.space.length)) - reached)
        if missed:
            raise GlauberError(
                f"the masks never hide site {missed[0]}, so nothing is learnt about its law "
                "and the chain never changes it."
            )


def uniform_masks(space: Space, k: int) -> Masks:
    """All blocks of k sites, alike."""
    check_count(k, space.length)
    blocks = tuple(combinations(range(space.length), k))
    check_memory(space, len(blocks), "masks")
    return Masks(space, blocks, np.full(len(blocks), 1 / len(blocks)))


def weighted_masks(space: Space, weights: Mapping[Block, float]) -> Masks:
    """Any blocks, with chances proportional to their weights."""
    given = np.array(list(weights.values()), np.float64)
    if len(given) == 0 or not given.min() >= 0 or not 0 < given.sum() < np.inf:
        raise GlauberError("the weights of the masks must be positive numbers.")
    return Masks(space, tuple(tuple(block) for block in weights), given / given.sum())


def adaptive_masks(space: Space, hidden: Sequence[Block], chances: ArrayLike) -> Masks:
    """Blocks with chances p_K(K | x) (masks, size) at each state."""
    return Masks(space, tuple(tuple(b) for b in hidden), np.asarray(chances, np.float64))


def doubting_masks(space: Space, law: Floats, k: int, *, sharpness: float = 1.0) -> Masks:
    """Blocks of k sites, chosen where the present tokens are doubted.

    p_K(K | x) is proportional to (1 - p(x_K | x_{-K})) ** sharpness.
    """
    check_count(k, space.length)
    blocks = tuple(combinations(range(space.length), k))
    doubts = np.stack([1 - conditional(law, space, b) for b in blocks])
    weights = np.maximum(doubts, 0.0) ** sharpness
    if not weights.sum(axis=0).min() > 0:
        raise GlauberError("in some state no block is doubted, so there is none to choose.")
    return Masks(space, blocks, weights / weights.sum(axis=0))


def check_count(k: int, n_sites: int) -> None:
    """Refuses k outside 1 … N."""
    if not 1 <= k <= n_sites:
        raise GlauberError(f"k is {k}, but it must be between 1 and the {n_sites} sites.")
