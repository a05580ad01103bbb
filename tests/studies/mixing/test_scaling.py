"""Synthetic censored times of each law: the right law wins, and c is where it was put."""

import numpy as np
import pytest

from bench.coverage import GammaProfile, LogNormalProfile
from glauber.foundation.errors import GlauberError
from glauber.studies.mixing.scaling import LAWS, _wider, fit_scaling
from glauber.studies.mixing.semantic_drift import HittingTimes

LENGTHS = (6, 9, 13, 19, 28)
TRUTH = {"n": 5.0, "n log n": 2.0, "n^2": 0.3}


def synthetic(mean, *, family="gamma", spread=0.7, every=2, count=100, seed=0):
    """Hitting times of each length, seen every other step, censored at 1.5 means."""
    rng = np.random.default_rng(seed)
    found = {}
    for n in LENGTHS:
        if family == "gamma":
            times = rng.gamma(1 / spread**2, mean(n) * spread**2, size=count)
        else:
            width = np.sqrt(np.log1p(spread**2))
            times = mean(n) * np.exp(width * rng.normal(size=count) - width**2 / 2)
        looks = np.ceil(times / every).astype(int) * every
        last = int(1.5 * mean(n)) // every * every
        found[n] = HittingTimes(np.minimum(looks, last), looks <= last, every, 0.5)
    return found


@pytest.mark.parametrize("family", ["gamma", "log-normal"])
@pytest.mark.parametrize("law", LAWS)
def test_the_right_law_and_its_constant(law, family):
    times = synthetic(lambda n: TRUTH[law] * LAWS[law](float(n)), family=family)
    found = fit_scaling(times, family=family)
    assert found.n_censored > 50 and found.n_times == 500
    assert found.best.law == law and found.best.aic_difference == 0 and found.best.weight > 0.9
    assert abs(np.log(found.best.c / TRUTH[law])) < 3 * found.best.log_c_error
    low, high = found.best.interval
    assert low < found.best.c < high
    assert found.best.spread == pytest.approx(0.7, rel=0.2)
    assert found.best.misfit > 0.01
    assert sum(fit.weight for fit in found.fits) == pytest.approx(1)


def test_leaving_censored_chains_out_would_be_wrong():
    """The kept likelihood is not the one of the chains that hit."""
    times = synthetic(lambda n: 2 * n * np.log(n), spread=1.0)
    fit = fit_scaling(times).fits[1]
    seen = {n: HittingTimes(t.steps[t.hit], t.hit[t.hit], t.every, 0.5) for n, t in times.items()}
    short = fit_scaling(seen).fits[1]
    assert np.log(2 / short.c) > 5 * short.log_c_error
    assert abs(np.log(2 / fit.c)) < 3 * fit.log_c_error


def test_the_exponential_without_censoring_in_closed_form():
    """At a spread near 1 the gamma fit's c is the mean of T / g(n), with error c / sqrt(count)."""
    times = synthetic(lambda n: 40.0 * n, spread=1.0, every=1)
    times = {n: HittingTimes(t.steps, np.ones(100, bool), 1, 0.5) for n, t in times.items()}
    fit = fit_scaling(times).fits[0]
    mean = np.mean([(t.steps - 0.5) / n for n, t in times.items()])
    assert fit.c == pytest.approx(mean, rel=1e-3)
    assert fit.log_c_error == pytest.approx(fit.spread / 500**0.5, rel=0.02)


def test_a_misfit_is_said():
    """Times that fall with n fit none of the three laws."""
    found = fit_scaling(synthetic(lambda n: 1000.0 / n))
    assert all(fit.misfit < 1e-6 for fit in found.fits)


@pytest.mark.parametrize("b", [0.5, 1.34, 3.0])
def test_a_free_power_is_found(b):
    found = fit_scaling(synthetic(lambda n: 20 * n**b, count=40))
    assert found.power.allows(b) and found.power.kind == "estimate"
    low, high = found.power.interval
    assert low < found.power.b < high and high - low < 0.5
    assert found.power.mean(np.array([13.0]))[0] == pytest.approx(20 * 13**b, rel=0.3)
    # It has one more parameter than the laws, and is never less likely than any power among them.
    assert found.power.log_likelihood >= found.fits[2].log_likelihood - 1e-6
    assert "among n, n log n and n^2 alone" in found.summary
    if b != 1.34:
        assert found.power.aic_difference < -10 and "none of n, n log n, n^2" in found.summary


def test_the_interval_of_the_power_keeps_its_level_with_few_times():
    """Eight chains a length: of 20 intervals at 95%, at least 16 (a chance of 3e-3 to fail)."""
    inside = [
        fit_scaling(synthetic(lambda n: 2 * n**1.3, count=8, seed=seed)).power.allows(1.3)
        for seed in range(20)
    ]
    assert sum(inside) >= 16


@pytest.mark.parametrize("spread", [0.4, 1.0, 2.0])
@pytest.mark.parametrize("family", ["gamma", "log-normal"])
def test_the_interval_of_the_power_is_the_wider_of_both_families(family, spread):
    """Against closed forms of both profile likelihoods, for times that were all seen."""
    width = np.sqrt(np.log1p(spread**2))
    rng = np.random.default_rng(5)
    times = {n: np.ceil(300 * n**1.3 * np.exp(width * rng.normal(size=9))) for n in LENGTHS}
    seen = {n: HittingTimes(t.astype(int), np.ones(9, bool), 1, 0.5) for n, t in times.items()}
    power = fit_scaling(seen, family=family).power
    logs = np.repeat(np.log(LENGTHS), 9)
    sample = np.concatenate(list(times.values()))[None] - 0.5  # the middle of the step
    profiles = [GammaProfile(sample, logs), LogNormalProfile(sample, logs)]
    assert power.b == pytest.approx(float(profiles[family == "log-normal"].best[0]), abs=5e-3)
    grid = np.linspace(power.b - 2, power.b + 2, 8001)
    ends = [grid[[each.inside(b)[0] for b in grid]][[0, -1]] for each in profiles]
    assert power.interval == pytest.approx(
        (min(low for low, _ in ends), max(high for _, high in ends)), abs=5e-3
    )
    if spread >= 1:  # wider than by gamma times alone
        assert power.interval[1] - power.interval[0] > ends[0][1] - ends[0][0] + 0.01


def test_an_end_that_one_family_leaves_open_is_open():
    assert _wider((0.5, 1.5), (0.7, None)) == (0.5, None)
    assert _wider((None, 1.5), (0.7, 1.9)) == (None, 1.9)


def test_n_log_n_looks_like_a_power():
    """The slope of log(n log n) in log n is 1 + 1 / log n."""
    found = fit_scaling(synthetic(lambda n: 2 * n * np.log(n), count=40))
    assert found.exponent("n log n") == pytest.approx(1 + np.mean(1 / np.log(LENGTHS)), abs=0.01)
    assert (found.exponent("n"), found.exponent("n^2")) == pytest.approx((1, 2))
    assert found.power.allows(found.exponent("n log n"))


def test_an_end_that_nothing_bounds_is_open():
    """The long texts never got there, so any steeper power fits as well."""
    times = synthetic(lambda n: 2 * n**1.3, count=12)
    never = HittingTimes(np.full(12, 30), np.zeros(12, bool), 2, 0.5)
    found = fit_scaling({6: times[6], 28: never})
    assert found.power.interval[1] is None and found.power.interval[0] > 0
    assert "open" in found.power.label and np.isnan(found.power.misfit)


def test_what_cannot_be_fitted():
    good = HittingTimes(np.array([3, 4]), np.array([True, True]), 1, 0.5)
    never = HittingTimes(np.array([9, 9]), np.array([False, False]), 1, 0.5)
    for times, why in (
        ({8: good}, "two lengths"),
        ({1: good, 8: good}, "at least 2"),
        ({4: never, 8: never}, "no chain reached the threshold"),
    ):
        with pytest.raises(GlauberError, match=why):
            fit_scaling(times)


def test_the_interval_of_c_is_student_s_with_few_times():
    """Eight times and two fitted numbers leave six degrees of freedom: 2.4469 in tables."""
    found = {n: HittingTimes(n * np.array([3, 5, 8, 13]), np.ones(4, bool), 1, 0.5) for n in (6, 9)}
    fit = fit_scaling(found).fits[0]
    low, high = fit.interval
    assert np.log(high / fit.c) / fit.log_c_error == pytest.approx(2.4469, abs=1e-4)
    assert np.log(fit.c / low) == pytest.approx(np.log(high / fit.c))


def test_two_times_give_c_no_interval():
    seen = np.array([True, False, False])
    few = {n: HittingTimes(np.array([9 * n, 99, 99]), seen, 1, 0.5) for n in (4, 8)}
    assert all(fit.interval is None for fit in fit_scaling(few).fits)
