"""The Ising model against sums written out by hand."""

import itertools

import numpy as np
import pytest

from glauber.errors import GlauberError
from glauber.exact.models import Ising


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
