"""How large can the constants of relative entropy be at most? Two upper bounds.

By the gap. With s the least probability of a state, Diaconis and Saloff-Coste (1996, Corollary A.4)
give E(g, g) >= a Ent(g^2) with a = gap (1 - 2s) / log(1/s - 1), or gap / 2 where s = 1/2. For
g >= 0 and any law, Var(g) <= Ent(g^2): both sides scale alike, so let E g^2 = 1; by Jensen's
inequality under the law of density g^2, Ent(g^2) = -2 E[g^2 log(1/g)] >= -2 log E[g], and
-log t >= 1 - t at t = (E g)^2 gives 1 - (E g)^2, the variance. (No smaller factor serves: it is
attained by the indicator of an event whose probability goes to 1, though near a constant g half of
it would do.) Given (x_{-K}, K) this says that the other side of tensorisation is at least
E(sqrt f, sqrt f). And E(f, log f) >= 4 E(sqrt f, sqrt f). So the constants are at most 1/a for
tensorisation and 1/(4a) for log-Sobolev.

By a product. For a product distribution and masks that hide site i with probability c_i,
tensorisation holds with 1 / min c_i (Shearer's inequality). Both sides are infima over constants of
means of a function that is never negative, so a distribution with a density between a and b against
the product has at most b/a times that (Holley and Stroock), and masks that look at x count with the
least chance that they ever have. E(f, log f) is at least the other side of tensorisation, so the
same bound serves both constants. The best product is a linear programme.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, vstack

from glauber.exact.blocks.gap import Gap
from glauber.exact.blocks.masks import Masks
from glauber.exact.space import Floats, Space

PROGRAMME = 4096  # states; beyond it the product of the geometric means is taken


@dataclass(frozen=True)
class Ceiling:
    """An upper bound and the argument that proves it."""

    value: float  # the bound
    by: str  # the argument, in words
    kind: Literal["upper bound"] = "upper bound"  # what the value is


def ceiling(
    distribution: Floats,
    masks: Masks,
    gap: Gap,
    *,
    of: Literal["tensorisation", "log-Sobolev"] = "tensorisation",
) -> Ceiling:
    """The smaller of the two bounds for a positive distribution (size,)."""
    if not masks.adaptive and set(masks.blocks) == {tuple(range(masks.space.length))}:
        return Ceiling(1.0, "every mask hides all sites")
    by_gap = gap_ceiling(distribution, gap) / (1 if of == "tensorisation" else 4)
    by_product = product_ceiling(distribution, masks)
    if by_gap <= by_product:
        return Ceiling(by_gap, "spectral gap and least probability")
    return Ceiling(by_product, "nearest product distribution")


def gap_ceiling(distribution: Floats, gap: Gap) -> float:
    """1/a, with the gap less its error."""
    least = float(distribution.min())
    lowest = gap.value - gap.error
    if lowest <= 0:
        return math.inf
    share = 0.5 if least > 0.5 - 1e-9 else (1 - 2 * least) / math.log(1 / least - 1)
    return 1 / (lowest * share)


def product_ceiling(distribution: Floats, masks: Masks) -> float:
    """b/a over the least chance of a site to be hidden."""
    chances = masks.per_state.min(axis=1)
    hidden = np.zeros(masks.space.length)
    for block, chance in zip(masks.blocks, chances, strict=True):
        hidden[list(block)] += chance
    if not hidden.min() > 0:
        return math.inf
    return math.exp(product_oscillation(distribution, masks.space)) / float(hidden.min())


def product_oscillation(distribution: Floats, space: Space) -> float:
    """The least max - min of log(p / product) that was found; 0 where p is a product itself."""
    logs = np.log(distribution)
    rows = _indicators(space)
    if space.size <= PROGRAMME:
        fitted = rows @ _nearest(logs, rows)
    else:
        cube = logs.reshape((space.vocab_size,) * space.length)
        axes = range(space.length)
        means = [cube.mean(axis=tuple(a for a in axes if a != site)) for site in axes]
        fitted = rows @ np.concatenate(means)
    left = logs - fitted
    return float(left.max() - left.min())


def _nearest(logs: Floats, rows: csr_array) -> Floats:
    """Log weights (N * vocab,) of the product with the least oscillation, a linear programme.

    Whatever the solver returns, the oscillation is worked out from it, so the bound is safe.
    """
    ones = csr_array(np.ones((rows.shape[0], 1)))
    none = csr_array((rows.shape[0], 1))
    above = hstack([-rows, -ones, none])  # logs - fitted <= high
    below = hstack([rows, none, ones])  # logs - fitted >= low
    cost = np.zeros(rows.shape[1] + 2)
    cost[-2], cost[-1] = 1.0, -1.0
    found = linprog(
        cost, A_ub=vstack([above, below]).tocsr(), b_ub=np.concatenate([-logs, logs]),
        bounds=(None, None), method="highs",
    )  # fmt: skip
    return np.zeros(rows.shape[1]) if found.x is None else np.asarray(found.x[:-2])


def _indicators(space: Space) -> csr_array:
    """Which token is where: (size, N * vocab)."""
    columns = space.states().numpy() + np.arange(space.length) * space.vocab_size
    starts = np.arange(space.size + 1) * space.length
    shape = (space.size, space.length * space.vocab_size)
    return csr_array((np.ones(columns.size), columns.ravel(), starts), shape=shape)
