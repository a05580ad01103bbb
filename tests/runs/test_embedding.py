"""The embedding in the wheel, and what is said when there is none."""

import hashlib
import sys

import numpy as np
import pytest

from glauber.foundation.errors import GlauberError
from glauber.runs import embedding as embedder
from glauber.runs.embedding import BATCH, load_embedder

CHECKSUM = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


class Counting:
    """Stands in for a sentence-transformers model: lengths as vectors."""

    tokenizer = None
    max_seq_length = None

    def __init__(self):
        self.calls = []

    def encode(self, texts, **how):
        self.calls.append(texts)
        return np.array([[len(text), 3.0 if how.get("task") == "other" else 1.0] for text in texts])


@pytest.fixture
def counting(monkeypatch):
    model = Counting()
    monkeypatch.setattr(embedder, "_load", lambda *_: model)
    return model


def test_each_text_once_in_calls_of_one_size(counting):
    texts = ["a", "bb", "a", *(f"{i:04}" for i in range(20)), "bb"]
    found = load_embedder("any").embed(texts)
    assert found.shape == (24, 2) and found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1)
    assert np.allclose(found[:, 0] / found[:, 1], [len(text) for text in texts])
    assert [len(call) for call in counting.calls] == [BATCH] * 4
    assert all(len({len(text) for text in call}) == 1 for call in counting.calls)


def test_what_the_model_asks_for_is_handed_on(counting):
    found = load_embedder("any", task="other").embed(["aaa"])
    assert found[0, 0] == pytest.approx(found[0, 1])


def test_no_texts_and_no_direction(counting):
    with pytest.raises(GlauberError, match="no texts"):
        load_embedder("any").embed([])
    counting.encode = lambda texts, **_: np.zeros((len(texts), 2))
    with pytest.raises(GlauberError, match="direction"):
        load_embedder("any").embed(["a"])


def test_a_missing_extra_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(GlauberError, match=r"pip install 'glauber\[embeddings\]'"):
        load_embedder()
    monkeypatch.setattr(embedder, "WHEEL", "no_such_wheel")
    with pytest.raises(GlauberError, match=r"pip install 'glauber\[embeddings\]'"):
        load_embedder()


@pytest.mark.parametrize("name", ["nobody/nothing", "/nowhere/at/all"])
def test_a_model_that_is_nowhere(name):
    with pytest.raises(GlauberError, match="neither as a folder nor on the hub"):
        load_embedder(name, "cpu")


def test_a_folder_without_a_model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(GlauberError, match="cannot be loaded") as caught:
        load_embedder(str(tmp_path), "cpu")
    assert "\n" not in str(caught.value)


def test_a_name_that_no_folder_can_have_is_one_sentence():
    with pytest.raises(GlauberError, match="neither as a folder nor on the hub"):
        load_embedder("a" * 5000, "cpu")


@pytest.mark.weights
def test_the_weights_are_those_that_were_pinned():
    weights = (embedder._wheel_folder() / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == CHECKSUM


@pytest.mark.weights
def test_meaning_orders_the_distances():
    texts = [
        "A cat is sleeping on the sofa.",
        "The kitten naps on the couch.",
        "The dog runs across the park.",
        "The central bank raised its interest rates.",
    ]
    loaded = load_embedder(str(embedder._wheel_folder()), device="cpu")
    vectors = loaded.embed(texts)
    near, middle, far = vectors[1:] @ vectors[0]
    assert vectors.shape == (4, 384) and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert near > middle > far and near > 0.5 and far < 0.2
    alone = np.concatenate([loaded.embed([text]) for text in texts])
    assert np.abs(alone - vectors).max() < 1e-6  # neighbours do not matter


@pytest.mark.weights
def test_the_default_model_is_read_once_and_reads_a_text_once(monkeypatch):
    embedder._of_the_wheel.cache_clear()
    load_embedder().embed(["a cat", "a dog"])
    read, embed = [], embedder._embed
    monkeypatch.setattr(embedder, "_embed", lambda *all: read.append(all[1]) or embed(*all))
    monkeypatch.setattr(embedder, "_load", None)
    texts = ["a dog", "a bird", "a cat", "a dog"]
    found = load_embedder().embed(texts)
    assert read == [["a bird"]]
    monkeypatch.undo()
    plain = load_embedder(str(embedder._wheel_folder())).embed(texts)
    assert np.abs(found - plain).max() < 1e-6
    with pytest.raises(GlauberError, match="no texts"):
        load_embedder().embed([])
