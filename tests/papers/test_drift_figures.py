"""Figures 2, 3a and 3b of paper A on a tiny model, with an embedding that counts words."""

from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer

from conftest import TEXTS, VOCABULARY
from glauber import paper, sample
from glauber.conditionals.starts import passages
from glauber.conditionals.weights import bundled_folder
from glauber.papers import a_fig2, drift_runs
from glauber.runs.embedding import Embedder


def embed(texts):
    counts = [[text.split().count(word) for word in VOCABULARY] + [0.1] for text in texts]
    stacked = np.array(counts, np.float32)
    return stacked / np.linalg.norm(stacked, axis=1, keepdims=True)


@pytest.fixture
def tiny_scale(monkeypatch, tiny_folder):
    small = replace(
        drift_runs.CONDITIONS["small"], model=str(tiny_folder), lengths=(3, 6), trials=8, look=6,
        steps=150,
    )  # fmt: skip
    monkeypatch.setitem(drift_runs.CONDITIONS, "small", small)
    monkeypatch.setattr(drift_runs, "passages", lambda: [("", TEXTS[0]), ("", TEXTS[1])])
    monkeypatch.setattr(drift_runs, "load_embedder", lambda *_: Embedder("words", embed))


def test_figure_3a(tiny_scale, tmp_path):
    made = paper("A-fig3a", seed=3)
    assert [row["n"] for row in made.rows] == [3, 6]
    for row in made.rows:
        low, high = row["interval"]
        assert low <= row["mean distance"] <= high and row["quartiles"] == sorted(row["quartiles"])
        assert (row["step"], row["trials"], row["embedder"]) == (6, 8, "words")
    assert [file.name for file in made.write(tmp_path)] == [
        "A-fig3a.json",
        "A-fig3a-distance.html",
    ]
    again = paper("A-fig3a", seed=3)
    assert again.rows == made.rows


def test_figure_2(tiny_scale, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(a_fig2.SIZES, "small", (6, 60, 10))
    monkeypatch.setattr(a_fig2, "LENGTH", 4)
    made = paper("A-fig2", seed=1)
    assert [row["temperature"] for row in made.rows] == list(a_fig2.TEMPERATURES)
    last = sample(str(tiny_folder), steps=60, chains=6, length=4, temperature=2.0, seed=1)
    start, end = (embed([last.text(c, step) for c in range(6)]) for step in (0, 60))
    by_hand = 1 - (start * end).sum(axis=1)
    assert made.rows[-1]["distance at the end"] == pytest.approx(by_hand.mean(), abs=1e-6)
    assert len(made.write(tmp_path)) == 2


def test_figure_3b(tiny_scale, tmp_path):
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
    assert len(made.write(tmp_path)) == 2


def test_every_length_starts_from_the_same_passages():
    """No bundled passage is left out for being too short."""
    words = Tokenizer.from_file(str(bundled_folder("bundled:english") / "tokenizer.json"))
    fewest = min(len(words.encode(text, add_special_tokens=False)) for _, text in passages())
    assert all(max(each.lengths) <= fewest for each in drift_runs.CONDITIONS.values())
