"""How likely is each state after one random-scan step, from each state?

A block of sites is hidden and filled again. Whatever the order of filling, the outcome depends
on the old state only through what stayed visible. So a block has one number per new state y,
    fill(y) = probability of drawing y's tokens in the block, given y's tokens outside it,
and P(x, y) = fill(y) where x and y agree outside the block, 0 elsewhere.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import combinations
from operator import add
from typing import Literal

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.exact.conditionals import current_probabilities, free_sites
from glauber.exact.space import Floats, Space

Block = tuple[int, ...]
Current = Callable[[Block], Floats]  # hidden sites -> (size, k): see current_probabilities


def site_matrix(
    conditionals: Conditionals,
    space: Space,
    site: int,
    *,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> csr_array:
    """The matrix (size, size) of redrawing one site from its conditional; rows sum to 1."""
    if site not in free_sites(space, free):
        raise GlauberError(f"site {site} is not one of the free sites.")
    fill = current_probabilities(conditionals, space, (site,), temperature=temperature)[:, 0]
    return block_matrix(space, (site,), fill)


def transition_matrix(
    conditionals: Conditionals,
    space: Space,
    *,
    block: int = 1,
    within: Literal["sequential", "product"] = "sequential",
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> csr_array:
    """The matrix (size, size) of redrawing a uniformly random block of free sites.

    The block's sites are hidden together. "sequential" fills them in a uniformly random order,
    each given the visible tokens and those filled before it; "product" draws them independently
    from one evaluation with all of them hidden. For block = 1 both are the chain of the paper.
    """
    sites = free_sites(space, free)
    _check_block(block, within, len(sites))

    def current(hidden: Block) -> Floats:
        return current_probabilities(conditionals, space, hidden, temperature=temperature)

    filling = sequential_fills if within == "sequential" else product_fills
    fills = filling(current, sites, block)
    return reduce(add, (block_matrix(space, *item) for item in fills.items())) / len(fills)


def sequential_fills(current: Current, sites: Sequence[int], block: int) -> dict[Block, Floats]:
    """For every block of sites, fill (size,) with the sites drawn one after the other.

    Which of k hidden sites is drawn first is uniform, and the rest is a block of k - 1:
        fill_H(y) = 1/k * sum over i in H of  pi_i(y_i | y outside H) * fill_{H without i}(y).
    """
    fills: dict[Block, Floats] = {(): np.ones(())}
    for k in range(1, block + 1):
        shorter, fills = fills, {}
        for hidden in combinations(sites, k):
            rest = [shorter[hidden[:slot] + hidden[slot + 1 :]] for slot in range(k)]
            terms = [now * after for now, after in zip(current(hidden).T, rest, strict=True)]
            fills[hidden] = sum(terms[1:], terms[0]) / k
    return fills


def product_fills(current: Current, sites: Sequence[int], block: int) -> dict[Block, Floats]:
    """For every block of sites, fill (size,) with the sites drawn independently at once."""
    return {hidden: current(hidden).prod(axis=1) for hidden in combinations(sites, block)}


def block_matrix(space: Space, block: Block, fill: Floats) -> csr_array:
    """The matrix (size, size) whose entry x, y is fill[y] where both agree outside the block."""
    strides = space.strides[list(block)]
    # offsets (vocab**k,): what each filling adds to the number of the state with token 0 in the
    # block; increasing, since the block is in increasing order.
    offsets = (Space(space.vocab_size, len(block)).states() * strides).sum(1).numpy()
    filled = (space.states()[:, list(block)] * strides).sum(1).numpy()
    columns = (np.arange(space.size) - filled)[:, None] + offsets
    starts = np.arange(space.size + 1) * len(offsets)
    return csr_array((fill[columns].ravel(), columns.ravel(), starts), shape=(space.size,) * 2)


def _check_block(block: int, within: str, n_free: int) -> None:
    if not 1 <= block <= n_free:
        raise GlauberError(f"the block has {block} sites, but {n_free} sites are free.")
    if within not in ("sequential", "product"):
        raise GlauberError(f'within is "{within}", but it must be "sequential" or "product".')
