"""Growth of hitting times with length: as n, as n log n, as n^2 or as a free power of n.

T(n) = c g(n) is the mean of a time that varies about it by a gamma law (or a log-normal one) whose
shape all lengths share. A time that was seen between two snapshots counts by the chance of that
interval, a censored one by the chance of being later. The three laws have two parameters each, so
the difference of their AIC is twice that of their log-likelihoods; their weights compare these
three with one another and with nothing else. A fourth fit is T(n) = c n^b with b free, its
interval by profile likelihood, on each side the wider of those for gamma and for log-normal times,
since which of them is right is not known. A last fit, with a mean of its own for every length,
says whether any of them is any good.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import gammainc, gammaincc, ndtr
from scipy.stats import chi2
from scipy.stats import t as student

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import CONFIDENCE, MIN_CHAINS, t_quantile
from glauber.studies.mixing.semantic_drift import HittingTimes

Floats = NDArray[np.float64]
Family = Literal["gamma", "log-normal"]
FAMILIES: tuple[Family, ...] = ("gamma", "log-normal")
LAWS: dict[str, Callable[[Floats], Floats]] = {
    "n": lambda n: n,
    "n log n": lambda n: n * np.log(n),
    "n^2": lambda n: n**2,
}
LEAST = 1e-300  # chance of a time that a fit finds impossible
FARTHEST = 30.0  # exponents from the best one up to which an end of its interval is looked for


@dataclass(frozen=True)
class LawFit:
    """T(n) = c g(n), by maximum likelihood."""

    law: str
    c: float
    log_c_error: float  # standard error of log c
    n_seen: int  # times that are not censored: the error rests on them
    spread: float  # standard deviation of a time over its mean, the same at every length
    log_likelihood: float
    aic_difference: float  # from the best law
    weight: float  # Akaike's, among the laws that are given
    misfit: float  # p-value against a mean of its own for every length
    kind: str = "estimate"

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of c, at 95%: Student's, as the spread is fitted too; None below three times seen."""
        if self.n_seen < MIN_CHAINS:
            return None
        reach = t_quantile(self.n_seen - 1) * self.log_c_error
        return self.c * float(np.exp(-reach)), self.c * float(np.exp(reach))

    def mean(self, n: Floats) -> Floats:
        """The fitted mean hitting time at lengths n."""
        return self.c * LAWS[self.law](n)


@dataclass(frozen=True)
class PowerFit:
    """T(n) = c n^b with b free, by maximum likelihood."""

    b: float
    interval: tuple[float | None, float | None]  # of b, by both families; None: nothing bounds it
    c: float
    spread: float
    log_likelihood: float
    aic_difference: float  # from the best of the laws; below zero: the free power is better
    misfit: float
    kind: str = "estimate"

    @property
    def label(self) -> str:
        """Such as n^1.34 (1.22 to 1.46)."""
        low, high = ("open" if end is None else f"{end:.2f}" for end in self.interval)
        return f"n^{self.b:.2f} ({low} to {high})"

    def allows(self, exponent: float) -> bool:
        """Whether the exponent lies within the interval."""
        low, high = self.interval
        return (low is None or low <= exponent) and (high is None or exponent <= high)

    def mean(self, n: Floats) -> Floats:
        """The fitted mean hitting time at lengths n."""
        return self.c * n**self.b


@dataclass(frozen=True)
class Scaling:
    """The three laws compared, and the power that fits best."""

    fits: tuple[LawFit, ...]  # in the order of LAWS
    power: PowerFit
    lengths: tuple[int, ...]
    family: Family
    n_times: int
    n_censored: int
    level: float = CONFIDENCE  # of the power's interval

    @property
    def best(self) -> LawFit:
        return max(self.fits, key=lambda fit: fit.log_likelihood)

    def exponent(self, law: str) -> float:
        """The power of n that a law looks like over these lengths: the slope of log g on log n."""
        n = np.asarray(self.lengths, np.float64)
        return float(np.polyfit(np.log(n), np.log(LAWS[law](n)), 1)[0])

    @property
    def summary(self) -> str:
        """Which powers the times allow, and which of the laws look like one of them."""
        inside = [law for law in LAWS if self.power.allows(self.exponent(law))]
        which = " and ".join(inside) or "none of n, n log n, n^2"
        return (
            f"as a free power: {self.power.label} (estimate, 95% by profile likelihood, the wider "
            "of gamma and log-normal times on each side), which "
            f"contains {which}; {self.best.law} has the weight {self.best.weight:.2f} among n, "
            "n log n and n^2 alone"
        )


def fit_scaling(
    times: Mapping[int, HittingTimes], *, family: Family = "gamma", comparisons: int = 1
) -> Scaling:
    """The fits of n, n log n, n^2 and of a free power to hitting times by length.

    The likelihood is that of one family of times. With the wrong one the interval of the power is
    too narrow (a gamma fit of log-normal times contains the truth in 73% to 95% of samples, by
    their spread), so on each side it is the wider of those by both families. The intervals of
    the three laws' constants are those of the family alone. With several comparisons the interval
    of the power is wider still, so that all are right together.
    """
    _check(times)
    n = np.concatenate([np.full(len(t.steps), n) for n, t in times.items()]).astype(float)
    low, high = (np.concatenate(p) for p in zip(*(t.bounds() for t in times.values()), strict=True))
    constant = np.ones((len(n), 1))
    by_length = np.eye(len(times))[np.unique(n, return_inverse=True)[1]]

    def likelihood(design: Floats, offset: Floats, kind: Family = family) -> _Likelihood:
        return _Likelihood(design, offset, low, high, kind)

    highest = likelihood(by_length, np.zeros(len(n))).largest()[0]
    likelihoods = {law: likelihood(constant, np.log(g(n))) for law, g in LAWS.items()}
    maxima = {law: (each, *each.largest()) for law, each in likelihoods.items()}
    best = max(value for _, value, _ in maxima.values())
    total = sum(np.exp(value - best) for _, value, _ in maxima.values())
    n_seen = int(np.isfinite(high).sum())
    fits = tuple(
        LawFit(
            law,
            c=float(np.exp(at[0])),
            log_c_error=each.first_error(at),
            n_seen=n_seen,
            spread=float(np.exp(at[-1])),
            log_likelihood=value,
            aic_difference=2 * (best - value),
            weight=float(np.exp(value - best) / total),
            misfit=_misfit(highest, value, len(times) - 1),
        )
        for law, (each, value, at) in maxima.items()
    )
    level = 1 - (1 - CONFIDENCE) / comparisons
    power = _fit_power(likelihood, n, best=best, highest=highest, n_lengths=len(times), level=level)
    for other in FAMILIES:
        if other != family:
            profile = _Profile(partial(likelihood, kind=other), n, level)
            power = replace(power, interval=_wider(power.interval, profile.interval()))
    return Scaling(fits, power, tuple(times), family, len(n), len(n) - n_seen, level)


def _fit_power(
    likelihood: Callable[[Floats, Floats], "_Likelihood"],
    n: Floats,
    *,
    best: float,
    highest: float,
    n_lengths: int,
    level: float,
) -> PowerFit:
    """c n^b by the family of the likelihood."""
    profile = _Profile(likelihood, n, level)
    top, at = profile.top
    b = float(at[1])
    return PowerFit(
        b,
        profile.interval(),
        c=float(np.exp(at[0] - b * profile.middle)),
        spread=float(np.exp(at[-1])),
        log_likelihood=top,
        aic_difference=2 * (best - top) + 2,
        misfit=_misfit(highest, top, n_lengths - 2),
    )


class _Profile:
    """The likelihood of c n^b as a function of b: its top over (c, b), and where it has fallen."""

    def __init__(
        self, likelihood: Callable[[Floats, Floats], "_Likelihood"], n: Floats, level: float
    ) -> None:
        self.likelihood, self.logs = likelihood, np.log(n)
        self.middle = self.logs.mean()
        design = np.stack([np.ones_like(n), self.logs - self.middle], axis=1)
        both = likelihood(design, np.zeros_like(n))
        self.top = both.largest()
        # Student's quantile for the normal one, so that few times give the wider interval they
        # should.
        freedom = int(np.isfinite(both.high).sum()) - 3
        reach = float(student.ppf((1 + level) / 2, freedom)) if freedom > 0 else np.inf
        self.drop = reach**2 / 2

    def fallen(self, exponent: float) -> float:
        """How far the profile lies below the end of an interval; negative inside."""
        offset = exponent * (self.logs - self.middle)
        profile = self.likelihood(np.ones((len(self.logs), 1)), offset)
        return self.top[0] - profile.largest()[0] - self.drop

    def interval(self) -> tuple[float | None, float | None]:
        """The ends of the interval of b; None where nothing bounds it."""
        b = float(self.top[1][1])
        return _end(self.fallen, b, -1.0), _end(self.fallen, b, 1.0)


def _wider(
    first: tuple[float | None, float | None], second: tuple[float | None, float | None]
) -> tuple[float | None, float | None]:
    """Each end of the interval that reaches farther there; an open end stays open."""
    low = None if first[0] is None or second[0] is None else min(first[0], second[0])
    high = None if first[1] is None or second[1] is None else max(first[1], second[1])
    return low, high


def _end(fallen: Callable[[float], float], best: float, side: float) -> float | None:
    """Where the profile leaves the interval on that side of the best; None if it never does."""
    reach = 0.25
    while fallen(best + side * reach) < 0:
        reach *= 2
        if reach > FARTHEST:
            return None
    low = 0.0 if reach == 0.25 else reach / 2
    return float(brentq(lambda r: fallen(best + side * r), low, reach, xtol=1e-3)) * side + best


def _misfit(highest: float, value: float, freedom: int) -> float:
    """The p-value of a law against a mean of its own for every length."""
    return float(chi2.sf(max(0.0, 2 * (highest - value)), freedom)) if freedom > 0 else float("nan")


def _check(times: Mapping[int, HittingTimes]) -> None:
    if len(times) < 2:
        raise GlauberError("a law of growth needs hitting times at two lengths at least.")
    if min(times) < 2:
        raise GlauberError("n log n is zero at n = 1: every length must be at least 2.")
    if not any(t.n_hit for t in times.values()):
        threshold = next(iter(times.values())).threshold
        raise GlauberError(
            f"no chain reached the threshold {threshold:g}, so its time can only be bounded: make "
            "the runs longer, or the threshold lower."
        )


@dataclass(frozen=True, eq=False)
class _Likelihood:
    """Of times in (low, high] with means exp(offset + design @ b) and one spread exp(s)."""

    design: Floats  # (times, k)
    offset: Floats  # (times,)
    low: Floats
    high: Floats
    family: Family

    def loss(self, at: Floats) -> float:
        """Minus the log-likelihood at (b, s)."""
        mean = np.exp(self.offset + self.design @ at[:-1])
        chance = _chance(self.low, self.high, mean, spread=np.exp(at[-1]), family=self.family)
        return -float(np.log(chance).sum())

    def largest(self) -> tuple[float, Floats]:
        """The largest log-likelihood, and where it is."""
        guess = np.where(np.isinf(self.high), 2 * self.low, (self.low + self.high) / 2)
        sure = np.where(np.isinf(self.high), 1e-3, 1.0)  # what is censored says little of where
        slope = np.linalg.lstsq(
            self.design * sure[:, None], (np.log(guess) - self.offset) * sure, rcond=None
        )[0]
        reach = 8 + np.ptp(self.offset)  # where the longest texts only bound their time, far away
        limits = [(b - reach, b + reach) for b in slope] + [(-4.0, 2.5)]
        guess = np.append(slope, np.log(0.7))
        optimum = minimize(
            self.loss, guess, method="L-BFGS-B", bounds=limits, options={"ftol": 1e-13}
        )
        return -float(optimum.fun), np.asarray(optimum.x)

    def first_error(self, at: Floats) -> float:
        """The standard error of the first coefficient, from the curvature."""
        return float(np.sqrt(np.linalg.inv(_curvature(self.loss, at))[0, 0]))


def _chance(low: Floats, high: Floats, mean: Floats, *, spread: float, family: Family) -> Floats:
    """P(low < T <= high) of each time, (times,), as a difference on the side of the nearer tail."""
    if family == "gamma":
        shape = 1 / spread**2
        a, b = low * shape / mean, high * shape / mean
        left = gammainc(shape, b) - gammainc(shape, a)
        right = gammaincc(shape, a) - gammaincc(shape, b)
    else:
        width = np.sqrt(np.log1p(spread**2))
        with np.errstate(divide="ignore"):  # log 0 is what it should be
            a, b = ((np.log(x / mean) + width**2 / 2) / width for x in (low, high))
        left, right = ndtr(b) - ndtr(a), ndtr(-a) - ndtr(-b)
    return np.maximum(np.where(low > mean, right, left), LEAST)


def _curvature(loss: Callable[[Floats], float], at: Floats, width: float = 1e-3) -> Floats:
    """The matrix of second derivatives, by central differences."""
    k = len(at)
    shifts = np.eye(k) * width
    matrix = np.empty((k, k))
    for i in range(k):
        for j in range(k):
            a, b = shifts[i], shifts[j]
            corners = loss(at + a + b) - loss(at + a - b) - loss(at - a + b) + loss(at - a - b)
            matrix[i, j] = corners / (4 * width**2)
    return matrix
