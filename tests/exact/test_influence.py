"""Is the influence the supremum of the definition? Plain loops over all pairs of states."""

import itertools
import math

import numpy as np
import pytest
import torch

from glauber.exact import Space, exact_influence
from glauber.exact.influence import mixing_bound, threshold_temperature
from glauber.foundation.errors import GlauberError
from glauber.models.base import Restricted, Tempered
from glauber.models.table import Joint, Table


def by_loops(conditionals, space, temperature):
    states = space.states().tolist()
    c, delta = np.zeros((2, space.length, space.length))
    for x, y in itertools.product(states, states):
        moved = [site for site in range(space.length) if x[site] != y[site]]
        if len(moved) != 1:
            continue
        for i in set(range(space.length)) - set(moved):
            sites = torch.tensor([[i], [i]])
            left, right = conditionals.scores(torch.tensor([x, y]), sites)[:, 0].numpy()
            p, q = (np.exp(s / temperature) / np.exp(s / temperature).sum() for s in (left, right))
            c[i, moved[0]] = max(c[i, moved[0]], 0.5 * np.abs(p - q).sum())
            change = left - right
            delta[i, moved[0]] = max(delta[i, moved[0]], change.max() - change.min())
    return c, delta


@pytest.mark.parametrize("kind", [Joint, Table])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4)])
def test_every_entry(kind, temperature, shape):
    conditionals, space = kind.random(*shape, seed=1), Space(*shape)
    found = exact_influence(conditionals, space, temperature=temperature)
    c, delta = by_loops(conditionals, space, temperature)
    np.testing.assert_allclose(found.influence, c, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.oscillation, delta, rtol=0, atol=1e-12)
    assert found.alpha == pytest.approx(max(c.sum(axis=0)), abs=1e-13)
    assert (found.influence <= np.tanh(found.oscillation / (4 * temperature)) + 1e-12).all()
    assert found.kind == "exact"


def test_alpha_is_a_column_sum():
    # Site 0 moves sites 1 and 2 and is moved by neither: its column is full, its row empty.
    entries = torch.zeros(3, 3, 3, 3, 2, dtype=torch.float64)
    for site in (1, 2):
        entries[site, 1, ..., 1] = 1.0
    found = exact_influence(Table(entries), Space(2, 3))
    one = 1 / (1 + math.exp(-1)) - 0.5
    expected = np.zeros((3, 3))
    expected[1:, 0] = one
    np.testing.assert_allclose(found.influence, expected, rtol=0, atol=1e-15)
    assert found.alpha == pytest.approx(2 * one, abs=1e-15)


def test_frozen_sites_neither_move_nor_count():
    table, space = Table.random(3, 3, seed=2), Space(3, 3)
    whole = exact_influence(table, space)
    part = exact_influence(table, space, free=torch.tensor([True, False, True]))
    assert part.sites == (0, 2)
    np.testing.assert_array_equal(part.influence, whole.influence[::2, ::2])


def test_the_threshold_temperature_in_closed_form():
    # n sites with equal oscillation delta: (n - 1) tanh(delta / 4 tau) = 1.
    for n, delta in ((3, 1.0), (5, 0.2), (10, 40.0)):
        oscillation = delta * (1 - np.eye(n))
        expected = delta / (4 * math.atanh(1 / (n - 1)))
        assert threshold_temperature(oscillation) == pytest.approx(expected, rel=1e-12)


def test_above_the_threshold_the_chain_contracts():
    table, space = Table.random(3, 3, seed=3), Space(3, 3)
    threshold = exact_influence(table, space).threshold_temperature
    above = exact_influence(table, space, temperature=1.001 * threshold)
    assert above.alpha < 1 and above.mixing_bound() is not None
    assert threshold < exact_influence(table, space).oscillation.sum(axis=0).max() / 4


def test_two_sites_contract_at_every_temperature():
    table, space = Table.random(3, 2, seed=4, strength=9.0), Space(3, 2)
    assert exact_influence(table, space).threshold_temperature == 0.0
    assert exact_influence(table, space, temperature=0.5).alpha < 1


def test_forbidden_tokens():
    table, space = Table.random(3, 3, seed=5), Space(3, 3)
    never = Restricted(table, torch.tensor([True, False, True]))
    found = exact_influence(never, space)
    assert np.isfinite(found.oscillation).all() and found.influence.max() < 1
    entries = table.entries.clone()
    entries[0, :, 0, :, 1] = -torch.inf  # token 1 at site 0, forbidden where site 1 holds 0
    sometimes = exact_influence(Table(entries), space)
    assert sometimes.oscillation[0, 1] == math.inf
    assert sometimes.threshold_temperature == math.inf


def test_temperature_is_what_the_wrapper_does():
    table, space = Table.random(3, 3, seed=6), Space(3, 3)
    asked = exact_influence(table, space, temperature=0.7)
    wrapped = exact_influence(Tempered(table, 0.7), space)
    np.testing.assert_allclose(asked.influence, wrapped.influence, rtol=0, atol=1e-13)
    np.testing.assert_allclose(asked.oscillation / 0.7, wrapped.oscillation, rtol=1e-12)


def test_the_bound_by_hand():
    assert mixing_bound(0.5, 20, 0.25) == math.ceil(40 * math.log(80))
    assert mixing_bound(1.0, 20, 0.25) is None
    with pytest.raises(GlauberError, match="epsilon"):
        mixing_bound(0.5, 20, 1.0)
