"""The measures of a set of texts against hand counts, sacrebleu and transformers; costs counted."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch
import transformers
from torch import Tensor

import glauber
from glauber.foundation.errors import GlauberError
from glauber.models.causal_lm import CausalLM
from glauber.models.table import Table
from glauber.studies.decoding.frontier import (
    distinct,
    reference_likelihood,
    self_bleu,
    token_entropy,
)


def random_rows(n_texts: int, length: int, vocab: int, seed: int = 0) -> list[list[int]]:
    return np.random.default_rng(seed).integers(vocab, size=(n_texts, length)).tolist()


def test_distinct_and_entropy_by_hand():
    rows = [[1, 2, 1, 2], [1, 2, 3, 4]]
    # 1 2 3 4 of 8; 12 (three times) 21 23 34 of 6; 121 212 123 234 of 4
    assert [distinct(rows, n).value for n in (1, 2, 3)] == [4 / 8, 4 / 6, 1.0]
    assert np.isnan(distinct(rows, 5).value)
    assert token_entropy([1, 1, 2, 2]) == pytest.approx(np.log(2))
    assert token_entropy([7, 7, 7]) == 0.0


def test_the_spread_of_distinct_is_that_of_leaving_out_each_text():
    rows = random_rows(9, 12, 5)
    values = [distinct([r for j, r in enumerate(rows) if j != i], 2).value for i in range(9)]
    by_hand = np.std(values, ddof=1) * 8 / np.sqrt(9)
    found = distinct(rows, 2)
    assert found.standard_error == pytest.approx(by_hand)
    assert found.interval[0] < found.value < found.interval[1]


@pytest.mark.parametrize(("vocab", "length"), [(3, 10), (12, 10), (60, 10), (4, 3)])
def test_self_bleu_is_that_of_sacrebleu(vocab, length):
    rows = random_rows(8, length, vocab, seed=vocab)
    spelled = [" ".join(f"t{token}" for token in row) for row in rows]
    theirs = [
        sacrebleu.sentence_bleu(one, spelled[:i] + spelled[i + 1 :], tokenize="none").score
        for i, one in enumerate(spelled)
    ]
    assert self_bleu(rows).value == pytest.approx(np.mean(theirs))
    assert self_bleu([rows[0]] * 4).value == pytest.approx(100)


@pytest.fixture(scope="module")
def judge(tokenizer):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, n_positions=40,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return CausalLM(transformers.GPT2LMHeadModel(config).eval(), tokenizer, name="tiny GPT-2")


def test_the_judge_says_what_transformers_says_of_each_text_alone(judge, tokenizer):
    texts = ["the cat sat on the mat", "the dog", "a cat"]
    found = reference_likelihood(judge, texts)
    for place, text in enumerate(texts):
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        with torch.no_grad():
            loss = float(judge.model(input_ids=ids, labels=ids).loss)  # mean but for the first
        assert found.nats[place] / found.n_tokens[place] == pytest.approx(loss, rel=1e-5)
        assert found.n_tokens[place] == ids.shape[1] - 1
        assert found.nats_a_character[place] == pytest.approx(found.nats[place] / len(text))


@dataclass(frozen=True, eq=False)
class Recorded:
    """A table that remembers how many rows it was asked."""

    table: Table
    asked: list[int] = field(default_factory=list)
    length: int = 6

    @property
    def vocab_size(self) -> int:
        return self.table.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor) -> Tensor:
        self.asked.append(len(tokens))
        return self.table.scores(tokens, sites)


def test_costs_are_the_rows_that_the_model_was_asked():
    rule = Recorded(Table.random(3, 6, seed=2))
    found = glauber.frontier(
        rule, orders="confidence,random", counts="linear,2,threshold:0.5", passes=(1, 2, 4),
        remask="none", correct=(0, 2), length=6, chains=5,
    )  # fmt: skip
    before = sum(cell.n_rows for cell in found.schedules)
    probed = 4  # the rows by which a rule is recognised
    assert before + probed == sum(rule.asked)
    for cell in found.schedules:
        how = cell.how
        if how.count_rule.has_plan:
            groups = -(-6 // -(-6 // how.passes))
            assert cell.cost == how.passes + how.correct * groups
        elif how.count == "2":
            assert cell.cost == 3 + how.correct * 3
        else:  # looks at the text: between one pass and one for each token
            assert 1 <= cell.cost - how.correct * 6 <= 6


def test_correction_is_compared_at_equal_cost():
    found = glauber.frontier(
        Table.random(3, 4, seed=1), orders="random", passes=(1, 2, 4), length=4, chains=6
    )
    pairs = {
        (g.corrected.how.passes, g.uncorrected.how.passes): g.equal_cost
        for g in found.at_equal_cost
    }
    assert pairs == {(1, 2): True, (2, 4): True, (4, 4): False}
    costs = {
        g.corrected.how.passes: (g.corrected.cost, g.uncorrected.cost) for g in found.at_equal_cost
    }
    assert costs == {1: (2, 2), 2: (4, 4), 4: (8, 4)}
    own = [(g.corrected.how.passes, g.uncorrected.how.passes) for g in found.against_its_own_start]
    assert own == [(1, 1), (2, 2), (4, 4)]
    gain = found.at_equal_cost[0]
    by_hand = gain.corrected.entropies - gain.uncorrected.entropies
    assert gain.entropy.value == pytest.approx(by_hand.mean())


def test_the_texts_are_those_of_generate(tiny_folder, judge):
    model = glauber.load(str(tiny_folder), device="cpu")
    how = dict(passes=2, correct=1, correct_block=3, seed=4)
    texts = glauber.generate(model, length=6, chains=3, order="margin", **how).texts
    found = glauber.frontier(
        model, ["the cat sat on the mat"], orders="margin", passes=(2,), correct=(1,), length=6,
        chains=3, seed=4, judge=judge,
    )  # fmt: skip
    cell, known = found.schedules
    assert cell.texts == texts and known.texts == ["the cat sat on the mat"]
    likelihood = reference_likelihood(judge, texts)
    nats = (likelihood.nats / likelihood.n_tokens).mean()
    assert cell.figures["nats_a_token"].value == pytest.approx(nats)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"passes": (2, 9)}, "9 passes are more than the 4 hidden tokens"),
        ({"chains": 0}, "chains is 0, but it must be at least 2"),
        ({"passes": ()}, "passes is empty"),
        ({"orders": " , "}, "no order is named"),
        ({"orders": "best"}, "best"),
        ({"correct_block": 0}, "correct block is 0"),
        ({"judge": Table.random(3, 4)}, "is no judge"),
        ({"judge": "bundled:english"}, "bundled:english is no judge"),
    ],
)
def test_bad_input_is_one_sentence(given, said):
    with pytest.raises(GlauberError, match=said) as raised:
        glauber.frontier(Table.random(3, 4), **({"length": 4, "chains": 2} | given))
    assert "\n" not in str(raised.value)


def test_a_masked_folder_is_no_judge_and_no_causal_one_writes(tiny_folder: Path, judge):
    with pytest.raises(GlauberError, match="is no judge"):
        glauber.frontier(Table.random(3, 4), length=4, judge=str(tiny_folder))
    with pytest.raises(GlauberError, match="autoregressive"):
        glauber.frontier(judge, length=4)
