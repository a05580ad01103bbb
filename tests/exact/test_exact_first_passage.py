"""First-passage times and committors against closed forms and plain summing."""

import numpy as np
import pytest

from glauber.conditionals.table import Table
from glauber.errors import GlauberError
from glauber.exact import (
    Space,
    committor,
    mean_first_passage,
    mean_passage_between,
    stationary,
    transition_matrix,
)


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
    fair = mean_first_passage(walk(n, 0.5), ends[-1])  # from i to m with a wall below 0
    i, m = np.arange(n), n - 1
    np.testing.assert_allclose(fair, m * (m + 1) - i * (i + 1), rtol=1e-12)


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
    np.testing.assert_allclose(mean_first_passage(matrix, target), total, rtol=1e-9)
    source = ~target & (np.arange(8) != seed + 1)
    law = stationary(matrix)[source]
    expected = (law @ total[source] / law.sum()) if source.any() else None
    if expected is not None:
        assert mean_passage_between(matrix, source, target) == pytest.approx(expected)


def test_sets_that_cannot_be_asked_about():
    matrix, ends = walk(4, 0.5), np.eye(4, dtype=bool)
    for target in (np.zeros(4, bool), np.ones(4, bool), np.ones(3, bool)):
        with pytest.raises(GlauberError):
            mean_first_passage(matrix, target)
    with pytest.raises(GlauberError, match="both sets"):
        committor(matrix, ends[0], ends[0])
