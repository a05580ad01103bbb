"""GPCCA from the published formulas, next to stored results of pyGPCCA and what can be known."""

import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from glauber.studies.metastability.basin_model import schur_vectors, soft_sets
from glauber.studies.metastability.state_model import state_model

STORED = json.loads((Path(__file__).parents[2] / "data" / "pygpcca.json").read_text("utf-8"))
RESULTS = [
    pytest.param(case, result, id=f"{case['name']}, {result['sets']} sets")
    for case in STORED["cases"]
    for result in case["results"]
]


def chain(case):
    """The transition matrix of a stored case and its weights."""
    model = state_model(np.array(case["counts"], float))
    n = len(model.matrix)
    weights = {
        "stationary": model.stationary,
        "uniform": np.full(n, 1 / n),
        "ramp": np.arange(1, n + 1) / (n * (n + 1) / 2),
    }
    return model.matrix, weights[case["weights"]]


def crispness(memberships, weights):
    """trace(S) / m by its definition: <chi_j, chi_j> / <chi_j, 1>, averaged over sets."""
    return np.mean(weights @ memberships**2 / (weights @ memberships))


@pytest.mark.parametrize(("case", "stored"), RESULTS)
def test_at_least_as_crisp_as_pygpcca(case, stored):
    """pyGPCCA's Nelder-Mead search ends near a local maximum, ours at a corner: never below it.

    Where both end at the same maximum, the memberships agree as far as that search converges:
    its crispness is up to 1e-3 below the maximum, its memberships up to 0.005 away. 1e-6 is ten
    times the feasibility tolerance of the linear programs.
    """
    matrix, weights = chain(case)
    sets = soft_sets(matrix, weights, stored["sets"])
    if "refused" in stored:
        assert sets is None
        return
    expected = np.array(stored["memberships"])
    if sets is None:  # the maximum has an empty set, and so does what pyGPCCA returned
        assert len(np.unique(expected.argmax(axis=1))) < stored["sets"]
        return
    assert sets.memberships.min() >= 0
    np.testing.assert_allclose(sets.memberships.sum(axis=1), 1)
    assert sets.crispness == pytest.approx(crispness(sets.memberships, weights), abs=1e-6)
    assert stored["crispness"] == pytest.approx(crispness(expected, weights), abs=1e-7)
    assert sets.crispness >= stored["crispness"] - 1e-6
    if sets.crispness < stored["crispness"] + 1e-3:
        orders = map(list, permutations(range(stored["sets"])))
        order = min(orders, key=lambda one: np.abs(sets.memberships[:, one] - expected).max())
        np.testing.assert_allclose(sets.memberships[:, order], expected, atol=0.005)
        coarse = sets.coarse_matrix[np.ix_(order, order)]
        np.testing.assert_allclose(coarse, stored["coarse_matrix"], atol=0.005)


@pytest.mark.parametrize("case", STORED["cases"], ids=lambda case: case["name"])
def test_the_vectors_span_an_invariant_space_and_the_coarse_chain_keeps_its_eigenvalues(case):
    matrix, weights = chain(case)
    values = np.linalg.eigvals(matrix)
    values = values[np.argsort(-np.abs(values))]
    for number in range(2, 7):
        vectors = schur_vectors(matrix, weights, number)
        split = abs(values[number - 1]) - abs(values[number]) < 1e-9
        assert (vectors is None) == split
        if vectors is None:
            continue
        np.testing.assert_allclose(vectors.T * weights @ vectors, np.eye(number), atol=1e-8)
        image = matrix @ vectors
        projected = vectors @ (vectors.T * weights @ image)
        np.testing.assert_allclose(projected, image, atol=1e-8)
        sets = soft_sets(matrix, weights, number)
        if sets is not None:
            np.testing.assert_allclose(sets.coarse_matrix.sum(axis=1), 1, atol=1e-8)
            powers = [np.trace(np.linalg.matrix_power(sets.coarse_matrix, k)) for k in (1, 2, 3)]
            expected = [(values[:number] ** k).sum().real for k in (1, 2, 3)]
            np.testing.assert_allclose(powers, expected, atol=1e-6)


def test_two_sets_are_the_second_eigenvector_from_0_to_1():
    """With two sets and real eigenvalues there is one solution, in closed form."""
    case = STORED["cases"][0]
    matrix, weights = chain(case)
    values, vectors = np.linalg.eig(matrix)
    second = vectors[:, np.argsort(-np.abs(values))[1]].real
    expected = (second - second.min()) / np.ptp(second)
    found = soft_sets(matrix, weights, 2).memberships
    column = int(np.abs(found[:, 1] - expected).max() < np.abs(found[:, 0] - expected).max())
    np.testing.assert_allclose(found[:, column], expected, atol=1e-8)


def test_blocks_that_hardly_meet_are_the_sets():
    within = np.full((3, 3), 1 / 3)
    matrix = np.kron(np.eye(4), within) * (1 - 1e-6) + 1e-6 / 12
    matrix[:3, 3:6] += 1e-7  # no two eigenvalues alike
    matrix[3:6, 6:9] += 2e-7
    matrix /= matrix.sum(axis=1, keepdims=True)
    found = soft_sets(matrix, state_model(matrix).stationary, 4)
    assert found is not None and found.crispness > 1 - 1e-4
    assert sorted(np.bincount(found.memberships.argmax(axis=1))) == [3, 3, 3, 3]
    assert len({tuple(row) for row in found.memberships.argmax(axis=1).reshape(4, 3)}) == 4
