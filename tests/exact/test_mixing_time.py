"""Is t_mix the first step within epsilon? One step at a time, by plain products."""

import math

import numpy as np
import pytest

from glauber.exact import (
    Space,
    distances,
    mixing_time,
    parallel_matrix,
    parallel_operator,
    stationary,
    sweep_matrix,
    transition_matrix,
)
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint, Table


def time_by_steps(matrix, epsilon, rows):
    law = stationary(matrix)
    for time in range(100_000):
        if 0.5 * np.abs(rows - law).sum(axis=1).max() <= epsilon:
            return time
        rows = rows @ matrix
    raise AssertionError


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("strength", [0.5, 3.0])
@pytest.mark.parametrize("epsilon", [0.4, 0.25, 0.01, 1e-5])
def test_the_worst_start(seed, strength, epsilon):
    matrix = transition_matrix(Table.random(3, 3, seed=seed, strength=strength), Space(3, 3))
    found = mixing_time(matrix, epsilon=epsilon)
    assert found.steps == time_by_steps(matrix.toarray(), epsilon, np.eye(27))
    assert found.distance <= epsilon < found.before
    assert found.kind == "exact" and found.error < 1e-9
    alone = mixing_time(matrix, epsilon=epsilon, starts=[found.start])
    assert alone.steps == found.steps and alone.kind == "lower bound"


@pytest.mark.parametrize("kernel", [sweep_matrix, parallel_matrix])
def test_other_kernels(kernel):
    matrix = kernel(Table.random(2, 4, seed=3, strength=2.0), Space(2, 4))
    assert mixing_time(matrix).steps == time_by_steps(matrix, 0.25, np.eye(16))


def test_given_starts_may_be_states_or_laws():
    table, space = Table.random(3, 4, seed=1, strength=2.0), Space(3, 4)
    matrix, eye = transition_matrix(table, space).toarray(), np.eye(81)
    rows = np.vstack([eye[[5, 17]], np.full((1, 81), 1 / 81)])
    assert mixing_time(matrix, starts=[5, 17]).steps == time_by_steps(matrix, 0.25, eye[[5, 17]])
    assert mixing_time(matrix, starts=rows).steps == time_by_steps(matrix, 0.25, rows)
    assert mixing_time(matrix, starts=stationary(matrix)[None]).steps == 0


def test_two_states_in_closed_form_at_any_speed():
    # TV = start's distance * (1 - a - b)^t: from the rarer state 3/4 * 0.6^t, and so on.
    for a, b in ((0.1, 0.3), (1e-3, 3e-3), (1e-6, 3e-6)):
        expected = math.ceil(math.log(0.25 / 0.75) / math.log1p(-a - b))
        found = mixing_time([[1 - a, a], [b, 1 - b]])
        assert found.steps == expected and found.kind == "exact" and found.start == 1


def test_walking_and_squaring_agree_beyond_the_walk():
    matrix = transition_matrix(Joint.random(2, 6, seed=4, strength=3.0), Space(2, 6))
    worst = mixing_time(matrix, epsilon=0.1)
    assert worst.steps > 1000
    assert mixing_time(matrix, epsilon=0.1, starts=[worst.start]).steps == worst.steps


def test_total_variation_against_time():
    table, space = Table.random(3, 3, seed=5), Space(3, 3)
    matrix = parallel_matrix(table, space)
    law = stationary(matrix)
    found = distances(parallel_operator(table, space), 6, starts=[0, 26])
    assert found.shape == (7, 2)
    for time, (column, start) in ((t, s) for t in range(7) for s in enumerate([0, 26])):
        after = np.linalg.matrix_power(matrix, time)[start]
        assert found[time, column] == pytest.approx(0.5 * np.abs(after - law).sum(), abs=1e-13)
    assert (np.diff(distances(matrix, 6), axis=0) <= 1e-15).all()


def test_what_rounding_could_move_is_an_estimate():
    # epsilon is the distance after 5 steps itself, so that step 5 or 6 is a matter of rounding.
    matrix = np.array([[0.9, 0.1], [0.3, 0.7]])
    found = mixing_time(matrix, epsilon=0.75 * 0.6**5)
    assert found.steps in (5, 6) and found.kind == "estimate"


def test_what_cannot_be_answered_is_refused():
    matrix = np.array([[0.9, 0.1], [0.3, 0.7]])
    large = transition_matrix(Joint.random(2, 13), Space(2, 13))
    uniform = np.full(2**13, 2.0**-13)
    known = Joint.random(2, 13).probabilities().numpy()
    for request, words in (
        (lambda: mixing_time(matrix, epsilon=0.0), "epsilon"),
        (lambda: mixing_time(matrix, starts=[2]), "state numbers"),
        (lambda: mixing_time(matrix, starts=[[0.5, 0.6]]), "no distribution"),
        (lambda: mixing_time(matrix, starts=[[1.0]]), "shape"),
        (lambda: mixing_time([[0.0, 1.0], [1.0, 0.0]], max_steps=1000), "1,000 steps"),
        (lambda: mixing_time(large, distribution=known), "8,192"),
        (lambda: mixing_time(large, distribution=uniform, starts=[0]), "not stationary"),
    ):
        with pytest.raises(GlauberError, match=words):
            request()
