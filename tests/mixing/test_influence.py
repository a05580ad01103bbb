"""Influence against brute force over all pairs of states, and what follows from it."""

import itertools
import math

import numpy as np
import pytest
import torch

from glauber.conditionals.base import Restricted
from glauber.conditionals.table import Joint, Table
from glauber.errors import GlauberError
from glauber.exact.influence import exact_influence
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.mixing.contexts import every_context, sampled_contexts
from glauber.mixing.influence_matrix import (
    InfluenceMatrix,
    averaged_influence,
    contraction_temperature,
    measure_influence,
)


def brute_force(table, temperature):
    """c and delta (n, n) by a loop over every pair of states that differ at one site."""
    n, vocab = table.length, table.vocab_size
    variation, oscillation = np.zeros((n, n)), np.zeros((n, n))
    states = list(itertools.product(range(vocab), repeat=n))
    scores = {
        (state, i): table.scores(torch.tensor([state]), torch.tensor([[i]]))[0, 0].numpy()
        for state in states
        for i in range(n)
    }
    for x, y in itertools.combinations(states, 2):
        differ = [j for j in range(n) if x[j] != y[j]]
        if len(differ) != 1:
            continue
        j = differ[0]
        for i in set(range(n)) - {j}:
            one, two = scores[x, i], scores[y, i]
            p, q = (np.exp(s / temperature) / np.exp(s / temperature).sum() for s in (one, two))
            variation[i, j] = max(variation[i, j], 1 - np.minimum(p, q).sum())
            swing = (one - two).max() - (one - two).min()
            oscillation[i, j] = max(oscillation[i, j], swing)
    return variation, oscillation


@pytest.mark.parametrize("vocab, length, temperature", [(2, 4, 1.0), (3, 3, 0.4), (4, 2, 2.5)])
@pytest.mark.parametrize("kind", [Table, Joint])
def test_over_every_context_it_is_the_exact_supremum(kind, vocab, length, temperature):
    table = kind.random(vocab, length, seed=vocab)
    found = measure_influence(table, every_context(table, length), temperature=temperature)
    variation, oscillation = brute_force(table, temperature)
    np.testing.assert_allclose(found.total_variation, variation, atol=1e-12)
    np.testing.assert_allclose(found.oscillation, oscillation, atol=1e-12)
    assert found.kind == "exact" and found.threshold_kind == "upper bound"
    assert (variation <= np.tanh(oscillation / (4 * temperature)) + 1e-12).all()


def sampled(table, n_contexts, n_values):
    start, free = torch.zeros(table.length, dtype=torch.long), torch.ones(table.length).bool()
    return sampled_contexts(
        table, start, free, n_contexts=n_contexts, n_values=n_values, temperature=3.0, seed=4
    )


def test_a_sample_gives_a_lower_bound_that_grows_to_the_supremum():
    table = Table.random(3, 3, seed=1)
    variation, oscillation = brute_force(table, 0.7)
    few = measure_influence(table, sampled(table, 2, 1), temperature=0.7)
    assert few.kind == "lower bound" and few.threshold_kind == "estimate"
    assert (few.total_variation <= variation + 1e-12).all()
    assert few.total_variation.sum() < variation.sum() - 1e-3
    # The three other-site contexts of each pair are all among 200 states, and 4 replacements
    # (two draws of two without repeats) hold both other tokens.
    many = measure_influence(table, sampled(table, 200, 4), temperature=0.7)
    np.testing.assert_allclose(many.total_variation, variation, atol=1e-12)
    np.testing.assert_allclose(many.oscillation, oscillation, atol=1e-12)


def asymmetric():
    """Sites 1 and 2 copy site 0 with chance 0.9 (two tokens); nothing else matters."""
    entries = torch.zeros(3, 3, 3, 3, 2, dtype=torch.float64)
    for token in range(2):
        entries[1:, token, ..., token] = math.log(9.0)
    return Table(entries)


def test_alpha_is_the_largest_column_sum():
    found = measure_influence(asymmetric(), every_context(asymmetric(), 3))
    expected = np.array([[0, 0, 0], [0.8, 0, 0], [0.8, 0, 0]])
    np.testing.assert_allclose(found.total_variation, expected, atol=1e-12)
    np.testing.assert_allclose(found.column_sums, [1.6, 0, 0], atol=1e-12)
    assert found.alpha == pytest.approx(1.6)  # the largest row sum would be 0.8
    assert found.mixing_time() is None


def test_forbidden_tokens_do_not_count():
    wide = Table.random(4, 3, seed=2)
    allowed = torch.tensor([True, True, True, False])
    narrow = Table(wide.entries[:, :4, :4, :4, :3].clone())  # contexts of the first three tokens
    # The context index 3 stands for "hidden" in the narrow table; the site itself is hidden.
    for i in range(3):
        source = [slice(0, 3)] * 3
        source[i] = 4
        target = [slice(0, 3)] * 3
        target[i] = 3
        narrow.entries[(i, *target)] = wide.entries[(i, *source)][..., :3]
    law = Restricted(wide, allowed)
    start, free = torch.zeros(3, dtype=torch.long), torch.ones(3).bool()
    contexts = sampled_contexts(law, start, free, n_contexts=200, n_values=4, temperature=3.0)
    assert int(contexts.values.max()) <= 2
    found = measure_influence(law, contexts)
    variation, oscillation = brute_force(narrow, 1.0)
    np.testing.assert_allclose(found.total_variation, variation, atol=1e-12)
    np.testing.assert_allclose(found.oscillation, oscillation, atol=1e-12)


def test_frozen_sites_neither_sway_nor_are_swayed():
    table = Table.random(2, 4, seed=3)
    free = torch.tensor([True, False, True, True])
    contexts = sampled_contexts(
        table, torch.tensor([0, 1, 0, 0]), free, n_contexts=6, n_values=1, seed=1
    )
    assert measure_influence(table, contexts).sites == (0, 2, 3)
    assert bool((contexts.tokens[:, 1] == 1).all())


@pytest.mark.parametrize("n", [3, 5, 9])
def test_the_threshold_is_where_a_grid_search_finds_it(n):
    delta = np.random.default_rng(n).exponential(size=(n, n))
    found = contraction_temperature(delta)
    off = delta * (1 - np.eye(n))
    grid = np.linspace(1e-3, off.sum(axis=0).max() / 4, 40_001)
    largest = np.stack([np.tanh(column / (4 * grid[:, None])).sum(1) for column in off.T]).max(0)
    crossing = grid[int((largest > 1).sum())]
    assert found == pytest.approx(crossing, abs=2 * (grid[1] - grid[0]))


def test_two_sites_always_contract():
    assert contraction_temperature(np.array([[0, 50.0], [60.0, 0]])) == 0
    assert contraction_temperature(np.zeros((4, 4))) == 0
    assert contraction_temperature(np.full((3, 3), np.inf)) == math.inf
    one = np.array(
        [[0, 2.0, 0], [np.inf, 0, 0], [0, 2.0, 0]]
    )  # an infinite entry alone in its column
    assert contraction_temperature(one) == pytest.approx(1 / (2 * math.atanh(0.5)))
    with pytest.raises(GlauberError, match="negative"):
        contraction_temperature(np.full((3, 3), -1.0))


def test_the_mixing_time_bounds_the_exact_one():
    table = Table.random(2, 4, seed=5, strength=0.25)
    found = measure_influence(table, every_context(table, 4))
    assert found.alpha < 1
    bound = found.mixing_time(0.25)
    assert bound == math.ceil(4 / (1 - found.alpha) * math.log(16))
    power = np.linalg.matrix_power(transition_matrix(table, Space(2, 4)).toarray(), bound)
    law = np.linalg.matrix_power(transition_matrix(table, Space(2, 4)).toarray(), 10_000)[0]
    assert np.abs(power - law).sum(axis=1).max() / 2 <= 0.25


def test_the_averaged_influence_of_two_tokens_is_known():
    """With two tokens the change is certain, and in this table every context is alike."""
    start, free = torch.zeros(3, dtype=torch.long), torch.ones(3).bool()
    found = averaged_influence(asymmetric(), start, free, temperature=1.0, n_chains=3)
    np.testing.assert_allclose(found.matrix, [[0, 0, 0], [0.8, 0, 0], [0.8, 0, 0]], atol=1e-12)
    assert found.mean == pytest.approx(1.6 / 3)
    assert found.standard_error == pytest.approx(0, abs=1e-12)


def test_the_averaged_influence_is_the_mean_over_the_chain():
    table = Table.random(3, 3, seed=6)
    start, free = torch.zeros(3, dtype=torch.long), torch.ones(3).bool()
    found = averaged_influence(
        table, start, free, temperature=1.0, n_chains=2000, n_sweeps=10, seed=2
    )
    exact = mean_influence(table)
    spread = found.by_chain.std(axis=0) / math.sqrt(2000)
    assert (np.abs(found.matrix - exact) <= 4.5 * spread + 1e-12).all()  # 6 entries
    assert abs(found.mean - exact.sum(0).mean()) <= 4 * found.standard_error


def mean_influence(table):
    """The same mean over the exact law after 30 steps from state 0 (3 tokens, 3 sites)."""
    space = Space(3, 3)
    law = np.linalg.matrix_power(transition_matrix(table, space).toarray(), 30)[0]
    states = [tuple(state) for state in space.states().tolist()]
    pi = {
        (x, i): torch.softmax(table.scores(torch.tensor([x]), torch.tensor([[i]]))[0, 0], 0).numpy()
        for x in states
        for i in range(3)
    }
    mean = np.zeros((3, 3))
    for weight, x in zip(law, states, strict=True):
        for j, v in itertools.product(range(3), range(3)):
            if v == x[j]:
                continue
            y = (*x[:j], v, *x[j + 1 :])
            chance = pi[x, j][v] / (1 - pi[x, j][x[j]])
            for i in {0, 1, 2} - {j}:
                mean[i, j] += weight * chance * np.abs(pi[x, i] - pi[y, i]).sum() / 2
    return mean


def test_bad_input_is_refused_in_a_sentence():
    table = Table.random(2, 3)
    start, free = torch.zeros(3, dtype=torch.long), torch.tensor([True, False, False])
    with pytest.raises(GlauberError, match="1 free token"):
        sampled_contexts(table, start, free, n_contexts=1)
    with pytest.raises(GlauberError, match="samples is 0"):
        sampled_contexts(table, start, ~free, n_contexts=0)
    with pytest.raises(GlauberError, match="one site"):
        every_context(table, 1)
    with pytest.raises(GlauberError, match="temperature"):
        measure_influence(table, every_context(table, 3), temperature=0.0)
    with pytest.raises(GlauberError, match="epsilon"):
        InfluenceMatrix(np.zeros((2, 2)), np.zeros((2, 2)), (0, 1), 1.0, "exact").mixing_time(2)


def forbidding(seed):
    """Random conditionals in which a token is impossible at a site in some contexts only."""
    table = Table.random(3, 3, seed=seed)
    table.entries[1, 0, :, :, 2] = -torch.inf
    return table


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", [lambda seed: Table.random(3, 3, seed=seed), forbidding])
def test_over_every_context_it_is_the_influence_of_the_exact_room(make, seed, temperature):
    """Two programs, one definition; a token that is impossible in some contexts too."""
    table = make(seed)
    found = measure_influence(table, every_context(table, 3), temperature=temperature)
    exact = exact_influence(table, Space(3, 3), temperature=temperature)
    np.testing.assert_allclose(found.total_variation, exact.influence, atol=1e-12)
    np.testing.assert_allclose(found.oscillation, exact.oscillation, atol=1e-12)
    assert found.alpha == pytest.approx(exact.alpha, rel=1e-12)
    assert found.threshold == pytest.approx(exact.threshold_temperature, rel=1e-9)
    assert found.mixing_time(0.1) == exact.mixing_bound(0.1)
    assert np.isinf(found.oscillation).any() == (make is forbidding)


def test_over_sampled_contexts_it_comes_to_the_same():
    table = Table.random(3, 3, seed=9)
    found = measure_influence(table, sampled(table, 200, 4), temperature=0.7)
    exact = exact_influence(table, Space(3, 3), temperature=0.7)
    np.testing.assert_allclose(found.total_variation, exact.influence, atol=1e-12)
