"""Tables 3 and 4 and the prefixes of paper A on a tiny model with a tiny entailment model."""

from dataclasses import replace

import pytest

from conftest import TEXTS
from glauber import paper
from glauber.landscape.labels import Labelled
from glauber.papers import topics as pieces
from tiny_nli import make_nli


@pytest.fixture
def tiny_scale(monkeypatch, tiny_folder, tmp_path):
    nli = str(make_nli(tmp_path / "nli"))
    small = replace(
        pieces.CONDITIONS["small"], models={"tiny": str(tiny_folder)}, scorers=(nli,),
        steps=20, every=5,
    )  # fmt: skip
    monkeypatch.setitem(pieces.CONDITIONS, "small", small)
    monkeypatch.setattr(pieces, "LENGTH", 5)
    monkeypatch.setattr(pieces, "EACH", 2)
    words = ("mat", "tree", "sky", "dog", "bird")
    starts = [
        Labelled(topic, f"the cat sat on the {word} .")
        for topic, word in zip(pieces.SEEDS, words, strict=True)
        for _ in range(2)
    ]
    monkeypatch.setattr(pieces, "held_out_passages", lambda: starts)
    tiny = dict(model=str(tiny_folder), chains=3, steps=8, length=4, every=2, scorer=nli)
    tiny["texts"] = TEXTS[:3]
    names = ("the cat", "a dog", "the bird", "the tree", "the sky")
    monkeypatch.setattr(pieces, "PREFIXES", names)
    monkeypatch.setattr(pieces, "PULLS", dict(zip(names, pieces.PULLS.values(), strict=True)))
    monkeypatch.setitem(pieces.PULL_SIZES, "small", tiny)
    pieces._topics.cache_clear()
    yield
    pieces._topics.cache_clear()


def test_table_3(tiny_scale, tmp_path):
    made = paper("A-table3", seeds=1)
    *topics, everyone, judged = made.rows
    assert [row["topic"] for row in topics] == list(pieces.SEEDS)
    assert topics[3]["published (pol 0, pol 10k, seed 0, seed 10k)"] == [0.003, 0.174, 0.834, 0.037]
    crossed = [int(row["chains that crossed"].split(" of ")[0]) for row in topics]
    assert everyone["chains that crossed"] == f"{sum(crossed)} of 10"
    assert everyone["baseline"] == pytest.approx(1 / 9)
    assert judged["sentences"] == 90 and judged["chance"] == pytest.approx(1 / 9)
    assert list(made.figures()) == ["river", "recurrence"]


def test_table_4(tiny_scale):
    made = paper("A-table4", seeds=1)
    third = paper("A-table3", seeds=1).rows
    for row, other in zip(made.rows, third, strict=False):
        expected = pytest.approx(other["politics at the end"], abs=1e-5)  # padded by neighbours
        assert row["politics at the end, tiny"] == expected
    assert made.rows[4]["published, RoBERTa"] == 0.198


def test_prefixes(tiny_scale, tmp_path):
    made = paper("A-prefixes")
    assert len(made.rows) == 5 and all(row["published"] for row in made.rows)
    assert list(made.figures())[:2] == ["topics", "words"]


def test_the_starts_of_the_tables_were_not_calibrated_on():
    from glauber.landscape.labels import calibration_passages, held_out_passages

    used = {each.text for each in held_out_passages() if each.label in pieces.SEEDS}
    assert len(used) == len(pieces.SEEDS) * pieces.EACH
    assert not used & {each.text for each in calibration_passages()}
