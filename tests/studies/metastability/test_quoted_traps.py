"""The traps that the paper quotes: what is published of them, and their gaps by transformers."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import glauber
from conftest import TEXTS
from glauber.foundation.errors import GlauberError
from glauber.studies.metastability import quoted_traps as module
from glauber.studies.metastability.quoted_traps import FACTS, QUOTED, Quotation
from glauber.studies.metastability.traps import PUBLISHED


def test_what_is_published_agrees_with_itself():
    table = [quote for quote in QUOTED if quote.source.startswith("table 5")]
    assert len(table) == 8 and len(QUOTED) == 14
    for quote in table:
        # The min gaps of the approximate traps are lost; those of the perfect ones are positive.
        assert (quote.min_gap is None) == (quote.type == "approximate")
        assert quote.min_gap is None or 0 < quote.min_gap < quote.mean_gap
        assert PUBLISHED["shortest"] <= quote.duration <= PUBLISHED["longest"]
    assert sum(quote.type == "perfect" for quote in table) == PUBLISHED["perfect"]
    assert QUOTED[0].text.split() == ["."] * 15 and QUOTED[0].duration == PUBLISHED["longest"]


def test_a_fact_and_its_partner_have_as_many_words():
    assert all(len(fact.split()) == len(other.split()) for fact, other in FACTS)
    texts = [text for pair in FACTS for text in pair]
    assert len(set(texts)) == len(texts) and all(text.endswith(".") for text in texts)


@pytest.fixture
def small(monkeypatch):
    quotes = (
        Quotation("a mat", "the cat sat on the mat .", "nowhere", "perfect", 150, 2.0, 1.0),
        Quotation("a word", "the zebra sat .", "nowhere"),
    )
    monkeypatch.setattr(module, "QUOTED", quotes)
    pairs = ((TEXTS[0], TEXTS[1]), (TEXTS[1], "a zebra ."), (TEXTS[2], TEXTS[0]))
    monkeypatch.setattr(module, "FACTS", (*pairs, (TEXTS[1], TEXTS[2])))


def test_gaps_are_those_of_margins_and_unread_texts_are_left_out(small, tiny_folder):
    found = glauber.quoted_traps(str(tiny_folder), temperature=0.3, neighbours=2, device="cpu")
    assert {text.text for text in found.skipped} == {"the zebra sat .", "a zebra ."}
    (trap,) = found.traps
    alone = glauber.margins(
        str(tiny_folder), trap.ours.text, temperature=0.3, neighbours=2, device="cpu"
    )
    np.testing.assert_array_equal(trap.ours.margins.gaps, alone.margins.gaps)
    assert trap.ours.tokens == alone.tokens
    assert trap.ours.neighbourhood == alone.neighbourhood
    below = np.asarray(alone.tokens)[alone.margins.gaps <= 0].tolist()
    assert trap.ours.not_likeliest == below
    assert trap.ours.gap_of("cat") == alone.margins.gaps[1] and trap.ours.gap_of("zebra") is None
    by_hand = [
        glauber.margins(str(tiny_folder), text, device="cpu").margins.mean_gap for text in TEXTS[:3]
    ]
    first, second, third = by_hand
    differences = [first - second, third - first, second - third]
    assert found.fact_gap.value == pytest.approx(np.mean(differences), abs=1e-9)
    assert len(found.facts) == 3 and len(found.frame()) == 1 + 6
    answer = found.to_dict()
    assert answer["traps"][0]["published"]["duration"] == 150
    assert answer["traps"][0]["ours"]["gaps"] == pytest.approx(alone.margins.gaps.tolist())


def test_a_model_that_reads_none_of_them_is_refused(small, tiny_folder, monkeypatch):
    monkeypatch.setattr(module, "QUOTED", (Quotation("a word", "zebra", "nowhere"),))
    monkeypatch.setattr(module, "FACTS", ())
    with pytest.raises(GlauberError, match="reads none of the texts: the first has 'z'"):
        glauber.quoted_traps(str(tiny_folder))


@pytest.mark.weights
def test_the_theme_song_by_transformers(monkeypatch):
    """One mask at a time, in float64, without the tokens that a chain never draws."""
    monkeypatch.setattr(module, "QUOTED", QUOTED[1:2])
    monkeypatch.setattr(module, "FACTS", ())
    found = glauber.quoted_traps()
    folder = Path(glauber.__file__).parent / "models" / "english"
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).double().eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(QUOTED[1].text, return_tensors="pt")["input_ids"][0]
    allowed = glauber.load("bundled:english").vocabulary.proposable()
    gaps, likelihood = [], []
    for site in range(1, len(tokens) - 1):
        hidden = tokens.clone()
        hidden[site] = tokenizer.mask_token_id
        with torch.no_grad():
            scores = model(hidden[None]).logits[0, site]
        scores = scores.masked_fill(~allowed, -torch.inf)
        likelihood.append(float(torch.log_softmax(scores, 0)[tokens[site]]))
        own = float(scores[tokens[site]])
        scores[tokens[site]] = -torch.inf
        gaps.append(own - float(scores.max()))
    held = found.trap("theme song")
    assert held.gaps == pytest.approx(gaps, abs=1e-9)
    assert held.mean_gap == pytest.approx(np.mean(gaps), abs=1e-9)
    assert held.coherence == pytest.approx(np.mean(likelihood), abs=1e-9)
