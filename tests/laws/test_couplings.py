"""Every coupling: each chain alone keeps its law, and chains that have met stay together."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from glauber.conditionals.base import Restricted
from glauber.conditionals.table import Joint, Table
from glauber.dynamics.draws import gumbel_max, inverse_cdf
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.exact.pair_chain import pair_matrix
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.mixing.pairs import COUPLINGS, Question, begin, joint_draw_named, step_together

SPACE = Space(3, 2)
PAIRS = SPACE.size**2
EACH = 400  # pairs from every pair of states
MODELS = {
    "joint": Joint.random(3, 2, seed=1, strength=1.5),
    "table": Table.random(3, 2, seed=2, strength=1.5),
}


def moved(conditionals, how, *, steps, temperature=1.0):
    """State numbers (pairs * EACH,) of left and right, some steps after every pair of states."""
    number = torch.arange(PAIRS).repeat_interleave(EACH)
    states = SPACE.states()
    left, right = states[number // SPACE.size], states[number % SPACE.size]
    pairs = begin(
        left, right, torch.ones_like(left, dtype=torch.bool), temperature=temperature, seed=5
    )
    for _ in range(steps):
        pairs = step_together(conditionals, joint_draw_named(how), pairs)
    return SPACE.index(pairs.left), SPACE.index(pairs.right)


def assert_follows(after, matrix):
    """Pearson's chi-square of numbers (rows * EACH,) against rows of probabilities."""
    rows = torch.arange(len(matrix)).repeat_interleave(EACH)
    counts = np.zeros(matrix.shape)
    np.add.at(counts, (rows.numpy(), after.numpy()), 1)
    expected = matrix * EACH
    assert counts[matrix < 1e-15].sum() == 0
    often = expected >= 5
    rest_seen = np.where(often, 0, counts).sum(axis=1)
    rest_due = np.where(often, 0, expected).sum(axis=1)
    seen = np.append(counts[often], rest_seen[rest_due >= 5])
    due = np.append(expected[often], rest_due[rest_due >= 5])
    statistic, freedom = ((seen - due) ** 2 / due).sum(), len(due) - len(matrix)
    assert chi2.sf(statistic, freedom) > 1e-3, (statistic, freedom)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("how", COUPLINGS)
def test_each_chain_alone_keeps_its_law(how, name, steps):
    matrix = transition_matrix(MODELS[name], SPACE, temperature=0.8).toarray()
    matrix = np.linalg.matrix_power(matrix, steps)
    left, right = moved(MODELS[name], how, steps=steps, temperature=0.8)
    number = np.arange(PAIRS)
    assert_follows(left, matrix[number // SPACE.size])
    assert_follows(right, matrix[number % SPACE.size])


@pytest.mark.parametrize("how", ["maximal", "inverse-cdf"])
def test_the_pair_follows_the_enumerated_pair_chain(how):
    table = MODELS["table"]
    left, right = moved(table, how, steps=2, temperature=0.8)
    step = pair_matrix(table, SPACE, how=how, temperature=0.8)
    assert_follows(left * SPACE.size + right, (step @ step).toarray())


@pytest.mark.parametrize("how", COUPLINGS)
def test_met_chains_stay_together_under_every_coupling(how):
    table = MODELS["table"]
    left, right = moved(table, how, steps=0)
    pairs = begin(*(SPACE.states()[x] for x in (left, right)), torch.ones(len(left), 2).bool(),
                  temperature=1.0, seed=1)  # fmt: skip
    met = pairs.distance == 0
    for _ in range(12):
        pairs = step_together(table, joint_draw_named(how), pairs)
        assert not bool((met & (pairs.distance > 0)).any())
        met |= pairs.distance == 0
    assert float(met.double().mean()) > 0.5  # many more than the 1 in 9 at the start


def rows_of_words(n):
    return torch.from_numpy(np.random.default_rng(3).integers(-(2**63), 2**63, size=(n, 3)))


def test_how_often_the_two_tokens_agree():
    """1 - TV under the maximal coupling; sum_a 1 / sum_v max(p_v/p_a, q_v/q_a) under Gumbel's."""
    n, scores = 40_000, torch.randn(2, 7, generator=torch.Generator().manual_seed(2)) * 1.5
    p, q = torch.softmax(scores.double() / 0.9, dim=-1).numpy()
    due = {
        "maximal": np.minimum(p, q).sum(),
        "gumbel-max": (1 / np.maximum(p[None] / p[:, None], q[None] / q[:, None]).sum(1)).sum(),
    }
    assert due["gumbel-max"] < due["maximal"] - 0.02  # so that the two are told apart
    for how, share in due.items():
        question = Question(
            *(row.expand(n, -1) for row in scores), torch.full((n,), 0.9), rows_of_words(n)
        )
        tokens = joint_draw_named(how).together(question)
        seen = float((tokens[:, 0] == tokens[:, 1]).double().mean())
        assert abs(seen - share) < 4 * np.sqrt(share * (1 - share) / n), how


@pytest.mark.parametrize("how", COUPLINGS)
def test_forbidden_tokens_are_never_drawn(how):
    allowed = torch.tensor([True, False, True])
    left, right = moved(Restricted(MODELS["table"], allowed), how, steps=6)
    untouched = 2**-6 * 2  # a site is missed by all six steps with chance 1/64
    for side in (left, right):
        share = float((SPACE.states()[side] == 1).any(dim=1).double().mean())
        assert share < untouched
    one = torch.tensor([[0.0, -torch.inf, 1.0]]).expand(5000, -1)
    two = torch.tensor([[-torch.inf, 2.0, -torch.inf]]).expand(5000, -1)
    question = Question(one, two, torch.ones(5000).double(), rows_of_words(5000))
    tokens = joint_draw_named(how).together(question)
    assert set(tokens[:, 0].tolist()) == {0, 2} and set(tokens[:, 1].tolist()) == {1}


@pytest.mark.parametrize("how, fill", [("inverse-cdf", inverse_cdf), ("gumbel-max", gumbel_max)])
def test_with_shared_noise_each_side_is_the_engines_own_chain(how, fill):
    table = Table.random(4, 3, seed=3)
    states = Space(4, 3).states()
    left, right, free = states[:32], states[32:], torch.ones(32, 3).bool()
    pairs = begin(left, right, free, temperature=1.3, seed=9)
    for _ in range(20):
        pairs = step_together(table, joint_draw_named(how), pairs)
    for begun, side in ((left, pairs.left), (right, pairs.right)):
        state = start(begun, free, temperature=1.3)
        for after, _ in run(glauber(table, fill=fill()), state, 20, seed=9):
            state = after
        assert torch.equal(state.tokens, side)


def test_next_to_zero_the_maximal_coupling_takes_the_best_token():
    scores = torch.tensor([[1.0, 3.0, 2.0]]).expand(10, -1)
    cold = torch.full((10,), 1e-320, dtype=torch.float64)
    tokens = joint_draw_named("maximal").together(Question(scores, scores, cold, rows_of_words(10)))
    assert (tokens == 1).all()
