"""Loss and derivatives against torch, fits against the truth, covariances against repetitions.

And paper B's theorems on 200 random models (Ising, Potts, arbitrary distributions; N <= 6).
"""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from glauber.exact.blocks.masks import Masks
from glauber.exact.blocks.pseudolikelihood import (
    Asymptotics,
    Pseudolikelihood,
    added_information,
    all_masks,
    asymptotics,
    draw_counts,
    efficiency,
    fisher_information,
    fit_pairs,
    invert,
    observe_masks,
    random_masks,
    smallest_difference,
)
from glauber.exact.models import Ising, ising_family, ising_theta
from glauber.exact.space import Space
from glauber.foundation.errors import GlauberError
from glauber.studies.ising import errors as error_curves
from small_families import random_adaptive, random_family, random_weighted


def by_hand(problem, theta, seen):
    """The loss as a torch scalar, by sums over lists of states."""
    family, masks = problem.family, problem.masks
    exponent = theta @ torch.from_numpy(family.statistics) + torch.from_numpy(family.base)
    states = [tuple(row) for row in family.space.states().tolist()]
    total = torch.zeros((), dtype=torch.float64)
    for slot, hidden in enumerate(masks.blocks):
        chance = masks.by_state[slot]
        outside = [tuple(t for s, t in enumerate(x) if s not in hidden) for x in states]
        for number in np.flatnonzero(seen[slot]):
            alike = [m for m, o in enumerate(outside) if o == outside[number] and chance[m] > 0]
            logs = torch.stack([exponent[m] + float(np.log(chance[m])) for m in alike])
            mine = exponent[number] + float(np.log(chance[number]))
            total = total - seen[slot, number] * (mine - torch.logsumexp(logs, 0))
    return total


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("make", [random_weighted, random_adaptive])
def test_derivatives(seed, make):
    family, theta = random_family(seed)
    rng = np.random.default_rng(seed)
    problem = Pseudolikelihood(family, make(family.space, rng))
    counts = draw_counts(family.distribution(theta), 7, 1, rng)[0]
    seen = random_masks(counts, problem.masks, rng)
    point = torch.from_numpy(theta + 0.1).requires_grad_()
    loss = by_hand(problem, point, seen)
    (slope,) = torch.autograd.grad(loss, point)
    curvature = torch.autograd.functional.hessian(lambda t: by_hand(problem, t, seen), point)
    here = point.detach().numpy()
    assert problem.loss(here, seen) == pytest.approx(loss.item(), rel=1e-12)
    np.testing.assert_allclose(problem.gradient(here, seen), slope.numpy(), atol=1e-11)
    np.testing.assert_allclose(problem.hessian(here, seen), curvature.numpy(), atol=1e-11)


def test_many_data_sets_at_once_are_the_single_ones():
    family, theta = random_family(6)
    problem = Pseudolikelihood.of_size(family, 2)
    rng = np.random.default_rng(0)
    seen = random_masks(draw_counts(family.distribution(theta), 50, 3, rng), problem.masks, rng)
    points = np.stack([theta, theta + 0.2, theta * 0])
    for name in ("loss", "gradient", "hessian"):
        many = getattr(problem, name)(points, seen)
        for row in range(3):
            one = getattr(problem, name)(points[row], seen[row])
            np.testing.assert_allclose(many[row], one, atol=1e-13)


@pytest.mark.parametrize("seed", range(12))
def test_the_loss_is_convex_along_random_segments(seed):
    """The smallest eigenvalue of the Hessian, and the chord above the loss, for any data."""
    rng = np.random.default_rng(seed)
    family = ising_family(2 + seed % 4)
    make = (random_weighted, random_adaptive)[seed % 2]
    problem = Pseudolikelihood(family, make(family.space, rng))
    left, right = rng.normal(size=(2, family.n_parameters)) * 2
    counts = draw_counts(np.full(family.space.size, 1 / family.space.size), 20, 1, rng)[0]
    seen = random_masks(counts, problem.masks, rng)
    share = np.linspace(0, 1, 9)
    points = left + share[:, None] * (right - left)
    many = np.broadcast_to(seen, (9, *seen.shape))
    assert np.linalg.eigvalsh(problem.hessian(points, many))[:, 0].min() > -1e-12
    losses = problem.loss(points, many)
    chord = losses[0] + share * (losses[-1] - losses[0])
    assert (losses <= chord + 1e-12).all()


def test_random_masks_tend_to_all_masks():
    family, _ = random_family(0)
    masks = Masks.uniform(family.space, 1)
    counts = np.array([3.0, 0.0, 1.0, 4.0])
    expected = all_masks(counts, masks)
    found = random_masks(counts, masks, np.random.default_rng(1), per_sample=100_000)
    assert abs(found - expected).max() < 4 * np.sqrt(0.25 / 8e5)
    one = random_masks(counts, masks, np.random.default_rng(1)) * 8
    np.testing.assert_allclose(one.sum(axis=0), counts)
    np.testing.assert_allclose(one, np.round(one))


def by_size(family, theta):
    """The asymptotics of k = 1, …, N uniform hidden sites; the last is maximum likelihood."""
    sizes = range(1, family.space.length + 1)
    return [asymptotics(Pseudolikelihood.of_size(family, k), theta) for k in sizes]


@pytest.mark.parametrize("seed", range(9))
def test_the_population_gives_the_truth_back(seed):
    family, theta = random_family(seed)
    rng = np.random.default_rng(seed)
    uniform = Pseudolikelihood.of_size(family, 1 + seed % family.space.length)
    for problem in (uniform, Pseudolikelihood(family, random_adaptive(family.space, rng))):
        seen = all_masks(family.distribution(theta), problem.masks)
        found = fit_pairs(problem, seen)
        assert found.converged and found.error < 1e-9
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
    assert found.converged.tolist() == [False, True]
    assert not fit_pairs(problem, all_masks(always, problem.masks), method="lbfgs").converged


def test_published_traces():
    """J = 0.05, N = 4: one-mask traces 19.7, 10.1, 7.1, 5.7; averaged, the same for every k."""
    model = Ising.clique(4, 4, coupling=0.05)
    found = by_size(ising_family(4), ising_theta(model))
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
    apart = abs(found.mean - found.prediction) / found.standard_error
    assert apart.max() < 3
    assert (found.standard_error < 0.05 * found.prediction).all()


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
    last = by_size(family, theta)[-1]
    np.testing.assert_allclose(last.hessian, fisher_information(family, theta), atol=1e-13)
    np.testing.assert_allclose(last.covariance(None), last.covariance(), atol=1e-9)


def test_what_is_refused():
    with pytest.raises(GlauberError, match="undetermined"):
        invert(np.diag([1.0, 0.0]))
    family = ising_family(2)
    with pytest.raises(GlauberError, match="k = 3 sites, but k must be from 1 to 2"):
        error_curves(sites=2, blocks=[3], samples=[10])
    with pytest.raises(GlauberError, match="repetitions is 1, but it must be at least 2"):
        error_curves(samples=[10], repetitions=1)
    with pytest.raises(GlauberError, match="samples is empty"):
        error_curves(samples=[])
    with pytest.raises(GlauberError, match="would take about"):
        error_curves(samples=[10], repetitions=10**8)
    with pytest.raises(GlauberError, match="different spaces"):
        Pseudolikelihood(family, Masks.uniform(Space(2, 3), 1))
    problem = Pseudolikelihood.of_size(family, 1)
    with pytest.raises(GlauberError, match="at least one"):
        observe_masks(np.ones(4), problem.masks, 0, np.random.default_rng(0))
    with pytest.raises(GlauberError, match="one data set"):
        fit_pairs(problem, np.ones((2, 2, 4)), method="lbfgs")
    with pytest.raises(GlauberError, match="newton or lbfgs"):
        fit_pairs(problem, np.ones((2, 4)), method="magic")
    with pytest.raises(GlauberError, match="must end in"):
        fit_pairs(problem, np.ones((3, 4)))


@pytest.mark.parametrize("group", range(20))
def test_the_theorems_on_ten_models(group):
    """Information matrix equality, Theorem 1, Theorems 2 and 3 as H >= I/C, and H <= I."""
    for seed in range(10 * group, 10 * group + 10):
        family, theta = random_family(seed)
        space, rng = family.space, np.random.default_rng(seed)
        sizes = [Masks.uniform(space, k) for k in range(1, space.length + 1)]
        others = [
            random_weighted(space, rng),
            random_adaptive(space, rng),
            Masks.least_confident(space, family.distribution(theta), 1),
        ]
        hessians = []
        for masks in sizes + others:
            found = efficiency(Pseudolikelihood(family, masks), theta)
            assert found.asymptotics.equality_gap < 1e-8
            assert np.isfinite(found.gap.poincare) and found.gap.error < 1e-10
            assert found.slack > -1e-8
            # No masks beat maximum likelihood (Hajek and Le Cam).
            assert smallest_difference(found.information, found.asymptotics.hessian) > -1e-8
            hessians.append(found.asymptotics.hessian)
        for k in range(1, space.length):
            assert smallest_difference(hessians[k], hessians[k - 1]) > -1e-8


def test_the_bound_fails_where_the_mask_is_not_conditioned_on():
    """The check has teeth: with p(x_K | x_{-K}) in place of p(x_K | x_{-K}, K) the scores of
    adaptive masks no longer have mean zero, and Hessian and score covariance differ."""
    family, theta = random_family(9)
    masks = random_adaptive(family.space, np.random.default_rng(9))
    chances = masks.chances * family.distribution(theta)
    plain = [
        Pseudolikelihood(family, Masks.uniform(family.space, 1)).score(theta, s)
        for s in range(family.space.length)
    ]
    mean = sum(score @ chances[slot] for slot, score in enumerate(plain))
    assert abs(mean).max() > 1e-3
    proper = Pseudolikelihood(family, masks)
    zero = sum(proper.score(theta, s) @ chances[s] for s in range(len(masks.blocks)))
    assert abs(zero).max() < 1e-14


@pytest.mark.parametrize("seed", [0, 1, 3, 6, 8, 9])
def test_one_more_hidden_site_adds_the_covariance_of_its_score(seed):
    """(B.16), with the score of the site from the log of its conditional, by autograd."""
    family, theta = random_family(seed)
    sizes = by_size(family, theta)
    for k, (smaller, larger) in enumerate(itertools.pairwise(sizes), start=1):
        added = added_information(family, theta, k)
        np.testing.assert_allclose(smaller.hessian + added, larger.hessian, atol=1e-12)
        assert np.linalg.eigvalsh(added)[0] > -1e-13
    n, vocab = family.space.length, family.space.vocab_size
    assert np.linalg.matrix_rank(added, tol=1e-11) <= n * (vocab - 1)  # the last step
    statistics = torch.from_numpy(family.statistics)
    point = torch.tensor(theta, requires_grad=True)
    weights = (point @ statistics + torch.from_numpy(family.base)).exp()
    # The site that is hidden last has its marginal distribution: one hidden site and all others.
    cube = weights.reshape((vocab,) * n)
    total = torch.zeros(len(theta), len(theta), dtype=torch.float64)
    for site in range(n):
        marginal = cube.sum(dim=[other for other in range(n) if other != site])
        logs = (marginal / marginal.sum()).log()
        for token in range(vocab):
            (score,) = torch.autograd.grad(logs[token], point, retain_graph=True)
            total += logs[token].exp().detach() * torch.outer(score, score) / n
    np.testing.assert_allclose(added, total.numpy(), atol=1e-12)


@pytest.mark.parametrize("k", [1, 4])
def test_the_share_of_errors_within_their_trace(k):
    """Against 200,000 draws: standard error 0.0011. Far from the printed 0.99."""
    found = by_size(ising_family(4), ising_theta(Ising.clique(4, 4, coupling=0.05)))[k - 1]
    weights = np.linalg.eigvalsh(found.covariance())
    drawn = np.random.default_rng(k).normal(size=(200_000, len(weights))) ** 2 @ weights
    for multiple in (0.5, 1.0, 2.0):
        share = (drawn <= multiple * found.trace()).mean()
        assert found.share_within(multiple) == pytest.approx(share, abs=0.004)
    assert 0.55 < found.share_within() < 0.62
    assert found.share_within(found.quantile(0.99)) == pytest.approx(0.99, abs=1e-7)


@pytest.mark.parametrize("d", [1, 2, 3, 10, 12, 13, 40, 300])
def test_equal_weights_are_a_chi_square(d):
    found = Asymptotics(np.eye(d), np.eye(d), np.eye(d))
    for multiple in (0.2, 0.5, 1.0, 2.0, 5.0):
        exact = stats.chi2.cdf(multiple * d, d)
        assert found.share_within(multiple) == pytest.approx(exact, abs=1e-7)
    assert found.quantile(0.99) == pytest.approx(stats.chi2.ppf(0.99, d) / d, abs=1e-6)


def test_the_loss_in_kl_is_half_the_parameters_for_maximum_likelihood():
    family, theta = ising_family(3), ising_theta(Ising.random(3, seed=2, strength=0.3))
    sizes = range(1, family.space.length + 1)
    lost = [efficiency(Pseudolikelihood.of_size(family, k), theta).divergence for k in sizes]
    assert lost[-1] == pytest.approx(family.n_parameters / 2) and lost == sorted(lost)[::-1]
    # KL of fits from many samples, three standard errors of 300 repetitions.
    problem, rng = Pseudolikelihood.of_size(family, 1), np.random.default_rng(1)
    p, n = family.distribution(theta), 20_000
    counts = draw_counts(p, n, 300, rng)
    fits = fit_pairs(problem, random_masks(counts, problem.masks, rng)).theta
    kl = n * (p * (np.log(p) - np.log(family.distribution(fits)))).sum(axis=1)
    assert abs(kl.mean() - lost[0]) < 3 * kl.std() / np.sqrt(300) + 0.02 * lost[0]
