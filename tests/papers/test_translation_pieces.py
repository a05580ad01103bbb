"""Paper B's translation tables, made on tiny translators: what they hold and what they admit."""

import json

import pytest

from glauber import paper
from glauber.errors import GlauberError
from glauber.papers import (
    translation,
    translation_choices,
    translation_equal,
    translation_runs,
)
from glauber.translation.data import VOCABULARY, write_pairs
from glauber.translation.model import save
from glauber.translation.score import Difference
from tiny_translation import tiny, toy_pairs, toy_vocabulary

RECORD = {
    "device": "one toy",
    "steps": 7,
    "command": "train it",
    "rows": [
        {"name": "baseline", "change": "none", "bleu_test": 40.0, "bleu_long": 30.0},
        {
            "name": "no distillation",
            "change": "raw",
            "bleu_test": 35.0,
            "bleu_long": 31.0,
            "error_test": 1.0,
            "error_long": 2.0,
        },
        {"name": "odd", "change": "shoes", "bleu_test": 41.0, "bleu_long": 30.5},
    ],
}


@pytest.fixture(scope="module")
def made_folder(tmp_path_factory):
    folder, vocabulary = tmp_path_factory.mktemp("box"), toy_vocabulary()
    (folder / VOCABULARY).write_bytes(vocabulary.serialized)
    save(tiny("refine", vocabulary.size, scale=1.5), folder, "student")
    save(tiny("ar", vocabulary.size), folder, "teacher")
    write_pairs(folder / "pairs.tsv", toy_pairs(60, seed=4))
    return folder


@pytest.fixture
def folder(made_folder, monkeypatch):
    """The box with tiny translators in it; no record."""
    monkeypatch.setattr(translation_runs, "BUNDLED", made_folder)
    monkeypatch.setattr(translation_runs, "TEST_PAIRS", made_folder / "pairs.tsv")
    monkeypatch.setitem(translation_runs.SIZES, "small", (6, 4, 2))
    monkeypatch.setitem(translation.LONG, "small", 8)
    (made_folder / "ablations.json").unlink(missing_ok=True)
    for name in [one for one in translation.DECODERS if "easy-first" in one]:
        # Untrained predictors love long drafts, of which easy-first reads every position apart.
        monkeypatch.setitem(translation.DECODERS, name, translation._student("easy-first", 2, 1))
    return made_folder


def test_table_1_has_both_sets_and_says_that_the_control_is_missing(folder, tmp_path):
    made = paper("B-table1")
    assert [(row["set"], row["system"]) for row in made.rows] == [
        (name, system)
        for name in ("test", "long")
        for system in (
            "ar, greedy",
            "ar, beam 5",
            "refine, 4 steps",
            "refine, 10 steps",
            "refine-remask, 4 steps",
            "refine-remask, 10 steps",
            "refine-remask, 4 steps, judged by ar",
            "refine-remask, 10 steps, judged by ar",
        )
    ]
    for row in made.rows:
        assert row["kind"] == "estimate" and "nrefs" in row["BLEU signature"]
        assert row["p99 ms"] is None and row["sentences timed"] == 2
        ends = row["interval"]
        assert ends is None or ends[0] <= row["BLEU less beam 5"] <= ends[1]
    beam, own, remasked = made.rows[1], made.rows[2], made.rows[4]
    assert beam["BLEU less beam 5"] is None and beam["faster than greedy, beam 5"][1] == 1
    assert beam["published SacreBLEU"]["DE-EN"] == 33.50
    # The published figures stand beside the paper's own decoding and not beside ours.
    assert own["published SacreBLEU"]["DE-EN"] == 33.49 and remasked["published SacreBLEU"] is None
    assert "not recorded" in made.how and "78.7 million" in made.how
    assert {claim.verdict.word for claim in made.claims} <= {"disagrees", "cannot tell", "agrees"}
    written = made.write(tmp_path / "table.json")
    assert json.loads(written.read_text())["rows"][0]["set"] == "test"


EQUAL = {
    "device": "one toy", "steps": 10, "batch": 4, "models": {"paper": {"pairs seen": 40}},
    "rows": [
        {"set": "test", "system": name, "bleu": 40.0, "chrf": 60.0, "stutter": 0.0, "passes": 4.0}
        for name in ("control: beam 5", "paper: refine from random, 4 steps",
                     "student: refine-remask, 4 steps", "cmlm: easy-first, 10 steps")
    ],
    "differences": [
        {"set": "test", "system": "paper: refine from random, 4 steps", "less": "control: beam 5",
         "of": "BLEU", "value": -1.0, "interval": [-1.3, -0.7], "sentences": 500},
        {"set": "long", "system": "paper: refine from random, 4 steps", "less": "control: beam 5",
         "of": "BLEU", "value": -3.0, "interval": [-4.0, -2.0], "sentences": 200},
    ],
}  # fmt: skip


def test_models_at_equal_training_are_shown_and_judged(folder):
    (folder / "equal.json").write_text(json.dumps(EQUAL))
    made = paper("B-table2")
    record = translation_equal.equal(folder)
    (folder / "equal.json").unlink()
    rows = {row["system"]: row for row in made.rows if row["made"] == "recorded"}
    own = rows["paper: refine from random, 4 steps"]
    assert own["further pairs"] == 40 and own["pairs before"] == 9_216_000
    assert own["BLEU less control"] == -1.0 and own["interval, control"] == [-1.3, -0.7]
    assert "40 further pairs" in translation._how("", record)
    beside = [translation_equal.published_beside(name) for name in rows]
    assert beside == ["ar, beam 5", "refine, 4 steps", "", ""]
    words = {one.sentence: one.verdict for one in translation_equal.table_1_claims(record)}
    gap = "4 steps come within 1.4 BLEU of the autoregressive model on distilled pairs"
    assert words[f"{gap} (test)"].word == "agrees" and words[f"{gap} (long)"].word == "disagrees"
    unseen = words["10 steps translate as well as 4 (test)"]
    assert unseen.word == "cannot tell" and "no number" in unseen.reason
    # DisCo's figures stand beside easy-first by a model that was trained to fill masks.
    published = {row["system"]: row.get("published BLEU") for row in made.rows}
    assert published["cmlm: easy-first, 10 steps"]["DE-EN"] == 31.31
    assert published["easy-first, 4 steps"] is None and published["mask-predict, 4 steps"] is None
    assert all("sundae" not in name or one is None for name, one in published.items())
    (folder / "equal.json").write_text("{}")
    with pytest.raises(GlauberError, match="no record of models"):
        translation_equal.equal(folder)
    (folder / "equal.json").unlink()


def test_recorded_figures_are_shown_as_recorded(folder):
    (folder / "ablations.json").write_text(json.dumps(RECORD))
    baseline, raw, odd = translation_choices.recorded_rows(translation_runs.recorded())
    assert "less_test" not in baseline and baseline["training steps"] == 7
    assert (raw["made"], raw["device"]) == ("recorded", "one toy")
    assert raw["less_test"] == -5 and raw["interval_test"] == pytest.approx(
        [-6.96, -3.04], abs=0.01
    )
    first, second = translation_choices.recorded_claims(raw)
    assert first.verdict.word == "agrees" and second.verdict.word == "cannot tell"
    assert translation_choices.recorded_claims(odd) == []  # the paper names no direction
    assert translation_choices.recorded_claims(baseline) == []
    (folder / "ablations.json").write_text('["no"]')
    with pytest.raises(GlauberError, match="no record of ablations"):
        translation_runs.recorded()


def test_ablations_say_which_way_they_went(folder):
    made = paper("B-ablation")
    assert len(made.rows) == 2 * len(translation_choices.CHOICES) and "not recorded" in made.how
    for row in made.rows:
        assert row["made"] == "run" and row["paper"]
        if row["system"] == translation_choices.BASELINE:
            assert "moved" not in row
            continue
        ends = row["interval"]
        assert (row["moved"] == "cannot tell") == (ends is None or ends[0] <= 0 <= ends[1])
    expected = [one.expected for one in translation_choices.CHOICES.values() if one.expected]
    assert len(made.claims) == 2 * len(expected)


@pytest.mark.parametrize(
    ("expected", "interval", "word"),
    [
        ("lower", (-2.0, -0.1), "agrees"),
        ("lower", (-2.0, 0.1), "cannot tell"),
        ("lower", (0.1, 2.0), "disagrees"),
        ("same", (-0.4, 0.4), "agrees"),
        ("same", (-2.0, 2.0), "cannot tell"),  # no evidence is not agreement
        ("same", (0.6, 2.0), "disagrees"),
        ("higher", (0.1, 2.0), "agrees"),
    ],
)
def test_agreement_with_the_paper_needs_evidence(expected, interval, word):
    choice = translation_choices.Choice(translation_choices.PLAIN, "it says so", expected)
    moved = Difference(sum(interval) / 2, interval, 0.5, 100)
    (claim,) = translation_choices._claims(choice, "a change", "test", moved)
    assert claim.verdict.word == word


def test_table_2_has_every_decoder(folder):
    made = paper("B-table2", seeds=3)
    assert {row["system"] for row in made.rows} == set(translation.DECODERS)


def test_table_3_says_what_is_missing(folder):
    made = paper("B-table3")
    assert "unbabel-comet" in made.how and "chrF is what can be had" in made.how
    assert all(row["COMET"] is None and row["chrF"] >= 0 for row in made.rows)


@pytest.mark.parametrize("name", ["B-table4", "B-table5"])
def test_tables_4_and_5(folder, name):
    made = paper(name)
    assert [row["pass"] for row in made.rows] == [1, 1, 1, 2, 2, 2, 4, 4, 4]
    yes, no, gap = made.rows[:3]
    for measure, published in yes["published"].items():
        assert yes[measure][0] - no[measure][0] == pytest.approx(gap[measure][0])
        assert gap["published"][measure] == pytest.approx(published - no["published"][measure])
        assert gap[measure][1] is None or gap[measure][1] <= gap[measure][0] <= gap[measure][2]
    assert yes["pairs"] > 0 < no["pairs"]
