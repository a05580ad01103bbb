"""The potential of a flow against dense least squares over every edge."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from glauber.compatibility.hodge import decompose as potential
from glauber.compatibility.hodge import rank_correlation, ranks, with_neighbours
from glauber.compatibility.pseudo_likelihood import pseudo_likelihood
from glauber.conditionals.base import PAD, Restricted, log_probs
from glauber.conditionals.table import Joint, Table
from glauber.errors import GlauberError
from glauber.exact import Space, stationary, transition_matrix

SHAPES = [(2, 3), (3, 3), (4, 2), (2, 5)]


def brute_force(model, states, temperature=1.0):
    """(gradient matrix, flow) with a row for every pair of states that differ at one site."""
    rows, flow = [], []
    for x, y in combinations(range(len(states)), 2):
        differ = (states[x] != states[y]).nonzero()[:, 0]
        if len(differ) == 1:
            site = int(differ)
            asked = torch.tensor([[site]])
            law = log_probs(model, states[x : x + 1], asked, temperature=temperature)[0, 0]
            row = np.zeros(len(states))
            row[x], row[y] = -1, 1
            rows.append(row)
            flow.append(float(law[states[y, site]] - law[states[x, site]]))
    return np.array(rows), np.array(flow)


def least_squares(model, states, temperature=1.0):
    """(potential, squared flow, squared rest, number of edges) by dense least squares."""
    gradient, flow = brute_force(model, states, temperature)
    values = np.linalg.lstsq(gradient, flow, rcond=None)[0]
    rest = flow - gradient @ values
    return values, flow @ flow, rest @ rest, len(flow)


@pytest.mark.parametrize(("vocab", "length"), SHAPES)
def test_a_joint_law_is_its_own_potential(vocab, length):
    joint = Joint.random(vocab, length, seed=2, strength=2.0)
    found = potential(joint, Space(vocab, length).states())
    log_law = joint.probabilities().log().numpy()
    assert found.rest < 1e-10 and found.share < 1e-10
    np.testing.assert_allclose(found.values, log_law - log_law.mean(), atol=1e-10)
    assert found.n_checks == length * vocab ** (length - 1) * (vocab - 1) - vocab**length + 1


@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize(("vocab", "length"), SHAPES)
def test_incompatible_tables_equal_brute_force(vocab, length, temperature):
    table = Table.random(vocab, length, seed=3)
    states = Space(vocab, length).states()
    found = potential(table, states, temperature=temperature)
    values, flow, rest, n_edges = least_squares(table, states, temperature)
    assert found.n_edges == n_edges
    assert found.share > 0.05
    assert found.flow == pytest.approx(flow, rel=1e-10)
    assert found.rest == pytest.approx(rest, rel=1e-10)
    np.testing.assert_allclose(found.values, values - values.mean(), atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_some_states_and_their_edges_equal_brute_force(seed):
    """Visited states: an uneven part of the space, in several connected sets."""
    table = Table.random(3, 4, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    every = Space(3, 4).states()
    states = every[torch.randperm(81, generator=generator)[: 12 + 8 * seed]]
    found = potential(table, torch.cat([states, states[:5]]))
    values, flow, rest, n_edges = least_squares(table, found.states)
    assert (len(found.states), found.n_edges) == (len(states), n_edges)
    assert found.flow == pytest.approx(flow, rel=1e-10)
    assert found.rest == pytest.approx(rest, rel=1e-9, abs=1e-12)
    for label in range(found.component.max() + 1):
        inside = found.component == label
        expected = values[inside] - values[inside].mean()
        np.testing.assert_allclose(found.values[inside], expected, atol=1e-9)


def test_checks_count_what_could_show():
    """A path closes no walk; a square closes one; three tokens at one site close none."""
    table = Table.random(3, 3, seed=0)
    path = torch.tensor([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    square = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
    site = torch.tensor([[0, 0, 0], [1, 0, 0], [2, 0, 0]])
    checks = [potential(table, states).n_checks for states in (path, square, site)]
    assert checks == [0, 1, 0]
    assert potential(table, path).rest < 1e-20 and potential(table, square).rest > 1e-3
    two = torch.cat([square, torch.tensor([[2, 2, 2], [2, 2, 1]])])
    assert np.bincount(potential(table, two).component).tolist() == [4, 2]
    assert potential(table, two).largest.tolist() == [0, 1, 2, 3]


def test_a_square_is_a_rectangle():
    """The rest of a square is its circulation squared over its four edges."""
    table = Table.random(2, 2, seed=6)
    scores = [[table.entries[0, 2, b] for b in (0, 1)], [table.entries[1, a, 2] for a in (0, 1)]]
    up = [[float(s[1] - s[0]) for s in pair] for pair in scores]
    circulation = up[0][0] + up[1][1] - up[1][0] - up[0][1]
    found = potential(table, Space(2, 2).states())
    assert found.rest == pytest.approx(circulation**2 / 4, rel=1e-10)


def test_texts_of_different_lengths_are_no_neighbours():
    class Flat:
        vocab_size = 3

        def scores(self, tokens, sites, candidates=None):
            return torch.zeros(candidates.shape)

    states = torch.tensor([[0, 1, PAD], [0, 1, 2], [0, 1, 0]])
    found = potential(Flat(), states)
    assert (found.n_edges, found.component.max()) == (1, 1)
    with pytest.raises(GlauberError, match="no edge"):
        potential(Flat(), states[:2])


def test_a_forbidden_state_is_refused():
    limited = Restricted(Table.random(3, 2), torch.tensor([True, True, False]))
    with pytest.raises(GlauberError, match="probability zero"):
        potential(limited, Space(3, 2).states())


def test_neighbours_are_the_likely_ones():
    table = Table.random(5, 3, seed=1)
    limited = Restricted(table, torch.tensor([True, True, True, False, False]))
    tokens, free = torch.tensor([[0, 1, 2]]), torch.tensor([[True, False, True]])
    expected = {(0, 1, 2)}
    for site in (0, 2):
        law = log_probs(limited, tokens, torch.tensor([[site]]))[0, 0]
        for token in law.argsort(descending=True)[:2].tolist():
            expected.add((token, 1, 2) if site == 0 else (0, 1, token))
    assert {
        tuple(row) for row in with_neighbours(limited, tokens, free, top=2).tolist()
    } == expected
    assert with_neighbours(limited, tokens, free, top=5)[:, [0, 2]].max() == 2
    with pytest.raises(GlauberError, match="vocabulary"):
        with_neighbours(table, tokens, free, top=6)


def test_ranks_on_a_joint_law():
    joint = Joint.random(3, 3, seed=4)
    states = Space(3, 3).states()
    law = joint.probabilities().numpy()
    found = ranks(joint, states, law)
    pll = pseudo_likelihood(joint, states).totals.numpy()
    assert found.potential_law == pytest.approx(1.0)
    assert found.pll_law == pytest.approx(spearmanr(pll, law).statistic)
    assert found.potential_pll == pytest.approx(found.pll_law)
    assert (found.n_states, found.kind) == (27, "exact")


def test_ranks_on_an_incompatible_table():
    table = Table.random(3, 3, seed=4)
    states = Space(3, 3).states()
    law = stationary(transition_matrix(table, Space(3, 3)))
    order = torch.randperm(27, generator=torch.Generator().manual_seed(0))
    found = ranks(table, states[order], law[order], kind="estimate")
    values = least_squares(table, states)[0]
    pll = pseudo_likelihood(table, states).totals.numpy()
    assert found.potential_law == pytest.approx(spearmanr(values, law).statistic)
    assert found.pll_law == pytest.approx(spearmanr(pll, law).statistic)
    assert found.potential_pll == pytest.approx(spearmanr(values, pll).statistic)
    assert found.potential_law < 1 and found.kind == "estimate"


def test_ranks_refuse_what_has_no_order():
    with pytest.raises(GlauberError, match="no ranking"):
        rank_correlation([1.0, 1.0 + 1e-13], [0.0, 1.0])
    with pytest.raises(GlauberError, match="shapes"):
        rank_correlation([1.0, 2.0], [0.0, 1.0, 3.0])
    states = Space(2, 2).states()
    with pytest.raises(GlauberError, match="twice"):
        ranks(Joint.random(2, 2), torch.cat([states, states]), np.ones(8))
    with pytest.raises(GlauberError, match="probabilities"):
        ranks(Joint.random(2, 2), states, np.ones(3))
