"""Intervals of means and times."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from glauber.statistics import (
    mean_over_chains,
    median_time,
    median_time_by_chain,
    normal_reach,
    standard_error,
)


def test_the_interval_of_a_mean_is_student_s():
    values = np.array([0.2, 0.5, 0.4, 0.9])
    found = mean_over_chains(values)
    reference = ttest_1samp(values, 0).confidence_interval(0.95)
    assert found.value == pytest.approx(0.5)
    assert found.interval == pytest.approx((reference.low, reference.high))
    assert mean_over_chains([0.3]).interval is None


def test_a_share_does_not_leave_0_to_1():
    few = mean_over_chains([0.0, 1.0, 1.0], bounds=(0.0, 1.0))
    free = mean_over_chains([0.0, 1.0, 1.0])
    assert free.interval[0] < 0 and free.interval[1] > 1
    assert few.value == free.value and few.interval == (0.0, 1.0)


def test_both_median_times_are_one():
    """With one time a chain, the median by chain is the plain one."""
    times = np.random.default_rng(1).integers(1, 30, size=40).astype(float)
    happened = times < 24
    seen = np.minimum(times, 24)
    plain = median_time(seen, happened)
    by_chain = median_time_by_chain(seen, happened, np.arange(40), n_chains=40, seed=0)
    assert by_chain.value == plain.value
    # Both intervals are of 95% over 40 independent times: their ends lie within a few steps.
    np.testing.assert_allclose(by_chain.interval, plain.interval, atol=4)
    assert median_time_by_chain(
        seen, np.zeros(40, bool), np.arange(40), n_chains=40, seed=0
    ).interval == (None, None)


def test_normal_intervals_by_the_table():
    """1.95996 of two sides at 95%, 1.64485 at 90%; two comparisons at 90% are one at 95%."""
    assert normal_reach() == pytest.approx(1.959964, abs=1e-6)
    assert normal_reach(0.9) == pytest.approx(1.644854, abs=1e-6)
    assert normal_reach(0.9, comparisons=2) == pytest.approx(1.959964, abs=1e-6)


def test_the_standard_error_by_hand():
    """1, 2, 3, 6: squares about 3 sum to 14; sqrt(14 / 3 / 4)."""
    assert standard_error(np.array([1, 2, 3, 6])) == pytest.approx((14 / 12) ** 0.5)
