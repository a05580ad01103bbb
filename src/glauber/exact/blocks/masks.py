"""Masks: which sites are hidden together, and what knowing that tells about them.

K is the set of hidden sites, a block. Fixed masks draw K without looking at x; adaptive ones draw
it from p_K(. | x), and then K itself tells something about x: p(x_K | x_{-K}, K) differs from
p(x_K | x_{-K}) (paper B, Lemma 3), and only its mean over mask events K' is the same (Lemma 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from glauber.exact.models import check_block_size
from glauber.exact.space import (
    Floats,
    Numbers,
    Space,
    conditional,
    log_conditional,
    over_block,
)
from glauber.foundation.errors import GlauberError

__all__ = ["Masks", "given_mask", "mean_over_events"]

Block = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Masks:
    """Blocks of sites, and their chances: (blocks,) if fixed, (blocks, size) if adaptive."""

    space: Space
    blocks: tuple[Block, ...]
    chances: Floats

    def __post_init__(self) -> None:
        n_masks, n_sites = len(self.blocks), self.space.length
        for block in self.blocks:
            inside = block and block[0] >= 0 and block[-1] < n_sites
            if not inside or any(a >= b for a, b in pairwise(block)):
                raise GlauberError(
                    f"the mask {block} is not a list of different sites from 0 to {n_sites - 1} in "
                    "increasing order."
                )
        if n_masks == 0 or self.chances.shape not in ((n_masks,), (n_masks, self.space.size)):
            raise GlauberError(
                f"the chances have shape {self.chances.shape}, but there are {n_masks} masks and "
                f"{self.space.size:,} states."
            )
        if not self.chances.min() >= 0 or np.abs(self.chances.sum(axis=0) - 1).max() > 1e-9:
            raise GlauberError("the chances of the masks must not be negative and must sum to 1.")
        often = self.chances.reshape(n_masks, -1).sum(axis=1)
        pairs = zip(self.blocks, often, strict=True)
        covered = {site for block, chance in pairs if chance > 0 for site in block}
        missed = [str(site) for site in range(n_sites) if site not in covered]
        if missed:
            raise GlauberError(
                f"no mask hides the sites {', '.join(missed)}, so nothing is learnt about them and "
                "the chain never moves them."
            )

    @property
    def is_adaptive(self) -> bool:
        """Whether the chances depend on the state."""
        return self.chances.ndim == 2

    @property
    def by_state(self) -> Floats:
        """p_K(K | x) as (blocks, size)."""
        if self.is_adaptive:
            return self.chances
        return np.broadcast_to(self.chances[:, None], (len(self.blocks), self.space.size))

    @classmethod
    def uniform(cls, space: Space, k: int) -> Self:
        """Every block of k sites, each as likely."""
        check_block_size(k, space.length)
        return cls.from_weights(space, tuple(combinations(range(space.length), k)))

    @classmethod
    def disjoint(cls, space: Space, k: int) -> Self:
        """The sites cut into runs of k (the last may be shorter), each as likely."""
        check_block_size(k, space.length)
        n = space.length
        runs = (tuple(range(first, min(first + k, n))) for first in range(0, n, k))
        return cls.from_weights(space, tuple(runs))

    @classmethod
    def chromatic(cls, space: Space, couplings: ArrayLike) -> Self:
        """Sites of one colour of a greedy colouring of couplings (N, N), each colour as likely.

        Sites of one colour are not coupled, so that their joint conditional is a product: filling
        them at once is exact.
        """
        linked = np.asarray(couplings) != 0
        colours: list[list[int]] = []
        for site in np.argsort(-linked.sum(axis=0), kind="stable").tolist():
            fits = (group for group in colours if not linked[site, group].any())
            group = next(fits, None)
            if group is None:
                colours.append([site])
            else:
                group.append(site)
        return cls.from_weights(space, sorted(tuple(sorted(group)) for group in colours))

    @classmethod
    def from_weights(
        cls, space: Space, blocks: Sequence[Block], weights: ArrayLike | None = None
    ) -> Self:
        """The given blocks with chances proportional to the weights; all as likely without."""
        chances = np.ones(len(blocks)) if weights is None else np.asarray(weights, np.float64)
        if len(chances) == 0 or not chances.min() >= 0 or not 0 < chances.sum() < np.inf:
            raise GlauberError("the weights of the masks must be positive numbers.")
        return cls(space, tuple(tuple(block) for block in blocks), chances / chances.sum())

    @classmethod
    def adaptive(cls, space: Space, blocks: Sequence[Block], chances: ArrayLike) -> Self:
        """Adaptive masks: blocks with chances p_K(K | x) (blocks, size) at each state."""
        return cls(space, tuple(tuple(b) for b in blocks), np.asarray(chances, np.float64))

    @classmethod
    def least_confident(
        cls, space: Space, distribution: Floats, k: int, *, sharpness: float = 1.0
    ) -> Self:
        """Adaptive masks of k sites, chosen where the present tokens are least likely.

        p_K(K | x) is proportional to (1 - p(x_K | x_{-K})) ** sharpness.
        """
        check_block_size(k, space.length)
        blocks = tuple(combinations(range(space.length), k))
        uncertainties = np.stack([1 - conditional(distribution, space, b) for b in blocks])
        weights = np.maximum(uncertainties, 0.0) ** sharpness
        if not weights.sum(axis=0).min() > 0:
            raise GlauberError("in some state every block is certain, so there is none to choose.")
        return cls(space, blocks, weights / weights.sum(axis=0))


def given_mask(distribution: Numbers, chance: Numbers, space: Space, hidden: Block) -> Numbers:
    """p(x_K | x_{-K}, K) (size,) from p (size,) and the chances p_K(K | x) (size,) of K.

    On floats or, with object arrays of `fractions.Fraction`, without rounding.
    """
    return conditional(distribution * chance, space, hidden)


def log_given_mask(log_weights: Floats, masks: Masks, slot: int) -> Floats:
    """log p(x_K | x_{-K}, K) (…, size) of log weights (…, size), for the mask of that number."""
    if masks.is_adaptive:
        with np.errstate(divide="ignore"):  # a chance of zero is a weight of zero
            log_weights = log_weights + np.log(masks.chances[slot])
    return log_conditional(log_weights, masks.space, masks.blocks[slot])


def mean_over_events(
    distribution: Numbers, chances: Numbers, space: Space, hidden: Block
) -> Numbers:
    """E over K' ~ p(. | x_{-K}) of p(x_K | x_{-K}, K') (size,): by Lemma 4 this is p(x_K | x_{-K}).

    chances (masks, size) are p_K(K' | x) of every mask; the hidden sites stay K throughout.
    """
    inside = conditional(distribution, space, hidden)
    total = 0 * inside
    for chance in chances:
        event = over_block(inside * chance, space, hidden)  # p(K' | x_{-K})
        possible = event != 0
        posterior = inside * chance / np.where(possible, event, 1)
        total = total + np.where(possible, event * posterior, 0)
    return total


def lemma_3_example() -> tuple[Numbers, Numbers]:
    """Lemma 3's distribution (4,) over 00, 01, 10, 11, and chances (2, 4) to hide site 0 or 1."""
    distribution, first = np.array(
        [
            [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6), Fraction(0)],
            [Fraction(1, 2), Fraction(1, 3), Fraction(1, 4), Fraction(0)],
        ]
    )
    return distribution, np.stack([first, 1 - first])
