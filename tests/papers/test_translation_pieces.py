"""Paper B's translation tables, made on tiny translators: what they hold and what they admit."""

import json

import pytest

from glauber import paper
from glauber.errors import GlauberError
from glauber.papers import translation, translation_choices, translation_runs
from glauber.translation.data import VOCABULARY, write_pairs
from glauber.translation.model import save
from tiny_translation import tiny, toy_pairs, toy_vocabulary

RECORD = {
    "device": "one toy",
    "steps": 7,
    "command": "train it",
    "rows": [
        {"name": "baseline", "change": "none", "bleu_test": 40.0, "bleu_long": 30.0},
        {"name": "no distillation", "change": "raw", "bleu_test": 35.0, "bleu_long": 31.0},
        {"name": "odd", "change": "shoes", "bleu_test": 41.0, "bleu_long": 30.5},
    ],
    "systems": [{"system": "ar-distilled, beam 5", "bleu_test": 47.0, "bleu_long": 45.0}],
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
            "refine, 4 steps, judged by ar",
            "refine, 10 steps, judged by ar",
            "refine-remask, 4 steps",
            "refine-remask, 10 steps",
            "refine-remask, 4 steps, judged by ar",
            "refine-remask, 10 steps, judged by ar",
        )
    ]
    for row in made.rows:
        assert row["kind"] == "estimate" and "nrefs" in row["BLEU signature"]
        assert row["median ms"] <= row["p99 ms"] and row["sentences timed"] == 2
    beam = made.rows[1]
    assert beam["BLEU less beam 5"] == 0 and beam["faster than greedy, beam 5"][1] == 1
    assert beam["published SacreBLEU"]["DE-EN"] == 33.50
    assert "not recorded" in made.how
    written = made.write(tmp_path / "table.json")
    assert json.loads(written.read_text())["rows"][0]["set"] == "test"


def test_recorded_figures_are_shown_as_recorded(folder):
    (folder / "ablations.json").write_text(json.dumps(RECORD))
    (row,) = translation._distilled()
    assert "were measured when" in translation._how("")
    assert (row["system"], row["made"], row["device"]) == (
        "ar-distilled, beam 5", "recorded", "one toy",
    )  # fmt: skip
    baseline, raw, odd = translation_choices.recorded_rows(translation_runs.recorded())
    assert "less_test" not in baseline and baseline["training steps"] == 7
    assert raw["less_test"] == -5 and raw["test, as the paper says"] == "yes"
    assert raw["less_long"] == 1 and raw["long, as the paper says"] == "no"
    assert odd["test, as the paper says"] == "the paper names no direction"
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
        told = abs(row["BLEU less baseline"]) > 2 * row["standard error of that"]
        assert told == (row["moved"] in ("higher", "lower"))


def test_agreement_with_the_paper():
    agrees = translation_choices._agrees
    assert agrees("lower", "lower") == "yes" and agrees("higher", "lower") == "no"
    assert agrees("not different from 0", "same").startswith("yes")
    assert agrees("lower", "same") == "no"
    assert agrees("not different from 0", "lower") == "not different from 0 here"


def test_table_2_has_every_decoder(folder):
    made = paper("B-table2", seeds=3)
    assert {row["system"] for row in made.rows} == set(translation.DECODERS)
    assert made.rows[4]["published BLEU"] == {"DE-EN": 32.10, "EN-DE": 27.94}
    again = paper("B-table2", seeds=3)
    assert again.rows == made.rows


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
        assert gap[measure][1] >= 0
    assert yes["pairs"] > 0 < no["pairs"]
