"""Packed rows against masks put in by hand, and their bits against neighbours and threads."""

import pytest
import torch

from conftest import make_model, make_tokenizer
from glauber.models.base import PAD
from glauber.models.forward import packed
from glauber.models.masked_lm import MaskedLM
from glauber.studies.compatibility.pseudo_likelihood import pseudo_likelihood
from glauber.texts.starts import passages
from models.test_families import FAMILIES, make, some_rows

TEXTS = ["the cats sat on the old mat .", "a cateding bird flewing under dogs", "is it red !"]


def questions(model, texts):
    """Every free site of every text, one row each."""
    tokens, free = model.vocabulary.encode(texts)
    rows, sites = free.nonzero(as_tuple=True)
    return tokens[rows], sites


@pytest.mark.parametrize("short", [128, 8])  # 8: most rows are long ones
@pytest.mark.parametrize("name", FAMILIES)
def test_packed_rows_are_answered_as_if_alone(name, short, monkeypatch):
    monkeypatch.setattr(packed, "PACKED", 50)  # so that there are several calls
    monkeypatch.setattr(packed, "SHORT", short)
    model = MaskedLM(make(name, torch.float64), make_tokenizer())
    tokens, _ = some_rows([12, 5, 27, 12, 36, 8], 1)
    row, site = (tokens != PAD).nonzero(as_tuple=True)
    found = model.packed.log_probs(tokens[row], site, temperature=0.7)
    alone = model.scores(tokens[row], site[:, None])[:, 0] / 0.7
    wanted = alone.log_softmax(dim=1).gather(1, tokens[row, site][:, None])[:, 0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_bits_do_not_depend_on_the_place_in_a_call(name):
    """Mixed lengths in float32: backwards, and the last ones without the others."""
    model = MaskedLM(make(name), make_tokenizer())
    tokens, sites = some_rows([12, 5, 27, 12, 36, 8, 12, 30, 27] * 3, 1)
    here = model.packed.log_probs(tokens, sites[:, 0])
    there = model.packed.log_probs(tokens.flip(0), sites[:, 0].flip(0)).flip(0)
    few = model.packed.log_probs(tokens[-4:], sites[-4:, 0])
    assert model.packed.usable()
    assert torch.equal(here, there)
    assert torch.equal(here[-4:], few)


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
    good = pseudo_likelihood(model, tokens, free).nansum(dim=1)
    read = model.packed.read
    model.packed = packed.PackedRows(
        model.encoder,
        lambda states: read(states) * (1 + torch.arange(len(states))[:, None, None]),
        model.hidden_token,
    )
    assert not model.packed.usable()
    assert torch.allclose(pseudo_likelihood(model, tokens, free).nansum(dim=1), good, atol=1e-4)


def test_long_rows_take_the_other_way(monkeypatch):
    model = MaskedLM(make_model("bert").double(), make_tokenizer())
    tokens, free = model.vocabulary.encode(TEXTS)
    words = model.vocabulary.words(TEXTS)
    packed_all = pseudo_likelihood(model, tokens, free, words=words)
    monkeypatch.setattr("glauber.studies.compatibility.pseudo_likelihood.LONGEST", 8)
    mixed = pseudo_likelihood(model, tokens, free, words=words)
    assert torch.allclose(mixed, packed_all, atol=1e-9, equal_nan=True)
