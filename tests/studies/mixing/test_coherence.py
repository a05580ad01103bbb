"""Scores of a run's texts against transformers alone, and what is counted from them."""

import numpy as np
import pytest
import torch

import glauber
from conftest import TEXTS
from glauber.foundation.errors import GlauberError
from glauber.models.table import Table
from glauber.studies.mixing.coherence import Coherence, mean_log_prob


@pytest.fixture(scope="module")
def run(tiny_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("coherence") / "run"
    return glauber.sample(str(tiny_folder), TEXTS[:3], steps=40, chains=6, temperature=2.0, out=out)


def by_transformers(folder, tokens, free, allowed):
    """Mean log-probability among the allowed tokens, one mask at a time."""
    import transformers

    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).double().eval()
    mask = transformers.AutoTokenizer.from_pretrained(folder).mask_token_id
    found = []
    for site in np.flatnonzero(free):
        hidden = torch.from_numpy(tokens.astype(np.int64))[None].clone()
        hidden = hidden[:, tokens >= 0]
        hidden[0, site] = mask
        with torch.no_grad():
            logits = model(hidden).logits[0, site]
        logits[~allowed] = -torch.inf
        found.append(float(torch.log_softmax(logits, 0)[tokens[site]]))
    return np.mean(found)


def test_scores_are_those_of_the_model_one_mask_at_a_time(run, tiny_folder):
    found = glauber.coherence(run, every=20)
    model = glauber.load(str(tiny_folder))
    scores = model.conditionals().scores(torch.zeros(1, 3, dtype=torch.long), torch.tensor([[1]]))
    allowed = torch.isfinite(scores[0, 0])
    for chain, column in ((0, 0), (1, 1), (4, 2)):
        tokens = run.tokens(20 * column)[chain]
        by_hand = by_transformers(tiny_folder, tokens, run.free[chain], allowed)
        assert found.values[chain, column] == pytest.approx(by_hand, abs=1e-5)
    assert found.level == pytest.approx(np.quantile(found.values[:, 0], 0.1))
    assert glauber.coherence(run, every=20, model=str(tiny_folder)).values == pytest.approx(
        found.values, abs=1e-6
    )


def test_chains_that_began_alike_count_once_in_the_mean_of_the_starts(run):
    found = glauber.coherence(run, every=20)
    assert found.values[:3, 0] == pytest.approx(found.values[3:, 0])  # six chains of three texts
    assert found.at_start.n_chains == 3
    assert found.at_start.value == pytest.approx(found.values[:3, 0].mean())


def test_a_judge_reads_the_texts_with_its_own_tokens(run, tiny_folder):
    own = glauber.coherence(run, every=20)
    with pytest.warns(glauber.GlauberWarning, match="read as unknown tokens in text 8"):
        judged = glauber.coherence(run, every=20, judge=str(tiny_folder))
    # The same weights over the whole vocabulary: lower, as special tokens take a share.
    assert judged.values.shape == own.values.shape
    assert (judged.values[:, 0] <= own.values[:, 0] + 1e-6).all()
    score = glauber.score(str(tiny_folder), [run.text(2, 0)], variant="original").scores[0]
    assert judged.values[2, 0] == pytest.approx(score.original / len(score.pieces), abs=1e-5)


def small(values, level=-2.0):
    values = np.array(values, float)
    steps = np.arange(values.shape[1]) * 10
    return Coherence(
        "r", "m", np.ones(len(values)), steps, level, True, values, np.arange(len(values))
    )


def test_what_is_counted():
    found = small([[-1, -1, -3, -3], [-1, -1, -1, -3], [-1, -3, -1, -1], [-3, -3, -3, -3]])
    assert found.incoherent.value == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert found.mostly_incoherent.tolist() == [True, False, False, True]
    assert found.change.value == pytest.approx((-2 - 1 + 0 + 0) / 4)
    # The fourth began below the level and does not count: 20, 30 and 10 steps.
    assert found.first_incoherent.value == 20
    assert small([[-1, -1]] * 4).first_incoherent.value is None
    assert small([[-3, -1]] * 4).first_incoherent.value is None


def test_tokens_that_cannot_be_drawn_do_not_count():
    table = Table.random(3, 3, seed=1)
    table.entries[0, ..., 2] = -torch.inf
    row = torch.tensor([[2, 0, 1]])
    found = mean_log_prob(table, row, torch.ones_like(row).bool())
    expected = [
        float(torch.log_softmax(table.scores(row, torch.tensor([[i]]))[0, 0], 0)[row[0, i]])
        for i in (1, 2)
    ]
    assert found == pytest.approx([np.mean(expected)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every is 0"),
        ({"every": 100}, "the snapshots are 100 steps apart"),
        ({"level": 0.5}, "level is 0.5"),
    ],
)
def test_bad_arguments_are_refused(run, options, message):
    with pytest.raises(GlauberError, match=message):
        glauber.coherence(run, **options)
