"""Figures 1 and 4 of paper A on a tiny model, with an embedding that counts words."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import TEXTS, VOCABULARY
from glauber import paper
from glauber.papers import topics as pieces
from glauber.runs.embedding import Embedder


def embed(texts):
    counts = [[text.split().count(word) for word in VOCABULARY] + [0.1] for text in texts]
    stacked = np.array(counts, np.float32)
    return stacked / np.linalg.norm(stacked, axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def tiny_scale(monkeypatch, tiny_folder):
    small = replace(pieces.PATHS["small"], model=str(tiny_folder), length=4, steps=60, every=4)
    monkeypatch.setitem(pieces.PATHS, "small", small)
    monkeypatch.setattr(pieces, "_embedder", lambda *_: Embedder("words", embed))


def test_figure_1_is_one_chain(tmp_path):
    made = paper("A-fig1", TEXTS[:3], seeds=2)
    (row,) = made.rows
    assert row["snapshots"] == 16 and 1 <= row["different texts"] <= 16
    assert row["longest repeat in steps"] % 4 == 0 and 0 < row["shown spread"] <= 1
    assert list(made.figures()) == ["trajectory"]
    (claim,) = made.claims
    longest = row["longest repeat in steps"] // 4 + 1
    assert claim.quantity.value == longest
    assert claim.verdict.word == "cannot tell" and "one value" in claim.verdict.reason


def test_figure_4_is_three_more():
    made = paper("A-fig4", TEXTS[:3])
    assert [row["chain"] for row in made.rows] == [0, 1, 2] and len(made.pictures) == 3
    shares = [1 - (row["different texts"] - 1) / 15 for row in made.rows]
    assert made.claims[0].quantity.value == pytest.approx(sum(shares) / 3)
    assert made.rows == paper("A-fig4", TEXTS[:3]).rows
