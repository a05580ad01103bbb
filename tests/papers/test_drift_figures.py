"""Figures 2, 3a and 3b of paper A on a tiny model, with an embedding that counts words."""

from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer

from conftest import TEXTS, VOCABULARY
from glauber import paper, sample
from glauber.conditionals.starts import passages
from glauber.conditionals.weights import bundled_folder
from glauber.papers import mixing as pieces
from glauber.runs.embedding import Embedder


def embed(texts):
    counts = [[text.split().count(word) for word in VOCABULARY] + [0.1] for text in texts]
    stacked = np.array(counts, np.float32)
    return stacked / np.linalg.norm(stacked, axis=1, keepdims=True)


@pytest.fixture
def tiny_scale(monkeypatch, tiny_folder):
    small = replace(
        pieces.CONDITIONS["small"], model=str(tiny_folder), lengths=(3, 6), trials=8, step=6,
        steps=150,
    )  # fmt: skip
    monkeypatch.setitem(pieces.CONDITIONS, "small", small)
    monkeypatch.setattr(pieces, "passages", lambda: [("", TEXTS[0]), ("", TEXTS[1])])
    monkeypatch.setattr(pieces, "load_embedder", lambda *_: Embedder("words", embed))


def test_figure_3a(tiny_scale, tmp_path):
    made = paper("A-fig3a", seeds=3)
    assert [row["n"] for row in made.rows] == [3, 6]
    for row in made.rows:
        low, high = row["interval"]
        assert low <= row["mean distance"] <= high and row["quartiles"] == sorted(row["quartiles"])
        assert (row["step"], row["trials"], row["embedder"]) == (6, 8, "words")
    assert (made.write(tmp_path / "out") / "distance.html").exists()
    again = paper("A-fig3a", seeds=3)
    assert again.rows == made.rows


def test_figure_2(tiny_scale, tiny_folder, monkeypatch):
    monkeypatch.setitem(pieces.SLOW_SIZES, "small", (6, 60, 10))
    monkeypatch.setattr(pieces, "SLOW_LENGTH", 4)
    made = paper("A-fig2", seeds=1)
    assert [row["temperature"] for row in made.rows] == list(pieces.SLOW_TEMPERATURES)
    last = sample(
        str(tiny_folder), TEXTS[:2], steps=60, chains=6, length=4, temperature=2.0, seed=1
    )
    start, end = (embed([last.text(c, step) for c in range(6)]) for step in (0, 60))
    by_hand = 1 - (start * end).sum(axis=1)
    assert made.rows[-1]["distance at the end"] == pytest.approx(by_hand.mean(), abs=1e-6)
    assert list(made.figures()) == ["distance"]


def test_figure_3b(tiny_scale):
    made = paper("A-fig3b")
    times = [row for row in made.rows if "n" in row]
    laws = [row for row in made.rows if "law" in row]
    assert [row["n"] for row in times] == [3, 6]
    assert all(row["hit"] + row["censored"] == len(row["times"]) == 8 for row in times)
    assert [row["law"] for row in laws] == ["n", "n log n", "n^2"] * 2
    for family in ("gamma", "log-normal"):
        rows = [row for row in laws if row["times vary by"] == family]
        assert sum(row["weight"] for row in rows) == pytest.approx(1)
        assert sum(row["best of the three"] for row in rows) == 1
    assert list(made.figures()) == ["times"]


def test_the_coupling_figure_and_the_influence(tiny_folder, texts, monkeypatch):
    few = {"model": str(tiny_folder), "texts": texts, "pairs": 2, "steps": 5, "lengths": [2, 4],
           "temperatures": [0.5, 5.0]}  # fmt: skip
    monkeypatch.setitem(pieces.PHASES, "small", few)
    made = paper("A-fig-coupling")
    assert [row["tokens"] for row in made.rows] == [2, 4] and list(made.figures()) == ["phase"]
    assert "/2 at 0.5" in made.rows[0]["met"]
    monkeypatch.setattr(pieces, "SENTENCE", texts[0])
    monkeypatch.setattr(pieces, "SMALL_MODEL", str(tiny_folder))
    (row,) = paper("A-influence").rows
    assert row["alpha"] > 0 and row["alpha is"] == "lower bound"


def test_every_length_starts_from_the_same_passages():
    """No bundled passage is left out for being too short."""
    words = Tokenizer.from_file(str(bundled_folder("bundled:english") / "tokenizer.json"))
    fewest = min(len(words.encode(text, add_special_tokens=False)) for _, text in passages())
    assert all(max(each.lengths) <= fewest for each in pieces.CONDITIONS.values())
