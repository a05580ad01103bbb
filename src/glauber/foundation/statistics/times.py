"""Median times where some were not observed to end (censored)."""

from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glauber.foundation.statistics.means import (
    CONFIDENCE,
    MIN_CHAINS,
    Floats,
    mean_ends,
    pseudo_values,
    tail_probability,
    too_few,
)

BETA = "beta product (Fay, Brittain and Proschan)"
OPEN = "too few times to bracket the median"


@dataclass(frozen=True)
class MedianTime:
    """A median time; None where fewer than half are known to have got there."""

    value: float | None
    interval: tuple[float | None, float | None]  # an open end is None
    kind: str = "estimate"
    level: float = CONFIDENCE
    n_chains: int = 0
    method: str = ""
    reason: str = ""  # why both ends are open


def median_time(times: ArrayLike, observed: ArrayLike, *, level: float = CONFIDENCE) -> MedianTime:
    """The median of times (n,) by Kaplan and Meier, where what has not observed (n,) is later.

    Leaving out what is known to be later (censored) would make slow look fast, so it stays in. The
    interval inverts the beta product bounds of the survival; without censoring these are Clopper
    and Pearson's, so four or five times alone cannot bracket their median.
    """
    seen, ended = np.asarray(times, np.float64), np.asarray(observed, np.bool_)
    value, n = _kaplan_meier_median(seen, ended), len(seen)
    ends = (
        _beta_product_ends(seen, ended, tail_probability(level))
        if too_few(n) == ""
        else (None, None)
    )
    reason = (too_few(n) or OPEN) if ends == (None, None) else ""
    return MedianTime(value, ends, "estimate", level, n, BETA, reason)


def _kaplan_meier_median(times: Floats, observed: NDArray[np.bool_]) -> float | None:
    """The first time at which at most half are left; where rounding could decide, in fractions."""
    at, gone = np.unique(times[observed], return_counts=True)
    risk = len(times) - np.searchsorted(np.sort(times), at)
    left = np.cumprod(1 - gone / risk)
    for step in np.flatnonzero(np.abs(left - 0.5) < 1e-9):
        pairs = zip(risk[: step + 1].tolist(), gone[: step + 1].tolist(), strict=True)
        exact = prod((Fraction(before - lost, before) for before, lost in pairs), start=Fraction(1))
        left[step] = 0.5 if exact <= Fraction(1, 2) else 1.0
    return _first(at, left <= 0.5)


def _beta_product_ends(
    times: Floats, observed: NDArray[np.bool_], tail: float
) -> tuple[float | None, float | None]:
    """Where the bounds of the survival cross one half.

    The survival after d of Y at risk is a product of Beta(Y - d + 1, d), and below it one more
    Beta(Y after, 1); each product is taken as the beta law of its mean and variance.
    """
    at = np.unique(times)
    risk = (times >= at[:, None]).sum(axis=1).astype(np.float64)
    gone = ((times == at[:, None]) & observed).sum(axis=1).astype(np.float64)
    after = (times > at[:, None]).sum(axis=1).astype(np.float64)
    first = np.cumsum(np.log((risk - gone + 1) / (risk + 1)))
    second = first + np.cumsum(np.log((risk - gone + 2) / (risk + 2)))
    high = _beta_quantile(first, second, 1 - tail)
    more = np.log(np.maximum(after, 1e-300) / (after + 1))
    both = more + np.log((after + 1) / (after + 2))
    low = np.where(after > 0, _beta_quantile(first + more, second + both, tail), 0.0)
    start = tail ** (1 / len(times)) <= 0.5  # even before the first time half may be gone
    begins = None if start else _first(at, low <= 0.5)
    return begins, _first(at, high < 0.5)


def _beta_quantile(log_first: Floats, log_second: Floats, share: float) -> Floats:
    """Of the beta law with the moments exp(log_first), exp(log_second); 1 where it is 1."""
    from scipy.special import betaincinv

    mean, square = np.exp(log_first), np.exp(log_second)
    variance = np.maximum(square - mean**2, 1e-300)
    size = (mean - square) / variance
    some = mean < 1 - 1e-12
    safe = np.where(some, mean, 0.5), np.where(some, size, 1.0)
    quantile = betaincinv(safe[0] * safe[1], (1 - safe[0]) * safe[1], share)
    return np.where(some, quantile, 1.0)


def _first(times: Floats, where: NDArray[np.bool_]) -> float | None:
    return float(times[where.argmax()]) if where.any() else None


def clustered_median_time(
    times: Floats,
    observed: NDArray[np.bool_],
    chain: NDArray[np.int64],
    *,
    level: float = CONFIDENCE,
) -> MedianTime:
    """The same median with an interval over chains, where a chain has several times; all (n,).

    Times of one chain are not independent of each other; chains are. The survival at each time
    gets its interval from leaving out each chain once.
    """
    times, observed = np.asarray(times, np.float64), np.asarray(observed, np.bool_)
    names, whose = np.unique(np.asarray(chain), return_inverse=True)
    n = len(names)
    if n == len(times):
        return median_time(times, observed, level=level)
    value, at = _kaplan_meier_median(times, observed), np.unique(times[observed])
    method = "jackknife of the survival over chains"
    if n <= MIN_CHAINS or len(at) == 0:  # of three chains it held 92% where it was given at all
        return MedianTime(value, (None, None), "estimate", level, n, method, too_few(n) or OPEN)
    tail = tail_probability(level)
    low, high = mean_ends(_survival_by_chain(times, observed, whose, at), tail, (0.0, 1.0))
    above = np.flatnonzero(low > 0.5)  # surely more than half are left
    start = above[-1] + 1 if len(above) else 0
    open_start = len(above) == 0 and tail ** (1 / n) <= 0.5
    begins = None if open_start or start == len(at) else float(at[start])
    ends = begins, _first(at, high < 0.5)
    return MedianTime(value, ends, "estimate", level, n, method, OPEN * (ends == (None, None)))


def _survival_by_chain(
    times: Floats, observed: NDArray[np.bool_], whose: NDArray[np.int64], at: Floats
) -> Floats:
    """Pseudo-values (times, chains) of the survival of Kaplan and Meier at each time."""
    mine = (np.arange(whose.max() + 1)[:, None] == whose).astype(np.float64)  # (chains, n)
    risk = mine @ (times[:, None] >= at)
    gone = mine @ ((times[:, None] == at) & observed[:, None])
    everyone = np.cumprod(1 - gone.sum(axis=0) / risk.sum(axis=0))
    others, ended = risk.sum(axis=0) - risk, gone.sum(axis=0) - gone
    without = np.cumprod(1 - ended / np.maximum(others, 1), axis=1)
    return pseudo_values(everyone, without).T
