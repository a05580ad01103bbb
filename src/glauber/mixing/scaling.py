"""Does the hitting time grow as n, as n log n or as n^2?

T(n) = c g(n) is the mean of a time that varies about it by a gamma law (or a log-normal one) whose
shape all lengths share. A time that was seen between two snapshots counts by the chance of that
interval, a censored one by the chance of being later. The three laws have two parameters each, so
the difference of their AIC is twice that of their log-likelihoods. A fourth fit, with a mean of
its own for every length, says whether the best of the three is any good.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import gammainc, gammaincc, ndtr
from scipy.stats import chi2

from glauber.errors import GlauberError
from glauber.mixing.semantic_drift import HittingTimes
from glauber.statistics import normal_reach

Floats = NDArray[np.float64]
Family = Literal["gamma", "log-normal"]
LAWS: dict[str, Callable[[Floats], Floats]] = {
    "n": lambda n: n,
    "n log n": lambda n: n * np.log(n),
    "n^2": lambda n: n**2,
}
LEAST = 1e-300  # chance of a time that a fit finds impossible


@dataclass(frozen=True)
class LawFit:
    """T(n) = c g(n), by maximum likelihood."""

    law: str
    c: float
    log_c_error: float  # standard error of log c
    spread: float  # standard deviation of a time over its mean, the same at every length
    log_likelihood: float
    aic_difference: float  # from the best law
    weight: float  # Akaike's
    misfit: float  # p-value against a mean of its own for every length
    kind: str = "estimate"

    @property
    def interval(self) -> tuple[float, float]:
        """Of c, at 95%."""
        reach = normal_reach() * self.log_c_error
        return self.c * float(np.exp(-reach)), self.c * float(np.exp(reach))

    def mean(self, n: Floats) -> Floats:
        """The fitted mean hitting time at lengths n."""
        return self.c * LAWS[self.law](n)


@dataclass(frozen=True)
class Scaling:
    """The three laws beside each other."""

    fits: tuple[LawFit, ...]  # in the order of LAWS
    family: Family
    n_times: int
    n_censored: int

    @property
    def best(self) -> LawFit:
        return max(self.fits, key=lambda fit: fit.log_likelihood)


def fit_scaling(times: Mapping[int, HittingTimes], *, family: Family = "gamma") -> Scaling:
    """The fits of n, n log n and n^2 to hitting times by length."""
    _check(times)
    n = np.concatenate([np.full(len(found.steps), n) for n, found in times.items()]).astype(float)
    low, high = (np.concatenate(p) for p in zip(*(t.bounds() for t in times.values()), strict=True))
    one, own = np.ones((len(n), 1)), np.eye(len(times))[np.unique(n, return_inverse=True)[1]]
    free = _Likelihood(own, np.zeros(len(n)), low, high, family)
    laws = {law: _Likelihood(one, np.log(g(n)), low, high, family) for law, g in LAWS.items()}
    highest = free.largest()[0]
    found = {law: (each, *each.largest()) for law, each in laws.items()}
    best = max(value for _, value, _ in found.values())
    total = sum(np.exp(value - best) for _, value, _ in found.values())
    fits = tuple(
        LawFit(
            law, c=float(np.exp(at[0])), log_c_error=each.first_error(at),
            spread=float(np.exp(at[-1])), log_likelihood=value, aic_difference=2 * (best - value),
            weight=float(np.exp(value - best) / total),
            misfit=float(chi2.sf(max(0.0, 2 * (highest - value)), len(times) - 1)),
        )
        for law, (each, value, at) in found.items()
    )  # fmt: skip
    return Scaling(fits, family, len(n), int(np.isinf(high).sum()))


def _check(times: Mapping[int, HittingTimes]) -> None:
    if len(times) < 2:
        raise GlauberError("a law of growth needs hitting times at two lengths at least.")
    if min(times) < 2:
        raise GlauberError("n log n is zero at n = 1: every length must be at least 2.")
    for n, found in times.items():
        if found.n_hit == 0:
            raise GlauberError(
                f"no chain of {n} tokens reached the threshold {found.threshold:g}, so its time "
                "can only be bounded: make the runs longer, or the threshold lower."
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
        slope = np.linalg.lstsq(self.design, np.log(guess) - self.offset, rcond=None)[0]
        limits = [(b - 8, b + 8) for b in slope] + [(-4.0, 2.5)]
        begin = np.append(slope, np.log(0.7))
        found = minimize(
            self.loss, begin, method="L-BFGS-B", bounds=limits, options={"ftol": 1e-13}
        )
        return -float(found.fun), np.asarray(found.x)

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
    found = np.empty((k, k))
    for i in range(k):
        for j in range(k):
            a, b = shifts[i], shifts[j]
            corners = loss(at + a + b) - loss(at + a - b) - loss(at - a + b) + loss(at - a - b)
            found[i, j] = corners / (4 * width**2)
    return found
