"""How sure is a number? Intervals of means, shares, times and figures over chains, each once.

Snapshots of one chain depend on each other, chains do not: where several snapshots of a chain
enter a figure, whole chains are resampled.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glauber.errors import GlauberError

Floats = NDArray[np.float64]
LEVEL = 0.95
RESAMPLES = 10_000  # of a mean
MEDIAN_RESAMPLES = 2000  # of a median time
CHAIN_RESAMPLES = 200  # of a figure that must be worked out again each time
FEW = 3  # chains that a figure with an error rests on, at least: resampling one shows no spread
Statistic = Callable[[Floats], Floats]  # how often each chain counts (chains,) -> figures


def share_interval(count: int, total: int, confidence: float = LEVEL) -> tuple[float, float]:
    """The interval of Clopper and Pearson: it holds the true share with at least that confidence.

    Each side errs with at most half of the rest, so each end is also a bound by itself.
    """
    from scipy.stats import binomtest

    found = binomtest(int(count), int(total)).proportion_ci(confidence, method="exact")
    return float(found.low), float(found.high)


def normal_reach(level: float = LEVEL, *, comparisons: int = 1) -> float:
    """Standard errors on each side of an interval by the normal approximation.

    With several comparisons, intervals that hold all together (Bonferroni).
    """
    from scipy.stats import norm

    return float(norm.ppf(1 - (1 - level) / 2 / comparisons))


def standard_error(values: NDArray[Any]) -> float:
    """Of the mean of independent values (count,), two or more."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def bootstrap_mean(
    values: NDArray[Any], *, seed: int = 0, level: float = LEVEL
) -> tuple[float, float]:
    """The percentile bootstrap interval of the mean of independent values (count,)."""
    generator = np.random.Generator(np.random.Philox(seed))
    # A resample draws each value multinomially often: one row of counts a resample.
    weights = np.full(len(values), 1 / len(values))
    means = np.concatenate(
        [
            generator.multinomial(len(values), weights, size=RESAMPLES // 10) @ values
            for _ in range(10)  # in ten parts, so that many values still fit the memory
        ]
    ) / len(values)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Mean:
    """The mean of independent chains, with the interval of Student's t."""

    value: float
    interval: tuple[float, float] | None  # none for a single chain
    kind: str = "estimate"
    level: float = LEVEL


def mean_over_chains(
    values: ArrayLike, *, bounds: tuple[float, float] | None = None, level: float = LEVEL
) -> Mean:
    """The mean of independent values (count,) and its t interval, cut where no mean can lie.

    bounds are the least and the largest value there is, such as 0 and 1 of a share.
    """
    from scipy.stats import t as student

    seen = np.asarray(values, np.float64)
    value = float(seen.mean())
    if len(seen) < 2:
        return Mean(value, None, level=level)
    reach = float(student.ppf((1 + level) / 2, len(seen) - 1)) * standard_error(seen)
    low, high = bounds or (-np.inf, np.inf)
    return Mean(value, (max(low, value - reach), min(high, value + reach)), level=level)


@dataclass(frozen=True)
class MedianTime:
    """A median time; None where fewer than half are known to have got there."""

    value: float | None
    interval: tuple[float | None, float | None]  # an open end is None
    kind: str = "estimate"
    level: float = LEVEL


def median_time(times: ArrayLike, happened: ArrayLike) -> MedianTime:
    """The median of times (n,) by Kaplan and Meier, where what has not happened (n,) is later.

    Leaving out what is known to be later (censored) would make slow look fast, so it stays in. The
    interval holds the times at which the log-log band of the survival crosses one half.
    """
    from scipy.stats import CensoredData, ecdf

    times, happened = np.asarray(times, np.float64), np.asarray(happened, np.bool_)
    if not happened.any():
        return MedianTime(None, (None, None))
    survival = ecdf(CensoredData(uncensored=times[happened], right=times[~happened])).sf
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # the band is not defined at 0 and at 1
        band = survival.confidence_interval(LEVEL, method="log-log")
    at, left = survival.quantiles, survival.probabilities
    # Where nobody is left, what k that got there together allow at most (Clopper and Pearson).
    together = np.array([(times >= time).sum() for time in at])
    most = np.where(left > 0, left, 1 - ((1 - LEVEL) / 2) ** (1 / together))
    low, high = band.low.probabilities, band.high.probabilities
    ends = np.where(np.isnan(low), left, low), np.where(np.isnan(high), most, high)
    value, first, last = (_finite(_half_left(at, curve[None])[0]) for curve in (left, *ends))
    return MedianTime(value, (first, last))


def median_time_by_chain(
    times: Floats,
    happened: NDArray[np.bool_],
    chain: NDArray[np.int64],
    *,
    n_chains: int,
    seed: int,
) -> MedianTime:
    """The same median with an interval from resampling chains; all arrays (n,).

    Times of one chain are not independent of each other; chains are.
    """
    value = median_time(times, happened).value
    at = np.unique(times[happened])
    if len(at) == 0:
        return MedianTime(None, (None, None))
    generator = np.random.Generator(np.random.Philox(seed))
    even = np.full(n_chains, 1 / n_chains)
    counts = generator.multinomial(n_chains, even, size=MEDIAN_RESAMPLES).astype(np.float64)
    whose = (np.arange(n_chains)[:, None] == chain).astype(np.float64)
    risk = counts @ (whose @ (times[:, None] >= at))  # (resamples, times)
    gone = counts @ (whose @ ((times[:, None] == at) & happened[:, None]))
    medians = _half_left(at, np.cumprod(1 - gone / np.maximum(risk, 1), axis=1))
    tails = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    low, high = np.quantile(medians, tails, method="inverted_cdf")
    return MedianTime(value, (_finite(low), _finite(high)))


def _half_left(times: Floats, survival: Floats) -> Floats:
    """The first of times (n,) where at most half of each row (rows, n) is left; inf if none."""
    reached = survival <= 0.5
    return np.where(reached.any(axis=1), times[reached.argmax(axis=1)], np.inf)


def _finite(time: float) -> float | None:
    return None if np.isinf(time) else float(time)


def chain_weights(n_chains: int, *, seed: int, resamples: int = CHAIN_RESAMPLES) -> Floats:
    """How often each chain counts in each resample of whole chains, (resamples, chains)."""
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(n_chains, np.full(n_chains, 1 / n_chains), size=resamples)
    return weights.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Figures of any shape, with what a bootstrap over chains says of each.

    A figure is nan where too little was seen for it. standard_error, low and high are none for a
    single chain, and nan where fewer than half of the resamples had the figure or fewer than three
    chains stand behind it.
    """

    value: Floats
    standard_error: Floats | None
    low: Floats | None  # ends of the interval
    high: Floats | None
    kind: str = "estimate"
    level: float = LEVEL

    def part(self, places: Any) -> "Estimate":
        """Some of the figures, chosen as numpy chooses."""
        error, low, high = (
            None if end is None else np.asarray(end[places])
            for end in (self.standard_error, self.low, self.high)
        )
        return Estimate(np.asarray(self.value[places]), error, low, high)

    def only_where(self, enough: NDArray[np.bool_]) -> "Estimate":
        """The same figures, with errors only where enough chains stand behind one."""
        error, low, high = (
            None if end is None else np.where(enough, end, np.nan)
            for end in (self.standard_error, self.low, self.high)
        )
        return Estimate(self.value, error, low, high)


def over_chains(
    statistic: Statistic, n_chains: int, *, seed: int = 0, resamples: int = CHAIN_RESAMPLES
) -> Estimate:
    """The figures of all chains, each counted once, with errors from a bootstrap over chains."""
    value = statistic(np.ones(n_chains))
    if n_chains < 2:
        return Estimate(value, None, None, None)
    weights = chain_weights(n_chains, seed=seed, resamples=resamples)
    drawn = np.stack([_resampled(statistic, row, value.shape) for row in weights])
    kept = np.isfinite(drawn)
    enough = kept.sum(axis=0) * 2 >= resamples
    filled = np.where(kept, drawn, np.nan)
    filled[:, ~enough] = 0.0  # so that no column is empty; these get nan below
    tail = (1 - LEVEL) / 2
    ends = np.nanquantile(filled, [tail, 1 - tail], axis=0)
    parts = (np.nanstd(filled, axis=0, ddof=1), ends[0], ends[1])
    error, low, high = (np.where(enough, part, np.nan) for part in parts)
    return Estimate(value, error, low, high)


def _resampled(statistic: Statistic, weights: Floats, shape: tuple[int, ...]) -> Floats:
    """The figures of resampled chains; nan where these chains alone cannot have them."""
    try:
        return statistic(weights)
    except GlauberError:
        return np.full(shape, np.nan)
