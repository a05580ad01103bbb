"""Intervals of means and times."""

import json

import numpy as np
import pytest
from scipy.stats import binomtest, spearmanr, ttest_1samp

from glauber.foundation.statistics import (
    clopper_pearson,
    clustered_mean,
    clustered_median_time,
    clustered_proportion,
    difference,
    jackknife,
    mean_over_chains,
    median_time,
    normal_quantile,
    power,
    proportion,
    rank_correlation,
    ratio_over_chains,
    smallest_effect,
    standard_error,
)
from glauber.foundation.statistics.means import bounded_ends, mean_ends, probability_above_zero
from glauber.foundation.study import plain


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


@pytest.mark.parametrize(("count", "said"), [(1, "one value"), (2, "two values")])
def test_one_or_two_chains_have_no_interval(count, said):
    values = np.arange(count) / 10
    both = (
        clustered_proportion(values * 10, np.full(count, 20)),
        ratio_over_chains(values, values + 1),
    )
    whole = jackknife(lambda weights: weights @ values / weights.sum(), count)
    for found in (mean_over_chains(values), *both, whole.item(), difference(values, np.arange(9))):
        assert found.interval is None and found.reason.startswith(said)
    assert median_time(values, values >= 0).reason.startswith(said)


def test_a_share_does_not_leave_0_to_1():
    few = mean_over_chains([0.0, 1.0, 1.0], bounds=(0.0, 1.0))
    free = mean_over_chains([0.0, 1.0, 1.0])
    assert free.interval[0] < 0 and free.interval[1] > 1
    assert few.value == free.value and few.interval == pytest.approx(clopper_pearson(2, 3))


def test_nearly_equal_scores_have_nearly_the_interval_of_equal_ones():
    """Four chains cannot rule out that others lie elsewhere, whether they agree fully or nearly."""
    equal = mean_over_chains([0.02] * 4, bounds=(0, 1)).interval
    nearly = mean_over_chains([0.02, 0.021, 0.019, 0.02], bounds=(0, 1)).interval
    assert nearly == pytest.approx(equal, abs=1e-4) and nearly[1] > 0.6


@pytest.mark.parametrize("n", [4, 8, 30])
def test_scores_with_rare_chains_keep_their_level(n):
    """One chain in ten at 0.9, the others near 0.02: 2,000 samples, three standard errors."""
    generator = np.random.default_rng(n)
    near = 0.02 + 0.005 * generator.normal(size=(2000, n))
    values = np.where(generator.random((2000, n)) < 0.1, 0.9, near)
    low, high = bounded_ends(values, np.ones_like(values), 0.025, (0.0, 1.0))
    assert ((low <= 0.108) & (high >= 0.108)).mean() > 0.95 - 3 * (0.95 * 0.05 / 2000) ** 0.5


@pytest.mark.parametrize("n", [7, 60])  # exact, and by the saddlepoint
def test_the_weighted_mean_of_bounded_values_by_simulation(n):
    values = np.random.default_rng(n).beta(0.5, 2, size=n) - 0.25
    weights = np.random.default_rng(1).dirichlet(np.ones(n), size=40_000)
    simulated = (weights @ values > 0).mean()  # its standard error is 0.0025 at most
    assert probability_above_zero(values) == pytest.approx(simulated, abs=0.01)


def test_both_median_times_are_one():
    """With one time a chain, the median by chain is the plain one."""
    times = np.random.default_rng(1).integers(1, 30, size=40).astype(float)
    seen, happened = np.minimum(times, 24), times < 24
    plain = median_time(seen, happened)
    assert clustered_median_time(seen, happened, np.arange(40)) == plain
    twice = [np.repeat(each, 2) for each in (seen, happened, np.arange(40))]
    assert clustered_median_time(*twice).value == plain.value
    # Both intervals are of 95% over 40 independent times: their ends lie within a few steps.
    np.testing.assert_allclose(clustered_median_time(*twice).interval, plain.interval, atol=4)
    three = clustered_median_time(seen, happened, np.arange(40) % 3)
    assert three.interval == (None, None) and three.reason
    none = clustered_median_time(seen, np.zeros(40, bool), np.arange(40) // 2)
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
    assert normal_quantile() == pytest.approx(1.959964, abs=1e-6)
    assert normal_quantile(0.9) == pytest.approx(1.644854, abs=1e-6)
    assert normal_quantile(0.9, comparisons=2) == pytest.approx(1.959964, abs=1e-6)


def test_the_standard_error_by_hand():
    """1, 2, 3, 6: squares about 3 sum to 14; sqrt(14 / 3 / 4)."""
    assert standard_error(np.array([1, 2, 3, 6])) == pytest.approx((14 / 12) ** 0.5)


def test_four_chains_without_a_single_success():
    """0 of 400 in 4 chains says no more than 0 of 4: Clopper and Pearson's 0.602."""
    none, every = (
        clustered_proportion([0] * 4, [100] * 4),
        clustered_proportion([100] * 4, [100] * 4),
    )
    assert none.interval == pytest.approx(clopper_pearson(0, 4))
    assert none.interval[1] == pytest.approx(0.6024, abs=1e-4)
    assert every.interval == pytest.approx(clopper_pearson(4, 4))
    scores = mean_over_chains([0.25] * 4, bounds=(0, 1))
    assert scores.interval == pytest.approx((0.25 * (1 - 0.6024), 0.25 + 0.75 * 0.6024), abs=1e-4)
    free = mean_over_chains([0.25] * 4)
    assert free.interval is None and "are the same" in free.reason


def test_shares_are_scipy_s():
    for count, total in ((0, 7), (3, 9), (9, 9), (40, 100)):
        exact = binomtest(count, total).proportion_ci(0.95, method="exact")
        assert clopper_pearson(count, total) == pytest.approx((exact.low, exact.high))
        assert proportion(count, total).interval == pytest.approx((exact.low, exact.high))


def test_a_ratio_is_refused_where_its_denominator_may_be_zero():
    above, below = np.array([1.0, 2.0, 1.5, 1.2, 0.9]), np.array([-0.1, 0.2, -0.3, 0.4, 0.1])
    found = ratio_over_chains(above, below)
    assert found.interval is None and "told from zero" in found.reason
    fine = ratio_over_chains(above, below + 5)
    assert fine.interval[0] < fine.value < fine.interval[1]


def test_the_jackknife_of_a_mean_is_the_mean():
    values = np.random.default_rng(3).exponential(size=9)
    found = jackknife(lambda weights: weights @ values / weights.sum(), 9).item()
    plain = mean_over_chains(values)
    assert found.interval == pytest.approx(plain.interval)
    assert found.standard_error == pytest.approx(plain.standard_error)
    chain = np.arange(9)
    assert clustered_mean(values, chain).interval == pytest.approx(plain.interval)


def test_a_figure_that_rests_on_one_chain_has_no_interval():
    def figure(weights):
        return np.array([weights.sum(), 1.0 if weights[2] else np.nan])

    found = jackknife(figure, 6)
    assert found.item(1).interval is None and "rests on one chain" in found.item(1).reason


def test_shares_among_figures_stay_within_their_range():
    """A share of 0 in every chain, and one of a half, on the scale of shares."""
    counts = np.array([[0, 3.0], [0, 5], [0, 6], [0, 2], [0, 9]])
    found = jackknife(lambda weights: weights @ counts / weights.sum() / 10, 5, scale="logit")
    assert found.low[0] == 0 and found.high[0] == pytest.approx(1 - 0.025**0.2)
    assert 0 < found.low[1] < 0.5 < found.high[1] < 1


def test_ranks_with_ties_are_scipy_s():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, size=40), rng.integers(0, 6, size=40)
    assert rank_correlation(x, y).value == pytest.approx(spearmanr(x, y).statistic)
    order = rank_correlation(np.arange(5), np.arange(5))
    assert order.value == pytest.approx(1) and order.interval[0] < 0.1  # five in order: 1 in 60
    assert rank_correlation([1, 2, 3], [1, 2, 3]).interval is None
    assert (
        rank_correlation([1, 1, 1, 1], [1, 2, 3, 4]).reason == "one of the measures never changes"
    )


def test_copies_of_a_pair_are_no_evidence():
    """Ten pairs, each seen twenty times: the interval is that of about ten."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 10))
    many = [np.repeat(each, 20) for each in (x, y)]
    alone = rank_correlation(x, y).interval
    copied = rank_correlation(*many, chain=np.repeat(np.arange(10), 20)).interval
    pretended = rank_correlation(*many).interval
    assert copied[1] - copied[0] > 0.7 * (alone[1] - alone[0]) > 2 * (pretended[1] - pretended[0])


def test_power_is_how_often_zero_is_excluded():
    rng = np.random.default_rng(5)
    for n in (4, 8, 20):
        effect = smallest_effect(1 / np.sqrt(n), n_chains=n)
        assert power(effect, 1 / np.sqrt(n), n_chains=n) == pytest.approx(0.8, abs=1e-3)
        low, high = mean_ends(effect + rng.normal(size=(4000, n)), 0.025)
        # 4,000 samples tell a share to 0.0063, the 20,000 behind the power to 0.0028.
        assert ((low > 0) | (high < 0)).mean() == pytest.approx(0.8, abs=0.021)
    assert power(0.0, 1.0, n_chains=20) == pytest.approx(0.045, abs=0.01)  # the level's rest
    assert power(1.0, 0.1, n_chains=2) == 0 and smallest_effect(1.0, n_chains=2) == np.inf


def test_more_comparisons_are_wider():
    values = np.random.default_rng(2).normal(size=8)
    one, five = (mean_over_chains(values, comparisons=k).interval for k in (1, 5))
    assert five == pytest.approx(mean_over_chains(values, level=0.99).interval)
    assert five[0] < one[0] < one[1] < five[1]


def test_a_figure_survives_json():
    found = json.loads(json.dumps(plain(mean_over_chains([0.1, 0.2, 0.4]))))
    assert found["n_chains"] == 3 and len(found["interval"]) == 2 and found["kind"] == "estimate"
    two = json.loads(json.dumps(plain(mean_over_chains([0.1, 0.2]))))
    assert two["interval"] is None and two["reason"].startswith("two values")
