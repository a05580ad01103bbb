"""The temperature at which the chance to meet is one half, how sharply, and its growth with length.

At each length n the chance to meet within the budget is fitted as a logistic curve in log
temperature,
    p(T) = 1 / (1 + exp(-(log T - log T_c) / width)),
by likelihood on a fine grid of (T_c, width). The interval of T_c contains every T_c that some width
makes likely enough (profile likelihood), so it stays honest where the shares jump from 0 to 1
between two temperatures and only a bracket is known. Finite-size scaling estimates, with the same
likelihoods, the exponents of T_c ~ n^rise and width ~ n^-sharpening.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit
from scipy.stats import t as student

from glauber.foundation.statistics import CONFIDENCE

Floats = NDArray[np.float64]
Ends = tuple[float | None, float | None]  # of an interval; None: nothing bounds it there
WIDTHS = np.geomspace(0.002, 2.0, 121)  # in log temperature: from a step to no change at all
POINTS = 801  # temperatures tried for T_c
BEYOND = 1.5  # so many times outside the temperatures that were run
EXPONENTS = 401  # tried for each law of growth


@dataclass(frozen=True)
class Crossover:
    """The temperature at which half of the pairs of a length meet within the budget.

    None where the temperatures that were run do not show it: then its interval still says on
    which side it lies. An estimate, with 95% intervals by profile likelihood. A width below the
    spacing of the temperatures is hardly seen: its interval covers about 80%.
    """

    length: int
    temperature: float | None
    interval: Ends
    width: float | None  # in log temperature; from 27% to 73% of the pairs is twice that
    width_interval: Ends  # low end 0: a jump cannot be ruled out
    kind: str = "estimate"

    @property
    def label(self) -> str:
        """Such as 1.41 (1.32 to 1.52)."""
        ends = ends_text(self.interval, ".3g")
        return ends if self.temperature is None else f"{self.temperature:.3g} ({ends})"


class CrossoverFit(NamedTuple):
    """A length's crossover, and the likelihoods that it was read from."""

    crossover: Crossover
    middles: Floats  # (points,) log temperatures
    over_middle: Floats  # (points,) log-likelihood at each T_c, with its best width
    over_width: Floats  # (widths,) log-likelihood at each width, with its best T_c
    drop: float  # of the log-likelihood, at the ends of an interval


@dataclass(frozen=True)
class CrossoverScaling:
    """Exponents over lengths, with 95% intervals: T_c ~ n^rise, width ~ n^-sharpening."""

    lengths: tuple[int, ...]
    rise: float
    rise_interval: Ends
    sharpening: float  # positive: the crossover is sharper for longer texts
    sharpening_interval: Ends
    kind: str = "estimate"

    @property
    def rises(self) -> bool | None:
        """Whether the crossover moves to higher temperatures with length; None: cannot tell."""
        low, high = self.rise_interval
        if low is not None and low > 0:
            return True
        return False if high is not None and high < 0 else None


def fit_crossover(
    length: int,
    temperatures: Sequence[float],
    met: Sequence[tuple[int, int]],
    *,
    ends: tuple[float, float],
) -> CrossoverFit:
    """The crossover of one length from (pairs that met, all pairs) at each temperature.

    T_c is searched for somewhat beyond both ends, the coldest and the hottest of all temperatures.
    """
    beyond = np.log(BEYOND)
    middles = np.linspace(np.log(ends[0]) - beyond, np.log(ends[1]) + beyond, POINTS)
    likelihood = np.zeros((POINTS, len(WIDTHS)))
    for at, (n_met, n_pairs) in zip(np.log(temperatures), met, strict=True):
        logit = (at - middles[:, None]) / WIDTHS
        likelihood += n_met * log_expit(logit) + (n_pairs - n_met) * log_expit(-logit)
    over_middle, over_width = likelihood.max(axis=1), likelihood.max(axis=0)
    shares = [n_met / n_pairs for n_met, n_pairs in met]
    drop = _drop(min(n_pairs for _, n_pairs in met))
    best, interval = most_likely(middles, over_middle, drop)
    low, high = (None if end is None else float(np.exp(end)) for end in interval)
    if max(shares) < 0.5 or min(shares) > 0.5:
        unseen = Crossover(length, None, (low, high), None, (None, None))
        return CrossoverFit(unseen, middles, over_middle, over_width, drop)
    width, (narrow, wide) = most_likely(np.log(WIDTHS), over_width, drop)
    crossover = Crossover(
        length,
        float(np.exp(best)),
        (low, high),
        0.0 if over_width.argmax() == 0 else float(np.exp(width)),
        (0.0 if narrow is None else float(np.exp(narrow)), None if wide is None else np.exp(wide)),
    )
    return CrossoverFit(crossover, middles, over_middle, over_width, drop)


def ends_text(ends: Ends, number: str = ".2f") -> str:
    """The ends of an interval in words."""
    low, high = (None if end is None else format(end, number) for end in ends)
    if low is None or high is None:
        return f"above {low}" if low else f"below {high}" if high else "anywhere"
    return f"{low} to {high}"


def fit_exponents(fits: Sequence[CrossoverFit]) -> CrossoverScaling:
    """How T_c and the width change over the lengths of the fits, at least two."""
    lengths = [fit.crossover.length for fit in fits]
    logs = np.log(lengths) - np.mean(np.log(lengths))
    drop = max(fit.drop for fit in fits)
    rise = _exponent(logs, [(fit.middles, fit.over_middle) for fit in fits], drop)
    narrowing = _exponent(-logs, [(np.log(WIDTHS), fit.over_width) for fit in fits], drop)
    return CrossoverScaling(tuple(lengths), *rise, *narrowing)


def _drop(n_pairs: int) -> float:
    """How far the log-likelihood may fall within an interval, if cells have so many pairs.

    Student's quantile for the normal one, with the pairs of two cells: about as many stand where
    the chance to meet is neither 0 nor 1. A single pair allows no interval.
    """
    freedom = 2 * (n_pairs - 1)
    return float(student.ppf((1 + CONFIDENCE) / 2, freedom)) ** 2 / 2 if freedom else np.inf


def _exponent(
    logs: Floats, curves: Sequence[tuple[Floats, Floats]], drop: float
) -> tuple[float, Ends]:
    """The best b in  log y(n) = a + b log n  and its interval, given likelihoods of log y.

    Beyond the largest exponent that is tried, not even the first and the last length could both
    lie within the levels that were tried: the data say no more there, and the end is open.
    """
    levels = curves[0][0]
    wide = levels[-1] - levels[0]
    steepest = wide / np.ptp(logs)
    exponents = np.linspace(-steepest, steepest, EXPONENTS)
    bases = np.linspace(levels[0] - wide, levels[-1] + wide, 3 * len(levels))
    total = np.zeros((len(exponents), len(bases)))
    for log_n, (values, likelihood) in zip(logs, curves, strict=True):
        total += np.interp(bases + exponents[:, None] * log_n, values, likelihood)
    return most_likely(exponents, total.max(axis=1), drop)


def most_likely(values: Floats, likelihood: Floats, drop: float) -> tuple[float, Ends]:
    """The best of the values (points,) by their log-likelihoods, and the ends of its interval.

    Where several values fit equally well, the best is the middle of them. The ends are the first
    values that are not likely enough, so the grid never makes the interval too short; an end that
    the grid does not show is open.
    """
    best = values[likelihood >= likelihood.max() - 1e-6]
    enough = np.flatnonzero(likelihood >= likelihood.max() - drop)
    low = None if enough[0] == 0 else float(values[enough[0] - 1])
    high = None if enough[-1] == len(values) - 1 else float(values[enough[-1] + 1])
    return float((best[0] + best[-1]) / 2), (low, high)
