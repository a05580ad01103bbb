"""The weights of masks that mix fastest or learn best: one concave problem.

With chances w_K that do not depend on x, two criteria are concave in w:
    the gap, the least of E(f, f) = sum_K w_K E Var(f | x_{-K}) over f with variance 1;
    minus the trace of Gamma = H^-1, H = sum_K w_K E Cov(T | x_{-K}), for statistics T to learn.
Each is a sum of terms with linear upper bounds: any f bounds the gap, and any vector z a diagonal
entry, -(H^-1)_jj <= z' H z - 2 z_j, with equality at z = H^-1 e_j. We collect such cuts, solve the
linear program for the weights, and take the next cuts there (Kelley's method). The value of the
program is an upper bound for all weights, that of the current weights a lower bound on the best.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack

from glauber.exact.blocks.dynamics import block_operator
from glauber.exact.blocks.masks import Block, Masks
from glauber.exact.space import Floats, Integers, Space, check_positive, over_block
from glauber.foundation.errors import GlauberError

__all__ = ["BestMasks", "best_masks"]

LARGEST_SPACE = 2**10  # states; every round computes all eigenvectors
SLOWEST = 6  # eigenvectors taken as cuts each round
UNIFORM_SHARE = 1e-6  # of the weights, so that no site is ever left out


@dataclass(frozen=True, eq=False)
class BestMasks:
    """The best weights that were found, and a bound that no weights over these blocks exceed.

    The values are spectral gaps, where larger is better, or traces of Gamma, where smaller is.
    """

    masks: Masks
    criterion: Literal["gap", "trace"]
    value: float  # of these masks
    bound: float  # on the value of any weights
    uniform: float  # the value of equal weights
    rounds: int  # of the search

    @property
    def gain(self) -> float:
        """How many times better than equal weights, a lower bound on the best ratio."""
        ratio = self.value / self.uniform
        return ratio if self.criterion == "gap" else 1 / ratio


def best_masks(
    distribution: Floats,
    space: Space,
    blocks: Sequence[Block],
    *,
    statistics: Floats | None = None,
    accuracy: float = 1e-3,
    rounds: int = 60,
) -> BestMasks:
    """Weights over the blocks with the largest gap, up to the relative accuracy.

    With statistics (d, size), those with the smallest trace of Gamma, the covariance of their
    parameters' estimates from many samples with one random mask each.
    """
    check_positive(distribution, space)
    if space.size > LARGEST_SPACE:
        raise GlauberError(
            f"the search over masks takes at most {LARGEST_SPACE:,} states, but there are "
            f"{space.size:,}: take fewer sites."
        )
    equal = Masks.from_weights(space, blocks)
    criterion: Callable[[Floats], tuple[float, Cuts]] = _Gap(distribution, space, blocks)
    sign = 1
    if statistics is not None:
        criterion, sign = _Trace(_information(distribution, space, blocks, statistics)), -1
    uniform, cuts = criterion(equal.chances)
    best, value, n_rounds = equal.chances, uniform, 1
    bound, weights = _solve(cuts)
    while bound - value > accuracy * abs(bound) and n_rounds < rounds:
        # Traces are steep near weights that leave a site out, so their cuts stay near the best.
        if statistics is None:
            weights = (1 - UNIFORM_SHARE) * weights + UNIFORM_SHARE * equal.chances
        else:
            weights = (weights + best) / 2
        reached, new = criterion(weights)
        if reached > value:
            best, value = weights, reached
        cuts = Cuts(*(np.concatenate(pair) for pair in zip(cuts, new, strict=True)))
        bound, weights = _solve(cuts)
        n_rounds += 1
    return BestMasks(
        masks=Masks.from_weights(space, blocks, best),
        criterion="gap" if statistics is None else "trace",
        value=sign * value,
        bound=sign * bound,
        uniform=sign * uniform,
        rounds=n_rounds,
    )


class Cuts(NamedTuple):
    """Upper bounds on the terms of a criterion: term[i] <= slopes[i] @ w + offsets[i]."""

    terms: Integers  # (n,)
    slopes: Floats  # (n, blocks)
    offsets: Floats  # (n,)


@dataclass(frozen=True, eq=False)
class _Gap:
    """The gap of weights, with the cuts of its slowest functions: one term."""

    distribution: Floats
    space: Space
    blocks: Sequence[Block]

    def __call__(self, weights: Floats) -> tuple[float, Cuts]:
        root, masks = (
            np.sqrt(self.distribution),
            Masks.from_weights(self.space, self.blocks, weights),
        )
        dense = block_operator(self.distribution, masks) @ np.eye(self.space.size)
        dense = dense - 2 * np.outer(root, root)
        values, vectors = np.linalg.eigh((dense + dense.T) / 2)
        count = min(SLOWEST, self.space.size - 1)
        slopes = [self.variances(vector) for vector in vectors[:, ::-1][:, :count].T]
        cuts = Cuts(np.zeros(count, int), np.array(slopes), np.zeros(count))
        return 1 - float(values[-1]), cuts

    def variances(self, vector: Floats) -> list[float]:
        """E Var(f | x_{-K}) of each block for f = vector / sqrt(p), which has variance 1."""
        shape = (self.space.vocab_size,) * self.space.length
        mass = self.distribution.reshape(shape)
        scaled = (np.sqrt(self.distribution) * vector).reshape(shape)
        return [
            1 - float((scaled.sum(axis=block) ** 2 / mass.sum(axis=block)).sum())
            for block in self.blocks
        ]


@dataclass(frozen=True, eq=False)
class _Trace:
    """Minus the trace of H^-1 of weights, with the cuts of its d diagonal entries as terms."""

    information: Floats  # (blocks, d, d)

    def __call__(self, weights: Floats) -> tuple[float, Cuts]:
        hessian = np.tensordot(weights, self.information, 1)
        values, vectors = np.linalg.eigh(hessian)
        if not values[0] > 1e-13 * values[-1]:
            raise GlauberError("these blocks leave a combination of the parameters undetermined.")
        inverse = (vectors / values) @ vectors.T
        slopes = np.einsum("ij,kil,lj->jk", inverse, self.information, inverse, optimize=True)
        diagonal = np.diag(inverse)
        cuts = Cuts(np.arange(len(diagonal)), slopes, -2 * diagonal)
        return -float(diagonal.sum()), cuts


def _information(
    distribution: Floats, space: Space, blocks: Sequence[Block], statistics: Floats
) -> Floats:
    """E Cov(T | x_{-K}) (blocks, d, d)."""
    matrices = []
    for block in blocks:
        mean = over_block(statistics * distribution, space, block)
        apart = statistics - mean / over_block(distribution, space, block)
        matrices.append((apart * distribution) @ apart.T)
    return np.array(matrices)


def _solve(cuts: Cuts) -> tuple[float, Floats]:
    """The largest sum of terms that the cuts allow for chances w (blocks,), and that w."""
    n_cuts, n_blocks = cuts.slopes.shape
    n_terms = int(cuts.terms.max()) + 1
    ones = csr_array((np.ones(n_cuts), (np.arange(n_cuts), cuts.terms)), (n_cuts, n_terms))
    program = linprog(
        np.append(np.zeros(n_blocks), -np.ones(n_terms)),
        A_ub=hstack([csr_array(-cuts.slopes), ones]).tocsr(),
        b_ub=cuts.offsets,
        A_eq=np.append(np.ones(n_blocks), np.zeros(n_terms))[None],
        b_eq=[1.0],
        bounds=[(0, None)] * n_blocks + [(None, None)] * n_terms,
        method="highs",
    )
    if not program.success:
        raise GlauberError("the linear program for the masks was not solved.")
    weights = np.maximum(program.x[:n_blocks], 0)
    return -float(program.fun), weights / weights.sum()
