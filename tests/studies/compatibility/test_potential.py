"""The potential against dense least squares over every edge; visits of a run by a plain count."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from glauber import sample
from glauber.exact import Space, stationary, transition_matrix
from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD, Restricted, log_probs
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table
from glauber.studies.compatibility.potential import (
    add_likely_neighbours,
    count_visits,
    decompose,
    potential,
    rank,
)
from glauber.studies.compatibility.pseudo_likelihood import pseudo_likelihood

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
def test_a_joint_distribution_is_its_own_potential(vocab, length):
    joint = Joint.random(vocab, length, seed=2, strength=2.0)
    found = decompose(joint, Space(vocab, length).states())
    log_law = joint.probabilities().log().numpy()
    assert found.residual < 1e-10 and found.share < 1e-10
    np.testing.assert_allclose(found.values, log_law - log_law.mean(), atol=1e-10)
    assert found.n_cycles == length * vocab ** (length - 1) * (vocab - 1) - vocab**length + 1


@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize(("vocab", "length"), SHAPES)
def test_incompatible_tables_equal_brute_force(vocab, length, temperature):
    table = Table.random(vocab, length, seed=3)
    states = Space(vocab, length).states()
    found = decompose(table, states, temperature=temperature)
    values, flow, rest, n_edges = least_squares(table, states, temperature)
    assert found.n_edges == n_edges
    assert found.share > 0.05
    assert found.squared_flow == pytest.approx(flow, rel=1e-10)
    assert found.residual == pytest.approx(rest, rel=1e-10)
    np.testing.assert_allclose(found.values, values - values.mean(), atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_some_states_and_their_edges_equal_brute_force(seed):
    """Visited states: an uneven part of the space, in several connected sets."""
    table = Table.random(3, 4, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    every = Space(3, 4).states()
    states = every[torch.randperm(81, generator=generator)[: 12 + 8 * seed]]
    found = decompose(table, torch.cat([states, states[:5]]))
    values, flow, rest, n_edges = least_squares(table, found.states)
    assert (len(found.states), found.n_edges) == (len(states), n_edges)
    assert found.squared_flow == pytest.approx(flow, rel=1e-10)
    assert found.residual == pytest.approx(rest, rel=1e-9, abs=1e-12)
    for label in range(found.component.max() + 1):
        inside = found.component == label
        expected = values[inside] - values[inside].mean()
        np.testing.assert_allclose(found.values[inside], expected, atol=1e-9)


def test_cycles_count_what_could_show():
    """A path closes no walk; a square closes one; three tokens at one site close none."""
    table = Table.random(3, 3, seed=0)
    path = torch.tensor([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    square = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
    site = torch.tensor([[0, 0, 0], [1, 0, 0], [2, 0, 0]])
    checks = [decompose(table, states).n_cycles for states in (path, square, site)]
    assert checks == [0, 1, 0]
    assert decompose(table, path).residual < 1e-20 and decompose(table, square).residual > 1e-3
    two = torch.cat([square, torch.tensor([[2, 2, 2], [2, 2, 1]])])
    assert np.bincount(decompose(table, two).component).tolist() == [4, 2]


def test_a_square_is_a_rectangle():
    """The rest of a square is its circulation squared over its four edges."""
    table = Table.random(2, 2, seed=6)
    scores = [[table.entries[0, 2, b] for b in (0, 1)], [table.entries[1, a, 2] for a in (0, 1)]]
    up = [[float(s[1] - s[0]) for s in pair] for pair in scores]
    circulation = up[0][0] + up[1][1] - up[1][0] - up[0][1]
    found = decompose(table, Space(2, 2).states())
    assert found.residual == pytest.approx(circulation**2 / 4, rel=1e-10)


def test_texts_of_different_lengths_are_no_neighbours():
    class Flat:
        vocab_size = 3

        def scores(self, tokens, sites, candidates=None):
            return torch.zeros(candidates.shape)

    states = torch.tensor([[0, 1, PAD], [0, 1, 2], [0, 1, 0]])
    found = decompose(Flat(), states)
    assert (found.n_edges, found.component.max()) == (1, 1)
    with pytest.raises(GlauberError, match="no edge"):
        decompose(Flat(), states[:2])


def test_a_forbidden_state_is_refused():
    limited = Restricted(Table.random(3, 2), torch.tensor([True, True, False]))
    with pytest.raises(GlauberError, match="probability zero"):
        decompose(limited, Space(3, 2).states())


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
        tuple(row) for row in add_likely_neighbours(limited, tokens, free, top=2).tolist()
    } == expected
    assert add_likely_neighbours(limited, tokens, free, top=5)[:, [0, 2]].max() == 2
    with pytest.raises(GlauberError, match="vocabulary"):
        add_likely_neighbours(table, tokens, free, top=6)


def correlations(ranking):
    """Spearman's, of pll and weight, potential and weight, potential and pll."""
    pairs = ("pll", "weights"), ("potential", "weights"), ("potential", "pll")
    return [spearmanr(getattr(ranking, a), getattr(ranking, b)).statistic for a, b in pairs]


def test_a_joint_distribution_ranks_as_its_potential():
    joint, states = Joint.random(3, 3, seed=4), Space(3, 3).states()
    weights = joint.probabilities().numpy()
    ranking = rank(joint, states, weights)
    pll = pseudo_likelihood(joint, states).nansum(dim=1).numpy()
    of_pll = spearmanr(pll, weights).statistic
    assert correlations(ranking) == pytest.approx([of_pll, 1.0, of_pll])


def test_an_incompatible_table_is_ranked_as_by_least_squares():
    table, states = Table.random(3, 3, seed=4), Space(3, 3).states()
    weights = stationary(transition_matrix(table, Space(3, 3)))
    order = torch.randperm(27, generator=torch.Generator().manual_seed(0))
    ranking = rank(table, states[order], weights[order])
    values = least_squares(table, states)[0]
    pll = pseudo_likelihood(table, states).nansum(dim=1).numpy()
    pairs = (pll, weights), (values, weights), (values, pll)
    assert correlations(ranking) == pytest.approx([spearmanr(*pair).statistic for pair in pairs])
    assert correlations(ranking)[1] < 1


def test_neighbours_help_and_are_not_ranked():
    """A joint distribution's potential is its logarithm, whichever states help to find it."""
    joint = Joint.random(3, 3, seed=2, strength=2.0)
    states, weights = Space(3, 3).states(), joint.probabilities().numpy()
    some = torch.tensor([0, 4, 8, 12, 20])  # no two of them differ at one site only
    ranking = rank(joint, states[some], weights[some.numpy()], neighbours=states)
    np.testing.assert_array_equal(ranking.states, states[some])
    logs = np.log(weights[some.numpy()])
    np.testing.assert_allclose(ranking.potential - ranking.potential.mean(), logs - logs.mean())


SETTINGS = dict(steps=60, chains=5, length=3, temperature=0.4, device="cpu")


@pytest.fixture
def run(tiny_folder, texts, tmp_path):
    return sample(str(tiny_folder), texts, out=tmp_path / "run", **SETTINGS)


def test_visits_are_a_plain_count(run):
    plain = Counter(
        tuple(row) for step in range(21, run.steps + 1) for row in run.tokens(step).tolist()
    )
    visits = count_visits(run, burn_in=20, most=10_000)
    rows = zip(visits.states.tolist(), visits.counts.tolist(), strict=True)
    assert {tuple(state): count for state, count in rows} == dict(plain)
    assert visits.n_visited == len(plain) and visits.n_steps == 40 * 5 == sum(plain.values())
    fewer = count_visits(run, burn_in=20, most=3)
    assert fewer.counts.tolist() == sorted(plain.values(), reverse=True)[:3]
    assert fewer.n_visited == len(plain)
    assert (fewer.free.sum(dim=1) == 3).all()
    own = Counter(tuple(run.tokens(step)[2].tolist()) for step in range(21, run.steps + 1))
    assert visits.by_chain[2].tolist() == [own[tuple(x)] for x in visits.states.tolist()]


def test_a_run_is_ranked_by_what_it_visited(run):
    result = potential(run, states=40, burn_in=10)
    answer = result.to_dict()
    assert 0 < answer["share"] < 1 and "exact" in answer["kind"] and answer["n_cycles"] > 0
    assert (result.by_chain.sum(axis=0) == result.steps).all()
    intervals = {pair: value["interval"] for pair, value in answer["correlations"].items() if value}
    assert any(intervals.values())
    for pair, ends in intervals.items():
        value = answer["correlations"][pair]["value"]
        assert ends is None or -1 <= ends[0] <= value <= ends[1] <= 1
    order = result.frame()["potential"]
    assert order.is_monotonic_decreasing and len(order) == len(answer["texts"])
    check_against_the_model(run, result, 10)
    assert "explained by no joint distribution" in str(result) and "estimates" in str(result)


def check_against_the_model(run, result, burn_in=None):
    """The same split from the run's visits and the model in float32."""
    model = MaskedLM.load(run.spec.model, device="cpu").conditionals()
    visits = count_visits(run, burn_in=burn_in, most=40)
    added = add_likely_neighbours(model, visits.states, visits.free, top=2)
    ranking = rank(
        model,
        visits.states,
        visits.counts,
        free=visits.free,
        temperature=0.4,
        neighbours=added,
    )
    assert ranking.split.share == pytest.approx(result.share, rel=1e-9)


@pytest.mark.int8
def test_an_int8_run_is_never_called_exact(tiny_folder, texts, tmp_path):
    run = sample(str(tiny_folder), texts, dtype="int8", out=tmp_path / "run", **SETTINGS)
    result = potential(run, states=40)
    check_against_the_model(run, result)
    assert "exact" not in str(result) and "float32" in str(result) and "int8" in str(result)
    assert "exact" not in result.to_dict()["kind"]


def test_of_several_temperatures_the_coldest_or_the_named_one_counts(tiny_folder, texts, tmp_path):
    temperatures = [0.4, 0.8, 0.4, 0.8, 0.4]
    settings = SETTINGS | {"temperature": temperatures, "out": tmp_path / "run"}
    run = sample(str(tiny_folder), texts, **settings)
    cold, warm = potential(run, states=20), potential(run, states=20, temperature=0.8)
    assert (cold.temperature, cold.n_chains) == (0.4, 3) and warm.n_chains == 2
    assert "its 3 chains at 0.4" in str(cold)
    some = count_visits(run, most=20, chains=np.array([1, 3]))
    assert warm.n_visited == some.n_visited and set(warm.steps) <= set(some.counts)
    with pytest.raises(GlauberError, match=r"no chain has the temperature 3: the run has 0.4, 0.8"):
        potential(run, temperature=3.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(states=1), "at least 2"),
        (dict(burn_in=60), "burn-in"),
        (dict(neighbours=10_000), "most probable tokens"),
        (dict(neighbours=-1), "at least 0"),
        (dict(states=10**12), "is not possible"),
    ],
)
def test_bad_arguments_are_refused(run, options, message):
    with pytest.raises(GlauberError, match=message):
        potential(run, **options)


def test_sizes_against_visits(tiny_folder):
    """On two free sites, where every chain visits most states often."""
    run = sample(str(tiny_folder), ["the cat sat"], steps=400, chains=3, freeze="0", seed=2)
    found = potential(run, states=30, neighbours=0)
    visits = found.steps / found.steps.sum()
    for score, match in (
        (found.potential, found.sizes["potential"]),
        (found.pll, found.sizes["pll"]),
    ):
        law = np.exp(score - score.max()) / np.exp(score - score.max()).sum()
        variation = np.abs(visits - law).sum() / 2
        assert match["total_variation"].value == pytest.approx(variation)
        assert match["divergence"].value == pytest.approx((visits * np.log(visits / law)).sum())
        slope = np.polyfit(score, np.log(visits), 1, w=np.sqrt(visits))[0]
        assert match["slope"].value == pytest.approx(slope)
        assert match["slope"].n_chains == 3
    assert "exp(potential) against visits, in size: total variation" in str(found)
