"""Matrices and operators of every scan against plain loops over states, sites and orders."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch

from glauber.exact import (
    Ising,
    Masks,
    Space,
    adaptive_matrix,
    block_chain,
    parallel_matrix,
    parallel_operator,
    site_matrix,
    stationary,
    sweep_matrix,
    sweep_operator,
    total_variation,
    transition_matrix,
)
from glauber.exact.transition import choice_probabilities
from glauber.foundation.errors import GlauberError
from glauber.models import batching
from glauber.models.base import PAD, Clamped, Restricted, Tempered
from glauber.models.table import Joint, Table


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


@pytest.mark.parametrize("block", [1, 2, 3, 4])
def test_sequential_blocks_of_a_joint_are_exact_joint_redraws(block):
    joint, space = Joint.random(3, 4, seed=5), Space(3, 4)
    matrix = transition_matrix(joint, space, block=block).toarray()
    np.testing.assert_allclose(matrix, joint_redraws(joint, space, block), rtol=0, atol=1e-14)


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


SPACE = Space(3, 3)
STATES = [tuple(state) for state in SPACE.states().tolist()]


def site_law(conditionals, tokens, site, temperature=1.0):
    """pi_site(. | the other tokens)."""
    return law_of(conditionals, tokens, (site,), site, temperature)


def least_confident_matrix(*args, **options):
    return adaptive_matrix(*args, redraw="naive", **options)


def test_a_sweep_redraws_in_increasing_order():
    table = Table.random(3, 3, seed=1)
    first, second, third = (site_matrix(table, SPACE, site).toarray() for site in range(3))
    sweep = sweep_matrix(table, SPACE)
    np.testing.assert_allclose(sweep, first @ second @ third, rtol=0, atol=1e-14)
    assert np.abs(sweep - third @ second @ first).max() > 0.01
    # From x, the tokens of y are drawn from left to right, each given y before it and x after it.
    x, y = (0, 2, 1), (1, 1, 2)
    expected = (
        site_law(table, (0, 2, 1), 0)[1]
        * site_law(table, (1, 2, 1), 1)[1]
        * site_law(table, (1, 1, 1), 2)[2]
    )
    assert sweep[STATES.index(x), STATES.index(y)] == pytest.approx(expected, abs=1e-15)


def test_a_joint_law_is_kept_by_its_sweep():
    joint = Joint.random(3, 3, seed=2)
    sweep, law = sweep_matrix(joint, SPACE), joint.probabilities().numpy()
    assert np.abs(law @ sweep - law).sum() < 1e-12
    assert total_variation(stationary(sweep), law) < 1e-12


def test_parallel_draws_each_site_given_the_old_rest():
    table = Table.random(3, 3, seed=3)
    matrix = parallel_matrix(table, SPACE, temperature=0.6)
    for (row, x), (column, y) in itertools.product(enumerate(STATES), enumerate(STATES)):
        laws = [site_law(table, x, site, 0.6)[y[site]] for site in range(3)]
        assert matrix[row, column] == pytest.approx(math.prod(laws), abs=1e-15)


def test_parallel_updates_of_two_sites_forget_how_they_depend():
    # x0' is drawn given x1 and x1' given x0: two interleaved chains that never meet, so each site
    # keeps its marginal and the two are independent.
    joint = Joint.random(4, 2, seed=4)
    law = joint.probabilities().numpy().reshape(4, 4)
    found = stationary(parallel_matrix(joint, Space(4, 2)))
    independent = np.outer(law.sum(axis=1), law.sum(axis=0)).ravel()
    assert total_variation(found, independent) < 1e-12
    assert total_variation(found, law.ravel()) > 0.1


def test_the_stationary_law_of_parallel_updates_is_not_the_joint():
    joint = Joint.random(3, 3, seed=5)
    found = stationary(parallel_matrix(joint, SPACE))
    assert total_variation(found, joint.probabilities().numpy()) > 0.05


@pytest.mark.parametrize("make", [sweep_matrix, parallel_matrix])
def test_scans_leave_frozen_sites_alone(make):
    table, free = Table.random(3, 3, seed=6), torch.tensor([True, False, False])
    alone = site_matrix(table, SPACE, 0, temperature=0.5).toarray()
    found = make(table, SPACE, temperature=0.5, free=free)
    np.testing.assert_allclose(found, alone, rtol=0, atol=1e-14)


def test_zero_sharpness_is_the_uniform_scan():
    table = Table.random(3, 3, seed=8)
    found = least_confident_matrix(table, SPACE, sharpness=0.0).toarray()
    np.testing.assert_allclose(found, transition_matrix(table, SPACE).toarray(), rtol=0, atol=1e-14)


def test_choice_of_sites_at_its_edges():
    doubts = np.array([[0.0, 0.0, 0.0], [0.2, 0.4, 0.4], [1e-200, 3e-200, 0.0]])
    third = [1 / 3] * 3
    linear = [third, [0.2, 0.4, 0.4], [0.25, 0.75, 0.0]]
    np.testing.assert_allclose(choice_probabilities(doubts, 1.0), linear, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        choice_probabilities(doubts, 2.0)[2], [0.1, 0.9, 0], rtol=0, atol=1e-14
    )
    sharpest = [third, [0, 1, 0], [0, 1, 0]]
    np.testing.assert_allclose(choice_probabilities(doubts, math.inf), sharpest, rtol=0, atol=1e-14)


@pytest.mark.parametrize("sharpness", [1.0, math.inf])
def test_where_nothing_is_doubted_the_choice_is_uniform(sharpness):
    # Every context is sure of token 0, down to the last bit: exp(-1000) is zero.
    entries = torch.zeros(2, 3, 3, 2)
    entries[..., 1] = -1000.0
    matrix = least_confident_matrix(Table(entries), Space(2, 2), sharpness=sharpness).toarray()
    expected = [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0.5, 0.5, 0]]
    if math.isinf(sharpness):  # two sites in doubt: the tie goes to site 0
        expected[3] = [0, 1, 0, 0]
    assert matrix.tolist() == expected


def test_small_doubts_keep_their_proportions():
    # Doubts near 1e-20, which 1 - p would round to zero: three to one in favour of site 1.
    entries = torch.zeros(2, 3, 3, 2, dtype=torch.float64)
    entries[0, ..., 1] = math.log(1e-20)
    entries[1, ..., 1] = math.log(3e-20)
    matrix = least_confident_matrix(Table(entries), Space(2, 2)).toarray()
    assert matrix[0, 2] == pytest.approx(0.25 * 1e-20, rel=1e-12, abs=0)
    assert matrix[0, 1] == pytest.approx(0.75 * 3e-20, rel=1e-12, abs=0)


def test_what_cannot_be_done_is_refused():
    table = Table.random(3, 3)
    with pytest.raises(GlauberError, match="negative"):
        least_confident_matrix(table, SPACE, sharpness=-1.0)
    for make in (sweep_matrix, parallel_matrix):
        with pytest.raises(GlauberError, match="59,049 states"):
            make(table, Space(3, 10))


def chosen_by_loops(conditionals, redraw, measure, sharpness, temperature, sites):
    """The same chain from its definition, state by state and token by token."""

    def chances(x):
        laws = [site_law(conditionals, x, site, temperature) for site in sites]
        if measure == "confidence":
            weights = [1 - law[x[site]] for law, site in zip(laws, sites, strict=True)]
        else:
            weights = [-(law * np.log(law)).sum() for law in laws]
        if math.isinf(sharpness):
            return np.eye(len(sites))[np.argmax(weights)]
        return np.array(weights) ** sharpness / (np.array(weights) ** sharpness).sum()

    matrix = np.zeros((27, 27))
    for row, x in enumerate(STATES):
        for slot, site in enumerate(sites):
            law, near = site_law(conditionals, x, site, temperature), chances(x)[slot]
            moved = [(*x[:site], token, *x[site + 1 :]) for token in range(3)]
            there = np.array([chances(y)[slot] for y in moved])
            if redraw == "naive" or near == 0:
                new = law
            elif redraw == "conditioned":
                new = law * there / (law * there).sum()
            else:
                new = law * np.minimum(1, there / near)
                new[x[site]] += 1 - new.sum()
            for y, probability in zip(moved, new, strict=True):
                matrix[row, STATES.index(y)] += near * probability
    return matrix


@pytest.mark.parametrize("redraw", ["naive", "adaptive", "conditioned"])
@pytest.mark.parametrize("measure", ["confidence", "entropy"])
@pytest.mark.parametrize("sharpness", [0.5, 2.0, math.inf])
@pytest.mark.parametrize("sites", [(0, 1, 2), (0, 2)])
def test_chains_whose_state_chooses_are_those_of_plain_loops(redraw, measure, sharpness, sites):
    table, free = Table.random(3, 3, seed=7), torch.tensor([site in sites for site in range(3)])
    options = {"measure": measure, "sharpness": sharpness, "temperature": 0.8}
    found = adaptive_matrix(table, SPACE, redraw=redraw, free=free, **options)
    expected = chosen_by_loops(table, redraw, measure, sharpness, 0.8, sites)
    np.testing.assert_allclose(found.toarray(), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("redraw", ["adaptive", "conditioned"])
@pytest.mark.parametrize("measure", ["confidence", "entropy"])
def test_both_corrections_keep_the_joint_law_and_are_reversible(redraw, measure):
    for seed, sharpness, temperature in ((9, 1.0, 1.0), (10, 4.0, 0.4), (11, 0.5, 3.0)):
        joint = Joint.random(3, 3, seed=seed, strength=1.5)
        matrix = adaptive_matrix(
            joint,
            SPACE,
            redraw=redraw,
            measure=measure,
            sharpness=sharpness,
            temperature=temperature,
        ).toarray()
        law = (joint.log_weights.flatten() / temperature).softmax(0).numpy()
        assert total_variation(stationary(matrix), law) < 1e-12
        flow = law[:, None] * matrix
        np.testing.assert_allclose(flow, flow.T, rtol=0, atol=1e-15)


def test_the_conditioned_chain_is_the_block_chain_of_adaptive_masks():
    ising = Ising.clique(4, 4, coupling=0.05, field=0.2)
    masks = Masks.least_confident(ising.space, ising.probabilities, 1, sharpness=2.0)
    expected = block_chain(ising.probabilities, masks) @ np.eye(16)
    found = adaptive_matrix(ising.joint(), ising.space, sharpness=2.0)
    np.testing.assert_allclose(found.toarray(), expected, rtol=0, atol=1e-14)


def test_the_naive_chain_of_four_ising_sites_ends_elsewhere():
    ising = Ising.clique(4, 4, coupling=0.05, field=0.2)
    naive = stationary(adaptive_matrix(ising.joint(), ising.space, redraw="naive"))
    assert total_variation(naive, ising.probabilities) == pytest.approx(0.1630, abs=5e-5)


def test_unknown_redraws_and_measures_are_refused():
    table = Table.random(3, 3)
    with pytest.raises(GlauberError, match="naive, adaptive or conditioned"):
        adaptive_matrix(table, SPACE, redraw="blind")
    with pytest.raises(GlauberError, match="confidence or entropy"):
        adaptive_matrix(table, SPACE, measure="surprise")


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
