"""Tables 3 and 4 and the prefixes of paper A on a tiny model with a tiny entailment model."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import TEXTS
from glauber import paper
from glauber.errors import GlauberError
from glauber.landscape.labels import Labelled
from glauber.landscape.recurrence import recurrence
from glauber.papers import recurrence as tables
from glauber.papers import topics as pieces
from glauber.papers.settings import Settings
from tiny_nli import make_nli


@pytest.fixture
def tiny_scale(monkeypatch, tiny_folder, tmp_path):
    nli = str(make_nli(tmp_path / "nli"))
    small = replace(
        tables.CONDITIONS["small"], models={"tiny": str(tiny_folder)}, scorers=(nli,), steps=20,
        snapshots=4, chains=15,
    )  # fmt: skip
    monkeypatch.setitem(tables.CONDITIONS, "small", small)
    monkeypatch.setattr(tables, "LENGTH", 5)
    words = ("mat", "tree", "sky", "dog", "bird")
    starts = [
        Labelled(topic, f"the cat sat on the {word} .")
        for topic, word in zip(tables.SEEDS, words, strict=True)
        for _ in range(2)
    ]
    monkeypatch.setattr(tables, "held_out_passages", lambda: starts)
    tiny = dict(
        model=str(tiny_folder), temperature=1.0, chains=3, steps=8, length=4, every=2, scorer=nli
    )
    tiny["texts"] = TEXTS[:3]
    names = ("the cat", "a dog", "the bird", "the tree", "the sky")
    monkeypatch.setattr(pieces, "PREFIXES", names)
    for name in ("PULLS", "TOWARDS"):
        own = dict(zip(names, getattr(pieces, name).values(), strict=True))
        monkeypatch.setattr(pieces, name, own)
    monkeypatch.setitem(pieces.PULL_SIZES, "small", tiny)


def test_table_3(tiny_scale, tmp_path):
    made = paper("A-table3", seeds=1, out=tmp_path / "site")
    topics, everyone, labels, judged = made.rows[:5], made.rows[5], made.rows[6:15], made.rows[15]
    assert [row["topic"] for row in topics] == list(tables.SEEDS)
    assert topics[3]["published (pol 0, pol 10k, seed 0, seed 10k)"] == [0.003, 0.174, 0.834, 0.037]
    crossed = [int(row["chains that crossed"].split(" of ")[0]) for row in topics]
    assert everyone["chains that crossed"] == f"{sum(crossed)} of 15"
    assert [row["label"] for row in labels] == list(tables.LABELS)
    assert labels[0]["chains that crossed"] == everyone["chains that crossed"]
    assert everyone["baseline"] == pytest.approx(1 / 9)
    assert judged["sentences"] == 90 and judged["chance"] == pytest.approx(1 / 9)
    assert list(made.figures()) == ["labels", "river", "recurrence"]


def test_the_claims_of_table_3_are_those_of_its_scores(tiny_scale, tmp_path):
    """Each quantity from the scores again; what holds for every topic is the worst topic's."""
    made = paper("A-table3", seeds=1, out=tmp_path / "site")
    settings = Settings("A-table3", "small", 1, tmp_path / "site")
    (scores,), _, seeds = tables.scored(settings, tables.conditions(settings).models["tiny"])
    ours = {claim.sentence: claim.quantity for claim in made.claims}
    change = scores.of("politics")[:, -1] - scores.of("politics")[:, 0]
    by_topic = [np.mean([c for c, s in zip(change, seeds, strict=True) if s == t])
                for t in tables.SEEDS]  # fmt: skip
    rise = ours["every topic shows an increase in mean politics score"]
    assert rise.value == pytest.approx(min(by_topic)) and rise.n == 3
    special = recurrence(scores, "politics", seeds=seeds).of("politics").against_others
    named = next(one for sentence, one in ours.items() if "recurrent basin" in sentence)
    assert (named.value, named.interval) == (special.value, special.interval)
    crossing = next(one for one in made.claims if one.sentence.startswith("46 of 50"))
    assert crossing.quantity.interval[1] is None  # 20 steps: in 10,000 more would cross
    assert crossing.region.low == pytest.approx(0.808, abs=1e-3)  # Clopper and Pearson, 46 of 50


def test_table_4(tiny_scale, tmp_path):
    made = paper("A-table4", seeds=1, out=tmp_path / "site")
    third = paper("A-table3", seeds=1, out=tmp_path / "site").rows
    for row, other in zip(made.rows, third, strict=False):
        expected = pytest.approx(other["politics at the end"], abs=1e-5)  # padded by neighbours
        assert row["politics at the end, tiny"] == expected
    assert made.rows[4]["published, RoBERTa"] == 0.198
    for claim in made.claims:  # the paper gives no mean over topics
        assert "each topic" in claim.published and "computed by us" in " ".join(claim.ours)
    assert [round(claim.effect, 4) for claim in made.claims] == [0.0236, 0.0324]
    assert {claim.verdict.word for claim in made.claims} == {"cannot tell"}  # no such models here
    assert len(list((tmp_path / "site" / "chains").iterdir())) == 2  # a run and its lock: made once


def test_chains_that_cannot_be_divided_are_refused(tiny_scale):
    with pytest.raises(GlauberError, match="divided among 5 topics"):
        paper("A-table3", chains=12)


def test_prefixes(tiny_scale, tmp_path):
    made = paper("A-prefixes")
    assert len(made.rows) == 5 and all(row["published"] for row in made.rows)
    assert [claim.sentence.split('" ')[1] for claim in made.claims][3:] == [
        "pulls towards politics"
    ] * 2
    assert list(made.figures())[:2] == ["topics", "words"]


def test_the_starts_of_the_tables_were_not_calibrated_on():
    from glauber.landscape.labels import calibration_passages, held_out_passages

    used = {each.text for each in held_out_passages() if each.label in tables.SEEDS}
    assert len(used) == tables.CONDITIONS["small"].chains
    assert not used & {each.text for each in calibration_passages()}
