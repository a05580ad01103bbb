"""Is the stationary law right, for fast chains, sticky ones, large ones and broken ones?"""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from glauber.exact import Space, stationary, total_variation, transition_matrix
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint, Table


def random_walk(up, down):
    """A birth-and-death chain and its law, by detailed balance: law[i] up[i] = law[i+1] down[i]."""
    matrix = np.diag(up, 1) + np.diag(down, -1)
    matrix += np.diag(1 - matrix.sum(axis=1))
    law = np.cumprod([1.0, *np.divide(up, down)])
    return matrix, law / law.sum()


def test_two_states_in_closed_form():
    found = stationary([[0.9, 0.1], [0.3, 0.7]])
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [0.75, 0.25], rtol=1e-15)


@pytest.mark.parametrize("direct_limit", [0, 1024])
def test_a_random_walk_by_detailed_balance(direct_limit):
    rng = np.random.default_rng(0)
    matrix, law = random_walk(rng.uniform(0.2, 0.4, 49), rng.uniform(0.2, 0.4, 49))
    for given in (matrix, csr_array(matrix)):
        found = stationary(given, direct_limit=direct_limit)
        np.testing.assert_allclose(found, law, rtol=0, atol=1e-12)


def test_every_entry_is_accurate_however_slow_the_chain():
    # Two wells joined by steps of probability 1e-25: invisible beside the diagonal's 1.
    matrix, law = random_walk([0.4, 1e-25, 0.3], [0.2, 3e-25, 0.1])
    np.testing.assert_allclose(stationary(matrix), law, rtol=1e-14)


def test_a_law_over_three_hundred_powers_of_ten():
    matrix, law = random_walk([0.4] * 10, [1e-30] * 10)
    np.testing.assert_allclose(stationary(matrix), law, rtol=1e-13)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_the_large_method_agrees_with_the_small_one(temperature):
    matrix = transition_matrix(Table.random(3, 5, seed=1), Space(3, 5), temperature=temperature)
    small, large = stationary(matrix), stationary(matrix, direct_limit=0)
    assert total_variation(small, large) < 1e-12


def test_the_large_method_finds_a_joint_law_beyond_the_small_limit():
    joint, space = Joint.random(6, 5, seed=2), Space(6, 5)
    found = stationary(transition_matrix(joint, space))
    assert total_variation(found, joint.probabilities().numpy()) < 1e-12


def test_the_large_method_copes_with_a_slow_chain():
    # GMRES alone stalls here; the incomplete factors carry it. The gap is 9e-8: rounding over the
    # gap is 1e-9.
    joint, space = Joint.random(2, 11, seed=3, strength=6.0), Space(2, 11)
    found = stationary(transition_matrix(joint, space))
    assert total_variation(found, joint.probabilities().numpy()) < 1e-9


@pytest.mark.parametrize("direct_limit", [0, 1024])
def test_a_cycle_has_the_uniform_law(direct_limit):
    cycle = np.roll(np.eye(6), 1, axis=1)
    found = stationary(cycle, direct_limit=direct_limit)
    np.testing.assert_allclose(found, 1 / 6, rtol=0, atol=1e-14)


@pytest.mark.parametrize("direct_limit", [0, 1024])
def test_states_left_for_ever_get_nothing(direct_limit):
    matrix = [[0.2, 0.3, 0.5], [0.0, 0.9, 0.1], [0.0, 0.3, 0.7]]
    found = stationary(matrix, direct_limit=direct_limit)
    np.testing.assert_allclose(found, [0.0, 0.75, 0.25], rtol=0, atol=1e-14)
    assert found[0] == 0


def test_the_given_matrix_is_left_as_it_was():
    matrix = csr_array((np.array([0.5, 0.5, 1.0, 0.0]), [0, 1, 0, 1], [0, 2, 4]), shape=(2, 2))
    np.testing.assert_allclose(stationary(matrix), [2 / 3, 1 / 3], rtol=0, atol=1e-14)
    assert matrix.nnz == 4


def test_several_stationary_laws_are_refused():
    free = torch.tensor([True, False])
    frozen = transition_matrix(Table.random(3, 2), Space(3, 2), free=free)
    with pytest.raises(GlauberError, match="3 sets of states"):
        stationary(frozen)


@pytest.mark.parametrize(
    "matrix",
    [
        [[0.5, 0.4], [0.5, 0.5]],
        [[1.5, -0.5], [0.5, 0.5]],
        [[0.5, 0.5]],
        [[np.nan, 1.0], [0.5, 0.5]],
        [[0.0, 0.0], [0.0, 0.0]],
    ],
)
def test_what_is_no_stochastic_matrix_is_refused(matrix):
    with pytest.raises(GlauberError):
        stationary(matrix)


def test_total_variation_in_closed_form():
    assert total_variation([0.5, 0.5, 0.0], [0.2, 0.5, 0.3]) == pytest.approx(0.3, abs=1e-15)
    assert total_variation([1.0, 0.0], [0.0, 1.0]) == 1.0
    with pytest.raises(GlauberError):
        total_variation([1.0], [0.5, 0.5])
