"""Synthetic censored times of each law: the right law wins, and c is where it was put."""

import numpy as np
import pytest

from glauber.errors import GlauberError
from glauber.mixing.scaling import LAWS, fit_scaling
from glauber.mixing.semantic_drift import HittingTimes

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
    assert found.best.interval[0] < found.best.c < found.best.interval[1]
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


def test_what_cannot_be_fitted():
    good = HittingTimes(np.array([3, 4]), np.array([True, True]), 1, 0.5)
    never = HittingTimes(np.array([9, 9]), np.array([False, False]), 1, 0.5)
    for times, why in (
        ({8: good}, "two lengths"),
        ({1: good, 8: good}, "at least 2"),
        ({4: good, 8: never}, "no chain of 8 tokens"),
    ):
        with pytest.raises(GlauberError, match=why):
            fit_scaling(times)
