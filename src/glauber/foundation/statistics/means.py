"""Means, proportions, ratios and differences over a few chains, with their intervals.

Snapshots of one chain depend on each other, chains do not: the spread is always that of chains.

Values within known bounds have Gaffke's (2005) bounds, found again by Learned-Miller and Thomas
(2019, arXiv:1905.06208). The n values and one more at the end of the range get weights that are
uniform on the simplex; the upper end is a quantile of the weighted mean. A chain that was not seen
may so lie at either end of the range, with a weight that n chains cannot rule out. For values of 0
and 1 this is the interval of Clopper and Pearson. In general the level is a conjecture that no
simulation has contradicted.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
CONFIDENCE = 0.95
MIN_CHAINS = 3  # chains that an interval rests on, at least
MANY = 100  # chains beyond which one more changes nothing of the interval's shape
UNBOUNDED = (-np.inf, np.inf)
STUDENT = "Student's t, widened for skewness (Hall): assumes no rare chains unlike those seen"
BOUNDED = "Gaffke's bounds, for any distribution within the bounds"
JACKKNIFE = f"jackknife over chains, {STUDENT}"
TWO = "two values are too few to show how much they differ"
ONE = "one value cannot show how much values differ"
NONE = "no chain gave a value"
EXACT = 50  # values up to which the distribution of the weighted mean is exact
HALVINGS = 45  # of the range, which leaves 3e-14 of it
NO_VARIATION = "all values are the same, so nothing shows how much they differ"


@dataclass(frozen=True)
class Estimate:
    """A figure with the interval that its chains allow; the reason where they allow none."""

    value: float
    interval: tuple[float, float] | None
    kind: str = "estimate"
    level: float = CONFIDENCE
    n_chains: int = 0  # independent ones: chains, texts, pairs, trials
    method: str = ""
    reason: str = ""  # why there is no interval
    standard_error: float | None = None

    def text(self, digits: int = 3) -> str:
        """As a sentence has it: 0.532 (95%: 0.498 to 0.571), or why there is no interval."""
        value = f"{self.value:.{digits}f}"
        if self.kind == "exact":
            return f"{value} (exact)"
        if self.interval is None:
            return f"{value} (no interval: {self.reason})"
        low, high = (f"{end:.{digits}f}" for end in self.interval)
        return f"{value} ({self.level:.0%}: {low} to {high})"

    def excludes(self, other: float) -> bool:
        """Whether the interval says that the figure is not this number; never without one."""
        return self.interval is not None and not self.interval[0] <= other <= self.interval[1]


def tail_probability(level: float = CONFIDENCE, comparisons: int = 1) -> float:
    """The chance to err on each side, so that all comparisons hold together (Bonferroni)."""
    return (1 - level) / 2 / comparisons


def normal_quantile(level: float = CONFIDENCE, *, comparisons: int = 1) -> float:
    """Standard errors on each side by the normal approximation: for hundreds of values, not few."""
    from scipy.special import ndtri

    return float(ndtri(1 - tail_probability(level, comparisons)))


def t_quantile(n_chains: int, level: float = CONFIDENCE, *, comparisons: int = 1) -> float:
    """Standard errors on each side where the error itself comes from so many chains."""
    from scipy.special import stdtrit

    return float(stdtrit(n_chains - 1, 1 - tail_probability(level, comparisons)))


def standard_error(values: NDArray[Any]) -> float:
    """Of the mean of independent values (count,), two or more."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def too_few(n_chains: int) -> str:
    """Why so few chains allow no interval; empty where they do."""
    return (NONE, ONE, TWO)[n_chains] if n_chains < MIN_CHAINS else ""


def mean_ends(
    values: Floats, tail: float, bounds: tuple[float, float] = UNBOUNDED
) -> tuple[Floats, Floats]:
    """Both ends of the interval of the mean of independent values (..., n), n of 3 or more.

    The wider of two on each side: Student's t, and Hall's (1992) cubic transformation of t, which
    takes the skewness of the values into account and spends one more degree of freedom on it.
    Either alone falls below its level for some kind of values (see docs/statistics.md).

    Values that are all alike show no spread: then at most 1 - tail^(1/n) of all chains can differ
    from them, and the bounds say how far. Without bounds, and where a value is missing, nan.
    """
    from scipy.special import stdtrit

    n = values.shape[-1]
    mean, spread = values.mean(axis=-1), values.std(axis=-1, ddof=1)
    alike = np.ptp(values, axis=-1) <= 1e-12 * np.abs(values).max(axis=-1)
    spread = np.where(alike, 1.0, spread)
    third = ((values - mean[..., None]) ** 3).mean(axis=-1)
    skewness = third / (spread * np.sqrt((n - 1) / n)) ** 3
    skewness = np.where(np.abs(skewness) < 1e-4, 1e-4, skewness)  # the limit is Student's t
    straight = stdtrit(n - 1, 1 - tail) / np.sqrt(n)
    bent = stdtrit(n - 2, 1 - tail) / np.sqrt(n)
    low = mean - spread * np.maximum(straight, _hall(bent, skewness, n))
    high = mean + spread * np.maximum(straight, -_hall(-bent, skewness, n))
    differ = 1 - tail ** (1 / n)
    with np.errstate(invalid="ignore"):  # no bounds: infinitely far, said as nan
        least = np.where(mean <= bounds[0], mean, mean - differ * (mean - bounds[0]))
        most = np.where(mean >= bounds[1], mean, mean + differ * (bounds[1] - mean))
    known = np.isfinite(least) & np.isfinite(most)
    low = np.where(alike, np.where(known, least, np.nan), low)
    high = np.where(alike, np.where(known, most, np.nan), high)
    return np.maximum(low, bounds[0]), np.minimum(high, bounds[1])


def _hall(reach: float, skewness: Floats, n: int) -> Floats:
    """Inverse of Hall's t + a t^2 / 3 + a^2 t^3 / 27 + a / 6n, where a is the skewness."""
    inside = 1 + skewness * (reach - skewness / (6 * n))
    return np.asarray(3 / skewness * (np.cbrt(inside) - 1))


def mean_over_chains(
    values: ArrayLike,
    *,
    bounds: tuple[float, float] | None = None,
    student: bool = False,
    level: float = CONFIDENCE,
    comparisons: int = 1,
) -> Estimate:
    """The mean of independent values (count,) with its interval, cut where no mean can lie.

    bounds are the least and the largest value there is, such as 0 and 1 of a share. If both are
    finite, the interval holds for any distribution between them, with the width that this takes.
    student=True asks for Student's interval there too: narrower, but it assumes that no rare chain
    is far from all those seen. With several comparisons, the intervals of all of them hold
    together. For pairs, give their differences.
    """
    seen = np.asarray(values, np.float64)
    value = float(seen.mean()) if len(seen) else float("nan")
    tail, ends = tail_probability(level, comparisons), bounds or UNBOUNDED
    if (
        len(seen) >= MIN_CHAINS
        and np.isfinite(ends).all()
        and np.isfinite(seen).all()
        and not student
    ):
        return _bounded_ratio(seen, np.ones_like(seen), ends, tail, level)
    return interval_of_mean(value, seen, tail, ends, level=level)


def _bounded_ratio(
    sums: Floats, sizes: Floats, bounds: tuple[float, float], tail: float, level: float
) -> Estimate:
    """sum(sums) / sum(sizes) over chains, of values within finite bounds."""
    value, n = float(sums.sum() / sizes.sum()), len(sums)
    low, high = (float(end) for end in bounded_ends(sums, sizes, tail, bounds))
    ends = min(low, value), max(high, value)
    error = standard_error(pseudo_values(value, _left_out(sums, sizes)))
    return Estimate(value, ends, "estimate", level, n, BOUNDED, standard_error=error)


def _left_out(sums: Floats, sizes: Floats) -> Floats:
    """The ratio of the sums (chains,) without each chain."""
    return np.asarray((sums.sum() - sums) / (sizes.sum() - sizes))


def interval_of_mean(
    value: float,
    by_chain: Floats,
    tail: float,
    bounds: tuple[float, float] = UNBOUNDED,
    *,
    level: float = CONFIDENCE,
    method: str = STUDENT,
) -> Estimate:
    """A figure whose interval is that of the mean of by_chain (chains,), or the reason for none."""
    n = len(by_chain)
    if n < MIN_CHAINS:
        return Estimate(value, None, level=level, n_chains=n, method=method, reason=too_few(n))
    error = standard_error(by_chain)
    low, high = (float(end) for end in mean_ends(by_chain, tail, bounds))
    if np.isnan(low) or np.isnan(high):
        reason = NO_VARIATION if np.isfinite(by_chain).all() else "a chain has no value"
        return Estimate(value, None, level=level, n_chains=n, method=method, reason=reason)
    ends = max(min(low, value), bounds[0]), min(max(high, value, bounds[0]), bounds[1])
    return Estimate(value, ends, level=level, n_chains=n, method=method, standard_error=error)


def clopper_pearson(count: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The interval of Clopper and Pearson: it holds the true share with at least that confidence.

    Each side errs with at most half of the rest, so each end is also a bound by itself.
    """
    from scipy.special import betaincinv

    tail, others = (1 - confidence) / 2, int(total) - int(count)
    low = float(betaincinv(count, others + 1, tail)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, others, 1 - tail)) if others > 0 else 1.0
    return low, high


def proportion(
    count: int, total: int, *, level: float = CONFIDENCE, comparisons: int = 1
) -> Estimate:
    """The share of independent trials that succeeded; one trial a chain."""
    value = count / total if total else float("nan")
    ends = (
        clopper_pearson(count, total, 1 - 2 * tail_probability(level, comparisons))
        if total
        else None
    )
    reason = "" if total else NONE
    method = "Clopper and Pearson"
    return Estimate(value, ends, level=level, n_chains=total, method=method, reason=reason)


def clustered_proportion(
    counts: ArrayLike, totals: ArrayLike, *, level: float = CONFIDENCE, comparisons: int = 1
) -> Estimate:
    """The share of counts (chains,) among totals (chains,): several trials of a chain.

    Trials of one chain (text, sentence) may all go the same way, so only chains count as
    independent: 0 of 400 in 4 chains says no more than 0 of 4.
    """
    return _ratio_of_sums(counts, totals, (0.0, 1.0), level, comparisons)


def clustered_mean(
    values: ArrayLike,
    chain: ArrayLike,
    *,
    bounds: tuple[float, float] | None = None,
    student: bool = False,
    level: float = CONFIDENCE,
    comparisons: int = 1,
) -> Estimate:
    """The mean of values (n,) of which several share a chain, a text or a sentence (n,).

    bounds and student as in mean_over_chains.
    """
    seen = np.asarray(values, np.float64)
    _, whose = np.unique(np.asarray(chain), return_inverse=True)
    sums, sizes = np.bincount(whose, weights=seen), np.bincount(whose)
    return _ratio_of_sums(sums, sizes, bounds or UNBOUNDED, level, comparisons, student=student)


def _ratio_of_sums(
    sums: ArrayLike,
    sizes: ArrayLike,
    bounds: tuple[float, float],
    level: float,
    comparisons: int,
    *,
    student: bool = False,
) -> Estimate:
    """All sums over all sizes (chains,); without bounds by leaving out each chain once."""
    got, of = np.asarray(sums, np.float64), np.asarray(sizes, np.float64)
    got, of = got[of > 0], of[of > 0]
    tail = tail_probability(level, comparisons)
    if (
        len(of) >= MIN_CHAINS
        and np.isfinite(bounds).all()
        and np.isfinite(got).all()
        and not student
    ):
        return _bounded_ratio(got, of, bounds, tail, level)
    value = float(got.sum() / of.sum()) if len(of) else float("nan")
    by_chain = np.full(len(of), value)
    if len(of) > 1:
        by_chain = pseudo_values(value, _left_out(got, of))
    return interval_of_mean(value, by_chain, tail, bounds, level=level, method=JACKKNIFE)


def ratio_over_chains(
    numerators: ArrayLike,
    denominators: ArrayLike,
    *,
    bounds: tuple[float, float] = UNBOUNDED,
    level: float = CONFIDENCE,
    comparisons: int = 1,
) -> Estimate:
    """The ratio of two means over the same chains, each (chains,).

    Refused where the mean of the denominators cannot be told from zero: the ratio is then
    anything. bounds of the ratio from 0 on say that neither mean can be negative. On the scale of
    logarithms where all values are positive.
    """
    above, below = np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)
    n, tail = len(below), tail_probability(level, comparisons)
    method = JACKKNIFE
    if n < MIN_CHAINS:
        value = float(above.sum() / below.sum()) if n else float("nan")
        return Estimate(value, None, level=level, n_chains=n, method=method, reason=too_few(n))
    value = float(above.sum() / below.sum())
    low, high = mean_ends(below, tail)
    if low <= 0 <= high and (bounds[0] < 0 or not below.any()):
        reason = "the denominator cannot be told from zero"
        return Estimate(value, None, level=level, n_chains=n, method=method, reason=reason)
    left = (above.sum() - above) / (below.sum() - below)
    if (above > 0).all() and (below > 0).all():
        logarithm = interval_of_mean(
            np.log(value), pseudo_values(np.log(value), np.log(left)), tail
        )
        by_chain = pseudo_values(value, left)
        return _exponential(logarithm, value, standard_error(by_chain), level, method)
    return interval_of_mean(
        value, pseudo_values(value, left), tail, bounds, level=level, method=method
    )


def _exponential(
    logarithm: Estimate, value: float, error: float, level: float, method: str
) -> Estimate:
    """A figure that was measured by its logarithm."""
    ends = logarithm.interval and (
        float(np.exp(logarithm.interval[0])),
        float(np.exp(logarithm.interval[1])),
    )
    return Estimate(
        value,
        ends,
        "estimate",
        level,
        logarithm.n_chains,
        method,
        logarithm.reason,
        error if ends else None,
    )


def pseudo_values(value: Any, without: Floats) -> Floats:
    """What each chain adds to a figure: n value - (n - 1) the figure without it (chains, ...).

    Their mean is the figure less its bias, their spread that of chains (Tukey's jackknife).
    """
    n = len(without)
    return np.asarray(n * np.asarray(value) - (n - 1) * without)


def difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    bounds: tuple[float, float] | None = None,
    level: float = CONFIDENCE,
    comparisons: int = 1,
) -> Estimate:
    """The mean of one group of chains less that of another, independent one.

    The distances of both intervals from their means are added as squares (Zou and Donner 2008).
    bounds are those of the values, not of the difference.
    """
    method = f"square-and-add of two: {STUDENT}"
    first_mean, second_mean = (
        mean_over_chains(values, bounds=bounds, level=level, comparisons=comparisons)
        for values in (first, second)
    )
    value, n = first_mean.value - second_mean.value, min(first_mean.n_chains, second_mean.n_chains)
    if first_mean.interval is None or second_mean.interval is None:
        reason = first_mean.reason or second_mean.reason
        return Estimate(value, None, level=level, n_chains=n, method=method, reason=reason)
    down = np.hypot(
        first_mean.value - first_mean.interval[0], second_mean.interval[1] - second_mean.value
    )
    up = np.hypot(
        first_mean.interval[1] - first_mean.value, second_mean.value - second_mean.interval[0]
    )
    error = float(np.hypot(first_mean.standard_error or 0.0, second_mean.standard_error or 0.0))
    least, most = (bounds[0] - bounds[1], bounds[1] - bounds[0]) if bounds else UNBOUNDED
    ends = max(least, float(value - down)), min(most, float(value + up))
    return Estimate(value, ends, level=level, n_chains=n, method=method, standard_error=error)


def power(
    effect: float, standard_error: float, *, n_chains: int, level: float = CONFIDENCE
) -> float:
    """The chance that the interval of a mean excludes zero when the truth is this effect.

    For normal values with this standard error of their mean, by simulation of the interval.
    """
    if n_chains < MIN_CHAINS:
        return 0.0
    if standard_error == 0:
        return 1.0 if effect else 0.0
    low, high = _normal_ends(min(n_chains, MANY), tail_probability(level))
    shift = abs(effect) / standard_error
    return float(((low + shift > 0) | (high + shift < 0)).mean())


def smallest_effect(
    standard_error: float, *, n_chains: int, level: float = CONFIDENCE, wanted: float = 0.8
) -> float:
    """The smallest effect that would be told from zero with the wanted power; inf if none."""
    if n_chains < MIN_CHAINS:
        return float("inf")
    low, _ = _normal_ends(min(n_chains, MANY), tail_probability(level))
    return float(-np.quantile(low, 1 - wanted)) * standard_error


@lru_cache(maxsize=64)
def _normal_ends(n: int, tail: float) -> tuple[Floats, Floats]:
    """Ends of the interval of a mean of n normal values, in standard errors of the mean."""
    values = np.random.default_rng(n).normal(size=(20_000, n)) * np.sqrt(n)
    return mean_ends(values, tail)


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
