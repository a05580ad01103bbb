"""The Potts model by hand, and the modes that a strong ferromagnet must have."""

import itertools

import numpy as np
import pytest

from glauber.errors import GlauberError
from glauber.exact.models import ferromagnet
from glauber.exact.models import Ising, Potts


def test_the_exponent_of_potts():
    model = Potts.random(3, 3, seed=1)
    for state, found in zip(itertools.product(range(3), repeat=3), model.log_weights, strict=True):
        by_hand = sum(model.fields[i, c] for i, c in enumerate(state)) + sum(
            model.couplings[i, j] * (state[i] == state[j]) for i in range(3) for j in range(3)
        )
        assert found == pytest.approx(by_hand, abs=1e-12)
    np.testing.assert_allclose(model.joint().probabilities().numpy(), model.probabilities)


def test_two_colours_are_ising():
    model = Potts.random(4, 2, seed=3)
    fields = (model.fields[:, 1] - model.fields[:, 0]) / 2
    same = Ising(fields, model.couplings / 2)
    np.testing.assert_allclose(model.probabilities, same.probabilities, rtol=1e-12)


def test_samples_of_potts_follow_the_law():
    model = Potts.random(2, 3, seed=4)
    drawn = model.sample(30_000, seed=1)
    shares = np.bincount(drawn @ [3, 1], minlength=9) / len(drawn)
    error = np.sqrt(model.probabilities * (1 - model.probabilities) / len(drawn))
    assert (abs(shares - model.probabilities) < 4 * error).all()


def test_potts_refuses():
    with pytest.raises(GlauberError, match="not symmetric"):
        Potts.make([[0, 0], [0, 0]], [[0, 1], [0, 0]])
    with pytest.raises(GlauberError, match="coupled to itself"):
        Potts.make([[0, 0], [0, 0]], [[1, 0], [0, 0]])
    with pytest.raises(GlauberError, match="must be"):
        Potts.make([0, 0], [[0, 0], [0, 0]])


@pytest.mark.parametrize("seed", range(20))
def test_the_modes_are_where_the_condition_says(seed):
    """By enumeration: R1 above R-1 above all others, by the factors of the constants."""
    rng = np.random.default_rng(seed)
    size, outside = 3, int(rng.integers(0, 3))
    fields = np.concatenate([rng.uniform(0.1, 0.3, size), rng.uniform(-0.05, 0.05, outside)])
    model = Ising.clique(size + outside, size, coupling=1.2)
    model = Ising(fields, model.couplings)
    found = ferromagnet(model, range(size))
    assert found.holds and found.margin_of_sum > 0 and found.condition == "strongly ferromagnetic"
    clique = model.spins[:, :size].sum(axis=1)
    p = model.probabilities
    up, down, rest = p[clique == size], p[clique == -size], p[abs(clique) < size]
    assert up.min() > down.max()
    assert down.min() > np.exp(2 * found.margin_of_sum) * rest.max()
    np.testing.assert_allclose(up / down, found.mode_ratio, rtol=1e-9)  # same outside, in order
    for tail in set(map(tuple, model.spins[:, size:])):
        here = (model.spins[:, size:] == tail).all(axis=1)
        low, other = p[here & (clique == -size)], p[here & (abs(clique) < size)]
        assert low.min() > np.exp(2 * found.margin) * other.max()


def test_figure_3_is_not_strongly_ferromagnetic():
    found = ferromagnet(Ising.clique(10, 4, coupling=6.0, field=5.0), range(4))
    assert (found.clique_field, found.outside_field, found.margin) == (20.0, 30.0, 1.0)
    assert not found.holds and "h_G = 20" in found.broken
    weak = ferromagnet(Ising.clique(4, 4, coupling=0.1, field=0.2), range(4))
    assert not weak.holds and "J_0" in weak.broken


def test_what_is_no_clique():
    with pytest.raises(GlauberError, match="coupled alike"):
        ferromagnet(Ising.random(4), range(3))
    with pytest.raises(GlauberError, match="at least two"):
        ferromagnet(Ising.clique(4, 3, coupling=1.0), [0])
