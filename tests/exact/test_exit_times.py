"""Exit times against sums over paths, holding times and a chain solved by hand."""

import numpy as np
import pytest
import torch

from glauber.conditionals.table import Table
from glauber.errors import GlauberError
from glauber.exact.exit_times import exit_times, hamming_ball
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.metastability.margins import margins_of as margins

SPACE = Space(3, 3)


@pytest.mark.parametrize("radius", [0, 1, 2])
def test_the_mean_is_the_sum_of_the_chances_to_be_still_inside(radius):
    law = Table.random(3, 3, seed=4)
    matrix = transition_matrix(law, SPACE).toarray()
    inside = hamming_ball(SPACE, torch.tensor([0, 2, 1]), radius)
    assert inside.sum() == [1, 7, 19][radius]
    there, total = inside.astype(float), np.zeros(27)
    for _ in range(3000):  # P(T > t) from each start; the rest is below 1e-12
        total += there
        there = inside * (matrix @ there)
    assert there.max() < 1e-12
    np.testing.assert_allclose(exit_times(matrix, inside), total, rtol=1e-9)


def test_a_single_state_is_held_as_its_margins_say():
    law = Table.random(3, 3, seed=5)
    for number, state in enumerate(SPACE.states()):
        ball = hamming_ball(SPACE, state, 0)
        held = margins(law, state, torch.ones(3).bool()).holding_time
        times = exit_times(transition_matrix(law, SPACE), ball)
        assert times[number] == pytest.approx(held, rel=1e-9) and times.sum() == times[number]


def test_a_walk_between_two_walls():
    """From place k of 0 … 4 a fair walk leaves 1 … 3 after k (4 - k) steps."""
    matrix = np.eye(5)
    for k in (1, 2, 3):
        matrix[k] = 0
        matrix[k, [k - 1, k + 1]] = 0.5
    found = exit_times(matrix, np.array([False, True, True, True, False]))
    np.testing.assert_allclose(found, [0, 3, 4, 3, 0])


def test_what_has_no_exit_time():
    matrix = np.eye(3)
    for inside, why in (([True, False, False], "never left"), ([False] * 3, "no state")):
        with pytest.raises(GlauberError, match=why):
            exit_times(matrix, np.array(inside))
    with pytest.raises(GlauberError, match="3 states"):
        exit_times(matrix, np.array([True, False]))
