"""Which sites are hidden together? A law over blocks of sites, the same from every state."""

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from glauber.errors import GlauberError
from glauber.exact.laws import Floats

Block = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Masks:
    """Blocks of sites in increasing order, and the chance (blocks,) that each is drawn."""

    n_sites: int
    blocks: tuple[Block, ...]
    weights: Floats

    def __post_init__(self) -> None:
        if len(self.blocks) != len(self.weights) or not self.blocks:
            raise GlauberError(
                f"there are {len(self.blocks)} masks and {len(self.weights)} weights, "
                "but each mask needs one weight, and one mask is needed."
            )
        for block in self.blocks:
            inside = block and block[0] >= 0 and block[-1] < self.n_sites
            if not inside or any(a >= b for a, b in pairwise(block)):
                raise GlauberError(
                    f"the mask {block} is not a list of different sites from 0 to "
                    f"{self.n_sites - 1} in increasing order."
                )
        if not (self.weights >= 0).all() or abs(float(self.weights.sum()) - 1) > 1e-9:
            raise GlauberError("the weights of the masks are not chances that add up to 1.")
        self._check_covered()

    def _check_covered(self) -> None:
        drawn = zip(self.blocks, self.weights, strict=True)
        covered = {site for block, weight in drawn if weight > 0 for site in block}
        missed = sorted(set(range(self.n_sites)) - covered)
        if missed:
            named = ", ".join(str(site) for site in missed)
            raise GlauberError(f"no mask hides the sites {named}, so the chain never moves them.")

    @classmethod
    def uniform(cls, n_sites: int, k: int) -> Self:
        """Every block of k sites, each as likely."""
        check_block(k, n_sites)
        return cls.weighted(n_sites, tuple(combinations(range(n_sites), k)))

    @classmethod
    def disjoint(cls, n_sites: int, k: int) -> Self:
        """The sites cut into runs of k (the last may be shorter), each as likely."""
        check_block(k, n_sites)
        starts = range(0, n_sites, k)
        runs = (tuple(range(first, min(first + k, n_sites))) for first in starts)
        return cls.weighted(n_sites, tuple(runs))

    @classmethod
    def chromatic(cls, couplings: ArrayLike) -> Self:
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
        return cls.weighted(len(linked), tuple(sorted(tuple(sorted(g)) for g in colours)))

    @classmethod
    def weighted(
        cls, n_sites: int, blocks: tuple[Block, ...], weights: ArrayLike | None = None
    ) -> Self:
        """The given blocks with the given weights; all as likely if none are given."""
        if weights is None:
            weights = np.full(len(blocks), 1 / max(len(blocks), 1))
        return cls(n_sites, blocks, np.asarray(weights, np.float64))


def check_block(k: int, n_sites: int) -> None:
    """Refuses a block size outside 1 to N."""
    if not 1 <= k <= n_sites:
        raise GlauberError(f"the block has k = {k} sites, but k must be from 1 to {n_sites}.")
