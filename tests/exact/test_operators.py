"""Are the operators the matrices that they stand for?"""

import numpy as np
import pytest
import torch

from glauber.conditionals.table import Joint, Table
from glauber.errors import GlauberError
from glauber.exact import (
    Space,
    parallel_matrix,
    parallel_operator,
    stationary,
    sweep_matrix,
    sweep_operator,
    total_variation,
)

PAIRS = [(sweep_matrix, sweep_operator), (parallel_matrix, parallel_operator)]


@pytest.mark.parametrize(("make_matrix", "make_operator"), PAIRS)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 1), (2, 5)])
@pytest.mark.parametrize("frozen", [None, 0])
def test_an_operator_is_its_matrix(make_matrix, make_operator, shape, frozen):
    table, space = Table.random(*shape, seed=1), Space(*shape)
    free = None
    if frozen is not None and shape[1] > 1:
        free = torch.arange(shape[1]) != frozen
    matrix = make_matrix(table, space, temperature=0.7, free=free)
    operator = make_operator(table, space, temperature=0.7, free=free)
    eye = np.eye(space.size)
    np.testing.assert_allclose(operator @ eye, matrix, rtol=0, atol=1e-14)
    np.testing.assert_allclose(operator.T @ eye, matrix.T, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("make_matrix", "make_operator"), PAIRS)
def test_the_law_through_an_operator_is_the_one_through_the_matrix(make_matrix, make_operator):
    table, space = Table.random(3, 4, seed=2), Space(3, 4)
    direct = stationary(make_matrix(table, space))
    assert total_variation(stationary(make_operator(table, space)), direct) < 1e-12


def test_a_sweep_keeps_a_joint_law_beyond_what_a_matrix_could_hold():
    joint, space = Joint.random(5, 6, seed=3), Space(5, 6)
    found = stationary(sweep_operator(joint, space))
    assert total_variation(found, joint.probabilities().numpy()) < 1e-11


def test_a_parallel_operator_that_does_not_fit_is_refused():
    with pytest.raises(GlauberError, match="2,147,483,648 numbers"):
        parallel_operator(Table.random(2, 3), Space(2, 20))
