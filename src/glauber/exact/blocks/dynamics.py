"""Chains that redraw a block of sites: jointly, one site after another, or at once; their gap.

gibbs        the block is drawn from its joint conditional: k-Gibbs, or block dynamics
sequential   its sites are redrawn in a random order, each given the others' current values
parallel     its sites are redrawn together, each given the others' old values

The first two keep p stationary. The last does so for k = 1 only; with k = N it is the independent
parallel sampler. With masks the first is P(x, x') = sum over K of p_K(K|x) p(x'_K | x_{-K}, K),
reversible with respect to p. It forgets X given (X_{-K}, K) and draws it again, so in L2(p) it is
A A* with A* f = E[f | X_{-K}, K], and none of its eigenvalues is negative. Functions of K alone
are not part of it. On the scale of sqrt(p) it is symmetric,
    M g = sum_K sqrt(p) c_K S_K(sqrt(p) c_K g) / S_K(p c_K),    c_K = p_K(K|x),
with S_K the sum over the tokens in the block, and the eigenvalue 1 for sqrt(p).

The gap is 1 minus the second eigenvalue, its inverse the Poincare constant: the least C with
Var(f) <= C E(f, f) for all f. It bounds how much worse than maximum likelihood the
pseudolikelihood is (paper B, Theorems 2 and 3).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, groupby
from math import comb, inf
from operator import add
from typing import Literal

import numpy as np
from scipy.sparse import block_diag, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from glauber.exact.blocks.masks import Block, Masks, log_given_mask
from glauber.exact.conditionals import redraw_probabilities
from glauber.exact.space import (
    Floats,
    Space,
    check_positive,
    check_size,
    conditional,
    over_block,
)
from glauber.exact.transition import block_matrix, independent_fills, site_matrix
from glauber.foundation.errors import GlauberError
from glauber.models.base import Conditionals

__all__ = [
    "Gap",
    "block_chain",
    "block_gap",
    "closed_sets",
    "dirichlet_form",
    "entropy",
    "gibbs_matrix",
    "mask_pair_matrix",
    "parallel_block_matrix",
    "sequential_block_matrix",
    "variance",
]

MATRIX_ENTRIES = 2**26  # of a sparse matrix: 0.75 GiB with their indices
OPERATOR_ENTRIES = 2**27  # of all blocks of an operator together: 1 GiB
SMALLEST = 1e-280  # of a probability, so that its inverse is a float
DENSE = 512  # states; all eigenvalues of the dense matrix take a few hundredths of a second
ARPACK = {"ncv": 20, "maxiter": 1000, "tol": 1e-9}
CLOSED = 1e-12  # a gap below this is rounding: the chain cannot get everywhere


def gibbs_matrix(distribution: Floats, masks: Masks) -> csr_array:
    """The matrix (size, size) of redrawing a block from its joint conditional; fixed masks."""
    if masks.is_adaptive:
        raise GlauberError("these masks see the state: block_chain takes them, as an operator.")
    check_size(distribution, masks.space)
    _check_entries(masks)
    return reduce(
        add,
        (
            block_matrix(masks.space, block, conditional(distribution, masks.space, block)) * chance
            for block, chance in zip(masks.blocks, masks.chances, strict=True)
            if chance > 0
        ),
    )


def sequential_block_matrix(conditionals: Conditionals, space: Space, k: int) -> csr_array:
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
            orders = (
                single[(site,)] @ shorter[block[:slot] + block[slot + 1 :]]
                for slot, site in enumerate(block)
            )
            chains[block] = reduce(add, orders) / size
    return reduce(add, chains.values()) / len(chains)


def parallel_block_matrix(conditionals: Conditionals, space: Space, k: int) -> csr_array:
    """The matrix (size, size) of redrawing k random sites together, each given the old others."""
    masks = Masks.uniform(space, k)
    _check_entries(masks)
    single = [redraw_probabilities(conditionals, space, (i,))[:, 0] for i in range(space.length)]
    matrices = []
    for block in masks.blocks:
        pattern = block_matrix(space, block, np.ones(space.size))
        fills = independent_fills([single[i] for i in block], space.size)
        matrices.append(
            csr_array((fills.ravel(), pattern.indices, pattern.indptr), shape=pattern.shape)
        )
    return reduce(add, matrices) / len(matrices)


def mask_conditionals(distribution: Floats, masks: Masks) -> Floats:
    """p(x_K | x_{-K}, K) (blocks, size) at each state."""
    check_positive(distribution, masks.space)
    logs = np.log(distribution)
    return np.exp([log_given_mask(logs, masks, slot) for slot in range(len(masks.blocks))])


def possible_conditionals(distribution: Floats, masks: Masks) -> Floats:
    """The conditionals of all pairs (mask, state) that occur."""
    return mask_conditionals(distribution, masks)[masks.by_state > 0]


def block_chain(distribution: Floats, masks: Masks) -> LinearOperator:
    """P (size, size): P @ f is the mean of f after a step, P.T @ r the distribution after it."""
    scaled, root = block_operator(distribution, masks), np.sqrt(distribution)

    def mean_after(values: Floats) -> Floats:  # (size,) or (size, columns)
        return np.asarray(((scaled @ (values.T * root).T).T / root).T)

    def distribution_after(start: Floats) -> Floats:
        return np.asarray(((scaled @ (start.T / root).T).T * root).T)

    return LinearOperator(
        scaled.shape,
        matvec=mean_after,
        rmatvec=distribution_after,
        matmat=mean_after,
        rmatmat=distribution_after,
        dtype=np.float64,
    )


def block_operator(distribution: Floats, masks: Masks) -> LinearOperator:
    """M (size, size), symmetric: the chain on the scale of sqrt(p)."""
    check_size(distribution, masks.space)
    if not distribution.min() > SMALLEST:
        raise GlauberError("a state has no probability that floats hold, so the gap is unknown.")
    apply = (
        _apply_adaptive(distribution, masks)
        if masks.is_adaptive
        else _apply_fixed(distribution, masks)
    )
    return LinearOperator(
        (masks.space.size,) * 2,
        matvec=apply,
        rmatvec=apply,
        matmat=apply,
        rmatmat=apply,
        dtype=np.float64,
    )


def dirichlet_form(distribution: Floats, masks: Masks, f: Floats, g: Floats | None = None) -> float:
    """E(f, g) = E_K E over (x_{-K}, K) of Cov(f, g | x_{-K}, K), for functions f and g.

    Functions of X are (size,), those of (X, K) are (blocks, size). It equals the mean of
    f (g - P g) under p, or under p(X) p_K(K | X) with P the pair chain (paper B, Proposition 1).
    E(f, f) if only f is given.
    """
    other = f if g is None else g
    inside = mask_conditionals(distribution, masks)

    def apart(values: Floats) -> Floats:
        """f less its mean given (x_{-K}, K): (blocks, size)."""
        each = np.broadcast_to(values, masks.by_state.shape)
        rows = zip(each, inside, masks.blocks, strict=True)
        return np.stack([v - over_block(q * v, masks.space, b) for v, q, b in rows])

    return float((masks.by_state * distribution * apart(f) * apart(other)).sum())


def mask_pair_matrix(distribution: Floats, masks: Masks) -> csr_array:
    """The chain on pairs (K, X) as paper B writes it, (C.23): (pairs, pairs), those that occur.

    P((X, K), (Y, L)) = [K = L] [X_{-K} = Y_{-K}] p(Y_K | X_{-K}, K). It keeps p(X) p_K(K | X), but
    neither K nor X_{-K} ever changes: it is not ergodic, functions of both have Dirichlet form 0,
    and no Poincare constant is finite.
    """
    _check_entries(masks)
    inside = mask_conditionals(distribution, masks)
    rows = zip(inside, masks.blocks, strict=True)
    joined = block_diag([block_matrix(masks.space, block, q) for q, block in rows], format="csr")
    occurs = np.flatnonzero(masks.by_state.ravel() > 0)
    return csr_array(joined[occurs][:, occurs])


def closed_sets(matrix: csr_array) -> int:
    """Into how many sets, none of which is ever left, a chain that keeps a distribution falls."""
    return int(connected_components(matrix != 0, connection="strong")[0])


def variance(distribution: Floats, f: Floats) -> float:
    """Var(f) under a distribution (size,)."""
    return float(distribution @ (f - distribution @ f) ** 2)


def entropy(distribution: Floats, f: Floats) -> float:
    """Ent(f) = E[f log f] - E[f] log E[f] under a distribution (size,), for positive f."""
    mean = float(distribution @ f)
    return float(distribution @ (f * np.log(f / mean)))


def _apply_adaptive(distribution: Floats, masks: Masks) -> Callable[[Floats], Floats]:
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
        for scale, weight, block in zip(scales, inverse, masks.blocks, strict=True):
            total += scale * weight * over_block(scale * values.T, masks.space, block)
        return total.T

    return apply


@dataclass(frozen=True, eq=False)
class _Node:
    """The blocks that begin alike; leaf is w_K / p_K where one of them ends here."""

    leaf: Floats | None
    below: tuple[tuple[int, "_Node"], ...]  # states left of the site that is summed next


def _apply_fixed(distribution: Floats, masks: Masks) -> Callable[[Floats], Floats]:
    """M for fixed chances w_K: sqrt(p) sum_K w_K S_K(sqrt(p) g) / S_K(p).

    Blocks that begin alike share their sums, which is where the time is saved: a block of k sites
    ends in vocab**(N - k) numbers.
    """
    space, tokens = masks.space, masks.space.vocab_size
    count = sum(tokens ** (space.length - len(block)) for block in masks.blocks)
    if count > OPERATOR_ENTRIES:
        raise GlauberError(
            f"{space.size:,} states with {len(masks.blocks):,} blocks need {count:,} numbers; "
            f"{OPERATOR_ENTRIES:,} fit, so take fewer sites or fewer blocks."
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

    entries are what is left of each block, sites counted among those not yet summed.
    """
    ends = sum(weight for block, weight in entries if not block)
    below = []
    further = [(block, weight) for block, weight in entries if block]
    for site, group in groupby(further, key=lambda entry: entry[0][0]):
        left = tokens**site
        shorter = [(tuple(s - 1 for s in block[1:]), weight) for block, weight in group]
        below.append((left, _grow(shorter, _sum_out(mass[None], left, tokens)[0], tokens)))
    return _Node(ends / mass if ends else None, tuple(below))


def _average(node: _Node, values: Floats, tokens: int) -> Floats:
    """The sum over the node's blocks of w_K S_K(values) / p_K (rows, …), over values' states."""
    total = np.zeros_like(values) if node.leaf is None else values * node.leaf
    for left, child in node.below:
        inner = _average(child, _sum_out(values, left, tokens), tokens)
        rows = len(values)
        total.reshape(rows, left, tokens, -1)[...] += inner.reshape(rows, left, 1, -1)
    return total


def _sum_out(values: Floats, left: int, tokens: int) -> Floats:
    """values (rows, …) with one site summed out."""
    cube = values.reshape(len(values), left, tokens, -1)
    total = reduce(np.add, (cube[:, :, token] for token in range(tokens)))
    return np.asarray(total.reshape(len(values), -1))


def _check_entries(masks: Masks) -> None:
    """Refuses a matrix that would not fit, and says what would."""
    space, count = masks.space, entries(masks)
    if count > MATRIX_ENTRIES:
        fitting = next(
            n for n in range(space.length, 0, -1) if space.vocab_size ** (2 * n) <= MATRIX_ENTRIES
        )
        raise GlauberError(
            f"{space.size:,} states with these blocks make a matrix of up to {count:,} numbers; "
            f"{MATRIX_ENTRIES:,} fit, which is any block at {fitting} sites (block_gap needs no "
            "matrix)."
        )


def entries(masks: Masks) -> int:
    """The largest number of entries: states that differ in as many sites as a block."""
    vocab, n = masks.space.vocab_size, masks.space.length
    widest = max(len(block) for block in masks.blocks)
    near = sum(comb(n, j) * (vocab - 1) ** j for j in range(widest + 1))
    reached = sum(vocab ** len(block) for block in masks.blocks)
    return int(vocab**n * min(reached, near))


@dataclass(frozen=True, eq=False)
class Gap:
    """The spectral gap, known up to error, and a function (size,) that attains it.

    The error is the residual of the eigenpair, a proved bound for symmetric matrices, and rounding.
    """

    value: float  # known up to error
    error: float
    function: Floats
    kind: Literal["exact"] = "exact"  # up to error

    @property
    def poincare(self) -> float:
        """The Poincare constant 1 / gap, infinite where the gap is not above its error."""
        return 1 / self.value if self.value > max(self.error, CLOSED) else inf


def block_gap(distribution: Floats, masks: Masks) -> Gap:
    """The gap of redrawing a block, drawn from fixed or adaptive masks, from its conditional."""
    if masks.space.size < 2:
        raise GlauberError("a chain that stays in one state has no spectral gap.")
    operator, root = block_operator(distribution, masks), np.sqrt(distribution)
    value, vector = _second_pair(operator, root)
    applied = operator @ vector - root * (root @ vector)
    residual = float(np.linalg.norm(applied - value * vector))
    error = max(residual, masks.space.length * 2.0**-50)
    return Gap(max(0.0, 1 - value), error, vector / root)


def _second_pair(operator: LinearOperator, root: Floats) -> tuple[float, Floats]:
    """The largest eigenvalue but for the 1 of root, and its vector (size,)."""

    def deflate(values: Floats) -> Floats:
        return np.asarray(operator @ values - 2 * root * (root @ values))

    size = len(root)
    if size <= DENSE:
        dense = operator @ np.eye(size) - 2 * np.outer(root, root)
        values, vectors = np.linalg.eigh((dense + dense.T) / 2)
        return float(values[-1]), vectors[:, -1]
    start = np.random.default_rng(1).standard_normal(size)
    lowered = LinearOperator((size, size), matvec=deflate, dtype=np.float64)
    try:
        values, vectors = eigsh(lowered, k=1, which="LA", v0=start, **ARPACK)
    except ArpackNoConvergence:
        raise GlauberError(
            f"the gap over {size:,} states did not settle; the chain mixes too slowly for it."
        ) from None
    return float(values[0]), vectors[:, 0]
