"""Synthetic distances of each law: the right law wins, and the shape is where it was put."""

import numpy as np
import pytest
from scipy.optimize import minimize

from glauber.foundation.errors import GlauberError
from glauber.studies.mixing.growth import fit_growth

LENGTHS = (6, 9, 13, 19, 28)
TRUTH = {
    "no growth": lambda n: 0.5,
    "log n": lambda n: 0.1 + 0.2 * np.log(n),
    "n": lambda n: 0.1 + 0.03 * n,
    "n^b": lambda n: 0.01 * n**1.4,
}


def synthetic(law, *, count=100, seed=0, spread=0.03):
    """Distances that vary more at longer lengths."""
    rng = np.random.default_rng(seed)
    return {n: rng.normal(TRUTH[law](n), spread * n**0.3, size=count) for n in LENGTHS}


@pytest.mark.parametrize("law", TRUTH)
def test_the_right_law_is_not_ruled_out(law):
    found = fit_growth(synthetic(law))
    assert found.fit(law).aic_difference < 4 and found.fit(law).misfit > 0.01
    np.testing.assert_allclose(
        found.fit(law).mean(np.array(LENGTHS, float)), [TRUTH[law](n) for n in LENGTHS], atol=0.03
    )
    assert sum(fit.weight for fit in found.fits) == pytest.approx(1)
    if law in ("log n", "n"):
        wrong = found.fit("n" if law == "log n" else "log n")
        assert wrong.aic_difference > 20 and wrong.misfit < 1e-4
        low, high = found.shape_interval
        assert low < (law == "n") < high and high - low < 1.5
        assert not low < (law != "n") < high


def test_the_likelihood_against_one_over_means_and_variances():
    """The normal likelihood with all variances free, by a general optimiser."""
    values = synthetic("log n", count=8, seed=3)

    def loss(at):
        a, b, *logs = at
        return sum(
            len(x) * s + ((x - a - b * np.log(n)) ** 2).sum() / 2 / np.exp(2 * s)
            for (n, x), s in zip(values.items(), logs, strict=True)
        )

    def own(at):  # a mean of its own at each length
        return sum(
            len(x) * s + ((x - m) ** 2).sum() / 2 / np.exp(2 * s)
            for x, m, s in zip(values.values(), at[:5], at[5:], strict=True)
        )

    start = [np.log(x.std()) for x in values.values()]
    best = minimize(loss, [0.1, 0.2, *start])
    free = minimize(own, [*(x.mean() for x in values.values()), *start])
    fit = fit_growth(values).fit("log n")
    assert (fit.a, fit.b) == pytest.approx(best.x[:2], abs=1e-4)
    assert fit.log_likelihood == pytest.approx(free.fun - best.fun, abs=1e-5)


def test_the_interval_of_the_shape_keeps_its_level():
    """Of 20 intervals at 95%, at least 16 (a chance of 3e-3 to fail)."""
    inside = 0
    for seed in range(20):
        low, high = fit_growth(synthetic("log n", count=10, seed=seed)).shape_interval
        inside += (low is None or low < 0) and (high is None or high > 0)
    assert inside >= 16


def test_without_growth_hardly_any_shape_is_ruled_out():
    """Chance alone may bound the shape, but rarely on both sides."""
    found = [fit_growth(synthetic("no growth", count=10, seed=seed)) for seed in range(10)]
    assert sum(None in fit.shape_interval for fit in found) >= 8
    assert sum(fit.shape_interval == (None, None) for fit in found) >= 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({3: np.arange(4.0), 6: np.arange(4.0)}, "three lengths"),
        ({3: np.arange(4.0), 6: np.arange(4.0), 9: np.ones(4)}, "at 9 tokens are equal"),
        ({3: np.arange(2.0), 6: np.arange(2.0), 9: np.arange(2.0)}, "3 chains or more"),
    ],
)
def test_what_cannot_be_fitted(values, message):
    with pytest.raises(GlauberError, match=message):
        fit_growth(values)
