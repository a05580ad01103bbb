"""Hitting and exit times and committors against closed forms, plain summing and deeptime."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from glauber.exact import (
    Space,
    committor,
    hamming_ball,
    hitting_times,
    mean_exit_times,
    mean_hitting_times,
    mean_passage_between,
    stationary,
    transition_matrix,
)
from glauber.foundation.errors import GlauberError
from glauber.models.table import Table

SPACE = Space(3, 3)


def walk(n, up):
    """A walk on 0 … n - 1 that stays where it would step out."""
    matrix = np.zeros((n, n))
    for i in range(n):
        matrix[i, min(i + 1, n - 1)] += up
        matrix[i, max(i - 1, 0)] += 1 - up
    return matrix


def test_the_walk_has_closed_forms():
    n, up = 9, 0.6
    ends = np.eye(n, dtype=bool)
    r = (1 - up) / up
    ruin = (1 - r ** np.arange(n)) / (1 - r ** (n - 1))
    np.testing.assert_allclose(committor(walk(n, up), ends[0], ends[-1]), ruin, atol=1e-12)
    fair = mean_hitting_times(walk(n, 0.5), ends[-1])  # from i to m with a wall below 0
    i, m = np.arange(n), n - 1
    np.testing.assert_allclose(fair, m * (m + 1) - i * (i + 1), rtol=1e-12)


@pytest.mark.parametrize("up", [0.3, 0.5, 0.7])
def test_the_ruin_of_a_gambler(up):
    """Ends 0 and m stop the game: its mean length from i, by the textbook."""
    m = 12
    matrix, i = walk(m + 1, up), np.arange(m + 1)
    matrix[[0, m]] = np.eye(m + 1)[[0, m]]
    r = (1 - up) / up
    if up == 0.5:
        expected = i * (m - i)
    else:
        expected = i / (1 - 2 * up) - m / (1 - 2 * up) * (1 - r**i) / (1 - r**m)
    found = mean_hitting_times(matrix, (i == 0) | (i == m))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(mean_exit_times(matrix, (i > 0) & (i < m)), found)


def test_any_birth_death_chain():
    """From i to i + 1 it takes sum over j <= i of mu(j) / (mu(i) up(i)); the steps add up."""
    rng, n = np.random.default_rng(4), 8
    up, down = rng.uniform(0.05, 0.4, (2, n))
    up[-1] = down[0] = 0
    matrix = np.diag(1 - up - down) + np.diag(up[:-1], 1) + np.diag(down[1:], -1)
    weights = np.cumprod(np.append(1.0, up[:-1] / down[1:]))
    climbs = np.cumsum(weights)[:-1] / (weights[:-1] * up[:-1])
    expected = np.append(np.cumsum(climbs[::-1])[::-1], 0.0)
    found = mean_hitting_times(matrix, np.arange(n) == n - 1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_deeptime_finds_the_same(seed):
    from deeptime.markov.tools.analysis import committor as their_committor
    from deeptime.markov.tools.analysis import mfpt

    matrix = transition_matrix(Table.random(3, 3, seed=seed), SPACE)
    dense = matrix.toarray()
    rng = np.random.default_rng(seed)
    source, target = rng.random((2, 27)) < 0.2
    source &= ~target
    found = mean_hitting_times(matrix, target)
    np.testing.assert_allclose(found, mfpt(dense, np.flatnonzero(target)), rtol=1e-9)
    between = mean_passage_between(matrix, source, target)
    theirs = mfpt(dense, np.flatnonzero(target), np.flatnonzero(source), mu=stationary(matrix))
    assert between == pytest.approx(theirs, rel=1e-9)
    q = their_committor(dense, np.flatnonzero(source).tolist(), np.flatnonzero(target).tolist())
    np.testing.assert_allclose(committor(matrix, source, target), q, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_times_are_the_sum_of_the_chances_to_be_late(seed):
    matrix = transition_matrix(Table.random(2, 3, seed=seed), Space(2, 3))
    target = np.random.default_rng(seed).random(8) < 0.3
    target[seed], target[seed + 1] = True, False
    late = (~target).astype(float)
    total = np.zeros(8)
    killed = matrix.toarray() * ~target[:, None] * ~target
    for _ in range(4000):
        total += late
        late = killed @ late
    assert late.max() < 1e-12
    np.testing.assert_allclose(mean_hitting_times(matrix, target), total, rtol=1e-9)


def test_elimination_and_the_sparse_solve_agree(monkeypatch):
    matrix = transition_matrix(Table.random(3, 3, seed=7), SPACE)
    target = hamming_ball(SPACE, torch.tensor([0, 0, 1]), 1)
    eliminated = mean_hitting_times(matrix, target)
    monkeypatch.setattr(hitting_times, "ELIMINATION_LIMIT", 0)
    np.testing.assert_allclose(mean_hitting_times(matrix, target), eliminated, rtol=1e-10)
    with pytest.raises(GlauberError, match="never reached"):
        mean_hitting_times(csr_array(np.eye(3)), np.array([True, False, False]))


@pytest.mark.parametrize("radius", [0, 1, 2])
def test_the_mean_exit_is_the_sum_of_the_chances_to_be_still_inside(radius):
    matrix = transition_matrix(Table.random(3, 3, seed=4), SPACE).toarray()
    inside = hamming_ball(SPACE, torch.tensor([0, 2, 1]), radius)
    assert inside.sum() == [1, 7, 19][radius]
    there, total = inside.astype(float), np.zeros(27)
    for _ in range(3000):  # P(T > t) from each start; the rest is below 1e-12
        total += there
        there = inside * (matrix @ there)
    assert there.max() < 1e-12
    np.testing.assert_allclose(mean_exit_times(matrix, inside), total, rtol=1e-9)


def test_a_single_state_is_held_for_a_geometric_time():
    matrix = transition_matrix(Table.random(3, 3, seed=5), SPACE)
    for number, state in enumerate(SPACE.states()):
        times = mean_exit_times(matrix, hamming_ball(SPACE, state, 0))
        held = 1 / (1 - matrix.toarray()[number, number])
        assert times[number] == pytest.approx(held, rel=1e-9) and times.sum() == times[number]


def test_sets_that_cannot_be_asked_about():
    matrix, ends = walk(4, 0.5), np.eye(4, dtype=bool)
    for target in (np.zeros(4, bool), np.ones(4, bool), np.ones(3, bool), np.ones(4)):
        with pytest.raises(GlauberError, match="the set"):
            mean_hitting_times(matrix, target)
    with pytest.raises(GlauberError, match="both sets"):
        committor(matrix, ends[0], ends[0])
    for inside, why in (([True, False, False], "never reached"), ([False] * 3, "no state")):
        with pytest.raises(GlauberError, match=why):
            mean_exit_times(np.eye(3), np.array(inside))
    with pytest.raises(GlauberError, match="never left"):
        mean_exit_times(np.eye(3), np.ones(3, bool))
    with pytest.raises(GlauberError, match="3 states"):
        mean_exit_times(np.eye(3), np.array([True, False]))
