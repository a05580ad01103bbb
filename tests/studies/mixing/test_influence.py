"""Influence against brute force over all pairs of states, and what follows from it."""

import itertools
import math

import numpy as np
import pytest
import torch

from glauber.exact.influence import exact_influence
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.foundation.errors import GlauberError
from glauber.models.base import COLDEST, Restricted
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table
from glauber.studies.mixing.influence import (
    Contexts,
    averaged_influence,
    contraction_temperature,
    influence,
    measure_influence,
    sampled_contexts,
)

TEXT = "the cat sat on the mat ."
KINDS = {"exact", "upper bound", "lower bound", "estimate"}


def every_context(conditionals, length):
    """All states of `length` free sites, and every token at each: suprema over them are exact."""
    size = conditionals.vocab_size
    states = torch.cartesian_prod(*[torch.arange(size)] * length)
    values = torch.arange(size).expand(len(states), length, size)
    return Contexts(states, torch.arange(length), values, "exact")


def forbidding(vocab, length, seed):
    """Random conditionals in which a token is impossible at a site in some contexts only."""
    table = Table.random(vocab, length, seed=seed)
    table.entries[1, 0, ..., vocab - 1] = -torch.inf
    return table


@pytest.mark.parametrize("vocab, length, temperature", [(2, 4, 1.0), (3, 3, 0.4), (4, 2, 2.5)])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", [Table.random, Joint.random, forbidding])
def test_over_every_context_it_is_the_exact_influence(make, vocab, length, temperature, seed):
    """Two programs, one definition; a token that is impossible in some contexts too."""
    table = make(vocab, length, seed=seed)
    found = measure_influence(table, every_context(table, length), temperature=temperature)
    exact = exact_influence(table, Space(vocab, length), temperature=temperature)
    np.testing.assert_allclose(found.total_variation, exact.influence, atol=1e-12)
    np.testing.assert_allclose(found.oscillation, exact.oscillation, atol=1e-12)
    assert found.alpha == pytest.approx(exact.alpha, rel=1e-12)
    assert found.threshold == pytest.approx(exact.threshold_temperature, rel=1e-9)
    assert found.mixing_time(0.1) == exact.mixing_bound(0.1)
    assert found.kind == "exact" and found.threshold_kind == "upper bound"
    if make is not forbidding:
        bound = np.tanh(exact.oscillation / (4 * temperature))
        assert (exact.influence <= bound + 1e-12).all()
    else:
        assert np.isinf(found.oscillation).any()


def sampled(table, n_contexts, n_values):
    start, free = torch.zeros(table.length, dtype=torch.long), torch.ones(table.length).bool()
    return sampled_contexts(
        table, start, free, n_contexts=n_contexts, n_values=n_values, temperature=3.0, seed=4
    )


def test_a_sample_gives_a_lower_bound_that_grows_to_the_supremum():
    table = Table.random(3, 3, seed=1)
    exact = exact_influence(table, Space(3, 3), temperature=0.7)
    variation, oscillation = exact.influence, exact.oscillation
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
    exact = exact_influence(narrow, Space(3, 3))
    np.testing.assert_allclose(found.total_variation, exact.influence, atol=1e-12)
    np.testing.assert_allclose(found.oscillation, exact.oscillation, atol=1e-12)


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
    assert found.estimate.value == found.mean and np.ptp(found.per_chain) < 1e-12


def test_the_averaged_influence_is_the_mean_over_the_chain():
    table = Table.random(3, 3, seed=6)
    start, free = torch.zeros(3, dtype=torch.long), torch.ones(3).bool()
    found = averaged_influence(
        table, start, free, temperature=1.0, n_chains=2000, n_sweeps=10, seed=2
    )
    exact = mean_influence(table)
    spread = found.by_chain.std(axis=0) / math.sqrt(2000)
    assert (np.abs(found.matrix - exact) <= 4.5 * spread + 1e-12).all()  # 6 entries
    assert abs(found.mean - exact.sum(0).mean()) <= 4 * found.estimate.standard_error


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


@pytest.fixture(scope="module")
def tiny(tiny_folder):
    return MaskedLM.load(str(tiny_folder), device="cpu")


def test_the_matrix_and_what_follows(tiny):
    result = influence(tiny, TEXT, samples=2, replacements=2, against=[0.5, 2.0], chains=2)
    answer = result.to_dict()
    matrix = np.array(answer["matrix"]["total_variation"])
    assert matrix.shape == (7, 7) and (np.diag(matrix) == 0).all() and matrix.max() <= 1
    assert answer["matrix"]["alpha"] == matrix.sum(axis=0).max() == result.alpha
    kinds = answer["matrix"]["kind"], answer["matrix"]["threshold_kind"]
    assert kinds == ("lower bound", "estimate")
    assert [row["temperature"] for row in answer["averages"]] == [0.5, 2]
    assert answer["tokens"] == TEXT.split()
    assert list(result.figures()) == ["influence", "averaged"]
    frame = result.frame()
    assert len(frame) == 42
    sums = frame.groupby("site").influence.sum()
    assert sums.max() == pytest.approx(result.alpha, rel=1e-12)  # summed in another order


def test_each_number_has_its_kind(tiny):
    few = dict(samples=1, replacements=1, chains=1)
    lines = str(influence(tiny, TEXT, **few)).splitlines()
    for start in ("alpha", "contraction threshold", "influence met on average"):
        (line,) = (line for line in lines if line.startswith(start))
        assert any(f"({kind})" in line for kind in KINDS), line
    hot = str(influence(tiny, TEXT, temperature=1000.0, **few))
    assert "t_mix(0.25): " in hot and "steps (estimate)" in hot
    cold = influence(tiny, TEXT, temperature=COLDEST, samples=2, replacements=2, chains=1)
    assert np.isfinite(cold.total_variation).all() and cold.total_variation.max() == 1


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("cat", {}, "1 free token, but influence needs two"),
        (" ", {}, "empty"),
        (TEXT, {"samples": 0}, "samples is 0"),
        (TEXT, {"samples": 10**9}, "ask for less"),
        (TEXT, {"replacements": 10**9}, "ask for less"),
        (TEXT, {"temperature": 0.0}, "temperature is 0.0"),
        (TEXT, {"temperature": 1e-320}, "temperature is 1e-320"),
        (TEXT, {"against": [1.0, -1.0]}, "temperature is -1.0"),
        (TEXT, {"epsilon": 1.5}, "epsilon is 1.5"),
        (TEXT, {"epsilon": 1.0}, "epsilon is 1.0"),
        (TEXT, {"seed": -1}, "seed is -1"),
    ],
)
def test_bad_arguments_are_refused(tiny, text, options, message):
    with pytest.raises(GlauberError, match=message):
        influence(tiny, text, **options)


def test_the_estimator_of_the_paper_and_the_linear_threshold():
    """The mean over contexts of the largest value over tokens, by loops over an own table."""
    table = Table.random(3, 3, seed=8)
    contexts = sampled(table, 5, 2)
    found = measure_influence(table, contexts, temperature=0.6)
    by_hand = np.zeros((5, 3, 3))
    for c, i, j in itertools.product(range(5), range(3), range(3)):
        if i == j:
            continue
        tokens = {int(contexts.tokens[c, j]), *contexts.values[c, j].tolist()}
        rows = contexts.tokens[c].repeat(len(tokens), 1)
        rows[:, j] = torch.tensor(sorted(tokens))
        scores = table.scores(rows, torch.full((len(rows), 1), i))[:, 0]
        pi = torch.softmax(scores / 0.6, dim=-1)
        by_hand[c, i, j] = torch.cdist(pi, pi, p=1).max() / 2
    mean = found.mean_over_contexts
    np.testing.assert_allclose(found.contexts.total_variation, by_hand, atol=1e-12)
    np.testing.assert_allclose(mean.total_variation, by_hand.mean(axis=0), atol=1e-12)
    assert mean.alpha == pytest.approx(by_hand.mean(axis=0).sum(axis=0).max())
    assert mean.alpha < found.alpha and mean.kind == "lower bound"
    assert found.linear_threshold == pytest.approx(found.oscillation.sum(axis=0).max() / 4)
    assert found.threshold < found.linear_threshold
    # Above either temperature the exact alpha is below 1.
    exact = measure_influence(table, every_context(table, 3))
    above = exact.linear_threshold * 1.0001
    assert exact_influence(table, Space(3, 3), temperature=above).alpha < 1
    attained = found.contexts.shares_of_suprema
    first = by_hand.argmax(axis=0)[~np.eye(3, dtype=bool)]
    assert attained.sum() == pytest.approx(1) and attained[0] == np.mean(first == 0)


def test_the_coherence_is_the_pseudo_log_likelihood_per_token():
    """Two copies of site 0 at chance 0.9: log(0.9) where they agree with it, log(0.1) where not."""
    contexts = Contexts(
        torch.tensor([[0, 0, 0], [1, 0, 1]]),
        torch.arange(3),
        torch.tensor([[[1]] * 3, [[0], [1], [0]]]),
        "lower bound",
    )
    found = measure_influence(asymmetric(), contexts, temperature=0.5).contexts
    at_site_0 = math.log(0.5)
    expected = [2 * math.log(0.9) + at_site_0, math.log(0.9) + math.log(0.1) + at_site_0]
    np.testing.assert_allclose(found.coherence * 3, expected, atol=1e-12)  # at temperature 1
    assert found.coherence_correlation.interval is None


def test_the_mean_influence_in_place_of_alpha():
    start, free = torch.zeros(3, dtype=torch.long), torch.ones(3).bool()
    found = averaged_influence(asymmetric(), start, free, temperature=1.0, n_chains=3)
    assert found.mixing_time(0.25) == math.ceil(3 / (1 - 1.6 / 3) * math.log(12))
    assert found.coherence.shape == (3,) and (found.coherence < 0).all()
