"""Do order statistics hold the quantile, and are they no wider than they must be?"""

from math import comb

import numpy as np
import pytest

from glauber.foundation.statistics import median_time, quantile, quantile_ratio


def below(count: int, n: int, share: float) -> float:
    """The chance that fewer than `count` of n values lie at or below the quantile."""
    return sum(comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(count))


@pytest.mark.parametrize(("n", "share"), [(12, 0.5), (40, 0.9), (368, 0.99), (400, 0.05)])
def test_each_end_errs_with_at_most_half_and_the_next_one_would_not(n, share):
    low, high = (int(end) for end in quantile(np.arange(1, n + 1), share).interval)
    assert below(low, n, share) <= 0.025 < below(low + 1, n, share)
    assert 1 - below(high, n, share) <= 0.025 < 1 - below(high - 1, n, share)


@pytest.mark.parametrize("n", [5, 6, 30, 101])
def test_the_median_has_the_interval_of_median_times(n):
    values = np.random.default_rng(n).exponential(size=n)
    assert quantile(values, 0.5).interval == median_time(values, np.ones(n, bool)).interval


def test_a_percentile_needs_enough_values_for_both_ends():
    assert quantile(range(367), 0.99).interval[1] is None
    assert quantile(range(368), 0.99).interval[1] == 367
    assert quantile_ratio(range(1, 437), range(1, 437), 0.99).interval == (None, None)
    low, high = quantile_ratio(range(1, 438), range(1, 438), 0.99).interval
    assert low < 1 < high
    assert "too few" in quantile_ratio([1, 2], [1, 2], 0.99).text()
    assert quantile([], 0.5).interval == (None, None)


def test_a_ratio_is_that_of_two_intervals_that_hold_together():
    draw = np.random.default_rng(0)
    slow, fast = draw.exponential(size=500) + 3, draw.exponential(size=500) + 1
    ratio = quantile_ratio(slow, fast, 0.5)
    top, bottom = (quantile(x, 0.5, level=0.975) for x in (slow, fast))
    assert ratio.value == top.value / bottom.value
    assert ratio.interval == pytest.approx(
        (top.interval[0] / bottom.interval[1], top.interval[1] / bottom.interval[0])
    )
    assert quantile_ratio(2 * fast, fast, 0.9).value == pytest.approx(2)
