"""How likely is each state after a step that redraws a block: jointly, in turn, or at once?

gibbs        the block is drawn from its joint conditional: k-Gibbs
one by one   its sites are redrawn in a random order, each given all the others as they stand
at once      its sites are redrawn together, each given the others' old values

The first two keep the law p. The last keeps it for k = 1 only; with k = N it is the independent
parallel sampler. Chromatic and disjoint blocks are the first with other masks (see masks.py).
"""

from functools import reduce
from itertools import combinations
from math import comb
from operator import add

import numpy as np
from scipy.sparse import csr_array

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.exact.laws import Floats, redraw_laws
from glauber.exact.samplers.masks import Block, Masks, check_block
from glauber.exact.space import Space
from glauber.exact.transition import block_matrix, site_matrix

ENTRIES = 2**26  # numbers of a sparse matrix: 0.75 GiB with their places


def gibbs_matrix(law: Floats, space: Space, masks: Masks) -> csr_array:
    """The matrix (size, size) of redrawing a random block from its joint conditional under law."""
    _check_law(law, space, masks)
    _check_entries(space, masks)
    parts = (
        block_matrix(space, block, joint_fill(law, space, block)) * weight
        for block, weight in zip(masks.blocks, masks.weights, strict=True)
        if weight > 0
    )
    return reduce(add, parts)


def joint_fill(law: Floats, space: Space, block: Block) -> Floats:
    """p(x_K | x outside K) at each state (size,)."""
    cube = law.reshape((space.vocab_size,) * space.length)
    return np.asarray((cube / cube.sum(axis=block, keepdims=True)).reshape(-1))


def one_by_one_matrix(conditionals: Conditionals, space: Space, k: int) -> csr_array:
    """The matrix (size, size) of redrawing k random sites in turn, each given all the others.

    The first of a block's sites is uniform, and the rest is a block of k - 1.
    """
    check_block(k, space.length)
    _check_entries(space, Masks.uniform(space.length, k))
    single: dict[Block, csr_array] = {
        (i,): site_matrix(conditionals, space, i) for i in range(space.length)
    }
    chains = single
    for size in range(2, k + 1):
        shorter, chains = chains, {}
        for block in combinations(range(space.length), size):
            rests = (block[:slot] + block[slot + 1 :] for slot in range(size))
            turns = [single[(i,)] @ shorter[rest] for i, rest in zip(block, rests, strict=True)]
            chains[block] = reduce(add, turns) / size
    return reduce(add, chains.values()) / len(chains)


def at_once_matrix(conditionals: Conditionals, space: Space, k: int) -> csr_array:
    """The matrix (size, size) of redrawing k random sites together, each given the old others."""
    check_block(k, space.length)
    masks = Masks.uniform(space.length, k)
    _check_entries(space, masks)
    laws = [redraw_laws(conditionals, space, (i,))[:, 0] for i in range(space.length)]
    parts = (_at_once(space, block, [laws[i] for i in block]) for block in masks.blocks)
    return reduce(add, parts) / len(masks.blocks)


def _at_once(space: Space, block: Block, laws: list[Floats]) -> csr_array:
    """The matrix of one block, from the law (size, vocab) of each of its sites."""
    pattern = block_matrix(space, block, np.ones(space.size))
    fills = np.ones((space.size, 1))
    for law in laws:  # the first site is the slowest, as in block_matrix
        fills = (fills[:, :, None] * law[:, None, :]).reshape(space.size, -1)
    return csr_array((fills.ravel(), pattern.indices, pattern.indptr), shape=pattern.shape)


def _check_law(law: Floats, space: Space, masks: Masks) -> None:
    if law.shape != (space.size,) or masks.n_sites != space.length:
        raise GlauberError(
            f"the law has {len(law):,} states and the masks {masks.n_sites} sites, but the space "
            f"has {space.size:,} states and {space.length} sites."
        )


def _check_entries(space: Space, masks: Masks) -> None:
    """Refuses a matrix that would not fit, and says what would."""
    needed = entries(space.vocab_size, space.length, masks)
    if needed > ENTRIES:
        fitting = next(
            n for n in range(space.length, 0, -1) if space.vocab_size ** (2 * n) <= ENTRIES
        )
        raise GlauberError(
            f"{space.size:,} states with these blocks make a matrix of up to {needed:,} numbers; "
            f"{ENTRIES:,} fit, which is any block at {fitting} sites (block_gap needs no matrix)."
        )


def entries(vocab_size: int, n_sites: int, masks: Masks) -> int:
    """The most numbers that the matrix can hold: states that differ in as many sites as a block."""
    widest = max(len(block) for block in masks.blocks)
    near = sum(comb(n_sites, j) * (vocab_size - 1) ** j for j in range(widest + 1))
    reached = sum(vocab_size ** len(block) for block in masks.blocks)
    return int(vocab_size**n_sites * min(reached, near))
