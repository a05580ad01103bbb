"""Quantiles of independent values, with intervals by order statistics.

The number of values up to the quantile is binomial, so two of the sorted values hold it between
them with at least the level, for any distribution. The 99th percentile needs 368 values for both
ends (a ratio of two 437, by Bonferroni); of fewer the upper end is open.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import ArrayLike

from glauber.foundation.statistics.means import CONFIDENCE, NONE, tail_probability

ORDER = "order statistics, for any distribution"


@dataclass(frozen=True)
class Quantile:
    """A quantile, or a ratio of two; None where so few values leave an end open."""

    value: float
    interval: tuple[float | None, float | None]
    kind: str = "estimate"
    level: float = CONFIDENCE
    n_chains: int = 0
    method: str = ORDER
    reason: str = ""  # why both ends are open

    def text(self, digits: int = 3) -> str:
        """As a sentence has it: 0.532 (95%: 0.498 to 0.571); an open end is a dash."""
        if self.reason:
            return f"{self.value:.{digits}f} (no interval: {self.reason})"
        low, high = ("-" if end is None else f"{end:.{digits}f}" for end in self.interval)
        return f"{self.value:.{digits}f} ({self.level:.0%}: {low} to {high})"


def quantile(
    values: ArrayLike, share: float, *, level: float = CONFIDENCE, comparisons: int = 1
) -> Quantile:
    """The smallest value that at least this share of the values (n,) does not exceed."""
    from scipy.stats import binom

    ordered = np.sort(np.asarray(values, np.float64))
    n, tail = len(ordered), tail_probability(level, comparisons)
    if not n:
        return Quantile(float("nan"), (None, None), level=level, reason=NONE)
    # P(quantile < r-th value) = P(Bin(n, share) < r), P(quantile > s-th) = P(Bin(n, share) >= s).
    first, last = int(binom.ppf(tail, n, share)), int(binom.ppf(1 - tail, n, share)) + 1
    low = float(ordered[first - 1]) if first >= 1 else None
    high = float(ordered[last - 1]) if last <= n else None
    reason = "too few values for either end" if low is None and high is None else ""
    value = float(ordered[ceil(share * n) - 1])
    return Quantile(value, (low, high), level=level, n_chains=n, reason=reason)


def quantile_ratio(
    above: ArrayLike, below: ArrayLike, share: float, *, level: float = CONFIDENCE
) -> Quantile:
    """The ratio of the quantiles of two kinds of positive values, whatever their dependence.

    Its ends are the ratios of the ends of two intervals that hold together (Bonferroni).
    """
    top, bottom = (quantile(x, share, level=level, comparisons=2) for x in (above, below))
    (low, high), (least, most) = top.interval, bottom.interval
    ends = (
        None if low is None or most is None else low / most,
        None if high is None or not least else high / least,
    )
    reason = "too few values for either end" if ends == (None, None) else ""
    n = min(top.n_chains, bottom.n_chains)
    return Quantile(top.value / bottom.value, ends, "estimate", level, n, ORDER, reason)
