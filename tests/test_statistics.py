"""Intervals of means and times."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from glauber.statistics import mean_over_chains, median_time, median_time_by_chain


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
