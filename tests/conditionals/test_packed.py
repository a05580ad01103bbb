"""Packed rows against masks put in by hand, and their bits against neighbours and threads."""

import pytest
import torch

from conftest import make_model, make_tokenizer
from glauber.compatibility.score import pseudo_likelihood
from glauber.conditionals import batching
from glauber.conditionals.base import PAD
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import passages

TEXTS = ["the cats sat on the old mat .", "a cateding bird flewing under dogs", "is it red !"]


def questions(model, texts):
    """Every free site of every text, one row each."""
    tokens, free = model.vocabulary.encode(texts)
    rows, sites = free.nonzero(as_tuple=True)
    return tokens[rows], sites


@pytest.mark.parametrize("shape", ["bert", "roberta", "xlm-roberta", "electra"])
def test_packed_rows_are_answered_as_if_alone(shape, monkeypatch):
    monkeypatch.setattr(batching, "PACKED", 50)  # so that there are several calls
    model = MaskedLM(make_model(shape).double(), make_tokenizer())
    tokens, sites = questions(model, TEXTS)
    found = model.packed.log_probs(tokens, sites, temperature=0.7)
    for row, site, value in zip(tokens, sites, found, strict=True):
        masked = row[row != PAD].clone()
        masked[site] = model.hidden_token
        law = torch.log_softmax(model.model(masked[None]).logits[0, site] / 0.7, dim=0)
        assert float(value) == pytest.approx(float(law[row[site]]), abs=1e-9)


def test_the_token_that_is_asked_about_is_not_seen():
    model = MaskedLM(make_model("bert").double(), make_tokenizer())
    tokens = model.vocabulary.encode(TEXTS[:1])[0].repeat(model.vocab_size, 1)
    tokens[:, 3] = torch.arange(model.vocab_size)
    law = model.packed.log_probs(tokens, torch.full((model.vocab_size,), 3))
    assert float(law.exp().sum()) == pytest.approx(1, abs=1e-12)


def test_bits_are_the_rows_own():
    """The bundled model: alone, among others, in another order, on one thread and on two."""
    model = MaskedLM.load("bundled:english", device="cpu")
    texts = [" ".join(text.split()[: 4 + 3 * i]) for i, (_, text) in enumerate(passages()[:6])]
    tokens, sites = questions(model, texts)
    whole = model.packed.log_probs(tokens, sites)
    order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(0))
    mixed = torch.empty_like(whole)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(before, 2))
        mixed[order] = model.packed.log_probs(tokens[order], sites[order])
    finally:
        torch.set_num_threads(before)
    assert model.packed.usable()
    assert torch.equal(mixed, whole)
    for row in (0, 7, len(tokens) - 1):
        alone = model.packed.log_probs(tokens[row : row + 1], sites[row : row + 1])
        assert torch.equal(alone, whole[row : row + 1])


def test_a_machine_where_places_matter_does_not_pack(monkeypatch):
    model = MaskedLM(make_model("bert"), make_tokenizer())
    tokens, free = model.vocabulary.encode(TEXTS)
    good = pseudo_likelihood(model, tokens, free).totals
    read = model.packed.read
    model.packed = batching.PackedRows(
        model.encoder,
        lambda states: read(states) * (1 + torch.arange(len(states))[:, None, None]),
        model.hidden_token,
    )
    assert not model.packed.usable()
    assert torch.allclose(pseudo_likelihood(model, tokens, free).totals, good, atol=1e-4)


def test_long_rows_take_the_other_way(monkeypatch):
    model = MaskedLM(make_model("bert").double(), make_tokenizer())
    tokens, free = model.vocabulary.encode(TEXTS)
    words = model.vocabulary.words(TEXTS)
    packed_all = pseudo_likelihood(model, tokens, free, words=words).log_probs
    monkeypatch.setattr("glauber.compatibility.score.LONGEST", 8)
    mixed = pseudo_likelihood(model, tokens, free, words=words).log_probs
    assert torch.allclose(mixed, packed_all, atol=1e-9, equal_nan=True)
