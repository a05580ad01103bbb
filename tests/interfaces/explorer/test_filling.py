"""Filling in and translating as films: pass by pass what `infill` and `translate` give."""

import numpy as np
import pytest
import torch

import conftest
import glauber
from glauber.foundation.errors import GlauberError
from glauber.interfaces.explorer.filling import Filling
from glauber.interfaces.explorer.models import Models
from glauber.models.base import log_probs
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint
from interfaces.explorer.films import numbers, states

TEXT = "the [MASK] sat on [MASK:2] mat [MASK]"


@pytest.fixture(scope="module")
def tiny():
    return MaskedLM(conftest.make_model("bert"), conftest.make_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def filling(tiny):
    return Filling(Models.of(tiny, Joint.random(3, 4)))


HOW = [
    {},
    {"temperature": 0, "count": "2"},
    {"order": "random", "seed": 3, "temperature": 0.7},
    {"count": "linear", "passes": 2, "order": "margin"},
    {"count": "cosine", "remask": "rescale:0.5", "passes": 4, "seed": 1},
    {"count": "threshold:0.3", "order": "entropy", "top_k": 5},
    {"correct": 2, "seed": 2, "temperature": 2.0, "block": 2},
    {"correct": 1, "correct_block": 2, "top_p": 0.9},
]


@pytest.mark.parametrize("how", HOW)
def test_the_passes_are_those_of_infill(filling, tiny, how):
    found = filling.fill("tiny", TEXT, **how)
    made = glauber.infill(tiny, [TEXT], **({"count": "1", "temperature": 1.0} | how))
    assert found["text"] == made.texts[0] and found["signature"] == made.signature
    assert found["passes"] == made.passes[0]
    assert np.isclose(found["fill_log_prob"], made.blanks.scores.fill[0])
    if "correct" in how or "remask" in how:
        assert found["log_prob"] is None
    else:
        assert np.isclose(found["log_prob"], made.log_probs[0])
    film = found["film"]
    assert film["count"] == found["passes"] + how.get("correct", 0)
    tokens, sure = states(film)[0]
    hidden = made.written.begin[0, 1:-1]
    assert found["hidden"] == np.flatnonzero(hidden).tolist() == [1, 4, 5, 7]
    assert (tokens[0] == np.where(hidden, tiny.hidden_token, tokens[-1])).all()
    assert (tokens[-1] == made.written.tokens[0, 1:-1]).all()
    assert np.isclose(sure[-1, hidden].sum(), made.written.log_probs[0], atol=1e-4)
    assert film["frozen"] == [np.flatnonzero(~hidden).tolist()]
    for site, passes in zip(found["hidden"], found["order"], strict=True):
        filled = tokens[:, site] != tiny.hidden_token
        assert (np.flatnonzero(filled[1:] & ~filled[:-1]) + 1).tolist() == passes


def test_a_pass_fills_what_its_law_says(filling, tiny):
    """Frame by frame at temperature 0: the surest site first, each with its likeliest token."""
    film = filling.fill("tiny", TEXT, temperature=0)["film"]
    tokens, sure = states(film)[0]
    for frame, site, token in zip(
        numbers(film["frame"]), numbers(film["site"]), numbers(film["token"]), strict=True
    ):
        row = torch.tensor([[2, *tokens[frame - 1], 3]])
        hidden = (row == tiny.hidden_token).nonzero()[:, 1]
        law = log_probs(tiny.conditionals(), row, hidden[None])[0]
        best = int(law.amax(dim=1).argmax())
        assert int(hidden[best]) == site + 1 and int(law[best].argmax()) == token
        assert np.isclose(sure[frame, site], float(law[best].max()), atol=1e-5)


def test_a_rule_of_ones_own_is_filled(filling):
    found = filling.fill("Joint", "0[MASK]2[MASK]", seed=4)
    made = glauber.infill(
        Joint.random(3, 4), ["0[MASK]2[MASK]"], count="1", temperature=1.0, seed=4
    )
    assert found["text"] == made.texts[0] and found["hidden"] == [1, 3]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"text": "the cat"}, "no blank"),
        ({"text": ""}, "the text is empty"),
        ({"text": None}, "the text is empty"),
        ({"text": "[MASK:1-3] cat"}, "several lengths"),
        ({"text": "[MASK:x] cat"}, "write .MASK., .MASK:3."),
        ({"text": "[MASK:9000]"}, "at most 2,000"),
        ({"text": "[MASK:30]", "correct": 100}, "at most 2,000"),
        ({"text": "the " * 20_000}, "characters"),
        ({"text": "the [MASK] zebra"}, "not in the vocabulary"),
        ({"model": "other"}, "start with --model"),
        ({"order": "alphabetic"}, "the order is alphabetic"),
        ({"order": ["random"]}, "the order is"),
        ({"count": "many"}, "the count is many"),
        ({"temperature": -1}, "at least 0"),
        ({"temperature": "hot"}, "must be a number"),
        ({"correct": 1.5}, "whole number"),
        ({"remask": "cap:0.5"}, "count must be"),
    ],
)
def test_what_cannot_be_filled_is_refused(filling, asked, why):
    with pytest.raises(GlauberError, match=why):
        filling.fill(**({"model": "tiny", "text": TEXT} | asked))


SENTENCE = "A small dog runs over the old bridge."


@pytest.mark.parametrize("decoder", ["refine-remask", "mask-predict"])
def test_the_passes_are_those_of_translate(translating, decoder):
    found = translating.translate(SENTENCE, steps=3, decoder=decoder)
    made = glauber.translate([SENTENCE], steps=3, decoder=decoder)
    one = made.translations[0]
    assert (found["text"], found["passes"], found["score"]) == (
        one.translation,
        one.passes,
        one.score,
    )
    assert found["signature"] == made.signature and found["source_text"] == SENTENCE
    film = found["film"]
    tokens, sure = states(film)[0]
    assert len(tokens) == one.passes + 1 and len({*tokens[0]}) == 1
    for row, expected, probs, known in zip(
        tokens[1:], one.tokens, sure[1:], one.log_probs, strict=True
    ):
        spelled = [film["words"][str(token)] for token in row]
        assert spelled == [word.replace("▁", " ") for word in expected]
        assert np.allclose(probs, known, atol=1e-6)


@pytest.fixture(scope="module")
def translating():
    return Filling(Models({}))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"text": " "}, "the text is empty"),
        ({"decoder": "ar"}, "word by word"),
        ({"decoder": "magic"}, "decoder is 'magic'"),
        ({"steps": 0}, "at least 1"),
        ({"steps": 1000, "lengths": 5}, "too many for a page"),
        ({"remask": "half"}, "must be a number"),
        ({"lengths": "5"}, "whole number"),
    ],
)
def test_what_cannot_be_translated_is_refused(translating, asked, why):
    with pytest.raises(GlauberError, match=why):
        translating.translate(**({"text": SENTENCE} | asked))
