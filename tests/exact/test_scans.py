"""Are the other scans what they say: in order, all at once, and by doubt?"""

import itertools
import math

import numpy as np
import pytest
import torch

from glauber.conditionals.table import Joint, Table
from glauber.errors import GlauberError
from glauber.exact import (
    Ising,
    Masks,
    Space,
    adaptive_matrix,
    block_chain,
    parallel_matrix,
    site_matrix,
    stationary,
    sweep_matrix,
    total_variation,
    transition_matrix,
)
from glauber.exact.transition import choice_probabilities

SPACE = Space(3, 3)
STATES = [tuple(state) for state in SPACE.states().tolist()]


def law_of(conditionals, tokens, site, temperature=1.0):
    """pi_site(. | the other tokens), one evaluation at a time."""
    scores = conditionals.scores(torch.tensor([tokens]), torch.tensor([[site]]))[0, 0]
    weights = np.exp(scores.numpy() / temperature)
    return weights / weights.sum()


def least_confident_matrix(*args, **options):
    return adaptive_matrix(*args, redraw="naive", **options)


def least_confident_by_loops(conditionals, sharpness, temperature, sites):
    matrix = np.zeros((27, 27))
    for row, x in enumerate(STATES):
        doubts = [1 - law_of(conditionals, x, site, temperature)[x[site]] for site in sites]
        if math.isinf(sharpness):
            choice = [float(slot == np.argmax(doubts)) for slot in range(len(sites))]
        else:
            choice = [doubt**sharpness / sum(d**sharpness for d in doubts) for doubt in doubts]
        for (slot, site), token in itertools.product(enumerate(sites), range(3)):
            y = (*x[:site], token, *x[site + 1 :])
            probability = choice[slot] * law_of(conditionals, x, site, temperature)[token]
            matrix[row, STATES.index(y)] += probability
    return matrix


def test_a_sweep_redraws_in_increasing_order():
    table = Table.random(3, 3, seed=1)
    first, second, third = (site_matrix(table, SPACE, site).toarray() for site in range(3))
    sweep = sweep_matrix(table, SPACE)
    np.testing.assert_allclose(sweep, first @ second @ third, rtol=0, atol=1e-14)
    assert np.abs(sweep - third @ second @ first).max() > 0.01
    # From x, the tokens of y are drawn from left to right, each given y before it and x after it.
    x, y = (0, 2, 1), (1, 1, 2)
    expected = (
        law_of(table, (0, 2, 1), 0)[1]
        * law_of(table, (1, 2, 1), 1)[1]
        * law_of(table, (1, 1, 1), 2)[2]
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
        laws = [law_of(table, x, site, 0.6)[y[site]] for site in range(3)]
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


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("sites", [(0, 1, 2), (0, 2)])
def test_least_confident_entries_are_those_of_plain_loops(sharpness, sites):
    table = Table.random(3, 3, seed=7)
    free = torch.tensor([site in sites for site in range(3)])
    found = least_confident_matrix(table, SPACE, sharpness=sharpness, temperature=0.8, free=free)
    expected = least_confident_by_loops(table, sharpness, 0.8, sites)
    np.testing.assert_allclose(found.toarray(), expected, rtol=0, atol=1e-13)


def test_zero_sharpness_is_the_uniform_scan():
    table = Table.random(3, 3, seed=8)
    found = least_confident_matrix(table, SPACE, sharpness=0.0).toarray()
    np.testing.assert_allclose(found, transition_matrix(table, SPACE).toarray(), rtol=0, atol=1e-14)


def test_choosing_by_doubt_does_not_keep_the_joint_law():
    joint = Joint.random(3, 3, seed=9)
    found = stationary(least_confident_matrix(joint, SPACE))
    assert total_variation(found, joint.probabilities().numpy()) > 0.01


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


def test_rows_of_every_scan_sum_to_one():
    table = Table.random(3, 3, seed=10, strength=4.0)
    for matrix in (
        sweep_matrix(table, SPACE),
        parallel_matrix(table, SPACE),
        least_confident_matrix(table, SPACE, sharpness=2.0),
        least_confident_matrix(table, SPACE, sharpness=math.inf),
    ):
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=0, atol=1e-14)


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
        laws = [law_of(conditionals, x, site, temperature) for site in sites]
        if measure == "confidence":
            weights = [1 - law[x[site]] for law, site in zip(laws, sites, strict=True)]
        else:
            weights = [-(law * np.log(law)).sum() for law in laws]
        return np.array(weights) ** sharpness / (np.array(weights) ** sharpness).sum()

    matrix = np.zeros((27, 27))
    for row, x in enumerate(STATES):
        for slot, site in enumerate(sites):
            law, near = law_of(conditionals, x, site, temperature), chances(x)[slot]
            moved = [(*x[:site], token, *x[site + 1 :]) for token in range(3)]
            there = np.array([chances(y)[slot] for y in moved])
            if redraw == "conditioned":
                new = law * there / (law * there).sum()
            else:
                new = law * np.minimum(1, there / near)
                new[x[site]] += 1 - new.sum()
            for y, probability in zip(moved, new, strict=True):
                matrix[row, STATES.index(y)] += near * probability
    return matrix


@pytest.mark.parametrize("redraw", ["adaptive", "conditioned"])
@pytest.mark.parametrize("measure", ["confidence", "entropy"])
def test_chains_whose_state_chooses_are_those_of_plain_loops(redraw, measure):
    table, free = Table.random(3, 3, seed=7), torch.tensor([True, False, True])
    options = {"measure": measure, "sharpness": 2.0, "temperature": 0.8}
    found = adaptive_matrix(table, SPACE, redraw=redraw, free=free, **options)
    expected = chosen_by_loops(table, redraw, measure, 2.0, 0.8, (0, 2))
    np.testing.assert_allclose(found.toarray(), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("redraw", ["adaptive", "conditioned"])
@pytest.mark.parametrize("measure", ["confidence", "entropy"])
def test_both_corrections_keep_the_joint_law_and_are_reversible(redraw, measure):
    for seed, sharpness, temperature in ((9, 1.0, 1.0), (10, 4.0, 0.4), (11, 0.5, 3.0)):
        joint = Joint.random(3, 3, seed=seed, strength=1.5)
        matrix = adaptive_matrix(
            joint, SPACE, redraw=redraw, measure=measure, sharpness=sharpness,
            temperature=temperature,
        ).toarray()  # fmt: skip
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
