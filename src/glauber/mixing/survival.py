"""How long does it take, if some have not got there yet? Kaplan and Meier's estimate, from SciPy.

What has not happened by the end of its budget is censored: its time is known to be later. Leaving
it out would make slow look fast, so it stays in.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import CensoredData, ecdf

LEVEL = 0.95


@dataclass(frozen=True)
class MedianTime:
    """The median; None where fewer than half are known to have got there."""

    value: float | None
    interval: tuple[float | None, float | None]  # an open end is None
    kind: str = "estimate"
    level: float = LEVEL


def median_time(times: ArrayLike, happened: ArrayLike) -> MedianTime:
    """The median of times (n,), where what has not happened (n,) is known to be later.

    The interval holds the times at which the log-log band of the survival crosses one half.
    """
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
    return MedianTime(_first_half(at, left), (_first_half(at, ends[0]), _first_half(at, ends[1])))


def _first_half(times: NDArray[np.float64], survival: NDArray[np.float64]) -> float | None:
    """The first time at which no more than half is left."""
    reached = np.nonzero(survival <= 0.5)[0]
    return float(times[reached[0]]) if len(reached) else None
