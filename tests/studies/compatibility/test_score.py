"""Pseudo-log-likelihood against closed forms, and against the model with masks put in by hand."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
import transformers

from conftest import make_model, make_tokenizer
from glauber.exact import Space
from glauber.foundation.errors import GlauberError
from glauber.models import batching
from glauber.models.base import PAD
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table
from glauber.studies.compatibility import pseudo_likelihood as hidden
from glauber.studies.compatibility import score as module
from glauber.studies.compatibility.likelihood_bound import likelihood_bound
from glauber.studies.compatibility.pseudo_likelihood import pseudo_likelihood
from glauber.studies.compatibility.score import score

TEXTS = ["the cats sat on the old mat .", "a cateding bird flewing under dogs", "is it red !"]


@pytest.fixture(scope="module")
def model():
    return MaskedLM(make_model("bert").double(), make_tokenizer(), name="tiny")


def by_hand(model, text, *, within_word):
    """log p of each token of a text, one masked copy of it at a time."""
    tokens = model.vocabulary.tokenizer(text)["input_ids"]
    names = model.vocabulary.tokenizer.convert_ids_to_tokens(tokens)
    found = []
    for site in range(1, len(tokens) - 1):
        masked = list(tokens)
        masked[site] = model.hidden_token
        for later in range(site + 1, len(tokens) - 1):
            if not (within_word and names[later].startswith("##")):
                break
            masked[later] = model.hidden_token
        logits = model.model(torch.tensor([masked])).logits[0, site]
        found.append(float(torch.log_softmax(logits, dim=0)[tokens[site]]))
    return found


def test_both_variants_are_those_made_by_hand(model):
    for one in score(model, TEXTS).scores:
        plain = by_hand(model, one.text, within_word=False)
        word = by_hand(model, one.text, within_word=True)
        assert one.log_probs == pytest.approx(plain, abs=1e-9)
        assert one.log_probs_within_word == pytest.approx(word, abs=1e-9)
        assert one.original == pytest.approx(sum(plain), abs=1e-8)
        assert one.within_word == pytest.approx(sum(word), abs=1e-8)
    pieces = score(model, TEXTS).scores[1].pieces
    assert pieces == ["a", "cat", "##ed", "##ing", "bird", "flew", "##ing", "under", "dog", "##s"]


def test_the_variants_differ_only_inside_words(model):
    one = score(model, TEXTS).scores[0]
    differ = [a != b for a, b in zip(one.log_probs, one.log_probs_within_word, strict=True)]
    assert differ == [piece == "cat" for piece in one.pieces]


def test_a_joint_distribution_has_its_closed_form():
    """log pi_i(x_i | rest) = log p(x) - log sum over v of p(x with v at i)."""
    joint = Joint.random(3, 3, seed=1)
    law = joint.probabilities().view(3, 3, 3)
    expected = sum(law.log() - law.sum(dim=site, keepdim=True).log() for site in range(3))
    found = pseudo_likelihood(joint, Space(3, 3).states())
    assert torch.allclose(found.nansum(dim=1), expected.flatten(), atol=1e-12)


def test_words_hide_later_pieces_together():
    """One word of two sites: the first is answered with both hidden, the second with the first."""
    table = Table.random(2, 2, seed=5)
    found = pseudo_likelihood(table, torch.tensor([[1, 0]]), words=torch.tensor([[0, 0]]))
    first = torch.log_softmax(table.entries[0, 2, 2], dim=0)[1]
    second = torch.log_softmax(table.entries[1, 1, 2], dim=0)[0]
    assert torch.allclose(found[0], torch.stack([first, second]), atol=1e-14)


def test_only_free_sites_are_scored():
    table = Table.random(3, 3, seed=5)
    tokens, free = torch.tensor([[0, 1, 2]]), torch.tensor([[True, False, True]])
    whole = pseudo_likelihood(table, tokens)
    found = pseudo_likelihood(table, tokens, free)
    assert found.isnan().tolist() == [[False, True, False]]
    assert found.nansum() == pytest.approx(float(whole[0, 0] + whole[0, 2]))


def test_no_call_holds_more_scores_than_allowed(monkeypatch, model):
    plain = score(model, TEXTS).scores
    monkeypatch.setattr(batching, "HELD", 8 * 4 * model.vocab_size)
    held = []

    class Counted:
        vocab_size = model.vocab_size

        def scores(self, tokens, sites, candidates=None):
            held.append(sites.numel() * self.vocab_size)
            return model.scores(tokens, sites, candidates)

    tokens, free = model.vocabulary.encode(TEXTS)
    words = model.vocabulary.words(TEXTS)
    assert (words == PAD).equal(~free)
    found = pseudo_likelihood(Counted(), tokens, free, words=words)
    assert max(held) <= 4 * model.vocab_size and len(held) > 5
    assert found.nansum(dim=1).tolist() == pytest.approx(
        [one.within_word for one in plain], abs=1e-12
    )


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ([], "no text was given"),
        (["cat"], "text 1 has a single token"),
        (["the " * 40], "text 1 has 42 tokens"),
        (None, "no text to score"),
        ("", "text 1 is empty"),
    ],
)
def test_bad_texts_are_refused_in_one_sentence(model, texts, why):
    with pytest.raises(GlauberError, match=why):
        score(model, texts)


def test_the_answer_says_everything(tiny_folder, tmp_path):
    source = tmp_path / "texts.txt"
    source.write_text("the cat sat\na big dog ran .\n\nthe cats sat\n")
    found = score(str(tiny_folder), source, device="cpu")
    answer = found.to_dict()
    assert [one["text"] for one in answer["scores"]] == [
        "the cat sat",
        "a big dog ran .",
        "the cats sat",
    ]
    assert answer["unit"] == "nats" and answer["kind"] == "exact up to rounding in float32"
    for one in answer["scores"]:
        assert one["original"] == pytest.approx(sum(one["log_probs"]))
        assert one["within_word"] == pytest.approx(sum(one["log_probs_within_word"]))
        assert (one["original"] == one["within_word"]) == ("cats" not in one["text"])
    assert f"{answer['scores'][2]['within_word']:.3f}" in str(found)


RESIDUES = "LAGVSERTIDPKQNFYMHWCXBUZO.-"


@pytest.fixture(scope="module")
def protein(tmp_path_factory):
    """A tiny ESM with its own tokenizer, which is a Python one and knows no words."""
    place = tmp_path_factory.mktemp("esm") / "vocab.txt"
    place.write_text(
        "\n".join(["<cls>", "<pad>", "<eos>", "<unk>", *RESIDUES, "<null_1>", "<mask>"])
    )
    tokenizer = transformers.EsmTokenizer(str(place))
    config = transformers.EsmConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=40,
        max_position_embeddings=66,
        pad_token_id=1,
        mask_token_id=tokenizer.mask_token_id,
        position_embedding_type="rotary",
    )
    torch.manual_seed(0)
    return MaskedLM(transformers.EsmForMaskedLM(config).eval(), tokenizer, name="tiny-esm")


def test_proteins_are_scored_letter_by_letter(protein):
    assert not protein.vocabulary.tokenizer.is_fast
    found = score(protein, ["EVQLVESGGG", "QVQLQ"])
    for one in found.scores:
        assert one.log_probs == pytest.approx(by_hand(protein, one.text, within_word=False), 1e-5)
        assert one.within_word == one.original and one.pieces == list(one.text)


def test_a_protein_has_a_bound_too(protein):
    """By hidden sets and along whole orders: two estimates of one number."""
    found = likelihood_bound(protein, ["EVQLVESGGGLVQPGGSLRLSCAAS"], samples=40, orders=3)
    (one,) = found.texts
    assert one.tokens == 25 and not one.exact and len(one.log_probs) == 3
    error = np.hypot(one.bound.standard_error, one.log_likelihood.standard_error)
    assert abs(one.bound.value + one.log_likelihood.value) < 6 * error  # the latter from 3 orders


def test_a_tokenizer_without_words_gets_the_original_variant(monkeypatch, model):
    def words(self, texts):
        raise GlauberError("this tokenizer does not say which tokens make up one word.")

    both = score(model, TEXTS)
    monkeypatch.setattr(type(model.vocabulary), "words", words)
    found = score(model, TEXTS)
    assert [one.log_probs for one in found.scores] == [one.log_probs for one in both.scores]
    assert all(one.within_word is None for one in found.scores)
    assert "the within-word variant is left out" in str(found)
    assert found.to_dict()["scores"][0]["log_probs_within_word"] is None
    assert score(model, TEXTS, variant="original").note == ""
    with pytest.raises(GlauberError, match="which tokens make up one word"):
        score(model, TEXTS, variant="within-word")


def test_a_variant_can_be_left_out(model):
    both = score(model, TEXTS)
    alone = score(model, TEXTS, variant="original")
    within = score(model, TEXTS, variant="within-word")
    assert [one.original for one in alone.scores] == [one.original for one in both.scores]
    assert [one.within_word for one in within.scores] == [one.within_word for one in both.scores]
    assert all(one.within_word is None for one in alone.scores)
    assert all(one.original is None for one in within.scores)


def test_progress_counts_every_row(monkeypatch, protein, model):
    """Cost is said before the work begins, and the work is counted in small parts."""
    for one, texts in ((protein, ["EVQLVESGGG" * 4] * 6), (model, TEXTS)):
        said, counts = [], []

        @contextmanager
        def track(what, total, counts=counts):
            counts.append(total)
            yield lambda more=1, **_: counts.append(more)

        monkeypatch.setattr(module, "say", said.append)
        monkeypatch.setattr(module, "track", track)
        monkeypatch.setattr(hidden, "PACKED_WORK", 0)  # as if the models were large
        score(one, texts)
        total, *parts = counts
        assert sum(parts) == total and f"{total:,} rows" in said[0]
        if one is protein:
            assert total == 240 and len(parts) >= 4
