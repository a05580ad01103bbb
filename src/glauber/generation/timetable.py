"""In which block is a generation at its pass, and how many sites does the plan leave hidden?

A plan is a function of how many sites were hidden at the start and of the number of the pass, so
that a generation which is resumed knows where it stands.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from glauber.generation.counts import Count
from glauber.generation.remasking import Remask


def blocks_of(begin: Tensor, block: int | None) -> Tensor:
    """The block (chains, length) of each site that was hidden at the start, PAD elsewhere.

    Blocks have so many of these sites each, from left to right; without a size there is one.
    """
    number = begin.cumsum(dim=1) - 1
    return torch.where(begin, number // block if block else number * 0, -1)


class Now(NamedTuple):
    """Where each chain stands in its plan, (chains, 1) each."""

    block: Tensor  # int64: the block filled in this pass; -1 behind the last pass
    n: Tensor  # int64: sites of the block
    left: Tensor  # int64: those hidden after this pass
    sigma: Tensor  # float64: with which probability filled ones are hidden again


class Timetable:
    """The plan of every chain, pass by pass."""

    def __init__(self, blocks: Tensor, count: Count, remask: Remask, passes: int | None) -> None:
        """blocks (chains, length) as `blocks_of` gives them."""
        n_blocks = max(1, int(blocks.max()) + 1)
        sizes = blocks.new_zeros(len(blocks), n_blocks + 1)  # the last column counts no block
        sizes.scatter_add_(1, blocks % (n_blocks + 1), torch.ones_like(blocks))
        kinds, self._kind = sizes.unique(dim=0, return_inverse=True)
        rows = [_row(kind, count, remask, passes) for kind in kinds[:, :-1].tolist()]
        longest = max(len(row) for row in rows)
        over = (-1, 0, 0, 0.0)  # behind the last pass
        whole = torch.tensor(
            [row + [over] * (longest + 1 - len(row)) for row in rows],
            dtype=torch.float64, device=blocks.device,
        )  # fmt: skip
        self._whole = whole
        self.passes = torch.tensor([len(row) for row in rows], device=blocks.device)[self._kind]

    def now(self, step: Tensor) -> Now:
        """Where chains stand that have made so many passes (chains,)."""
        at = self._whole[self._kind, step.clamp(max=self._whole.shape[1] - 1)]
        block, n, left, sigma = (part[:, None] for part in at.unbind(dim=1))
        return Now(block.long(), n.long(), left.long(), sigma)


def _row(
    sizes: list[int], count: Count, remask: Remask, passes: int | None
) -> list[tuple[int, int, int, float]]:
    """(block, n, left, sigma) of each pass of a chain whose blocks have these sizes."""
    row = []
    for block, n in enumerate(sizes):
        if n:
            left = remask.plan(count, n, passes)
            sigmas = remask.sigmas(left)
            row += [(block, n, h, s) for h, s in zip(left[1:], sigmas, strict=True)]
    return row
