"""Does the whole recipe run, from pairs to scores, and do the commands read what it leaves?"""

import json

import pytest
import torch

from glauber.translation.ablation import choices
from glauber.translation.data import write_pairs
from glauber.translation.pipeline import take_over
from glauber.translation.train import Plan
from recipes.translation import main
from tiny_translation import tiny, toy_pairs

REFINED = ["refine, 1 step", "refine, 1 step, judged by ar"]
SMALL = [
    "--width=32",
    "--heads=2",
    "--layers=1",
    "--inner=48",
    "--batch=32",
    "--warmup=5",
    "--steps=12",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder in which every step of the recipe was run at toy size."""
    folder = tmp_path_factory.mktemp("recipe")
    write_pairs(folder / "train.tsv", toy_pairs(200))
    write_pairs(folder / "test.tsv", toy_pairs(30, seed=9))
    where = ["--out", str(folder), "--device", "cpu"]
    main(["prepare", "--train", str(folder / "train.tsv"), "--vocab", "60", *where])
    main(["teacher", *SMALL, *where])
    main(["distil", "--beams", "2", *where])
    main(["student", "--begin-from", "teacher", *SMALL, *where])
    main(["ar-distilled", *SMALL, *where])
    test = ["--test", str(folder / "test.tsv"), "--limit", "6", "--long", "3", "--timed", "1"]
    main(["evaluate", *test, *where])
    test = test[:-2]
    main(["ablate", *test, "--steps", "3", "--batch", "16", "--warmup", "1", *where])
    main(["score-ablations", *test, *where])
    return folder


def test_every_system_is_scored_on_both_sets(made):
    rows = json.loads((made / "evaluation.json").read_text())["rows"]
    assert len(rows) == 22 and {row["set"] for row in rows} == {"test", "long"}
    assert all(row["bleu_signature"].startswith("nrefs:1|") for row in rows)
    assert all(0 <= row["bleu"] <= 100 and row["latency"]["median"] > 0 for row in rows)


def test_every_ablation_is_scored(made):
    told = json.loads((made / "ablations.json").read_text())
    assert [row["name"] for row in told["rows"]] == list(choices(Plan()))
    assert told["steps"] == 3 and all(0 <= row["bleu_long"] <= 100 for row in told["rows"])


def test_train_command_makes_what_translate_reads(made, glauber, tmp_path):
    words = ["train-translator", made / "train.tsv", "--out", tmp_path / "new", "--steps", 3]
    words += ["--batch", 16, "--vocabulary", 60, "--width", 32, "--layers", 1, "--device", "cpu"]
    code, out, _ = glauber(*words, "--json")
    assert code == 0
    assert [one["name"] for one in json.loads(out)["models"]] == ["teacher", "student"]
    assert glauber("translate", "the cat.", "--models", tmp_path / "new")[0] == 0
    # What is there is not made again.
    assert json.loads(glauber(*words, "--json")[1])["models"] == []


def test_a_student_begins_as_its_teacher():
    teacher, student = tiny("ar"), tiny("refine").float()
    new = take_over(student, teacher)
    assert all(".placed." in name or ".norms.3." in name for name in new)
    theirs = dict(teacher.named_parameters())
    for name, weight in student.named_parameters():
        assert name in new or torch.equal(weight, theirs[name].float())


def test_translate_command(made, glauber):
    words = ["translate", "the cat sees.", "a dog.", "--models", made, "--steps", "2"]
    code, out, _ = glauber(*words, "--json", "--trace")
    told = json.loads(out)["translations"]
    assert code == 0 and [one["source"] for one in told] == ["the cat sees.", "a dog."]
    assert all(1 <= len(one["trace"]) <= 2 and one["kind"] == "estimate" for one in told)
    assert glauber(*words, "--trace")[0] == 0
    assert glauber("translate", "a dog.", "--models", made, "--decoder", "ar")[0] == 0


def test_evaluate_command(made, glauber):
    words = ["evaluate-translator", made / "test.tsv", "--models", made, "--limit", 4]
    code, out, _ = glauber(*words, "--timed", 1, "--steps", 1, "--json")
    systems = json.loads(out)["systems"]
    assert code == 0
    assert [one["system"] for one in systems] == ["ar, greedy", "ar, beam 5", *REFINED]
    assert glauber(*words, "--timed", 0, "--steps", 1)[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["translate", ""], "empty"),
        (["translate", "the ☃"], "does not know"),
        (["translate", "the cat " * 99], "at most 127"),
        (["translate", "the cat", "--steps", "0"], "at least 1"),
        (["translate", "the cat", "--models", "nowhere"], "no translator"),
        (["translate", "the cat", "--judge", "me"], "judge must be"),
        (["train-translator", "nowhere.tsv", "--out", "x"], "no file"),
        (["train-translator", "PAIRS", "--out", "x", "--width", "9"], "heads must divide"),
    ],
)
def test_mistakes_end_in_one_sentence(made, glauber, words, said):
    words = [str(made / "train.tsv") if word == "PAIRS" else word for word in words]
    if words[0] == "translate" and "--models" not in words:
        words += ["--models", str(made)]
    code, out, err = glauber(*words)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1
