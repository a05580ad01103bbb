"""How sure is a mean of values that lie between known bounds, whatever their distribution?

Gaffke's (2005) bounds, found again by Learned-Miller and Thomas (2019, arXiv:1905.06208). The n
values and one more at the end of the range get weights that are uniform on the simplex; the upper
end is a quantile of the weighted mean. A chain that was not seen may so lie at either end of the
range, with a weight that n chains cannot rule out. For values of 0 and 1 this is the interval of
Clopper and Pearson. In general the level is a conjecture that no simulation has contradicted.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
EXACT = 50  # values up to which the distribution of the weighted mean is exact
HALVINGS = 45  # of the range, which leaves 3e-14 of it


def bounded_ends(
    sums: Floats, sizes: Floats, tail: float, bounds: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Both ends of the interval of sum(sums) / sum(sizes), each (..., n) over independent chains.

    A chain adds the sum of so many values, each within the finite bounds; of one value per chain
    the sizes are 1. No chain is taken to be larger than the largest one given.
    """
    largest = sizes.max(axis=-1, keepdims=True)
    low, high = (
        _quantile(
            np.concatenate([sums, end * largest], axis=-1),
            np.concatenate([sizes, largest], axis=-1),
            above,
            bounds,
        )
        for end, above in zip(bounds, (1 - tail, tail), strict=True)
    )
    return low, high


def _quantile(sums: Floats, sizes: Floats, above: float, bounds: tuple[float, float]) -> Floats:
    """What sum(w sums) / sum(w sizes) exceeds with this probability, by bisection."""
    low, high = (np.full(sums.shape[:-1], float(end)) for end in bounds)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        higher = probability_above_zero(sums - middle[..., None] * sizes) > above
        low, high = np.where(higher, middle, low), np.where(higher, high, middle)
    return np.asarray((low + high) / 2)


def probability_above_zero(values: Floats) -> Floats:
    """P(sum(w values) > 0) of values (..., n), the weights w uniform on the simplex."""
    return _exact(values) if values.shape[-1] <= EXACT + 1 else _saddlepoint(values)


def _exact(values: Floats) -> Floats:
    """By de Boor's recursion: the density of the weighted mean is a B-spline (Curry, Schoenberg).

    For sorted values i to j with the j-th above zero and the i-th not, the probability is
    (v_j F(i + 1, j) - v_i F(i, j - 1)) / (v_j - v_i).
    """
    ordered = np.sort(values, axis=-1)
    n = ordered.shape[-1]
    bound = (ordered > 0).astype(np.float64)
    for apart in range(1, n):
        first, last = ordered[..., : n - apart], ordered[..., apart:]
        mixed = (first <= 0) & (last > 0)
        gap = np.where(mixed, last - first, 1.0)
        between = (last * bound[..., 1:] - first * bound[..., :-1]) / gap
        bound = np.where(mixed, between, bound[..., :-1])
    return np.asarray(bound[..., 0])


def _saddlepoint(values: Floats) -> Floats:
    """By Lugannani and Rice: the weights are exponential variables over their sum.

    Its tails are 0 to 3% too heavy at 2.5%, for 50 values and more.
    """
    from scipy.special import ndtr

    least, most = values.min(axis=-1), values.max(axis=-1)
    low, high = 1 / np.minimum(least, -1e-300), 1 / np.maximum(most, 1e-300)
    for _ in range(HALVINGS):
        at = (low + high) / 2
        falls = (values / (1 - at[..., None] * values)).sum(axis=-1) < 0
        low, high = np.where(falls, at, low), np.where(falls, high, at)
    complement = 1 - at[..., None] * values
    with np.errstate(all="ignore"):  # a saddle at 0 is the median, up to terms of no concern here
        root = np.sign(at) * np.sqrt(np.maximum(2 * np.log(complement).sum(axis=-1), 0.0))
        scale = at * np.sqrt(((values / complement) ** 2).sum(axis=-1))
        density = np.exp(-(root**2) / 2) / np.sqrt(2 * np.pi)
        above = ndtr(-root) + density * (1 / scale - 1 / root)
    inside = np.where(np.isfinite(above) & (np.abs(root) > 1e-4), above, 0.5)
    return np.where(most <= 0, 0.0, np.where(least > 0, 1.0, np.clip(inside, 0.0, 1.0)))
