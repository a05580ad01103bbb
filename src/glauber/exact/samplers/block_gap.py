"""How fast does block dynamics forget, without its matrix in memory?

With f = g / sqrt(p) the average over blocks of conditional expectations becomes symmetric,
    M g = sqrt(p) sum_K w_K  S_K(sqrt(p) g) / S_K(p),     S_K: sum over the tokens in the block,
with eigenvalue 1 for sqrt(p). The gap is 1 minus the next one, its inverse is the Poincare
constant. Blocks that begin alike share their sums, which is where the time is saved: a block of
k sites ends in vocab**(N - k) numbers.
"""

from dataclasses import dataclass
from functools import reduce
from itertools import groupby

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.samplers.masks import Block, Masks
from glauber.exact.space import Space

DENSE = 512  # states; all eigenvalues of the dense matrix take a few hundredths of a second
NUMBERS = 2**27  # kept for all blocks together: 1 GiB
SMALLEST = 1e-280  # of a probability, so that its inverse is a float
ARPACK = {"ncv": 20, "maxiter": 1000, "tol": 1e-9}


@dataclass(frozen=True)
class Gap:
    """The spectral gap, known up to error (absolute): the eigenpair's residual and rounding."""

    value: float
    error: float
    n_states: int
    kind: str = "exact"  # up to error

    @property
    def poincare(self) -> float:
        """The Poincare constant 1 / gap, infinite where the gap is not above its error."""
        return 1 / self.value if self.value > self.error else float("inf")


@dataclass(frozen=True, eq=False)
class _Node:
    """The blocks that begin alike; leaf is w_K / p_K where one of them ends here."""

    leaf: Floats | None
    below: tuple[tuple[int, "_Node"], ...]  # states left of the site that is summed next


def block_gap(law: Floats, space: Space, masks: Masks) -> Gap:
    """The gap of redrawing a block, drawn from the masks, from its joint conditional under law."""
    if space.size < 2:
        raise GlauberError("a chain that stays in one state has no spectral gap.")
    operator, root = block_operator(law, space, masks), np.sqrt(law)
    value, vector = second_pair(operator, root)
    applied = operator @ vector - root * (root @ vector)
    residual = float(np.linalg.norm(applied - value * vector))
    return Gap(1 - value, max(residual, space.length * 2.0**-50), space.size)


def block_operator(law: Floats, space: Space, masks: Masks) -> LinearOperator:
    """M (size, size), symmetric."""
    _check(law, space, masks)
    tokens = space.vocab_size
    weighted = sorted(zip(masks.blocks, masks.weights.tolist(), strict=True))
    tree = _grow([(block, w) for block, w in weighted if w > 0], law, tokens)
    root = np.sqrt(law)

    def apply(values: Floats) -> Floats:
        return np.asarray(root * _average(tree, root * values.reshape(-1), tokens))

    return LinearOperator((space.size,) * 2, matvec=apply, rmatvec=apply, dtype=np.float64)


def second_pair(operator: LinearOperator, root: Floats) -> tuple[float, Floats]:
    """The largest eigenvalue but for the 1 of root, and its vector (size,)."""

    def deflated(values: Floats) -> Floats:
        flat = values.reshape(-1)
        return np.asarray(operator @ flat - 2 * root * (root @ flat))

    size = len(root)
    if size <= DENSE:
        dense = operator @ np.eye(size) - 2 * np.outer(root, root)
        values, vectors = np.linalg.eigh((dense + dense.T) / 2)
        return float(values[-1]), vectors[:, -1]
    start = np.random.default_rng(1).standard_normal(size)
    lowered = LinearOperator((size, size), matvec=deflated, dtype=np.float64)
    try:
        values, vectors = eigsh(lowered, k=1, which="LA", v0=start, **ARPACK)
    except ArpackNoConvergence:
        raise GlauberError(
            f"the gap over {size:,} states did not settle; the chain mixes too slowly for it."
        ) from None
    return float(values[0]), vectors[:, 0]


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
        below.append((left, _grow(rest, _summed(mass, left, tokens), tokens)))
    return _Node(ends / mass if ends else None, tuple(below))


def _average(node: _Node, values: Floats, tokens: int) -> Floats:
    """The sum over the node's blocks of w_K S_K(values) / p_K, spread over values' own states."""
    total = np.zeros_like(values) if node.leaf is None else values * node.leaf
    for left, child in node.below:
        inner = _average(child, _summed(values, left, tokens), tokens)
        total.reshape(left, tokens, -1)[...] += inner.reshape(left, 1, -1)
    return total


def _summed(values: Floats, left: int, tokens: int) -> Floats:
    """values with one site summed out."""
    cube = values.reshape(left, tokens, -1)
    return np.asarray(reduce(np.add, (cube[:, token] for token in range(tokens))).reshape(-1))


def _check(law: Floats, space: Space, masks: Masks) -> None:
    if law.shape != (space.size,) or masks.n_sites != space.length:
        raise GlauberError(
            f"the law has {len(law):,} states and the masks {masks.n_sites} sites, but the space "
            f"has {space.size:,} states and {space.length} sites."
        )
    if not law.min() > SMALLEST:
        raise GlauberError("a state has no probability that floats hold, so the gap is not found.")
    kept = sum(space.vocab_size ** (space.length - len(block)) for block in masks.blocks)
    if kept > NUMBERS:
        raise GlauberError(
            f"{space.size:,} states with {len(masks.blocks):,} blocks keep {kept:,} numbers; "
            f"{NUMBERS:,} fit, so take fewer sites or fewer blocks."
        )
