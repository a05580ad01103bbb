"""Gaps against dense eigenvalues, closed forms and decay; bottlenecks against every set."""

import itertools

import numpy as np
import pytest

from glauber.exact import (
    Space,
    best_bottleneck,
    conductance,
    parallel_matrix,
    parallel_operator,
    spectrum,
    stationary,
    sweep_matrix,
    sweep_operator,
    transition_matrix,
)
from glauber.exact.spectrum import DENSE_SYMMETRIC, _by_sweep, _flow
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint, Table


def gaps_by_numpy(matrix, k_max):
    """Second modulus, additive gap and the terms of the pseudo-spectral gap, word for word."""
    law = stationary(matrix)
    reverse = (matrix * law[:, None]).T / law[:, None]

    def gap(reversible):  # the eigenvalue 1 once taken out
        values = np.sort(np.linalg.eigvals(reversible).real)
        return 1 - values[-2]

    moduli = np.sort(np.abs(np.linalg.eigvals(matrix)))
    power = np.linalg.matrix_power
    terms = [gap(power(reverse, k) @ power(matrix, k)) / k for k in range(1, k_max + 1)]
    return moduli[-2], gap((matrix + reverse) / 2), terms


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("make", [sweep_matrix, parallel_matrix, "single"])
def test_the_gaps_of_chains_that_are_not_reversible(make, seed):
    table, space = Table.random(3, 3, seed=seed, strength=1.5), Space(3, 3)
    matrix = transition_matrix(table, space).toarray() if make == "single" else make(table, space)
    modulus, additive, terms = gaps_by_numpy(matrix, 12)
    found = spectrum(matrix, k_max=12)
    assert not found.reversible
    assert found.second_modulus == pytest.approx(modulus, abs=1e-10)
    assert found.absolute_gap == pytest.approx(1 - modulus, abs=1e-10)
    assert found.additive_gap == pytest.approx(additive, abs=1e-10)
    assert found.pseudo_gap == pytest.approx(max(terms), abs=1e-10)
    assert found.pseudo_kind == ("exact" if max(terms) >= 1 / 13 else "lower bound")
    assert found.error < 1e-10
    with pytest.raises(GlauberError, match="not reversible"):
        _ = found.gap


def test_a_term_beyond_the_first_can_be_the_largest():
    # A sweep forgets the last site at once, but P*P alone does not show how fast the rest goes.
    cycle = 0.9 * np.roll(np.eye(5), 1, axis=1) + 0.1 * np.roll(np.eye(5), 2, axis=1)
    found = spectrum(cycle, k_max=60)
    _, _, terms = gaps_by_numpy(cycle, 60)
    assert found.pseudo_gap == pytest.approx(max(terms), abs=1e-10)
    short = spectrum(cycle, k_max=1)
    assert short.pseudo_kind == "lower bound" and short.pseudo_gap <= found.pseudo_gap


def test_a_reversible_chain_has_one_gap():
    matrix = transition_matrix(Joint.random(3, 4, seed=5), Space(3, 4)).toarray()
    values = np.sort(np.linalg.eigvals(matrix).real)
    found = spectrum(matrix)
    assert found.reversible
    assert found.gap == pytest.approx(1 - values[-2], abs=1e-11)
    assert found.second_modulus == pytest.approx(max(values[-2], -values[0]), abs=1e-11)
    assert found.pseudo_gap == pytest.approx(1 - found.second_modulus**2, abs=1e-11)
    _, _, terms = gaps_by_numpy(matrix, 5)
    assert terms[0] == pytest.approx(max(terms), abs=1e-12)
    assert found.pseudo_gap == pytest.approx(terms[0], abs=1e-10)


def test_independent_sites_in_closed_form():
    # Each site forgets everything when redrawn: the eigenvalues are k/n, the gap is 1/n.
    joint = Joint(Joint.random(3, 1, seed=6).log_weights[:, None, None].expand(3, 3, 3) * 1.0)
    found = spectrum(transition_matrix(joint, Space(3, 3)))
    assert found.gap == pytest.approx(1 / 3, abs=1e-12)


def test_a_chain_that_alternates_has_a_gap_above_one():
    found = spectrum([[0.1, 0.9], [0.8, 0.2]])  # eigenvalues 1 and -0.7
    assert found.gap == pytest.approx(1.7, abs=1e-13)
    assert found.second_modulus == pytest.approx(0.7, abs=1e-13)
    assert found.pseudo_gap == pytest.approx(0.51, abs=1e-13)


def test_a_cycle_never_forgets():
    found = spectrum(np.roll(np.eye(6), 1, axis=1))
    assert found.second_modulus == pytest.approx(1.0, abs=1e-12)
    assert found.pseudo_gap == pytest.approx(0.0, abs=1e-12)
    assert found.additive_gap == pytest.approx(0.5, abs=1e-12)  # 1 - cos(pi/3)


@pytest.mark.parametrize("kind", [Joint, Table])
def test_the_sparse_solver_agrees_with_all_eigenvalues(kind):
    space = Space(5, 4)
    assert space.size > DENSE_SYMMETRIC
    matrix = transition_matrix(kind.random(5, 4, seed=7), space)
    modulus, additive, terms = gaps_by_numpy(matrix.toarray(), 2)
    found = spectrum(matrix, k_max=2)
    assert found.reversible == (kind is Joint)
    assert found.second_modulus == pytest.approx(modulus, abs=1e-8)
    assert found.additive_gap == pytest.approx(additive, abs=1e-8)
    assert found.pseudo_gap == pytest.approx(max(terms), abs=1e-8)


@pytest.mark.parametrize(
    ("make_matrix", "make_operator"),
    [(sweep_matrix, sweep_operator), (parallel_matrix, parallel_operator)],
)
@pytest.mark.parametrize("shape", [(3, 3), (2, 9)])
def test_the_gaps_of_an_operator_are_those_of_its_matrix(make_matrix, make_operator, shape):
    table, space = Table.random(*shape, seed=8), Space(*shape)
    modulus, additive, terms = gaps_by_numpy(make_matrix(table, space), 2)
    found = spectrum(make_operator(table, space), k_max=2)
    assert found.second_modulus == pytest.approx(modulus, abs=1e-8)
    assert found.additive_gap == pytest.approx(additive, abs=1e-8)
    assert found.pseudo_gap == pytest.approx(max(terms), abs=1e-8)


def test_states_left_for_ever_do_not_count():
    inner = np.array([[0.9, 0.1], [0.3, 0.7]])
    matrix = np.zeros((3, 3))
    matrix[1:, 1:] = inner
    matrix[0] = [0.99, 0.005, 0.005]
    found = spectrum(matrix)
    assert found.n_states == 2
    assert found.gap == pytest.approx(0.4, abs=1e-13)


def test_what_cannot_be_asked_is_refused():
    matrix = np.array([[0.9, 0.1], [0.3, 0.7]])
    with pytest.raises(GlauberError, match="one state"):
        spectrum([[1.0]])
    with pytest.raises(GlauberError, match="k_max"):
        spectrum(matrix, k_max=0)
    with pytest.raises(GlauberError, match="not stationary"):
        spectrum(matrix, distribution=np.array([0.5, 0.5]))
    with pytest.raises(GlauberError, match="shape"):
        spectrum(matrix, distribution=np.array([1.0]))


def phi_by_loops(matrix, law, inside):
    out = [law[x] * matrix[x, y] for x in inside for y in range(len(law)) if y not in inside]
    return sum(out) / sum(law[x] for x in inside)


def best_by_loops(matrix):
    law, size = stationary(matrix), len(matrix)
    sets = itertools.chain.from_iterable(
        itertools.combinations(range(size), k) for k in range(1, size)
    )
    return min(phi_by_loops(matrix, law, s) for s in sets if sum(law[x] for x in s) <= 0.5 + 1e-12)


@pytest.mark.parametrize("kind", [Joint, Table])
@pytest.mark.parametrize("seed", range(3))
def test_small_spaces_by_every_set(kind, seed):
    matrix = transition_matrix(kind.random(2, 3, seed=seed, strength=2.0), Space(2, 3)).toarray()
    found = best_bottleneck(matrix)
    assert found.kind == "exact" and found.mass <= 0.5 + 1e-12
    assert found.conductance == pytest.approx(best_by_loops(matrix), abs=1e-14)
    assert found.at_least == found.conductance
    inside = tuple(np.flatnonzero(found.inside))
    expected = phi_by_loops(matrix, stationary(matrix), inside)
    assert found.conductance == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("kind", [Joint, Table])
@pytest.mark.parametrize("seed", range(5))
def test_a_sweep_bounds_the_best_from_both_sides(kind, seed):
    matrix = transition_matrix(kind.random(2, 4, seed=seed, strength=2.0), Space(2, 4))
    best = best_bottleneck(matrix).conductance
    flow, law = _flow(matrix, None)
    inside, gap = _by_sweep(flow, law)
    swept = conductance(matrix, inside)
    assert law[inside].sum() <= 0.5 + 1e-12
    assert gap / 2 - 1e-12 <= best <= swept + 1e-12
    assert swept <= np.sqrt(2 * gap) + 1e-12  # Cheeger: what a sweep cannot miss


def test_two_wells_are_found_in_a_large_space():
    # Two halves of 32 states, walked freely, joined by one narrow edge.
    rng, size = np.random.default_rng(0), 64
    weights = np.zeros((size, size))
    for block in (slice(0, 32), slice(32, 64)):
        weights[block, block] = rng.uniform(0.5, 1.5, (32, 32))
    weights = weights + weights.T
    weights[31, 32] = weights[32, 31] = 1e-3
    matrix = weights / weights.sum(axis=1, keepdims=True)
    found = best_bottleneck(matrix)
    assert found.kind == "upper bound"
    assert set(np.flatnonzero(found.inside)) in (set(range(32)), set(range(32, 64)))
    assert found.at_least <= found.conductance
    lighter = min(weights[:32].sum(), weights[32:].sum())
    assert found.conductance == pytest.approx(1e-3 / lighter, rel=1e-9)
    assert found.mixing_time_at_least == pytest.approx(lighter / 4e-3, rel=1e-9)


def test_tiny_outflows_keep_their_digits():
    matrix = np.array([[1 - 1e-25, 1e-25, 0], [3e-25, 0.5, 0.5], [0, 0.5, 0.5]])
    inside = np.array([True, False, False])
    assert conductance(matrix, inside) == pytest.approx(1e-25, rel=1e-12)


def test_what_has_no_conductance_is_refused():
    matrix = np.array([[0.2, 0.8, 0.0], [0.0, 0.5, 0.5], [0.0, 0.5, 0.5]])
    for inside in ([True, False, False], [False] * 3):
        with pytest.raises(GlauberError, match="never visited"):
            conductance(matrix, np.array(inside))
    with pytest.raises(GlauberError, match="boolean"):
        conductance(matrix, np.array([0, 1]))
    with pytest.raises(GlauberError, match="one state"):
        best_bottleneck(np.array([[1.0]]))
