"""Where does the chance to meet cross one half, how sharply, and how does that change with length?

At each length n the chance to meet within the budget is fitted as a logistic curve in log
temperature,
    p(T) = 1 / (1 + exp(-(log T - log T_c) / width)),
by likelihood on a fine grid of (T_c, width). The interval of T_c holds every T_c that some width
makes likely enough (profile likelihood), so it stays honest where the shares jump from 0 to 1
between two temperatures and only a bracket is known. Finite-size scaling asks, with the same
likelihoods, for the exponents of T_c ~ n^rise and width ~ n^-sharpening.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit
from scipy.stats import chi2

from glauber.statistics import LEVEL

Floats = NDArray[np.float64]
Interval = tuple[float, float]
WIDTHS = np.geomspace(0.002, 2.0, 121)  # in log temperature: from a step to no change at all
POINTS = 801  # temperatures tried for T_c
BEYOND = 1.5  # so many times outside the temperatures that were run
EXPONENTS = np.linspace(-4.0, 4.0, 401)
DROP = chi2.ppf(LEVEL, df=1) / 2  # of the log-likelihood, at the ends of an interval


@dataclass(frozen=True)
class Crossover:
    """The temperature at which half of the pairs of a length meet within the budget.

    None where the temperatures that were run do not show it. An estimate, with 95% intervals by
    profile likelihood; pairs share their texts over temperatures, which the intervals ignore.
    A width below the spacing of the temperatures is hardly seen: its interval covers about 80%.
    """

    length: int
    temperature: float | None
    interval: Interval | None
    width: float | None  # in log temperature; from 27% to 73% of the pairs is twice that
    width_interval: Interval | None  # low end 0: a jump cannot be ruled out
    kind: str = "estimate"


class Fit(NamedTuple):
    """A length's crossover, and the likelihoods that it was read from."""

    crossover: Crossover
    middles: Floats  # (points,) log temperatures
    over_middle: Floats  # (points,) log-likelihood at each T_c, with its best width
    over_width: Floats  # (widths,) log-likelihood at each width, with its best T_c


@dataclass(frozen=True)
class Scaling:
    """Exponents over lengths, with 95% intervals: T_c ~ n^rise, width ~ n^-sharpening."""

    lengths: tuple[int, ...]
    rise: float
    rise_interval: Interval
    sharpening: float  # positive: the crossover is sharper for longer texts
    sharpening_interval: Interval
    kind: str = "estimate"


def fit(
    length: int,
    temperatures: Sequence[float],
    met: Sequence[tuple[int, int]],
    *,
    ends: Interval,
) -> Fit:
    """The crossover of one length from (pairs that met, all pairs) at each temperature.

    T_c is looked for somewhat beyond both ends, the coldest and the hottest of all temperatures.
    """
    beyond = np.log(BEYOND)
    middles = np.linspace(np.log(ends[0]) - beyond, np.log(ends[1]) + beyond, POINTS)
    likelihood = np.zeros((POINTS, len(WIDTHS)))
    for at, (n_met, n_pairs) in zip(np.log(temperatures), met, strict=True):
        logit = (at - middles[:, None]) / WIDTHS
        likelihood += n_met * log_expit(logit) + (n_pairs - n_met) * log_expit(-logit)
    over_middle, over_width = likelihood.max(axis=1), likelihood.max(axis=0)
    shares = [n_met / n_pairs for n_met, n_pairs in met]
    if max(shares) < 0.5 or min(shares) > 0.5:
        unseen = Crossover(length, None, None, None, None)
        return Fit(unseen, middles, over_middle, over_width)
    low, best, high = np.exp(_likely(middles, over_middle))
    narrow, width, wide = np.exp(_likely(np.log(WIDTHS), over_width))
    at_edge = WIDTHS[0] * (1 + 1e-9)
    found = Crossover(
        length,
        float(best),
        (float(low), float(high)),
        0.0 if over_width.argmax() == 0 else float(width),
        (0.0 if narrow <= at_edge else float(narrow), float(wide)),
    )
    return Fit(found, middles, over_middle, over_width)


def scaling(fits: Sequence[Fit]) -> Scaling:
    """How T_c and the width change over the lengths of the fits, at least two."""
    lengths = [one.crossover.length for one in fits]
    logs = np.log(lengths) - np.mean(np.log(lengths))
    rise = _exponent(logs, [(one.middles, one.over_middle) for one in fits])
    narrowing = _exponent(-logs, [(np.log(WIDTHS), one.over_width) for one in fits])
    return Scaling(
        tuple(lengths), rise[1], (rise[0], rise[2]), narrowing[1], (narrowing[0], narrowing[2])
    )


def _exponent(logs: Floats, curves: Sequence[tuple[Floats, Floats]]) -> tuple[float, float, float]:
    """Low end, best and high end of b in  log y(n) = a + b log n,  given likelihoods of log y."""
    levels = curves[0][0]
    wide = levels[-1] - levels[0]
    bases = np.linspace(levels[0] - wide, levels[-1] + wide, 3 * len(levels))
    total = np.zeros((len(EXPONENTS), len(bases)))
    for log_n, (values, likelihood) in zip(logs, curves, strict=True):
        total += np.interp(bases + EXPONENTS[:, None] * log_n, values, likelihood)
    low, best, high = _likely(EXPONENTS, total.max(axis=1))
    return float(low), float(best), float(high)


def _likely(values: Floats, likelihood: Floats) -> Floats:
    """Low end, best and high end (3,) of the values (points,) by their log-likelihoods.

    Where several values fit equally well, the best is the middle of them. The ends are the first
    values that are not likely enough, so the grid never makes the interval too short.
    """
    best = values[likelihood >= likelihood.max() - 1e-6]
    enough = np.flatnonzero(likelihood >= likelihood.max() - DROP)
    low, high = max(enough[0] - 1, 0), min(enough[-1] + 1, len(values) - 1)
    return np.array([values[low], (best[0] + best[-1]) / 2, values[high]])
