"""Basins in words, on texts whose words are known."""

from collections import Counter

import numpy as np
import pytest

from crafted_run import crafted_run
from glauber.errors import GlauberError
from glauber.metastability.clusters import distinctive, readable
from glauber.metastability.looks import read_looks
from glauber.sampling.sample import sample


def test_central_texts_and_distinctive_words():
    first = ["the king and the queen", "the king rode", "the old king"]
    second = ["the ship at sea", "the sea was rough"]
    texts = (tuple(first), (*second, "the nothing"))
    vectors = np.array(
        [[[1, 0], [0.8, 0.6], [0.6, 0.8]], [[0, -1], [0.28, -0.96], [0, 1]]], np.float32
    )
    basins = np.array([[0, 0, 0], [1, 1, -1]])
    king, sea = readable(texts, vectors, basins)
    assert king.texts[0] == "the king rode" and set(king.texts) == set(first)
    assert king.words[0] == "king" and sea.words[0] == "sea"
    assert "nothing" not in king.words + sea.words and "the" not in (king.words[0], sea.words[0])
    assert (king.n_snapshots, king.n_chains, sea.n_snapshots) == (3, 1, 2)


def test_a_word_seen_often_beats_a_word_seen_once():
    own = Counter({"the": 50, "sea": 20, "once": 1})
    others = Counter({"the": 50, "sea": 1})
    words = distinctive(own, others)
    assert words[0] == "sea" and "the" not in words
    assert distinctive(Counter({"one": 3}), Counter()) == ("one",)


@pytest.fixture
def run(tmp_path):
    rng = np.random.default_rng(0)
    start = rng.integers(7, 40, size=(3, 4))
    return crafted_run(
        tmp_path / "run", start, rng.integers(4, size=(3, 50)), rng.integers(7, 40, size=(3, 50))
    )


def embed(texts):
    lengths = np.array([[len(text), 1 + text.count("a")] for text in texts], np.float32)
    return lengths / np.linalg.norm(lengths, axis=1, keepdims=True)


def test_looks_are_the_texts_of_the_run(run, monkeypatch):
    heard = []
    looks = read_looks(run, embed, every=7, listener=lambda *seen: heard.append(seen))
    assert looks.steps.tolist() == list(range(0, 51, 7)) and heard[-1] == (8, 8)
    for chain in range(3):
        expected = [run.text(chain, step) for step in looks.steps.tolist()]
        assert list(looks.texts[chain]) == expected
        np.testing.assert_array_equal(looks.vectors[chain], embed(expected))
    monkeypatch.setattr("glauber.metastability.looks.TEXTS", 1)
    assert np.array_equal(read_looks(run, embed, every=7).vectors, looks.vectors)
    assert read_looks(run, embed).every == 1


def test_runs_that_cannot_be_looked_at(run, tiny_folder, tmp_path):
    for every, why in ((0, "at least 1"), (51, "50 steps")):
        with pytest.raises(GlauberError, match=why):
            read_looks(run, embed, every=every)
    empty = sample(str(tiny_folder), ["the cat sat"], steps=0, out=tmp_path / "empty")
    with pytest.raises(GlauberError, match="no steps yet"):
        read_looks(empty, embed)
