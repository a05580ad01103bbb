"""The mean-field Ising model against enumeration, and ratios of widths."""

import numpy as np
import pytest
import torch

from glauber.exact import Ising, Space, mean_meeting_times, pair_matrix
from glauber.studies.mixing.crossover import Crossover
from glauber.studies.mixing.ising_crossover import (
    TEMPERATURES,
    MeanFieldIsing,
    ising_phase,
    width_ratio,
)


@pytest.mark.parametrize("n", [2, 5])
def test_the_conditionals_are_those_of_the_joint_distribution(n):
    """exp(sum_{i<j} x_i x_j / n): each ordered pair has half of it in `Ising`."""
    joint = Ising.clique(n, n, coupling=1 / (2 * n)).joint()
    states = Space(2, n).states()
    for site in range(n):
        sites = torch.full((len(states), 1), site)
        own = torch.log_softmax(MeanFieldIsing().scores(states, sites), dim=-1)
        torch.testing.assert_close(own, joint.scores(states, sites), rtol=0, atol=1e-12)


def test_meeting_times_are_those_of_the_pair_chain():
    """From all down and all up: the mean over 400 pairs against the exact mean."""
    n, t = 4, 1.016
    matrix = pair_matrix(MeanFieldIsing(), Space(2, n), temperature=t)
    exact = mean_meeting_times(matrix, Space(2, n)).reshape(2**n, 2**n)[0, -1]
    cell = ising_phase([n], pairs=400, steps=2000).cell(t, n)
    assert all(cell.met) and t in TEMPERATURES
    error = np.std(cell.times) / 20
    assert abs(np.mean(cell.times) - exact) < 4 * error


def test_the_crossover_moves_up_with_the_length():
    found = ising_phase([4, 12], pairs=20, steps=200)
    short, long = found.at_steps.crossovers
    assert short.temperature < long.temperature
    assert found.cell(0.2, 12).share == 0 and found.cell(3.0, 12).share == 1


def crossover(width, ends):
    return Crossover(8, 1.0, (0.9, 1.1), width, ends)


def test_ratios_of_widths():
    ratio, (low, high) = width_ratio(crossover(0.2, (0.1, 0.4)), crossover(0.1, (0.05, 0.2)))
    assert ratio == pytest.approx(2)
    assert (low, high) == pytest.approx((2 * 2 ** -(2**0.5), 2 * 2 ** (2**0.5)))
    # A width whose low end is a jump bounds the ratio on one side only.
    _, ends = width_ratio(crossover(0.2, (0.0, 0.4)), crossover(0.1, (0.05, None)))
    assert ends[0] is None and ends[1] == pytest.approx(2 * 2 ** (2**0.5))
    assert width_ratio(crossover(0.0, (0.0, 0.1)), crossover(0.1, (0.05, 0.2)))[0] is None
    unseen = Crossover(8, None, (None, 1.0), None, (None, None))
    assert width_ratio(unseen, crossover(0.1, (0.05, 0.2))) == (None, (None, None))
