"""When do pairs meet, if some have not met yet? Kaplan and Meier's estimate, from SciPy."""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import CensoredData, ecdf

LEVEL = 0.95


@dataclass(frozen=True)
class Median:
    """The median of times of which some are censored, with an interval; None: beyond what was seen.

    An estimate: the interval holds at each time by itself (log-log, from Greenwood's variance).
    """

    value: float | None
    low: float | None
    high: float | None
    kind: str = "estimate"


def median_time(times: ArrayLike, met: ArrayLike) -> Median:
    """The median of the times (pairs,), of which those that have not met are lower limits."""
    times, met = np.asarray(times, float), np.asarray(met, bool)
    if not met.any():
        return Median(None, float(times.min()), None)
    staying = ecdf(CensoredData(uncensored=times[met], right=times[~met])).sf
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # no limits where the curve is 0 or 1
        band = staying.confidence_interval(LEVEL, method="log-log")
    at = staying.quantiles
    value, low, high = (
        _first_below_half(at, curve)
        for curve in (staying.probabilities, band.low.probabilities, band.high.probabilities)
    )
    return Median(value, low, high)


def _first_below_half(times: ArrayLike, probabilities: ArrayLike) -> float | None:
    """The first time at which the curve is at most one half; a bound that is not known is none."""
    below = np.asarray(probabilities) <= 0.5
    return float(np.asarray(times)[below.argmax()]) if below.any() else None
