"""Loss, gradient and Hessian against sums by hand and torch's own derivatives; convexity."""

import itertools

import numpy as np
import pytest
import torch

from glauber.errors import GlauberError
from glauber.exact.blocks.masks import Masks
from glauber.exact.blocks.pseudolikelihood import (
    Drawing,
    Pseudolikelihood,
    all_masks,
    draw_counts,
    random_masks,
)
from glauber.exact.models import (
    Ising,
    Potts,
    ising_family,
    ising_model,
    ising_theta,
    potts_family,
    potts_theta,
    state_counts,
    tilted_family,
)
from glauber.exact.space import Space
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


def test_theta_is_the_model():
    model = Ising.random(4, seed=5)
    family, theta = ising_family(4), ising_theta(model)
    np.testing.assert_allclose(family.distribution(theta), model.probabilities, rtol=1e-12)
    assert family.names[:2] == ("h0", "h1") and family.names[4] == "J0,1"
    again = ising_model(theta, 4)
    assert np.array_equal(again.couplings, model.couplings)
    potts = Potts.random(3, 3, seed=1)
    np.testing.assert_allclose(
        potts_family(3, 3).distribution(potts_theta(potts)), potts.probabilities, rtol=1e-12
    )
    tokens = [list(x) for x in itertools.product(range(2), repeat=4)] + [[0, 0, 0, 1]]
    assert state_counts(family.space, tokens).tolist() == [1, 2, *[1] * 14]


def test_what_is_refused():
    with pytest.raises(GlauberError, match=r"20 sites .*; 19 sites would fit"):
        ising_family(20)
    with pytest.raises(GlauberError, match=r"30 sites .*; 19 sites would fit"):
        ising_family(30)
    family = ising_family(3)
    with pytest.raises(GlauberError, match="different spaces"):
        Pseudolikelihood(family, Masks.uniform(Space(2, 2), 1))
    with pytest.raises(GlauberError, match="6 parameters"):
        family.distribution(np.zeros(5))
    with pytest.raises(GlauberError, match="positive probability"):
        tilted_family(np.array([1.0, 0.0]), Space(2, 1), np.ones((1, 2)))
    with pytest.raises(GlauberError, match="at least one"):
        Drawing(0)
