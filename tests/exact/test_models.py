"""Ising models and families against sums written out by hand; the modes of a ferromagnet."""

import itertools

import numpy as np
import pytest

from glauber.exact.models import (
    Clique,
    Ising,
    ising_family,
    ising_model,
    ising_theta,
    mode_ratios,
    state_counts,
)
from glauber.foundation.errors import GlauberError
from small_families import potts_family


def test_the_exponent_counts_each_pair_twice():
    model = Ising.random(4, seed=1)
    for state, found in zip(itertools.product((-1, 1), repeat=4), model.log_weights, strict=True):
        pairs = sum(
            model.couplings[i, j] * state[i] * state[j]
            for i in range(4)
            for j in range(4)
            if i != j
        )
        by_hand = sum(h * x for h, x in zip(model.fields, state, strict=True)) + pairs
        assert found == pytest.approx(by_hand, abs=1e-12)


def test_the_law_of_two_sites_is_the_closed_form():
    """p(equal) = e^(2J) cosh(h1 + h2) / (…) with J counted twice."""
    model = Ising.make([0.3, -0.1], [[0, 0.4], [0.4, 0]])
    equal = np.exp(0.8) * 2 * np.cosh(0.2)
    apart = np.exp(-0.8) * 2 * np.cosh(0.4)
    p = model.probabilities
    assert p[0] + p[3] == pytest.approx(equal / (equal + apart))
    assert p.sum() == pytest.approx(1)


def test_the_joint_is_the_same_law():
    model = Ising.clique(5, 3, coupling=0.3, field=0.2)
    np.testing.assert_allclose(model.joint().probabilities().numpy(), model.probabilities)
    assert model.couplings[3:].sum() == 0 and model.couplings[0, 1] == 0.3


def test_samples_follow_the_law():
    model = Ising.random(3, seed=4)
    drawn = model.sample(40_000, seed=1)
    mean, exact = drawn.mean(axis=0), model.probabilities @ model.spins
    error = np.sqrt((1 - exact**2) / len(drawn))
    assert (abs(mean - exact) < 4 * error).all()


@pytest.mark.parametrize(
    ("fields", "couplings", "words"),
    [
        ([0, 0], [[0, 1], [0, 0]], "not symmetric"),
        ([0, 0], [[1, 0], [0, 0]], "coupled to itself"),
        ([0, 0], [[0, 1, 0]] * 2, "must be"),
        ([0, np.inf], [[0, 0], [0, 0]], "finite"),
    ],
)
def test_what_is_refused(fields, couplings, words):
    with pytest.raises(GlauberError, match=words):
        Ising.make(fields, couplings)


def test_too_many_states():
    with pytest.raises(GlauberError, match="1,099,511,627,776 states"):
        Ising.clique(40, 4, coupling=1.0).probabilities  # noqa: B018
    with pytest.raises(GlauberError, match="a clique has 5"):
        Ising.clique(4, 5, coupling=1.0)
    with pytest.raises(GlauberError, match=r"2\^1000000000 states, .* 20 sites would fit"):
        Ising.clique(10**9, 4, coupling=1.0)
    with pytest.raises(GlauberError, match=r"1e[+]308 in size, but at most"):
        Ising.clique(3, 3, coupling=1e308)


def test_theta_is_the_model():
    model = Ising.random(4, seed=5)
    family, theta = ising_family(4), ising_theta(model)
    np.testing.assert_allclose(family.distribution(theta), model.probabilities, rtol=1e-12)
    assert family.names[:2] == ("h0", "h1") and family.names[4] == "J0,1"
    assert np.array_equal(ising_model(theta, 4).couplings, model.couplings)
    tokens = [list(x) for x in itertools.product(range(2), repeat=4)] + [[0, 0, 0, 1]]
    assert state_counts(family.space, tokens).tolist() == [1, 2, *[1] * 14]
    with pytest.raises(GlauberError, match="10 parameters"):
        family.distribution(np.zeros(5))
    for n_sites in (20, 30):
        with pytest.raises(GlauberError, match=rf"{n_sites} sites .*; 19 sites would fit"):
            ising_family(n_sites)


def test_potts_models_of_two_colours_are_ising_models():
    theta = np.random.default_rng(3).normal(size=10)
    same = ising_model(np.concatenate([theta[:4], theta[4:]]) / 2, 4)
    found = potts_family(4, 2).distribution(theta)
    np.testing.assert_allclose(found, same.probabilities, rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_modes_are_where_the_condition_says(seed):
    """By enumeration: R1 above R-1 above all others, by the factors of the constants."""
    rng = np.random.default_rng(seed)
    size, others = 3, int(rng.integers(0, 3))
    clique = Clique(size + others, size, 1.2, rng.uniform(0.1, 0.3), rng.uniform(-0.05, 0.05))
    found, model = clique.ferromagnet, clique.ising()
    assert found.holds and found.margin_of_sum > 0 and found.condition == "strongly ferromagnetic"
    total, p = model.spins[:, :size].sum(axis=1), model.probabilities
    up, down, rest = p[total == size], p[total == -size], p[abs(total) < size]
    assert up.min() > down.max()
    assert down.min() > np.exp(2 * found.margin_of_sum) * rest.max()
    np.testing.assert_allclose(up / down, found.mode_ratio, rtol=1e-9)  # same outside, in order
    for tail in set(map(tuple, model.spins[:, size:])):
        here = (model.spins[:, size:] == tail).all(axis=1)
        low, other = p[here & (total == -size)], p[here & (abs(total) < size)]
        assert low.min() > np.exp(2 * found.margin) * other.max()


def test_what_breaks_the_condition():
    found = Clique(10, 4, coupling=8.0, field=5.0).ferromagnet  # figure 3
    assert (found.clique_field, found.outside_field, found.margin) == (20, 30, 3)
    assert not found.holds and "h_G = 20 is not above 30" in found.condition
    weak = Clique(4, 4, coupling=0.1, field=0.2).ferromagnet
    assert not weak.holds and "J_0" in weak.condition
    assert Clique(10, 4, 8.0, 5.0, outside=1.0).ferromagnet.holds


def test_the_largest_field_is_not_enough_for_the_modes():
    """Proposition 8, part 1: with the largest |h_i| the ratio is 1.105 where 1.221 is asked for."""
    model = Clique(6, 3, 0.6, field=0.5, outside=-0.45)
    first, second = mode_ratios(model.ising(), 3)
    p, spins = model.ising().probabilities, model.ising().spins[:, :3].sum(axis=1)
    assert first == pytest.approx(p[spins == 3].min() / p[spins == -3].max())
    assert second == pytest.approx(p[spins == -3].min() / p[abs(spins) == 1].max())
    assert second == pytest.approx(np.exp(0.1)) and second < np.exp(2 * model.ferromagnet.margin)
    for seed in range(20):  # with their sum it is
        field, outside, margin = np.random.default_rng(seed).uniform(0.01, 0.2, 3)
        sum_of_fields = 3 * field + 2 * outside
        model = Clique(5, 3, sum_of_fields + margin, field=field, outside=-outside)
        assert mode_ratios(model.ising(), 3)[1] > np.exp(2 * model.ferromagnet.margin_of_sum)
