"""How does a chain move that redraws a block: jointly, one site after another, or at once?

gibbs        the block is drawn from its joint conditional: k-Gibbs, or block dynamics
one by one   its sites are redrawn in a random order, each given all the others as they stand
at once      its sites are redrawn together, each given the others' old values

The first two keep p stationary. The last does so for k = 1 only; with k = N it is the independent
parallel sampler. With masks the first is P(x, x') = sum over K of p_K(K|x) p(x'_K | x_{-K}, K),
reversible with respect to p. It forgets X given (X_{-K}, K) and draws it again, so in L2(p) it is
A A* with A* f = E[f | X_{-K}, K], and none of its eigenvalues is negative. Functions of K alone
are not part of it. On the scale of sqrt(p) it is symmetric,
    M g = sum_K sqrt(p) c_K S_K(sqrt(p) c_K g) / S_K(p c_K),    c_K = p_K(K|x),
with S_K the sum over the tokens in the block, and the eigenvalue 1 for sqrt(p).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, groupby
from math import comb
from operator import add

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.exact.blocks.masks import Block, Masks, check_block, log_given_mask
from glauber.exact.conditionals import redraw_probabilities
from glauber.exact.space import Floats, Space, check_positive, conditional, over_block
from glauber.exact.transition import block_matrix, site_matrix

ENTRIES = 2**26  # numbers of a sparse matrix: 0.75 GiB with their places
NUMBERS = 2**27  # kept for all blocks of an operator together: 1 GiB
SMALLEST = 1e-280  # of a probability, so that its inverse is a float


def gibbs_matrix(distribution: Floats, masks: Masks) -> csr_array:
    """The matrix (size, size) of redrawing a block from its joint conditional; fixed masks."""
    _check_fixed(masks)
    check_size(distribution, masks)
    _check_entries(masks)
    parts = (
        block_matrix(masks.space, block, conditional(distribution, masks.space, block)) * chance
        for block, chance in zip(masks.blocks, masks.chances, strict=True)
        if chance > 0
    )
    return reduce(add, parts)


def one_by_one_matrix(conditionals: Conditionals, space: Space, k: int) -> csr_array:
    """The matrix (size, size) of redrawing k random sites in turn, each given all the others.

    The first of a block's sites is uniform, and the rest is a block of k - 1.
    """
    _check_entries(Masks.uniform(space, k))
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
    masks = Masks.uniform(space, k)
    _check_entries(masks)
    single = [redraw_probabilities(conditionals, space, (i,))[:, 0] for i in range(space.length)]
    parts = (_at_once(space, block, [single[i] for i in block]) for block in masks.blocks)
    return reduce(add, parts) / len(masks.blocks)


def mask_conditionals(distribution: Floats, masks: Masks) -> Floats:
    """p(x_K | x_{-K}, K) (blocks, size) at each state."""
    check_positive(distribution, masks.space)
    logs = np.log(distribution)
    return np.exp([log_given_mask(logs, masks, slot) for slot in range(len(masks.blocks))])


def possible_conditionals(distribution: Floats, masks: Masks) -> Floats:
    """The conditionals of all pairs (mask, state) that occur."""
    return mask_conditionals(distribution, masks)[masks.per_state > 0]


def block_chain(distribution: Floats, masks: Masks) -> LinearOperator:
    """P (size, size): P @ f is the mean of f after a step, P.T @ r the distribution after it."""
    scaled, root = block_operator(distribution, masks), np.sqrt(distribution)

    def mean_after(values: Floats) -> Floats:  # (size,) or (size, columns)
        return np.asarray(((scaled @ (values.T * root).T).T / root).T)

    def distribution_after(start: Floats) -> Floats:
        return np.asarray(((scaled @ (start.T / root).T).T * root).T)

    return LinearOperator(
        scaled.shape, matvec=mean_after, rmatvec=distribution_after, matmat=mean_after,
        rmatmat=distribution_after, dtype=np.float64,
    )  # fmt: skip


def block_operator(distribution: Floats, masks: Masks) -> LinearOperator:
    """M (size, size), symmetric: the chain on the scale of sqrt(p)."""
    check_size(distribution, masks)
    if not distribution.min() > SMALLEST:
        raise GlauberError("a state has no probability that floats hold, so the gap is not found.")
    apply = _adaptive(distribution, masks) if masks.adaptive else _fixed(distribution, masks)
    return LinearOperator(
        (masks.space.size,) * 2, matvec=apply, rmatvec=apply, matmat=apply, rmatmat=apply,
        dtype=np.float64,
    )  # fmt: skip


def dirichlet_form(distribution: Floats, masks: Masks, f: Floats, g: Floats | None = None) -> float:
    """E(f, g) = E_K E over (x_{-K}, K) of Cov(f, g | x_{-K}, K), for functions f and g (size,).

    It equals the mean of f (g - P g) under p. E(f, f) if only f is given.
    """
    other = f if g is None else g
    inside = mask_conditionals(distribution, masks)

    def apart(values: Floats) -> Floats:
        """f less its mean given (x_{-K}, K): (blocks, size)."""
        rows = zip(inside, masks.blocks, strict=True)
        return np.stack([values - over_block(q * values, masks.space, b) for q, b in rows])

    return float((masks.per_state * distribution * apart(f) * apart(other)).sum())


def variance(distribution: Floats, f: Floats) -> float:
    """Var(f) under a distribution (size,)."""
    return float(distribution @ (f - distribution @ f) ** 2)


def entropy(distribution: Floats, f: Floats) -> float:
    """Ent(f) = E[f log f] - E[f] log E[f] under a distribution (size,), for positive f."""
    mean = float(distribution @ f)
    return float(distribution @ (f * np.log(f / mean)))


def _at_once(space: Space, block: Block, single: list[Floats]) -> csr_array:
    """The matrix of one block, from the probabilities (size, vocab) of each of its sites."""
    pattern = block_matrix(space, block, np.ones(space.size))
    fills = np.ones((space.size, 1))
    for one in single:  # the first site is the slowest, as in block_matrix
        fills = (fills[:, :, None] * one[:, None, :]).reshape(space.size, -1)
    return csr_array((fills.ravel(), pattern.indices, pattern.indptr), shape=pattern.shape)


def _adaptive(distribution: Floats, masks: Masks) -> Callable[[Floats], Floats]:
    """M for chances that depend on the state: block by block."""
    scales = np.sqrt(distribution) * masks.chances  # (blocks, size)
    mass = np.stack(
        [
            over_block(distribution * chance, masks.space, block)
            for chance, block in zip(masks.chances, masks.blocks, strict=True)
        ]
    )
    inverse = np.divide(1.0, mass, where=mass > 0, out=np.zeros_like(mass))

    def apply(values: Floats) -> Floats:  # (size,) or (size, columns)
        total = np.zeros(values.T.shape)
        for scale, part, block in zip(scales, inverse, masks.blocks, strict=True):
            total += scale * part * over_block(scale * values.T, masks.space, block)
        return total.T

    return apply


@dataclass(frozen=True, eq=False)
class _Node:
    """The blocks that begin alike; leaf is w_K / p_K where one of them ends here."""

    leaf: Floats | None
    below: tuple[tuple[int, "_Node"], ...]  # states left of the site that is summed next


def _fixed(distribution: Floats, masks: Masks) -> Callable[[Floats], Floats]:
    """M for fixed chances w_K: sqrt(p) sum_K w_K S_K(sqrt(p) g) / S_K(p).

    Blocks that begin alike share their sums, which is where the time is saved: a block of k sites
    ends in vocab**(N - k) numbers.
    """
    space, tokens = masks.space, masks.space.vocab_size
    kept = sum(tokens ** (space.length - len(block)) for block in masks.blocks)
    if kept > NUMBERS:
        raise GlauberError(
            f"{space.size:,} states with {len(masks.blocks):,} blocks keep {kept:,} numbers; "
            f"{NUMBERS:,} fit, so take fewer sites or fewer blocks."
        )
    weighted = sorted(zip(masks.blocks, masks.chances.tolist(), strict=True))
    tree = _grow([(block, w) for block, w in weighted if w > 0], distribution, tokens)
    root = np.sqrt(distribution)

    def apply(values: Floats) -> Floats:  # (size,) or (size, columns)
        rows = np.ascontiguousarray((root * values.T).reshape(-1, len(root)))
        return np.asarray(root * _average(tree, rows, tokens)).reshape(values.T.shape).T

    return apply


def _grow(entries: list[tuple[Block, float]], mass: Floats, tokens: int) -> _Node:
    """The tree of the blocks; mass is p with the sites on the way here summed out.

    entries hold what is left of each block, sites counted among those not yet summed.
    """
    ends = sum(weight for block, weight in entries if not block)
    below = []
    further = [(block, weight) for block, weight in entries if block]
    for site, group in groupby(further, key=lambda entry: entry[0][0]):
        left = tokens**site
        rest = [(tuple(s - 1 for s in block[1:]), weight) for block, weight in group]
        below.append((left, _grow(rest, _summed(mass[None], left, tokens)[0], tokens)))
    return _Node(ends / mass if ends else None, tuple(below))


def _average(node: _Node, values: Floats, tokens: int) -> Floats:
    """The sum over the node's blocks of w_K S_K(values) / p_K (rows, …), over values' states."""
    total = np.zeros_like(values) if node.leaf is None else values * node.leaf
    for left, child in node.below:
        inner = _average(child, _summed(values, left, tokens), tokens)
        rows = len(values)
        total.reshape(rows, left, tokens, -1)[...] += inner.reshape(rows, left, 1, -1)
    return total


def _summed(values: Floats, left: int, tokens: int) -> Floats:
    """values (rows, …) with one site summed out."""
    cube = values.reshape(len(values), left, tokens, -1)
    parts = (cube[:, :, token] for token in range(tokens))
    return np.asarray(reduce(np.add, parts).reshape(len(values), -1))


def check_size(distribution: Floats, masks: Masks) -> None:
    """Refuses a distribution that is not over the states of the masks."""
    if distribution.shape != (masks.space.size,):
        raise GlauberError(
            f"the distribution has shape {distribution.shape}, but there are "
            f"{masks.space.size:,} states."
        )


def _check_fixed(masks: Masks) -> None:
    if masks.adaptive:
        raise GlauberError("these masks see the state: block_chain takes them, as an operator.")


def _check_entries(masks: Masks) -> None:
    """Refuses a matrix that would not fit, and says what would."""
    space, needed = masks.space, entries(masks)
    if needed > ENTRIES:
        fitting = next(
            n for n in range(space.length, 0, -1) if space.vocab_size ** (2 * n) <= ENTRIES
        )
        raise GlauberError(
            f"{space.size:,} states with these blocks make a matrix of up to {needed:,} numbers; "
            f"{ENTRIES:,} fit, which is any block at {fitting} sites (block_gap needs no matrix)."
        )


def entries(masks: Masks) -> int:
    """The most numbers that the matrix can hold: states that differ in as many sites as a block."""
    vocab, n = masks.space.vocab_size, masks.space.length
    widest = max(len(block) for block in masks.blocks)
    near = sum(comb(n, j) * (vocab - 1) ** j for j in range(widest + 1))
    reached = sum(vocab ** len(block) for block in masks.blocks)
    return int(vocab**n * min(reached, near))
