"""What is called a certificate is one, and the figures are those of the rectangles."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import transformers

import conftest
from glauber.compatibility import rectangle_test
from glauber.compatibility.rectangle_test import evaluate, read
from glauber.compatibility.rectangles import measure as rectangle_study
from glauber.compatibility.rectangles import rectangles
from glauber.conditionals.base import Conditionals, log_probs
from glauber.conditionals.causal_lm import CausalLM, LeftToRight
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.table import Joint, Table
from glauber.errors import GlauberError, GlauberWarning
from glauber.statistics import mean_over_chains


@dataclass(frozen=True)
class Single:
    """The same conditionals with scores rounded to float32."""

    base: Conditionals

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    def scores(self, tokens, sites, candidates=None):
        return self.base.scores(tokens, sites, candidates).float()


def study_of(law, count=200):
    tokens = torch.randint(6, (9, 4), generator=torch.Generator().manual_seed(0))
    free = torch.ones_like(tokens, dtype=torch.bool)
    return rectangle_study(Single(law), law, tokens, free=free, count=count, top=5)


@pytest.mark.parametrize("strength", [0.1, 1.0, 30.0])
def test_a_joint_law_gets_no_certificate(strength):
    for seed in range(4):
        study = study_of(Joint.random(6, 4, seed=seed, strength=strength))
        assert study.delta.max() > 0  # rounding shows
        assert not study.certified.any()
        assert study.strongest(3) == []


def test_a_law_without_rounding_gets_no_certificate_either():
    """Equal Deltas in both dtypes must not make the floor zero."""
    law = Joint.random(6, 4, seed=1)
    tokens = torch.zeros(3, 4, dtype=torch.int64)
    study = rectangle_study(law, law, tokens, free=tokens == 0, count=100, top=5)
    assert study.delta.max() > 0
    assert not study.certified.any()


def test_the_figures_are_those_of_the_rectangles():
    study = study_of(Table.random(6, 4, seed=2))
    told = study.summary()
    delta = study.rectangles.delta.tolist()
    assert told["mean"] == pytest.approx(sum(delta) / len(delta))
    assert told["median"] == pytest.approx(sorted(delta)[99] / 2 + sorted(delta)[100] / 2)
    apart = max(abs(a - b) for a, b in zip(delta, study.precise.delta.tolist(), strict=True))
    assert 0 < apart < 1e-5
    assert told["noise_floor"] == pytest.approx(apart, rel=1e-4)
    assert told["certified"] == sum(d > told["noise_floor"] for d in delta) >= 195
    assert told["share_certified"] == told["certified"] / 200
    first, second = study.strongest(2)
    assert (delta[first], delta[second]) == tuple(sorted(delta, reverse=True)[:2])
    assert study.influence == pytest.approx(np.asarray(study.rectangles.influence).mean(axis=1))


def test_rectangles_of_one_passage_are_not_independent():
    """Deltas that only their passage decides: 60 of 6 passages say no more than 6 do."""
    study = study_of(Table.random(6, 4, seed=2), count=60)
    passages = torch.arange(60) % 6
    shared = torch.tensor([0.1, 0.4, 0.5, 0.7, 0.9, 1.0], dtype=torch.float64)[passages]
    scores = torch.zeros(60, 4, 2, dtype=torch.float64)
    scores[:, 0, 0] = shared
    alike = replace(study, passages=passages, rectangles=replace(study.rectangles, scores=scores))
    by_passage = mean_over_chains(shared[:6].numpy(), bounds=(0.0, np.inf))
    assert alike.mean.interval == pytest.approx(by_passage.interval, rel=1e-6)
    assert alike.summary()["interval_of"] == "passages like these 6"
    of_one = replace(alike, passages=torch.zeros(60, dtype=torch.int64))
    assert of_one.mean.n_chains == 60 and "this passage" in of_one.summary()["interval_of"]


def test_a_rectangle_reads_as_four_sentences(tiny_folder):
    laws = MaskedLM.load(str(tiny_folder), device="cpu")
    tokens, _ = laws.vocabulary.encode(["the cat sat on the mat ."])
    words = laws.vocabulary.tokenizer.get_vocab()
    values = torch.tensor([[words["dog"], words["tree"]]])
    found = evaluate(laws, tokens, torch.tensor([[2, 6]]), values)
    reading = read(found, 0, laws.vocabulary)
    assert reading.changes == (("cat", "dog"), ("mat", "tree"))
    assert reading.corners == (
        "the cat sat on the mat.",
        "the dog sat on the mat.",
        "the cat sat on the tree.",
        "the dog sat on the tree.",
    )
    assert abs(reading.one_way - reading.other_way) == pytest.approx(reading.delta)


@pytest.fixture
def asked(tiny_folder, texts):
    def ask(**how):
        how = {"count": 40, "length": 5, "top": 10, "device": "cpu"} | how
        return rectangles(str(tiny_folder), texts[:3] + texts[4:], **how)

    return ask


def test_the_study_says_everything(asked):
    found = asked(seed=3)
    answer = found.to_dict()
    assert answer["count"] == 40
    assert answer["interval"][0] < answer["mean"] < answer["interval"][1]
    assert 0 < answer["noise_floor"] < 1e-3 < answer["median"]
    assert 30 <= answer["certified"] <= 40
    assert answer["kind"]["mean"] == "estimate"
    assert "|length:5|rectangles:40|replacements:uniform-top-10|seed:3|" in answer["signature"]
    assert len(answer["strongest"]) == 3 and len(answer["strongest"][0]["corners"]) == 4
    assert answer["strongest"][0]["delta"] == answer["quantiles"]["max"]
    assert {**asked(seed=3).to_dict(), "seconds": 0} == {**answer, "seconds": 0}
    assert "above the noise floor" in str(found) and "with both" in str(found)
    assert "were asked for" not in str(found)
    assert len(found.frame()) == 40 and set(found.figures()) == {"histogram", "influence"}


def test_more_first_choices_than_tokens_are_clipped_and_said(asked, tiny_folder):
    """The tiny vocabulary has 41 words to propose: all of them, whatever is asked."""
    words = int(MaskedLM.load(str(tiny_folder), device="cpu").vocabulary.proposable().sum())
    found, all_of_them = asked(top=5000), asked(top=words)
    assert found.delta.tolist() == all_of_them.delta.tolist()
    assert (found.top, found.asked) == (words, 5000)
    assert found.to_dict()["top"] == {"value": words, "asked": 5000}
    assert f"the {words} tokens that the model proposes; 5000 were asked for" in str(found)
    assert f"uniform-top-{words}|" in found.signature


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (dict(count=0), "the number of rectangles is 0"),
        (dict(count=10**12), "cannot be done"),
        (dict(length=1), "the length is 1, but a rectangle needs two sites"),
        (dict(length=0), "the length is 0"),
        (dict(top=1), "first choices is 1"),
        (dict(strongest=-1), "at least 0"),
        (dict(seed=2**70), "seed is"),
    ],
)
def test_bad_numbers_are_refused_in_one_sentence(asked, how, said):
    with pytest.raises(GlauberError, match=said):
        asked(**how)


def control_of(tokenizer, seed=3):
    """A tiny autoregressive LM with random weights."""
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=len(conftest.VOCABULARY), n_embd=32, n_layer=2, n_head=2, n_positions=40,
        bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    tokenizer.bos_token = "[CLS]"
    return CausalLM(transformers.GPT2LMHeadModel(config).eval(), tokenizer, name="tiny GPT-2")


@pytest.mark.parametrize("which", ["left-to-right", "causal"])
def test_the_rectangles_of_a_control_close(asked, which):
    """The model's own do not, by the same arithmetic; edges of nats cancel up to rounding."""
    control = which if which == "left-to-right" else control_of(conftest.make_tokenizer())
    found = asked(control=control)
    closing = found.control.to_dict()
    assert closing["count"] == 10 and closing["certified"] == 0
    assert closing["largest"] < 1e-5 and closing["largest_in_float64"] < 1e-11
    assert closing["largest_edge"] > 0.5 and found.delta.mean() > 0.1
    assert "by construction" in closing["checks"] and closing["checks"] in str(found)
    assert found.to_dict()["control"] == closing
    assert found.delta.tolist() == asked().delta.tolist()


def test_a_control_shows_a_wrong_corner(asked, monkeypatch):
    """Were one edge taken at another corner, the control would not close."""
    right = rectangle_test._corners

    def wrong(tokens, sites, values):
        return right(tokens, sites, values)[:, [0, 2, 2, 3]]

    monkeypatch.setattr(rectangle_test, "_corners", wrong)
    assert asked(control="left-to-right").control.to_dict()["largest"] > 0.01


def test_what_is_no_control(asked, tiny_folder):
    with pytest.raises(GlauberError, match="is a masked LM, and a control is an autoregressive"):
        asked(control=str(tiny_folder))
    with pytest.raises(GlauberError, match="there is no file"):
        asked(control="nothing.gguf")
    causal = control_of(conftest.make_tokenizer())
    with pytest.raises(GlauberError, match="autoregressive already"):
        rectangles(causal, conftest.TEXTS[:3], count=2, length=5, control="left-to-right")


def test_left_to_right_is_a_joint_law():
    """Its conditionals are those of the product of next-token laws, written out."""
    law = Table.random(3, 3, seed=1)

    def log_joint(row):
        total = 0.0
        for site in range(3):
            hidden = torch.arange(site, 3)[None]
            total += float(log_probs(law, torch.tensor([row]), hidden)[0, 0, row[site]])
        return total

    for row in itertools.product(range(3), repeat=3):
        for site in range(3):
            texts = [[*row[:site], token, *row[site + 1 :]] for token in range(3)]
            joint = torch.tensor([log_joint(text) for text in texts]).double()
            scores = LeftToRight(law).scores(torch.tensor([row]), torch.tensor([[site]]))[0, 0]
            torch.testing.assert_close(scores.log_softmax(0), joint.log_softmax(0))


def test_a_short_text_is_taken_whole(tiny_folder, texts):
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    with pytest.warns(GlauberWarning, match="fewer than 20 tokens and is taken whole"):
        found = rectangles(model, texts[0], count=5, top=3)
    assert (found.delta == rectangles(model, texts[0], count=5, top=3, length=None).delta).all()
    assert (found.rectangles.sites < model.vocabulary.count(texts[0]) + 1).all()
