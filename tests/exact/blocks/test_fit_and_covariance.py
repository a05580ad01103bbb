"""Fits against the truth and the closed form, their covariances against repetitions."""

import numpy as np
import pytest

from glauber.errors import GlauberError
from glauber.exact.blocks.pseudolikelihood import (
    asymptotics,
    asymptotics_by_size,
    fisher_information,
    inverted,
)
from glauber.exact.blocks.pseudolikelihood import (
    Pseudolikelihood,
    all_masks,
    draw_counts,
    fit_pairs,
    random_masks,
)
from glauber.exact.models import Ising, ising_family, ising_theta
from glauber.ising.error_curves import errors as error_curves
from small_families import random_adaptive, random_family


@pytest.mark.parametrize("seed", range(9))
def test_the_population_gives_the_truth_back(seed):
    family, theta = random_family(seed)
    rng = np.random.default_rng(seed)
    uniform = Pseudolikelihood.of_size(family, 1 + seed % family.space.length)
    for problem in (uniform, Pseudolikelihood(family, random_adaptive(family.space, rng))):
        seen = all_masks(family.distribution(theta), problem.masks)
        found = fit_pairs(problem, seen)
        assert found.found and found.error < 1e-9
        np.testing.assert_allclose(found.theta, theta, atol=1e-8)
        other = fit_pairs(problem, seen, method="lbfgs")
        np.testing.assert_allclose(other.theta, theta, atol=1e-4)


def test_one_spin_is_the_closed_form():
    """N = 1: h = artanh of the mean spin."""
    family = ising_family(1)
    found = fit_pairs(Pseudolikelihood.of_size(family, 1), np.array([[0.3, 0.7]]))
    assert found.theta[0] == pytest.approx(np.arctanh(0.4), abs=1e-12)


def test_no_estimate_is_claimed_where_there_is_none():
    family = ising_family(3)
    problem = Pseudolikelihood.of_size(family, 1)
    always = np.zeros(8)
    always[7] = 5  # every spin up: the fields would be infinite
    some = draw_counts(np.full(8, 1 / 8), 200, 1, np.random.default_rng(0))[0]
    found = fit_pairs(problem, all_masks(np.stack([always, some]), problem.masks))
    assert found.found.tolist() == [False, True]
    assert not fit_pairs(problem, all_masks(always, problem.masks), method="lbfgs").found


def test_published_traces():
    """J = 0.05, N = 4: one-mask traces 19.7, 10.1, 7.1, 5.7; averaged, the same for every k."""
    model = Ising.clique(4, 4, coupling=0.05)
    found = asymptotics_by_size(ising_family(4), ising_theta(model))
    assert [round(one.trace(), 1) for one in found] == [19.7, 10.1, 7.1, 5.7]
    assert [round(one.trace(None), 4) for one in found] == pytest.approx([5.7299] * 4, abs=2e-4)


def test_all_masks_averaged_are_maximum_likelihood_where_two_sites_are_seen():
    """With N - k <= 2 the averaged score is linear in the statistics, so its zero is that of k = N.

    With three visible sites it is not: x_i x_j x_k comes in.
    """
    family, theta = ising_family(4), ising_theta(Ising.random(4, seed=1))
    counts = draw_counts(family.distribution(theta), 300, 1, np.random.default_rng(2))[0]
    found = []
    for k in range(1, 5):
        problem = Pseudolikelihood.of_size(family, k)
        found.append(fit_pairs(problem, all_masks(counts, problem.masks)).theta)
    np.testing.assert_allclose(found[1], found[3], atol=1e-9)
    np.testing.assert_allclose(found[2], found[3], atol=1e-9)
    assert abs(found[0] - found[3]).max() > 1e-4


@pytest.mark.parametrize("per_sample", [1, 3, None])
def test_errors_over_repetitions_agree_with_the_covariance(per_sample):
    """Within three standard errors of 400 repetitions; at n = 20,000 the bias is far below."""
    model = Ising.random(4, seed=3, strength=0.2)
    masks = "all" if per_sample is None else per_sample
    found = error_curves(model, samples=[20_000], repetitions=400, masks=masks, seed=1)
    assert not found.missing.any()
    apart = abs(found.mean - found.predicted) / found.standard_error
    assert apart.max() < 3
    assert (found.standard_error < 0.05 * found.predicted).all()


def test_errors_of_adaptive_masks_agree_with_the_covariance():
    family, theta = ising_family(3), ising_theta(Ising.random(3, seed=2, strength=0.3))
    rng = np.random.default_rng(5)
    problem = Pseudolikelihood(family, random_adaptive(family.space, rng))
    counts = draw_counts(family.distribution(theta), 20_000, 400, rng)
    errors = (
        (fit_pairs(problem, random_masks(counts, problem.masks, rng)).theta - theta) ** 2
    ).sum(-1)
    expected = asymptotics(problem, theta).trace() / 20_000
    assert abs(errors.mean() - expected) < 3 * errors.std() / np.sqrt(400)


@pytest.mark.parametrize("coupling", [0.05, 0.3])
def test_figures_1_and_2(coupling):
    """10 repetitions, k = 1 … 4: larger k, lower error, and errors that fall as 1/n."""
    sizes = (1000, 2000, 4000, 8000, 16_000, 32_000)
    found = error_curves(coupling=coupling, samples=sizes)
    scaled = (found.mean * np.array(sizes)).mean(axis=1)  # 60 repetitions in all
    assert (np.diff(scaled) < 0).all()
    np.testing.assert_allclose(scaled, found.traces, rtol=0.5)
    averaged = error_curves(coupling=coupling, samples=sizes, blocks=[1, 4], masks="all")
    assert averaged.mean[0] == pytest.approx(averaged.mean[1], rel=0.15)  # the effect is gone


def test_maximum_likelihood_is_the_fisher_information():
    family, theta = random_family(4)
    last = asymptotics_by_size(family, theta)[-1]
    np.testing.assert_allclose(last.hessian, fisher_information(family, theta), atol=1e-13)
    np.testing.assert_allclose(last.covariance(None), last.covariance(), atol=1e-9)


def test_what_is_refused():
    with pytest.raises(GlauberError, match="undetermined"):
        inverted(np.diag([1.0, 0.0]))
    family = ising_family(2)
    with pytest.raises(GlauberError, match="k = 3 sites, but k must be from 1 to 2"):
        error_curves(sites=2, blocks=[3], samples=[10])
    with pytest.raises(GlauberError, match="repetitions is 1, but it must be at least 2"):
        error_curves(samples=[10], repetitions=1)
    with pytest.raises(GlauberError, match="no number of samples"):
        error_curves(samples=[])
    with pytest.raises(GlauberError, match="would take about"):
        error_curves(samples=[10], repetitions=10**8)
    problem = Pseudolikelihood.of_size(family, 1)
    with pytest.raises(GlauberError, match="one data set"):
        fit_pairs(problem, np.ones((2, 2, 4)), method="lbfgs")
    with pytest.raises(GlauberError, match="newton or lbfgs"):
        fit_pairs(problem, np.ones((2, 4)), method="magic")
    with pytest.raises(GlauberError, match="must end in"):
        fit_pairs(problem, np.ones((3, 4)))
