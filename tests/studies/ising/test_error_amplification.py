"""Errors of conditionals and of the distribution that they lead to, against other programs."""

import numpy as np
import pytest
import torch

from glauber import ising
from glauber.exact import site_matrix, stationary, total_variation
from glauber.exact.models import Ising
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint
from glauber.studies.ising.error_amplification import log_odds, measure_amplification


def test_a_compatible_error_ends_in_its_own_joint_distribution():
    """The stationary distribution is then known, and the error of conditionals by enumeration."""
    model, rng = Ising.random(4, seed=5, strength=0.4), np.random.default_rng(2)
    weights = model.log_weights + 0.2 * rng.normal(size=16)
    other = np.exp(weights) / np.exp(weights).sum()
    space, odds = model.space, log_odds(model.log_weights, model.space)
    error, distance, ratio, bound = measure_amplification(
        model.probabilities, odds, log_odds(weights, space), space
    )
    assert distance == pytest.approx(total_variation(model.probabilities, other), abs=1e-12)
    cube, wrong = (each.reshape((2,) * 4) for each in (model.probabilities, other))
    by_hand = [
        (
            abs(cube / cube.sum(site, keepdims=True) - wrong / wrong.sum(site, keepdims=True))
            * cube
        ).sum()
        for site in range(4)
    ]
    assert error == pytest.approx(np.mean(by_hand)) and ratio == pytest.approx(distance / error)
    assert ratio <= bound


def test_one_wrong_conditional_is_another_chain():
    """Site 0 alone has another field: the matrix is written down with the package's own."""
    model = Ising.random(3, seed=1, strength=0.5)
    odds, space = log_odds(model.log_weights, model.space), model.space
    wrong = odds + 0.3 * np.array([[1.0], [0.0], [0.0]])
    _, distance, ratio, bound = measure_amplification(model.probabilities, odds, wrong, space)
    tilted = model.log_weights + 0.3 * (model.spins[:, 0] > 0)
    joint = Joint(torch.from_numpy(tilted).reshape(2, 2, 2))
    matrix = sum(
        site_matrix(joint if site == 0 else model.joint(), space, site) for site in range(3)
    )
    limit = stationary(matrix / 3)
    assert distance == pytest.approx(total_variation(limit, model.probabilities), abs=1e-12)
    assert 0 < ratio <= bound


def test_errors_grow_with_dependency():
    found = ising.amplification(couplings=[0.0, 0.2, 0.4], repetitions=10, seed=1)
    free, joint = found.rows[::2], found.rows[1::2]
    for rows in (free, joint):
        ratios = [row.amplification.value for row in rows]
        assert ratios == sorted(ratios) and ratios[-1] > 5 * ratios[0]
        assert all(max(row.ratios) < row.bound.value for row in rows)
    # Independent sites: (I - P + 1 p)^-1 has rows that differ by at most N in each half.
    assert 1 < free[0].amplification.value < 4
    small = ising.amplification(couplings=[0.2], error=0.001, repetitions=10, seed=1).rows[0]
    same = ising.amplification(couplings=[0.2], error=0.01, repetitions=10, seed=1).rows[0]
    assert small.amplification.value == pytest.approx(same.amplification.value, rel=0.02)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(sites=10), "at most 9 are computed"),
        (dict(error=0.0), "error is 0"),
        (dict(repetitions=2), "repetitions is 2"),
        (dict(couplings=[]), "couplings is empty"),
        (dict(couplings=[5.0]), "mixes too slowly"),
    ],
)
def test_bad_input_is_one_sentence(given, said):
    with pytest.raises(GlauberError, match=said):
        ising.amplification(**given)
