"""Is the best bottleneck the best, and is what a sweep finds a bound?"""

import itertools

import numpy as np
import pytest

from glauber.conditionals.table import Joint, Table
from glauber.errors import GlauberError
from glauber.exact import Space, best_bottleneck, conductance, stationary, transition_matrix
from glauber.exact.spectrum import _by_sweep, _flow


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
