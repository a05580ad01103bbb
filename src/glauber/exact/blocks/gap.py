"""How fast does block dynamics forget, and which masks make it forget fastest?

The gap is 1 minus the second eigenvalue of the chain (dynamics.py), its inverse the Poincare
constant: the least C with Var(f) <= C E(f, f) for all f. It bounds how much worse than maximum
likelihood the pseudolikelihood is (paper B, Theorems 2 and 3).

Fixed masks. The gap is the least of E(f, f) over f with variance 1, and E(f, f) = sum_K w_K E
Var(f | x_{-K}) is linear in the weights: so the gap is concave in them, and any f gives an upper
bound on every gap. We collect such f (a cutting plane each), solve the linear program for the
weights, and take the slowest f of those weights as the next cut. The program's value bounds the
best gap from above, the gap of the weights at hand from below.

Adaptive masks p_K(K | x). The gap need not be concave in them, so what is found by ascent is a
lower bound on the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor

from glauber.errors import GlauberError
from glauber.exact.blocks.dynamics import block_operator
from glauber.exact.blocks.masks import Block, Masks
from glauber.exact.space import Floats, Space

DENSE = 512  # states; all eigenvalues of the dense matrix take a few hundredths of a second
ARPACK = {"ncv": 20, "maxiter": 1000, "tol": 1e-9}
CLOSED = 1e-12  # a gap below this is rounding: the chain cannot get everywhere
SEARCHED = 2**10  # states of a search over fixed masks; every round finds all eigenvectors
SEARCHED_ADAPTIVE = 2**7  # states of a search over adaptive masks
SLOW = 6  # eigenvectors taken as cuts each round
MIXED = 1e-6  # share of the equal weights, so that no site is ever left out


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


@dataclass(frozen=True, eq=False)
class BestMasks:
    """The best weights found, their gap, and what no weights over these blocks exceed."""

    masks: Masks
    gap: Gap  # of these masks: a lower bound on the best
    at_most: float  # an upper bound on the gap of any weights
    uniform: Gap  # of equal weights
    rounds: int  # of the search

    @property
    def gain(self) -> float:
        """The gap found over the gap of equal weights, a lower bound on the best ratio."""
        return self.gap.value / self.uniform.value


def best_masks(
    distribution: Floats,
    space: Space,
    blocks: Sequence[Block],
    *,
    accuracy: float = 1e-3,
    rounds: int = 60,
) -> BestMasks:
    """Weights over the blocks with the largest gap, up to the relative accuracy."""
    _check_searched(space, SEARCHED, "masks")
    equal = Masks.weighted(space, blocks)
    uniform = block_gap(distribution, equal)
    best, found, at_most = equal, uniform.value, np.inf
    tried, cuts, done = equal, np.zeros((0, len(blocks))), 0
    for done in range(1, rounds + 1):  # noqa: B007
        values, vectors = _slowest(distribution, tried)
        if values[0] > found:
            best, found = tried, float(values[0])
        cuts = np.vstack([cuts, [_variances(distribution, space, blocks, v) for v in vectors.T]])
        at_most, weights = _programme(cuts)
        if found >= at_most * (1 - accuracy):
            break
        tried = Masks.weighted(space, blocks, (1 - MIXED) * weights + MIXED * equal.chances)
    return BestMasks(best, block_gap(distribution, best), at_most, uniform, done)


@dataclass(frozen=True, eq=False)
class BestAdaptiveMasks:
    """The best adaptive masks found, their gap, and the gap that the search began from."""

    masks: Masks
    gap: Gap  # of these masks: a lower bound on the best
    start: float  # the gap of the masks that were given


def best_adaptive_masks(
    distribution: Floats, masks: Masks, *, rounds: int = 200, rate: float = 0.05
) -> BestAdaptiveMasks:
    """Ascent of the gap from fixed masks, by Adam (Kingma and Ba 2015) on logits of p_K(K | x)."""
    space = masks.space
    _check_searched(space, SEARCHED_ADAPTIVE, "adaptive masks")
    probabilities = torch.from_numpy(distribution)
    labels = [_contexts(space, block) for block in masks.blocks]
    begun = torch.from_numpy(np.log(np.maximum(masks.chances, 1e-6)))
    logits = begun.repeat(space.size, 1).requires_grad_()
    best, kept, start = -1.0, torch.softmax(logits.detach(), dim=1), 0.0
    mean, square = torch.zeros_like(logits), torch.zeros_like(logits)
    for step in range(rounds):
        chances = torch.softmax(logits, dim=1)
        second = _second(_scaled(probabilities, chances, labels), probabilities.sqrt())
        gap = 1 - float(second.detach())
        start = gap if step == 0 else start
        if gap > best:
            best, kept = gap, chances.detach()
        (slope,) = torch.autograd.grad(second, logits)
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        unbiased, scale = mean / (1 - 0.9 ** (step + 1)), square / (1 - 0.999 ** (step + 1))
        with torch.no_grad():
            logits -= rate * unbiased / (scale.sqrt() + 1e-8)
    found = Masks.seeing(space, masks.blocks, kept.numpy().T)
    return BestAdaptiveMasks(found, block_gap(distribution, found), start)


def _slowest(distribution: Floats, masks: Masks) -> tuple[Floats, Floats]:
    """The smallest rates 1 - eigenvalue (SLOW,) and their vectors (size, SLOW)."""
    root, space = np.sqrt(distribution), masks.space
    dense = block_operator(distribution, masks) @ np.eye(space.size) - 2 * np.outer(root, root)
    values, vectors = np.linalg.eigh((dense + dense.T) / 2)
    count = min(SLOW, space.size - 1)
    return 1 - values[::-1][:count], vectors[:, ::-1][:, :count]


def _variances(
    distribution: Floats, space: Space, blocks: Sequence[Block], vector: Floats
) -> list[float]:
    """E Var(f | x_{-K}) of each block for f = vector / sqrt(distribution), which has variance 1."""
    shape = (space.vocab_size,) * space.length
    mass, scaled = distribution.reshape(shape), (np.sqrt(distribution) * vector).reshape(shape)
    return [
        1 - float((scaled.sum(axis=block) ** 2 / mass.sum(axis=block)).sum()) for block in blocks
    ]


def _programme(cuts: Floats) -> tuple[float, Floats]:
    """The largest t with t <= cuts @ w over chances w (blocks,), and that w."""
    n_cuts, n_blocks = cuts.shape
    answer = linprog(
        np.append(np.zeros(n_blocks), -1.0),
        A_ub=np.column_stack([-cuts, np.ones(n_cuts)]),
        b_ub=np.zeros(n_cuts),
        A_eq=np.append(np.ones(n_blocks), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * n_blocks + [(None, None)],
        method="highs",
    )
    if not answer.success:
        raise GlauberError("the linear programme for the masks was not solved.")
    weights = np.maximum(answer.x[:-1], 0)
    return float(answer.x[-1]), weights / weights.sum()


def _scaled(distribution: Tensor, chances: Tensor, labels: list[Tensor]) -> Tensor:
    """sum over K and contexts c of u u' (size, size), u(x) = q(x, K) / sqrt(p(x) q(c, K)).

    q(x, K) = p(x) p_K(K | x) with chances (size, blocks); the chain on the scale of sqrt(p).
    """
    total = torch.zeros(len(distribution), len(distribution), dtype=torch.float64)
    for slot, label in enumerate(labels):
        joint = distribution * chances[:, slot]
        context = torch.zeros_like(distribution).index_add(0, label, joint)[label]  # q(c, K)
        u = joint / (distribution * context).sqrt()
        total = total + torch.outer(u, u) * (label[:, None] == label)
    return total


def _second(scaled: Tensor, root: Tensor) -> Tensor:
    """The second eigenvalue, with the gradient v' dS v of a simple one."""
    with torch.no_grad():
        _, vectors = torch.linalg.eigh(scaled - 2 * torch.outer(root, root))
        vector = vectors[:, -1]
    return vector @ scaled @ vector


def _contexts(space: Space, block: Block) -> Tensor:
    """A number (size,) for what stands outside the block."""
    inside = (space.states()[:, list(block)] * space.strides[list(block)]).sum(1)
    return torch.arange(space.size) - inside


def _second_pair(operator: LinearOperator, root: Floats) -> tuple[float, Floats]:
    """The largest eigenvalue but for the 1 of root, and its vector (size,)."""

    def deflated(values: Floats) -> Floats:
        return np.asarray(operator @ values - 2 * root * (root @ values))

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


def _check_searched(space: Space, most: int, what: str) -> None:
    if space.size > most:
        raise GlauberError(
            f"the search over {what} takes at most {most:,} states, but there are "
            f"{space.size:,}: take fewer sites."
        )
