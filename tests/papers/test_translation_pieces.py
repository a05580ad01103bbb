"""Paper B's translation tables on tiny translators: their numbers and their notes."""

import json
import lzma
import sys
import types
from dataclasses import replace

import pytest

from glauber import paper
from glauber.foundation.errors import GlauberError
from glauber.papers import translation as pieces
from glauber.papers import translation_measures as measures
from glauber.papers.claims import Quantity
from glauber.papers.piece import Answers
from glauber.papers.work import Request
from glauber.translation.data import VOCABULARY, by_source, write_pairs
from glauber.translation.model import save
from glauber.translation.score import PREPROCESSING
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
OWN, EASY = pieces.OWN.format(4), "cmlm: easy-first, 10 steps"
RESULT = {"bleu": 40.0, "chrf": 60.0, "stutter": 0.0, "passes": 4.0}
MOVED = {"system": OWN, "less": pieces.CONTROL, "of": "BLEU"}
EQUAL = {
    "device": "one toy",
    "steps": 10,
    "batch": 4,
    "models": {"paper": {"pairs seen": 40}},
    "rows": [
        {"set": "test", "system": system, **RESULT}
        for system in (pieces.CONTROL, OWN, "student: refine-remask, 4 steps", EASY)
    ],
    "differences": [
        {**MOVED, "set": "test", "value": -1.0, "interval": [-1.3, -0.7], "sentences": 500},
        {**MOVED, "set": "long", "value": -3.0, "interval": [-4.0, -2.0], "sentences": 200},
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
    """The folder with tiny translators and no record; all pieces read it."""
    for name, piece in [*pieces.PIECES.items(), *measures.PIECES.items()]:
        module = pieces if name in pieces.PIECES else measures
        sizes = {"folder": made_folder, "pairs": made_folder / "pairs.tsv", "n_test": 6}
        sizes |= {"n_long": 8 if name[-1] in "45" else 4, "n_timed": 2}
        sizes |= {"decoders": DECODERS}
        small = piece.small | {key: value for key, value in sizes.items() if key in piece.small}
        monkeypatch.setitem(module.PIECES, name, replace(piece, small=small))
    for name in ("ablations.json", "equal.json", "equal.json.xz", "speed.json"):
        (made_folder / name).unlink(missing_ok=True)
    return made_folder


# Untrained predictors love long drafts, of which easy-first reads every position apart.
DECODERS = pieces.DECODERS | {"easy-first, 4 steps": pieces.student("easy-first", 2, 1)}


def test_sizes_that_the_paper_does_not_have_are_choices(tmp_path):
    for name, piece in [*pieces.PIECES.items(), *measures.PIECES.items()]:
        settings = piece.settings(Request(name, "small", 0, tmp_path, {}))
        assert not any(note.startswith(("n_", "share")) for note in piece._differences(settings))
    settings = pieces.TABLE_1.settings(Request("B-table1", "paper", 0, tmp_path, {}))
    assert pieces.TABLE_1._choices(settings)[0].startswith(
        "n_test: all of them, n_long: 200, n_timed: 450"
    )


def test_table_1_has_both_sets_and_says_that_the_control_is_missing(folder, tmp_path):
    made = paper("B-table1")
    names = ["ar, greedy", "ar, beam 5"]
    for way in ("refine", "refine-remask"):
        names += [f"{way}, 4 steps", f"{way}, 10 steps"]
    names += [*(f"refine-remask, {n} steps, judged by ar" for n in (4, 10)), "refine, 1 step"]
    systems = [(row["set"], row["system"]) for row in made.rows]
    assert systems == [(which, system) for which in ("test", "long") for system in names]
    for row in made.rows:
        assert row["kind"] == "estimate" and row["ms"] > 0 and "p99 ms" not in row
        ends = row["interval"]
        assert ends is None or ends[0] <= row["less beam 5"] <= ends[1]
    beam, own, remasked = made.rows[1], made.rows[2], made.rows[4]
    assert beam["less beam 5"] is None and beam["faster_than_beam"] == 1
    assert beam["published"]["DE-EN"] == 33.50
    # The published scores belong to the paper's own decoding and not to ours.
    assert own["published"]["DE-EN"] == 33.49 and remasked["published"] is None
    assert "not recorded" in made.how and "78.7 million" in made.how
    assert {row["signature"].split("|")[0] for row in made.rows} == {"nrefs:1"}  # of the toy pairs
    assert all(row["BLEU, one reference"] == pytest.approx(row["BLEU"]) for row in made.rows)
    passes = [claim for claim in made.claims if "one forward pass" in claim.sentence]
    assert len(passes) == 2 and all(0 <= claim.quantity.value <= 1 for claim in passes)
    tails = [claim for claim in made.claims if "99th" in claim.sentence]
    assert all("fewer than 100" in claim.quantity.reason for claim in tails)
    written = made.write(tmp_path / "table.json")
    assert json.loads(written.read_text())["rows"][0]["set"] == "test"


def test_models_at_equal_training_are_shown_and_judged(folder):
    (folder / "equal.json").write_text(json.dumps(EQUAL))
    made = paper("B-table2")
    record = pieces.read_equal(folder)
    rows = {row["system"]: row for row in made.rows if row["made"].startswith("recorded")}
    assert rows[OWN]["further_pairs"] == 40 and rows[OWN]["less_control"] == [-1.0, -1.3, -0.7]
    assert "40 further pairs" in pieces.protocol_1(Answers(equal=record))
    entries = pieces.table_1_claims(Answers(equal=record, evaluations={}))
    answers = Answers(settings=no_settings())
    words = {one.sentence: one.claim(answers).verdict for one in entries}
    gap = "4 steps come within 1.4 BLEU of the autoregressive model on distilled pairs"
    assert words[f"{gap} (test)"].word == "agrees" and words[f"{gap} (long)"].word == "disagrees"
    unseen = words["10 steps translate as well as 4 (test)"]
    assert unseen.word == "cannot tell" and "no number" in unseen.reason
    # DisCo's scores belong to easy-first by a model that was trained to fill masks.
    published = {row["system"]: row.get("published") for row in made.rows}
    assert published[EASY]["DE-EN"] == 31.31
    assert published["easy-first, 4 steps"] is None and published["mask-predict, 4 steps"] is None
    assert published[pieces.CONTROL]["EN-ZH"] == 35.01  # DisCo's autoregressive model
    assert pieces.OTHER_BLEU["paper: sundae, 4 steps"] == {"DE-EN": 32.10, "EN-DE": 27.94}
    ran = next(row for row in made.rows if row["made"].startswith("run"))
    assert ran["BLEU intl"] >= 0 and rows[OWN]["bleu_intl"] is None  # not in this record
    # The paper warns that its BLEUs may not be comparable: no claim between decoders.
    assert not any("refinement" in claim.sentence for claim in made.claims)
    (folder / "equal.json").write_text('{"rows": 3}')
    with pytest.raises(GlauberError, match="no record of models"):
        pieces.read_equal(folder)


def no_settings():
    class Settings:
        values: dict[str, object] = {}

    return Settings()


def test_recorded_trainings_are_shown_as_recorded(folder):
    (folder / "ablations.json").write_text(json.dumps(RECORD))
    made = paper("B-ablation")
    baseline, raw, odd = made.rows[-3:]
    assert "less_test" not in baseline and baseline["steps"] == 7
    assert raw["made"] == "recorded on one toy" and raw["less_test"] == -5
    assert raw["interval_test"] == pytest.approx([-6.96, -3.04], abs=0.01)
    words = {claim.sentence: claim.verdict.word for claim in made.claims if "raw" in claim.sentence}
    assert list(words.values()) == ["agrees", "cannot tell"]
    assert odd["expected"] is None  # the paper names no direction
    (folder / "ablations.json").write_text('["no"]')
    with pytest.raises(GlauberError, match="no record of ablations"):
        paper("B-ablation", seeds=1)


def test_ablations_say_which_way_they_went(folder):
    made = paper("B-ablation")
    assert len(made.rows) == 2 * len(pieces.CHOICES) and "not recorded" in made.how
    for row in made.rows:
        assert row["made"] == "run" and row["paper"]
        assert (row["less_baseline"] is None) == (row["system"] == pieces.BASELINE)
    expected = [one.expected for one in pieces.CHOICES.values() if one.expected]
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
    ours = Quantity("", sum(interval) / 2, interval, n=100)
    entry = pieces.choice_claim("it says so", expected, "test", "a change", "BLEU", ours)
    assert entry.claim(Answers(settings=no_settings())).verdict.word == word


def test_table_2_has_every_decoder(folder):
    made = paper("B-table2", seeds=3)
    assert {row["system"] for row in made.rows} == set(pieces.DECODERS)


def test_table_3_says_what_is_missing(folder):
    made = paper("B-table3")
    assert "unbabel-comet" in made.how and "Until then there is chrF" in made.how
    assert all(row["COMET"] is None and row["chrF"] >= 0 for row in made.rows)


def test_table_3_judges_recorded_translations_by_the_metric_that_is_there(folder, monkeypatch):
    """A metric that counts words, which knows the source: recorded texts follow the sentences."""
    pairs = pieces.read_pairs(folder / "pairs.tsv")
    sets = {
        "test": by_source(pairs),
        "long": pieces.long_pairs(pairs, pieces.load_vocabulary(folder), n_pairs=4),
    }
    written = {
        "control": {"beam 5": 3},
        "paper": {f"refine from random, {n} steps": 1 + (n == 10) for n in (4, 10)},
    }
    outputs = {
        model: {
            way: {
                name: {"texts": [" x" * n + e.source for e in rows]} for name, rows in sets.items()
            }
            for way, n in ways.items()
        }
        for model, ways in written.items()
    }
    text = json.dumps({"outputs": outputs}).encode()
    (folder / "equal.json.xz").write_bytes(lzma.compress(text))

    class Scorer:
        def __init__(self, weights):
            assert weights == "WEIGHTS"

        def score(self, references, candidates):
            return [text.count(" x") / 100 for text in candidates]

    for name in ("bleurt", "bleurt.score"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["bleurt"].__spec__ = types.SimpleNamespace()
    sys.modules["bleurt.score"].BleurtScorer = Scorer
    made = paper("B-table3", scorer="bleurt:WEIGHTS")
    assert "BLEURT with WEIGHTS" in made.how
    rows = {(row["set"], row["system"]): row for row in made.rows}
    assert rows["test", pieces.CONTROL]["BLEURT"] == pytest.approx(3)  # in hundredths
    assert rows["long", OWN]["published"]["DE-EN"] == 71.26
    values = {claim.sentence: claim.quantity.value for claim in made.claims}
    below = "by a learned metric 4 steps are below the autoregressive model"
    assert values[f"{below} (test)"] == pytest.approx(-2)
    assert values["by a learned metric 10 steps are above 4 (long)"] == pytest.approx(1)
    assert len(values) == 6  # with the similarity, which only BLEURT's scale can tell
    texts = pieces.recorded_texts(
        pieces.PIECES["B-table3"].settings(request()),
        {name: rows[:3] for name, rows in sets.items()},
    )
    assert texts["test", OWN] == tuple(f" x{e.source}" for e in sets["test"][:3])


def request():
    from pathlib import Path

    from glauber.papers.work import Request

    return Request("B-table3", "small", 0, Path())


def test_speed_is_run_here_and_read_from_a_record(folder):
    systems = ["refinement", "beam search", "beam search without cache"]
    n, parts = 500, ("tokens", "encoder", "lengths", "decoder", "text")
    slow = {"refinement": 1.0, "beam search": 6.0, "beam search without cache": 9.0}
    record = {
        "file": "toy",
        "machine": "one toy",
        "target_tokens": [20 + k % 20 for k in range(n)],
        "passes": {
            name: [4 if name == "refinement" else 29 + k % 3 for k in range(n)] for name in systems
        },
        "seconds": {
            name: {part: [slow[name] + k % 20 / 100 for k in range(n)] for part in parts}
            for name in systems
        },
    }
    (folder / "speed.json").write_text(json.dumps(record))
    made = paper("B-speed")
    recorded = {
        claim.sentence.removesuffix(" (one toy)"): claim.verdict.word
        for claim in made.claims
        if "one toy" in claim.sentence
    }
    assert recorded["more than 2 times in the median"] == "agrees"
    assert recorded["more than 5 times in the 99th percentile"] == "agrees"
    assert recorded["the speed-up is 2 to 3 times"] == "disagrees"
    assert recorded["4 steps are 7 to 8 times fewer decoder passes"] == "agrees"
    machines = {row["made"]: row["machine"] for row in made.rows}
    assert len(made.claims) == 14 and machines["recorded"] == "one toy" != machines["here"]
    assert len(made.figures()) == 2


def test_bleu_after_preprocessing(folder):
    made = paper("B-bleu")
    assert [row["system"] for row in made.rows] == ["ar, beam 5", "refine, 4 steps"] * 2
    assert all(set(PREPROCESSING) < row.keys() for row in made.rows)
    assert len(made.claims) == 16
    lowered = [claim for claim in made.claims if "lowercasing" in claim.sentence]
    assert all(
        claim.quantity.value == 0 for claim in lowered
    )  # the toy language is in small letters


@pytest.mark.parametrize("name", ["B-table4", "B-table5"])
def test_tables_4_and_5(folder, name):
    made = paper(name)
    assert [row["pass"] for row in made.rows] == [1, 1, 1, 2, 2, 2, 4, 4, 4]
    yes, no, gap = made.rows[:3]
    for measure, published in yes["published"].items():
        value, *ends = gap[measure]
        assert yes[measure][0] - no[measure][0] == pytest.approx(value)
        assert gap["published"][measure] == pytest.approx(published - no["published"][measure])
        assert not ends or ends[0] <= value <= ends[1]
    assert yes["pairs"] > 0 < no["pairs"]
    deviations = {"B-table4": ("self_avg", 0.023), "B-table5": ("variation_avg", 0.09)}
    measure, deviation = deviations[name]
    assert yes["published_deviations"][measure] == deviation
    assert ("target_avg" in yes) == (name == "B-table4") and "target_avg" not in gap["published"]
    if name == "B-table4":  # one-sided: smaller self-attention agrees
        assert all(claim.region.low == float("-inf") for claim in made.claims)


def test_the_recipe_is_listed_and_its_parameters_counted():
    made = paper("B-recipe")
    (claim,) = made.claims
    assert claim.verdict.word == "agrees" and round(claim.quantity.value, 2) == 67.13
    rows = {row["hyperparameter"]: row for row in made.rows}
    assert rows["steps"]["here"] == rows["steps"]["paper"] == 500_000
    assert rows["targets"]["verdict"] == "differs" and rows["targets"]["note"]


def test_remark_6_is_measured_on_both_sets(folder):
    made = paper("B-remark6")
    assert [row["set"] for row in made.rows] == ["test", "long"]
    for row, claim in zip(made.rows, made.claims, strict=True):
        assert claim.quantity.value == row["hidden"][0] > 0
        assert (claim.verdict.word == "agrees") == (row["hidden"][1] > 0)
        assert 0 <= row["changed"][0] <= 1 and row["n_positions"] > 0
