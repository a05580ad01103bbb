"""Is the transition matrix the chain of the paper? Plain loops over states, sites and orders."""

import functools
import itertools

import numpy as np
import pytest
import torch

from glauber.conditionals import batching
from glauber.conditionals.base import PAD, Clamped, Restricted, Tempered
from glauber.conditionals.table import Joint, Table
from glauber.errors import GlauberError
from glauber.exact import Space, site_matrix, stationary, total_variation, transition_matrix


def law_of(conditionals, tokens, hidden, site, temperature=1.0):
    return asked_once(conditionals, tuple(tokens), tuple(hidden), site, temperature)


@functools.cache
def asked_once(conditionals, tokens, hidden, site, temperature):
    """pi_site(. | tokens outside hidden), one evaluation at a time."""
    sites = torch.tensor([list(hidden)])
    scores = conditionals.scores(torch.tensor([list(tokens)]), sites)[0, list(hidden).index(site)]
    weights = np.exp(scores.numpy() / temperature)
    return weights / weights.sum()


def single_site_by_loops(conditionals, space, *, temperature=1.0, sites=None):
    sites = range(space.length) if sites is None else sites
    states = [tuple(s) for s in space.states().tolist()]
    matrix = np.zeros((space.size, space.size))
    for x, site, token in itertools.product(states, sites, range(space.vocab_size)):
        y = (*x[:site], token, *x[site + 1 :])
        probability = law_of(conditionals, x, (site,), site, temperature)[token] / len(sites)
        matrix[states.index(x), states.index(y)] += probability
    return matrix


def blocks_by_loops(conditionals, space, block, within):
    """Every ordered block, every filling of it, from every state."""
    states = [tuple(s) for s in space.states().tolist()]
    orders = list(itertools.permutations(range(space.length), block))
    matrix = np.zeros((space.size, space.size))
    fillings = list(itertools.product(range(space.vocab_size), repeat=block))
    for x, order, filling in itertools.product(states, orders, fillings):
        y, probability = list(x), 1.0
        for filled, (site, token) in enumerate(zip(order, filling, strict=True)):
            if within == "sequential":
                law = law_of(conditionals, y, order[filled:], site)
            else:
                law = law_of(conditionals, x, order, site)
            probability *= law[token]
            y[site] = token
        matrix[states.index(x), states.index(tuple(y))] += probability / len(orders)
    return matrix


def joint_redraws(joint, space, block):
    """The block redrawn from the joint law given the rest, averaged over all blocks."""
    law, states = joint.probabilities().numpy(), space.states().numpy()
    blocks = list(itertools.combinations(range(space.length), block))
    matrix = np.zeros((space.size, space.size))
    for hidden in blocks:
        rest = [site for site in range(space.length) if site not in hidden]
        agree = (states[:, None, rest] == states[None, :, rest]).all(axis=2)
        weights = agree * law
        matrix += weights / weights.sum(axis=1, keepdims=True) / len(blocks)
    return matrix


@pytest.mark.parametrize("temperature", [1.0, 0.3, 4.0])
def test_single_site_entries_are_those_of_plain_loops(temperature):
    table, space = Table.random(3, 3, seed=1), Space(3, 3)
    matrix = transition_matrix(table, space, temperature=temperature)
    expected = single_site_by_loops(table, space, temperature=temperature)
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=0, atol=1e-14)
    assert matrix.nnz == 27 * (3 * 2 + 1)  # stored sparsely: each state and its neighbours


@pytest.mark.parametrize("within", ["sequential", "product"])
@pytest.mark.parametrize(("vocab_size", "length", "block"), [(3, 3, 2), (2, 3, 3), (2, 4, 3)])
def test_block_entries_are_those_of_plain_loops(vocab_size, length, block, within):
    table, space = Table.random(vocab_size, length, seed=2), Space(vocab_size, length)
    matrix = transition_matrix(table, space, block=block, within=within).toarray()
    np.testing.assert_allclose(
        matrix, blocks_by_loops(table, space, block, within), rtol=0, atol=1e-14
    )


def test_the_two_ways_to_fill_a_block_differ():
    joint, space = Joint.random(3, 3, seed=3), Space(3, 3)
    one = [transition_matrix(joint, space, within=w).toarray() for w in ("sequential", "product")]
    two = [
        transition_matrix(joint, space, block=2, within=w).toarray()
        for w in ("sequential", "product")
    ]
    assert np.array_equal(*one)
    assert np.abs(two[0] - two[1]).max() > 0.01


@pytest.mark.parametrize("within", ["sequential", "product"])
@pytest.mark.parametrize("block", [1, 2, 3, 4])
def test_rows_sum_to_one(block, within):
    table, space = Table.random(3, 4, seed=4, strength=3.0), Space(3, 4)
    matrix = transition_matrix(table, space, block=block, within=within, temperature=0.5)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=0, atol=1e-14)


@pytest.mark.parametrize("block", [1, 2, 3, 4])
def test_sequential_blocks_of_a_joint_are_exact_joint_redraws(block):
    joint, space = Joint.random(3, 4, seed=5), Space(3, 4)
    matrix = transition_matrix(joint, space, block=block).toarray()
    np.testing.assert_allclose(matrix, joint_redraws(joint, space, block), rtol=0, atol=1e-14)


@pytest.mark.parametrize("block", [1, 2, 3])
def test_a_joint_law_is_kept_by_its_sequential_blocks(block):
    joint, space = Joint.random(3, 3, seed=6), Space(3, 3)
    matrix, law = transition_matrix(joint, space, block=block), joint.probabilities().numpy()
    assert np.abs(law @ matrix - law).sum() < 1e-12
    assert total_variation(stationary(matrix), law) < 1e-12


def test_a_joint_law_is_not_kept_by_product_blocks():
    # Two sites that mostly agree: drawn independently they keep their marginals and nothing else.
    law = np.array([[0.45, 0.05], [0.15, 0.35]])
    joint = Joint(torch.from_numpy(law).log())
    matrix = transition_matrix(joint, Space(2, 2), block=2, within="product")
    independent = np.outer(law.sum(axis=1), law.sum(axis=0)).ravel()
    assert total_variation(stationary(matrix), independent) < 1e-12
    assert total_variation(stationary(matrix), law.ravel()) > 0.2


def test_the_single_site_chain_of_a_joint_is_reversible_and_of_a_table_is_not():
    def circulation(conditionals):
        matrix = transition_matrix(conditionals, Space(3, 3)).toarray()
        flow = stationary(matrix)[:, None] * matrix
        return np.abs(flow - flow.T).max()

    assert circulation(Joint.random(3, 3, seed=7)) < 1e-15
    assert circulation(Table.random(3, 3, seed=7)) > 1e-4


def test_temperature_takes_a_power_of_the_joint_for_single_sites_only():
    joint, space = Joint.random(3, 3, seed=8, strength=0.6), Space(3, 3)
    power = torch.softmax(joint.log_weights.flatten() / 0.5, dim=0).numpy()
    single = stationary(transition_matrix(joint, space, temperature=0.5))
    assert total_variation(single, power) < 1e-12
    # A block's first site is drawn from a power of the marginal, not the power's marginal.
    pairs = stationary(transition_matrix(joint, space, block=2, temperature=0.5))
    assert total_variation(pairs, power) > 0.01


@pytest.mark.parametrize("block", [1, 2])
def test_temperature_is_what_the_wrapper_does(block):
    table, space = Table.random(3, 3, seed=9), Space(3, 3)
    asked = transition_matrix(table, space, block=block, temperature=0.7).toarray()
    wrapped = transition_matrix(Tempered(table, 0.7), space, block=block).toarray()
    np.testing.assert_allclose(asked, wrapped, rtol=0, atol=1e-14)


def test_frozen_sites_never_move_and_the_others_share_the_steps():
    table, space = Table.random(3, 3, seed=10), Space(3, 3)
    matrix = transition_matrix(table, space, free=torch.tensor([True, False, True])).toarray()
    expected = single_site_by_loops(table, space, sites=[0, 2])
    np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("block", [1, 2])
@pytest.mark.parametrize("kind", [Joint, Table])
def test_a_clamped_chain_is_the_frozen_chain_without_its_frozen_sites(kind, block):
    conditionals, whole = kind.random(3, 4, seed=11), Space(3, 4)
    clamped = Clamped(conditionals, torch.tensor([PAD, 2, PAD, PAD]))
    small = transition_matrix(clamped, Space(3, 3), block=block).toarray()
    free = torch.tensor([True, False, True, True])
    frozen = transition_matrix(conditionals, whole, block=block, free=free).toarray()
    inside = np.flatnonzero(whole.states()[:, 1].numpy() == 2)
    np.testing.assert_allclose(small, frozen[np.ix_(inside, inside)], rtol=0, atol=1e-14)


def test_a_clamped_joint_keeps_the_conditional_law_of_its_free_sites():
    joint = Joint.random(3, 4, seed=12)
    clamped = Clamped(joint, torch.tensor([PAD, 2, PAD, 0]))
    law = joint.probabilities().reshape(3, 3, 3, 3)[:, 2, :, 0].flatten().numpy()
    found = stationary(transition_matrix(clamped, Space(3, 2)))
    assert total_variation(found, law / law.sum()) < 1e-12


def test_forbidden_tokens_are_left_and_never_drawn():
    joint, space = Joint.random(3, 3, seed=13), Space(3, 3)
    allowed = torch.tensor([True, False, True])
    matrix = transition_matrix(Restricted(joint, allowed), space)
    inside = allowed[space.states()].all(dim=1).numpy()
    law = np.where(inside, joint.probabilities().numpy(), 0.0)
    found = stationary(matrix)
    assert total_variation(found, law / law.sum()) < 1e-12
    assert (found[~inside] == 0).all()
    # With two sites hidden the joint also sums over the forbidden tokens of the other one, so
    # blocks of a restricted joint keep another law.
    pairs = stationary(transition_matrix(Restricted(joint, allowed), space, block=2))
    assert total_variation(pairs, law / law.sum()) > 0.01


def test_site_matrix_redraws_that_site_alone():
    table, space = Table.random(3, 3, seed=14), Space(3, 3)
    for site in range(3):
        expected = single_site_by_loops(table, space, sites=[site])
        found = site_matrix(table, space, site, temperature=1.0).toarray()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_evaluating_in_small_pieces_changes_nothing(monkeypatch):
    table, space = Table.random(3, 4, seed=15), Space(3, 4)
    whole = transition_matrix(table, space, block=2).toarray()
    monkeypatch.setattr(batching, "HELD", 8 * 4 * 3)  # four rows of three scores
    asked = []

    class Watched:
        vocab_size = 3

        def scores(self, tokens, sites, candidates=None):
            asked.append(len(tokens))
            return table.scores(tokens, sites, candidates)

    assert np.array_equal(transition_matrix(Watched(), space, block=2).toarray(), whole)
    assert max(asked) == 4


def test_impossible_requests_are_refused():
    table, space = Table.random(3, 3), Space(3, 3)
    nothing = Table(torch.full((3, 4, 4, 4, 3), -torch.inf))
    two_free = torch.tensor([True, False, True])
    for request in (
        lambda: transition_matrix(table, space, block=4),
        lambda: transition_matrix(table, space, block=0),
        lambda: transition_matrix(table, space, block=3, free=two_free),
        lambda: transition_matrix(table, space, within="both"),
        lambda: transition_matrix(table, space, temperature=0.0),
        lambda: transition_matrix(table, space, free=torch.tensor([False] * 3)),
        lambda: transition_matrix(table, space, free=torch.tensor([0, 1, 2])),
        lambda: transition_matrix(table, Space(2, 3)),
        lambda: transition_matrix(nothing, space),
        lambda: site_matrix(table, space, 3),
        lambda: site_matrix(table, space, 1, free=two_free),
    ):
        with pytest.raises(GlauberError):
            request()
