"""The error of a precision, compared with known mixtures and with transformers."""

import json

import numpy as np
import pytest
import torch
import transformers

from conftest import int8_works
from glauber.foundation.errors import GlauberError
from glauber.interfaces.doctor import models as listing
from glauber.interfaces.doctor.models import models, precisions, some_contexts
from glauber.models.forward.encoder_int8 import NOT_AVAILABLE
from glauber.models.load import load
from glauber.texts.starts import starts


class Mixed:
    """A model whose conditionals are those of another, mixed with the uniform law."""

    def __init__(self, model, share):
        self.model, self.share = model, share
        self.device = self.state_device = torch.device("cpu")
        self.vocab_size, self.vocabulary = model.vocab_size, model.vocabulary
        self.name, self.longest, self.length, self.texts = model.name, model.longest, None, ()

    def conditionals(self):
        return self

    def scores(self, tokens, sites, candidates=None):
        found = self.model.conditionals().scores(tokens, sites).softmax(dim=-1)
        allowed = self.vocabulary.proposable().double()
        return ((1 - self.share) * found + self.share * allowed / allowed.sum()).log()


SHARES = {"float64": 0.0, "int8": 0.2, "bfloat16": 0.05, "float32": 0.0}


@pytest.fixture(scope="module")
def exact(tiny_folder):
    return load(str(tiny_folder), device="cpu", dtype="float64")


def by_transformers(folder, asked, hidden_token, allowed):
    """The conditionals (contexts, allowed) of the full model in float64, row by row."""
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).double().eval()
    found = []
    for row, site in zip(asked.tokens, asked.sites[:, 0], strict=True):
        row = row[row >= 0].clone()
        row[site] = hidden_token
        with torch.no_grad():
            scores = model(input_ids=row[None]).logits[0, site]
        found.append(scores[allowed].softmax(dim=0))
    return torch.stack(found).numpy()


def test_mixtures_are_as_far_as_they_must_be(exact, tiny_folder, texts):
    """TV(p, (1 - a) p + a u) = a TV(p, u), for every context."""
    found = precisions(lambda d: Mixed(exact, SHARES[d]), texts, contexts=30, seed=3)
    asked = some_contexts(exact, texts, contexts=30, seed=3)
    allowed = exact.vocabulary.proposable().nonzero()[:, 0]
    p = by_transformers(tiny_folder, asked, exact.hidden_token, allowed)
    uniform = np.full(len(allowed), 1 / len(allowed))
    stood = np.array([(allowed == token).nonzero().item() for token in asked.hidden_tokens[:, 0]])
    there = p[np.arange(30), stood]
    assert found.n_contexts == 30 and found.n_texts == len(texts)
    for row in found.rows:
        a, (distance, same, nll) = SHARES[row.precision], row.values
        np.testing.assert_allclose(
            distance, a * np.abs(p - uniform).sum(1) / 2, rtol=1e-8, atol=1e-12
        )
        more = np.log(there) - np.log((1 - a) * there + a / len(allowed))
        np.testing.assert_allclose(nll, more, rtol=1e-7, atol=1e-12)
        assert (same == 1).all()  # mixing with the uniform distribution keeps the order
        mean = row.means["total_variation"]
        assert mean.value == pytest.approx(distance.mean()) and mean.n_chains == 5


def test_texts_take_turns_and_no_site_comes_twice(exact, texts):
    asked = some_contexts(exact, texts, contexts=17)
    counts = asked.text.bincount(minlength=len(texts))
    assert counts.sum() == 17 and counts.max() - counts.min() == 1
    pairs = list(zip(asked.text.tolist(), asked.sites[:, 0].tolist(), strict=True))
    assert len(set(pairs)) == 17
    assert exact.vocabulary.proposable()[asked.hidden_tokens].all()
    everything = some_contexts(exact, texts, contexts=10**6)
    assert len(everything.sites) == int(starts(exact, texts)[1].sum())


def test_a_real_model_and_its_result(tiny_folder, texts, source, glauber):
    found = models(str(tiny_folder), error=True, texts=texts, contexts=20, device="cpu")
    errors = {r.precision: r.values[0].mean() for r in found.error.rows if not r.reason}
    assert 0 < errors["float32"] < 1e-5 < errors["bfloat16"] < 0.1
    if int8_works():
        assert 1e-4 < errors["int8"] < 0.1
    else:
        assert found.error.rows[0].reason == NOT_AVAILABLE
    assert "estimates" in str(found) and "20 contexts of 5 texts" in str(found)
    assert len(found.frame()) == 20 * len(errors) and list(found.figures()) == [
        "error",
        "parameters",
    ]
    code, said, _ = glauber(
        "models", tiny_folder, "--error", "--from", source, "--contexts", 20, "--json",
        "--device", "cpu",
    )  # fmt: skip
    answer = json.loads(said)
    assert code == 0 and answer.pop("call")["study"] == "models"
    assert answer == found.to_dict()


def test_a_precision_that_is_not_there_says_why(tiny_folder, texts, monkeypatch):
    def some(name, *, dtype="float32", **how):
        if dtype == "int8":
            raise GlauberError(NOT_AVAILABLE)
        return load(name, dtype=dtype, **how)

    monkeypatch.setattr(listing, "load", some)
    found = models(str(tiny_folder), error=True, texts=texts, contexts=8, device="cpu")
    assert "no exact 8-bit products" in str(found)
    assert set(found.frame()["precision"]) == {"bfloat16", "float32"}
    first = found.to_dict()["error"]["precisions"][0]
    assert first["precision"] == "int8" and first["reason"] == NOT_AVAILABLE


def test_what_cannot_be_measured_is_refused_before_a_model_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "load", None)
    transformers.GPT2Config(architectures=["GPT2LMHeadModel"]).save_pretrained(tmp_path)
    for given, why in (
        (dict(error=True), "give its name"),
        (dict(name="bundled:english", texts=["a b"]), "ask for it with error"),
        (dict(name="bundled:english", error=True, contexts=0), "must be at least 1"),
        (dict(name=str(tmp_path), error=True), "is autoregressive"),
    ):
        with pytest.raises(GlauberError, match=why):
            models(**given)
