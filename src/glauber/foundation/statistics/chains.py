"""Estimates of any shape from whole chains, with errors by the jackknife."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics.means import (
    CONFIDENCE,
    JACKKNIFE,
    MIN_CHAINS,
    UNBOUNDED,
    Estimate,
    Floats,
    mean_ends,
    pseudo_values,
    tail_probability,
    too_few,
)

Statistic = Callable[[Floats], Floats]  # how often each chain counts (chains,) -> figures
GROUPS = 200  # more chains than these are left out in groups
ALONE = "the figure rests on one chain: without it there is none"


@dataclass(frozen=True, eq=False)
class Estimates:
    """Figures of any shape, with what leaving out each chain once says of each.

    A figure is nan where too little was seen for it. standard_error, low and high are none for
    fewer than three chains, and nan where the figure cannot be had without one of them.
    """

    value: Floats
    standard_error: Floats | None
    low: Floats | None  # ends of the interval
    high: Floats | None
    kind: str = "estimate"
    level: float = CONFIDENCE
    n_chains: int = 0
    method: str = JACKKNIFE

    def at(self, places: Any) -> "Estimates":
        """Some of the figures, chosen as numpy chooses."""
        return self._transform(lambda each: np.asarray(each[places]), self.value[places])

    def where(self, enough: NDArray[np.bool_]) -> "Estimates":
        """The same figures, with errors only where enough chains stand behind one."""
        return self._transform(lambda each: np.where(enough, each, np.nan), self.value)

    def _transform(self, change: Callable[[Floats], Floats], value: Floats) -> "Estimates":
        error, low, high = (
            None if each is None else change(each)
            for each in (self.standard_error, self.low, self.high)
        )
        attributes = self.kind, self.level, self.n_chains, self.method
        return Estimates(np.asarray(value), error, low, high, *attributes)

    def item(self, index: Any = ()) -> Estimate:
        """One of the figures by itself, with the reason where it has no interval."""
        value = float(self.value[index])
        if self.low is None or self.high is None or self.standard_error is None:
            ends, error, reason = None, None, too_few(self.n_chains)
        elif np.isnan(self.low[index]):
            ends, error, reason = None, None, ALONE
        else:
            ends = float(self.low[index]), float(self.high[index])
            error, reason = float(self.standard_error[index]), ""
        attributes = self.kind, self.level, self.n_chains, self.method
        return Estimate(value, ends, *attributes, reason, error)


def jackknife(
    statistic: Statistic,
    n_chains: int,
    *,
    scale: str = "plain",
    bounds: tuple[float, float] = UNBOUNDED,
    level: float = CONFIDENCE,
    comparisons: int = 1,
) -> Estimates:
    """The figures of all chains, with errors from leaving out each chain once (jackknife).

    The scale is where figures are closest to symmetric: plain, log (positive ones, such as
    times), logit (shares) or atanh (correlations); their intervals cannot leave their range.
    Right for smooth figures; a median or a largest value is none (see median_time).
    """
    value = np.asarray(statistic(np.ones(n_chains)), np.float64)
    if n_chains < MIN_CHAINS:
        return Estimates(value, None, None, None, n_chains=n_chains)
    weights = (np.arange(n_chains) % GROUPS != np.arange(min(n_chains, GROUPS))[:, None]).astype(
        float
    )
    without = np.stack([_left_out(statistic, row, value.shape) for row in weights])
    low, high = _ends(value, without, scale, bounds, tail_probability(level, comparisons))
    with np.errstate(invalid="ignore"):
        error = pseudo_values(value, without).std(axis=0, ddof=1) / np.sqrt(len(without))
    error = np.where(np.isnan(low), np.nan, error)
    return Estimates(value, error, low, high, level=level, n_chains=n_chains)


SCALES: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "plain": (np.asarray, np.asarray),
    "log": (np.log, np.exp),
    "logit": (lambda share: np.log(share / (1 - share)), lambda odds: 1 / (1 + np.exp(-odds))),
    "atanh": (np.arctanh, np.tanh),
}
RANGES = {"plain": UNBOUNDED, "log": (0.0, np.inf), "logit": (0.0, 1.0), "atanh": (-1.0, 1.0)}


def _ends(
    value: Floats, without: Floats, scale: str, bounds: tuple[float, float], tail: float
) -> tuple[Floats, Floats]:
    """Intervals of figures from those without each chain (chains, ...); plain if the scale fails.

    A figure that stands at the end of its range, such as a share of 0, has no logarithm.
    """
    transform, back = SCALES[scale]
    lowest, highest = max(bounds[0], RANGES[scale][0]), min(bounds[1], RANGES[scale][1])
    with np.errstate(all="ignore"):  # what has no place on the scale becomes nan
        plain = mean_ends(_last(pseudo_values(value, without)), tail, (lowest, highest))
        bent = mean_ends(_last(pseudo_values(transform(value), transform(without))), tail)
        low, high = (
            np.where(np.isfinite(back(own)), np.clip(back(own), lowest, highest), other)
            for own, other in zip(bent, plain, strict=True)
        )
    known = np.isfinite(low) & np.isfinite(high)
    low, high = np.minimum(low, value), np.maximum(high, value)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def _last(by_chain: Floats) -> Floats:
    return np.moveaxis(by_chain, 0, -1)


def _left_out(statistic: Statistic, weights: Floats, shape: tuple[int, ...]) -> Floats:
    """The figures without one chain; nan where the others alone cannot have them."""
    try:
        return np.asarray(statistic(weights), np.float64)
    except GlauberError:
        return np.full(shape, np.nan)


def rank_correlation(
    first: ArrayLike,
    second: ArrayLike,
    *,
    chain: ArrayLike | None = None,
    level: float = CONFIDENCE,
    comparisons: int = 1,
) -> Estimate:
    """Spearman's correlation of two measures (n,) with its interval.

    Of independent pairs: Fisher's z with the variance of Bonett and Wright (2000) and Student's
    reach. chain (n,) says which pairs share a chain, a text or a trap; then whole chains are left
    out in turn. Perfect order is taken as half a swap less than perfect.
    """
    x, y = np.asarray(first, np.float64), np.asarray(second, np.float64)
    names = np.arange(len(x)) if chain is None else np.asarray(chain)
    n_chains = len(np.unique(names))
    value, tail = _spearman(x, y), tail_probability(level, comparisons)
    apart = n_chains == len(x)
    method = "Fisher's z (Bonett and Wright)" if apart else JACKKNIFE
    reason = "three pairs or fewer have no order to speak of" if apart and n_chains <= 3 else ""
    reason = "one of the measures never changes" if np.isnan(value) else reason or too_few(n_chains)
    if reason:
        return Estimate(value, None, "estimate", level, n_chains, method, reason)
    ends = _ranked_apart(value, len(x), tail) if apart else _ranked_by_chain(x, y, names, tail)
    if ends is None:
        return Estimate(value, None, "estimate", level, n_chains, method, ALONE)
    return Estimate(value, ends, "estimate", level, n_chains, method)


def _spearman(x: Floats, y: Floats) -> float:
    """The correlation of ranks, ties sharing theirs; nan where a measure is constant."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    x_ranks, y_ranks = (ranks - ranks.mean() for ranks in (_ranks(x), _ranks(y)))
    return float(x_ranks @ y_ranks / np.sqrt((x_ranks @ x_ranks) * (y_ranks @ y_ranks)))


def _ranks(values: Floats) -> Floats:
    _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - count / 2)[inverse])


def _inside(correlation: ArrayLike, n: int) -> Floats:
    """At most half a swap of neighbours below perfect order, so that Fisher's z is finite."""
    most = 1 - 6 / (n**3 - n)
    return np.clip(np.asarray(correlation, np.float64), -most, most)


def _ranked_apart(value: float, n: int, tail: float) -> tuple[float, float]:
    from scipy.special import stdtrit

    inside = float(_inside(value, n))
    reach = stdtrit(n - 2, 1 - tail) * np.sqrt((1 + inside**2 / 2) / (n - 3))
    low, high = np.tanh(np.arctanh(inside) + np.array([-reach, reach]))
    return min(float(low), value), max(float(high), value)


def _ranked_by_chain(
    x: Floats, y: Floats, names: NDArray[Any], tail: float
) -> tuple[float, float] | None:
    group = np.unique(names, return_inverse=True)[1] % GROUPS
    selections = [group != number for number in np.unique(group)]
    without = np.array([_spearman(x[keep], y[keep]) for keep in selections])
    value = _spearman(x, y)
    bent = np.arctanh(_inside(value, len(x))), np.arctanh(_inside(without, len(x)))
    low, high = (float(np.tanh(end)) for end in mean_ends(pseudo_values(*bent), tail))
    return None if np.isnan(low) else (min(low, value), max(high, value))
