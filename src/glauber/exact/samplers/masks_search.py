"""Are there better masks than uniform ones? Weights over blocks that make the gap largest.

The gap is the least of E(f, f) over f with variance 1, and E(f, f) = sum_K w_K E Var(f | x_{-K})
is linear in the weights: so the gap is concave in them, and any f gives an upper bound on every
gap. We collect such f (a cutting plane each), solve the linear program for the weights, and take
the slowest f of those weights as the next cut. The program's value bounds the best gap from above,
the gap of the weights at hand from below.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.samplers.block_gap import Gap, block_gap, block_operator
from glauber.exact.samplers.masks import Block, Masks
from glauber.exact.space import Space

LARGEST = 2**10  # states; every round finds all eigenvectors
SLOW = 6  # eigenvectors taken as cuts each round
MIXED = 1e-6  # share of the equal weights, so that no site is ever left out


@dataclass(frozen=True, eq=False)
class BestMasks:
    """The best weights found, their gap, and what no weights over these blocks exceed."""

    masks: Masks
    gap: Gap  # of these masks: a lower bound on the best
    at_most: float  # an upper bound on the gap of any weights
    uniform: Gap  # of equal weights
    rounds: int

    @property
    def gain(self) -> float:
        """The gap found over the gap of equal weights, a lower bound on the best ratio."""
        return self.gap.value / self.uniform.value


def best_masks(
    law: Floats,
    space: Space,
    blocks: Sequence[Block],
    *,
    accuracy: float = 1e-3,
    rounds: int = 60,
) -> BestMasks:
    """Weights over the blocks with the largest gap, up to the relative accuracy."""
    if space.size > LARGEST:
        raise GlauberError(
            f"the search over masks takes at most {LARGEST:,} states, but there are "
            f"{space.size:,}: take fewer sites."
        )
    equal = Masks.weighted(space.length, tuple(blocks))
    uniform = block_gap(law, space, equal)
    best, found, at_most = equal, uniform.value, np.inf
    tried, cuts, done = equal, np.zeros((0, len(blocks))), 0
    for done in range(1, rounds + 1):  # noqa: B007
        values, vectors = _slowest(law, space, tried)
        if values[0] > found:
            best, found = tried, float(values[0])
        cuts = np.vstack([cuts, [_variances(law, space, blocks, v) for v in vectors.T]])
        at_most, weights = _programme(cuts)
        if found >= at_most * (1 - accuracy):
            break
        tried = Masks.weighted(
            space.length, tuple(blocks), (1 - MIXED) * weights + MIXED * equal.weights
        )
    return BestMasks(best, block_gap(law, space, best), at_most, uniform, done)


def _slowest(law: Floats, space: Space, masks: Masks) -> tuple[Floats, Floats]:
    """The smallest rates 1 - eigenvalue (SLOW,) and their vectors (size, SLOW)."""
    root = np.sqrt(law)
    dense = block_operator(law, space, masks) @ np.eye(space.size) - 2 * np.outer(root, root)
    values, vectors = np.linalg.eigh((dense + dense.T) / 2)
    count = min(SLOW, space.size - 1)
    return 1 - values[::-1][:count], vectors[:, ::-1][:, :count]


def _variances(law: Floats, space: Space, blocks: Sequence[Block], vector: Floats) -> list[float]:
    """E Var(f | x_{-K}) of each block for f = vector / sqrt(law), which has variance 1."""
    shape = (space.vocab_size,) * space.length
    mass, scaled = law.reshape(shape), (np.sqrt(law) * vector).reshape(shape)
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
