"""Every coupling: each chain alone keeps its law, and chains that have met stay together."""

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import chi2

import conftest
from alphabets import RESIDUES, letters
from glauber.dynamics.coupled import COUPLINGS, coupled, distance, run_until_met, sides, start_pairs
from glauber.dynamics.draws import gumbel_max, inverse_cdf
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.exact.pair_chain import pair_matrix
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.models.base import Restricted
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table

SPACE = Space(3, 2)
PAIRS = SPACE.size**2
EACH = 400  # pairs from every pair of states
MODELS = {
    "joint": Joint.random(3, 2, seed=1, strength=1.5),
    "table": Table.random(3, 2, seed=2, strength=1.5),
}


def moved(conditionals, how, *, steps, temperature=1.0, left=None, right=None, seed=5):
    """Tokens of left and right, some steps after every pair of states."""
    number = torch.arange(PAIRS).repeat_interleave(EACH)
    states = SPACE.states()
    left = states[number // SPACE.size] if left is None else left
    right = states[number % SPACE.size] if right is None else right
    state = start_pairs(left, right, torch.ones_like(left).bool(), temperature=temperature)
    for after, _ in run(coupled(conditionals, how), state, steps, seed=seed):
        state = after
    return sides(state.tokens)


def moved_states(*args, **more):
    """State numbers (pairs * EACH,) of left and right."""
    return [SPACE.index(side) for side in moved(*args, **more)]


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
    left, right = moved_states(MODELS[name], how, steps=steps, temperature=0.8)
    number = np.arange(PAIRS)
    assert_follows(left, matrix[number // SPACE.size])
    assert_follows(right, matrix[number % SPACE.size])


@pytest.mark.parametrize("how", ["maximal", "inverse-cdf"])
def test_the_pair_follows_the_enumerated_pair_chain(how):
    table = MODELS["table"]
    left, right = moved_states(table, how, steps=2, temperature=0.8)
    step = pair_matrix(table, SPACE, how=how, temperature=0.8)
    assert_follows(left * SPACE.size + right, (step @ step).toarray())


@pytest.mark.parametrize("how", COUPLINGS)
def test_met_chains_stay_together_under_every_coupling(how):
    table = MODELS["table"]
    left, right = moved(table, how, steps=0)
    state = start_pairs(left, right, torch.ones_like(left).bool(), temperature=1.0)
    met = distance(state) == 0
    for after, info in run(coupled(table, how), state, 12, seed=1):
        assert not bool((met & (distance(after) > 0)).any())
        assert all(torch.equal(*sides(part[met.repeat_interleave(2)])) for part in info)
        met |= distance(after) == 0
    assert float(met.double().mean()) > 0.5  # many more than the 1 in 9 at the start


class Dictated:
    """Conditionals of one's own: the scores at a site are those of the token at the other one."""

    def __init__(self, scores):
        self.rows, self.vocab_size = scores, scores.shape[1]

    def scores(self, tokens, sites, candidates=None):
        return self.rows[tokens.gather(1, 1 - sites)]


def joint_draws(how, scores, temperature, n, seed=7):
    """Tokens (about n, 2) that a coupling draws from the two rows of scores, at temperature."""
    rows = torch.nn.functional.pad(scores, (0, 0, 0, scores.shape[1] - len(scores)))
    left, right = torch.tensor([[[0, 0]], [[0, 1]]]).expand(2, 2 * n, 2)
    state = start_pairs(left, right, torch.ones_like(left).bool(), temperature=temperature)
    ((_, info),) = run(coupled(Dictated(rows), how), state, 1, seed=seed)
    drawn = (info.sites[::2] == 0)[:, 0]
    assert drawn.double().mean() == pytest.approx(0.5, abs=4 * 0.5 / n**0.5)
    return torch.cat(sides(info.tokens), dim=1)[drawn]


def test_how_often_the_two_tokens_agree():
    """1 - TV under the maximal coupling; sum_a 1 / sum_v max(p_v/p_a, q_v/q_a) under Gumbel's."""
    scores = torch.randn(2, 7, generator=torch.Generator().manual_seed(2)) * 1.5
    p, q = torch.softmax(scores.double() / 0.9, dim=-1).numpy()
    due = {
        "maximal": np.minimum(p, q).sum(),
        "gumbel-max": (1 / np.maximum(p[None] / p[:, None], q[None] / q[:, None]).sum(1)).sum(),
    }
    assert due["gumbel-max"] < due["maximal"] - 0.02  # so that the two are told apart
    for how, share in due.items():
        tokens = joint_draws(how, scores, 0.9, 40_000)
        seen = float((tokens[:, 0] == tokens[:, 1]).double().mean())
        assert abs(seen - share) < 4 * np.sqrt(share * (1 - share) / len(tokens)), how


@pytest.mark.parametrize("how", COUPLINGS)
def test_forbidden_tokens_are_never_drawn(how):
    allowed = torch.tensor([True, False, True])
    untouched = 2**-6 * 2  # a site is missed by all six steps with chance 1/64
    for side in moved(Restricted(MODELS["table"], allowed), how, steps=6):
        assert float((side == 1).any(dim=1).double().mean()) < untouched
    scores = torch.tensor([[0.0, -torch.inf, 1.0], [-torch.inf, 2.0, -torch.inf]])
    tokens = joint_draws(how, scores, 1.0, 5000)
    assert set(tokens[:, 0].tolist()) == {0, 2} and set(tokens[:, 1].tolist()) == {1}


@pytest.mark.parametrize("how, fill", [("inverse-cdf", inverse_cdf), ("gumbel-max", gumbel_max)])
def test_with_shared_noise_each_side_is_the_engines_own_chain(how, fill):
    table = Table.random(4, 3, seed=3)
    states = Space(4, 3).states()
    left, right, free = states[:32], states[32:], torch.ones(32, 3).bool()
    after = moved(table, how, steps=20, temperature=1.3, left=left, right=right, seed=9)
    for begun, side in zip((left, right), after, strict=True):
        state = start(begun, free, temperature=1.3)
        for later, _ in run(glauber(table, fill=fill()), state, 20, seed=9):
            state = later
        assert torch.equal(state.tokens, side)


def test_what_a_step_reports_is_what_a_single_chain_reports():
    """Log-probabilities and entropy of each side's own conditional, under every coupling."""
    table = Table.random(4, 3, seed=3)
    states = Space(4, 3).states()
    left, right, free = states[:32], states[32:], torch.ones(32, 3).bool()
    for how in COUPLINGS:
        pairs = start_pairs(left, right, free, temperature=1.3)
        ((_, info),) = run(coupled(table, how), pairs, 1, seed=9)
        assert torch.equal(*sides(info.sites))
        scores = table.scores(pairs.tokens, info.sites)[:, 0].double() / 1.3
        log_probs = scores.log_softmax(dim=-1)
        new, old = (
            log_probs.gather(1, x) for x in (info.tokens, pairs.tokens.gather(1, info.sites))
        )
        torch.testing.assert_close(info.log_prob_new, new)
        torch.testing.assert_close(info.log_prob_old, old)
        entropy = -(log_probs.exp() * log_probs).sum(dim=1, keepdim=True)
        torch.testing.assert_close(info.entropy, entropy)
        assert torch.equal(info.changed, info.tokens != pairs.tokens.gather(1, info.sites))


def test_next_to_zero_the_maximal_coupling_takes_the_best_token():
    scores = 1e9 * torch.tensor([[1.0, 3.0, 2.0]] * 2)  # by the temperature: beyond any number
    assert (joint_draws("maximal", scores, 1e-300, 10) == 1).all()


def met_times(conditionals, how, tokens, temperature, *, batch_size, rows=None, steps=60):
    """When pairs of neighbouring rows of tokens meet, some of them, in batches of some size."""
    left, right = tokens[0::2], tokens[1::2]
    free = torch.ones_like(left).bool()
    rows = torch.arange(len(left)) if rows is None else rows
    pairs = start_pairs(left[rows], right[rows], free[rows], temperature=temperature, pair=rows)
    kernel = coupled(conditionals, how)
    return sorted(run_until_met(kernel, pairs, steps, seed=3, batch_size=batch_size))


@pytest.mark.parametrize("temperature", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("how", COUPLINGS)
def test_a_pair_depends_on_no_other_pair_of_25_residues(how, temperature):
    """A protein model, cold and hot, one pair and many: the same times in any batch."""
    torch.manual_seed(3)
    sizes = conftest.SIZES | {"vocab_size": 25, "hidden_dropout_prob": 0.0}
    network = transformers.AutoModelForMaskedLM.from_config(transformers.BertConfig(**sizes))
    model = MaskedLM(network.eval(), letters(RESIDUES), name="protein")
    conditionals = model.conditionals()
    text = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, 25, (12, 8), generator=text)
    alike = met_times(conditionals, how, tokens, temperature, batch_size=6)
    for size in (1, 4):
        assert met_times(conditionals, how, tokens, temperature, batch_size=size) == alike
    for row in (0, 5):
        (alone,) = met_times(
            conditionals, how, tokens, temperature, batch_size=1, rows=torch.tensor([row])
        )
        assert alone == alike[row]._replace(pair=0)
    if temperature == 1e6:  # every conditional is uniform: a site agrees once it was redrawn
        assert sum(meeting.met for meeting in alike) >= 5
