"""The family whose margin grows with the length, against its joint distribution."""

import numpy as np
import pytest
import torch

from glauber.exact import Space, distances, stationary, transition_matrix
from glauber.models.table import Joint
from glauber.studies.metastability.margins import basin_margin
from glauber.studies.mixing.growing_margin import Unison, margin_and_time


def joint(vocab, n, depth):
    weights = torch.zeros((vocab,) * n, dtype=torch.float64)
    for token in range(vocab):
        weights[(token,) * n] = n * depth
    return Joint(weights)


@pytest.mark.parametrize(("vocab", "n", "depth"), [(2, 4, 1.0), (3, 3, 0.6)])
def test_the_conditionals_are_those_of_the_joint_distribution(vocab, n, depth):
    states = Space(vocab, n).states()
    for site in range(n):
        sites = torch.full((len(states), 1), site)
        own = torch.log_softmax(Unison(depth, vocab).scores(states, sites), dim=-1)
        expected = joint(vocab, n, depth).scores(states, sites)
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("vocab", "temperature"), [(2, 1.0), (3, 0.7)])
def test_margin_time_and_bound(vocab, temperature):
    rows = margin_and_time((3, 4, 5), depth=0.8, temperature=temperature, vocab_size=vocab)
    for n, row in zip((3, 4, 5), rows, strict=True):
        matrix = transition_matrix(joint(vocab, n, 0.8), Space(vocab, n), temperature=temperature)
        law = stationary(matrix)
        assert row.margin == pytest.approx(0.8 * n) and row.kind == "exact"
        basin = basin_margin(joint(vocab, n, 0.8), torch.zeros(1, n, dtype=torch.long))
        assert basin.holds and basin.margin == pytest.approx(row.margin)
        assert row.probability == pytest.approx(law[0]) and row.probability <= 0.5
        bound = np.exp(0.8 * n / temperature) / (4 * (vocab - 1))
        assert row.bound == pytest.approx(bound) and row.mixing_time >= bound
        worst = distances(matrix, row.mixing_time, distribution=law).max(axis=1)
        assert worst[-1] <= 0.25 < worst[-2]


def test_the_time_grows_exponentially():
    times = [row.mixing_time for row in margin_and_time(range(4, 9))]
    growth = np.diff(np.log(times))
    assert (growth > 0.9).all()  # a power of n would gain less with each token
