"""Intervals of means and times."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from glauber.statistics import (
    difference,
    mean_over_chains,
    median_time,
    median_time_by_chain,
    normal_reach,
    over_chains,
    ratio_over_chains,
    share_by_chain,
    standard_error,
)


def test_the_interval_of_a_mean_contains_student_s():
    values = np.array([0.2, 0.5, 0.4, 0.9])
    found = mean_over_chains(values)
    reference = ttest_1samp(values, 0).confidence_interval(0.95)
    assert found.value == pytest.approx(0.5) and found.n_chains == 4
    assert found.interval[0] <= reference.low < reference.high <= found.interval[1]
    many = np.random.default_rng(0).normal(size=4000)  # where skewness no longer matters
    reference = ttest_1samp(many, 0).confidence_interval(0.95)
    near = mean_over_chains(many).interval
    assert near == pytest.approx((reference.low, reference.high), abs=1e-4)


@pytest.mark.parametrize(("count", "said"), [(1, "one chain cannot"), (2, "two chains cannot")])
def test_one_or_two_chains_have_no_interval(count, said):
    values = np.arange(count) / 10
    both = share_by_chain(values * 10, np.full(count, 20)), ratio_over_chains(values, values + 1)
    whole = over_chains(lambda weights: weights @ values / weights.sum(), count)
    for found in (mean_over_chains(values), *both, whole.one(), difference(values, np.arange(9))):
        assert found.interval is None and found.reason.startswith(said)
    assert median_time(values, values >= 0).reason.startswith(said)


def test_a_share_does_not_leave_0_to_1():
    few = mean_over_chains([0.0, 1.0, 1.0], bounds=(0.0, 1.0))
    free = mean_over_chains([0.0, 1.0, 1.0])
    assert free.interval[0] < 0 and free.interval[1] > 1
    assert few.value == free.value and few.interval == (0.0, 1.0)


def test_both_median_times_are_one():
    """With one time a chain, the median by chain is the plain one."""
    times = np.random.default_rng(1).integers(1, 30, size=40).astype(float)
    seen, happened = np.minimum(times, 24), times < 24
    plain = median_time(seen, happened)
    assert median_time_by_chain(seen, happened, np.arange(40)) == plain
    twice = [np.repeat(each, 2) for each in (seen, happened, np.arange(40))]
    assert median_time_by_chain(*twice).value == plain.value
    # Both intervals are of 95% over 40 independent times: their ends lie within a few steps.
    np.testing.assert_allclose(median_time_by_chain(*twice).interval, plain.interval, atol=4)
    none = median_time_by_chain(seen, np.zeros(40, bool), np.arange(40) // 2)
    assert none.interval == (None, None) and none.value is None and none.reason


def test_a_median_at_a_tie_is_counted_and_not_rounded():
    """Half of 24 are gone at 12, exactly; a product of rounded factors says 13."""
    a = np.arange(1, 25)
    assert median_time(np.minimum(a, 18), a <= 18).value == 12
    for n in range(2, 80, 2):
        a = np.arange(1, n + 1)
        assert median_time(a, a > 0).value == n // 2


def test_without_censoring_the_ends_are_order_statistics():
    """Binomial tables: the median of 8 lies between the 1st and the 8th, of 20 the 6th and 15th."""
    for n, ranks in ((6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (20, (6, 15)), (30, (10, 21))):
        a = np.arange(1, n + 1)
        assert median_time(a, a > 0).interval == ranks
    assert median_time([1, 2, 3, 4], [True] * 4).interval == (None, None)


def test_normal_intervals_by_the_table():
    """1.95996 of two sides at 95%, 1.64485 at 90%; two comparisons at 90% are one at 95%."""
    assert normal_reach() == pytest.approx(1.959964, abs=1e-6)
    assert normal_reach(0.9) == pytest.approx(1.644854, abs=1e-6)
    assert normal_reach(0.9, comparisons=2) == pytest.approx(1.959964, abs=1e-6)


def test_the_standard_error_by_hand():
    """1, 2, 3, 6: squares about 3 sum to 14; sqrt(14 / 3 / 4)."""
    assert standard_error(np.array([1, 2, 3, 6])) == pytest.approx((14 / 12) ** 0.5)
