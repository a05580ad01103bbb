"""Does the whole recipe run, from pairs to scores, and do the studies read what it leaves?"""

import json

import pytest
import torch

from glauber import evaluate_translator, train_translator, translate
from glauber.foundation.errors import GlauberError
from glauber.translation.data import load_vocabulary, read_pairs, write_pairs
from glauber.translation.training import TrainingPlan, take_over
from recipes.translation import main
from recipes.translation_ablation import choices
from tiny_translation import tiny, toy_pairs

REFINED = ["refine-remask, 1 step", "refine-remask, 1 step, judged by ar"]
SMALL = [
    "--width=32",
    "--heads=2",
    "--layers=1",
    "--inner=48",
    "--batch=32",
    "--warmup=2",
    "--steps=5",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder in which every step of the recipe was run at toy size."""
    folder = tmp_path_factory.mktemp("recipe")
    write_pairs(folder / "train.tsv", toy_pairs(120))
    write_pairs(folder / "test.tsv", toy_pairs(30, seed=9))
    where = ["--out", str(folder), "--device", "cpu"]
    main(["prepare", "--train", str(folder / "train.tsv"), "--vocab", "60", *where])
    main(["teacher", *SMALL, *where])
    main(["distil", "--beams", "2", *where])
    main(["student", "--begin-from", "teacher", *SMALL, *where])
    main(["ar-distilled", *SMALL, *where])
    test = ["--test", str(folder / "test.tsv"), "--limit", "3", "--long", "2", "--timed", "1"]
    main(["evaluate", *test, *where])
    test = test[:-2]
    (folder / "english.txt").write_text("\n".join(text for text, _ in toy_pairs(300, seed=5)))
    english = ["--english", str(folder / "english.txt")]
    main(["ablate", *test, *english, "--steps", "3", "--batch", "16", "--warmup", "1", *where])
    main(["score-ablations", *test, *where])
    return folder


def test_every_system_is_scored_on_both_sets(made):
    rows = json.loads((made / "evaluation.json").read_text())["rows"]
    assert len(rows) == 26 and {row["set"] for row in rows} == {"test", "long"}
    assert all(row["bleu_signature"].startswith("nrefs:1|") for row in rows)
    assert all(0 <= row["bleu"] <= 100 and row["latency"]["median"] > 0 for row in rows)


def test_every_ablation_is_scored(made):
    told = json.loads((made / "ablations.json").read_text())
    assert [row["name"] for row in told["rows"]] == list(choices(TrainingPlan()))
    assert told["steps"] == 3 and all(0 <= row["bleu_long"] <= 100 for row in told["rows"])


def test_a_trained_translator_translates(made, tmp_path):
    asked = dict(
        out=tmp_path / "new", steps=3, batch=16, vocabulary=60, width=32, layers=1, device="cpu"
    )
    found = train_translator(made / "train.tsv", **asked)
    assert [(one.name, one.new) for one in found.models] == [("teacher", True), ("student", True)]
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [step for step, _ in told["models"][0]["curve"]] == [1, 2, 3]
    assert told["models"][0]["loss"] == told["models"][0]["curve"][-1][1]
    frame = found.frame()
    assert list(frame.columns) == ["model", "step", "loss"] and len(frame) == 6
    assert [line.name for line in found.figure().data] == ["teacher", "student"]
    assert "contains the translator" in str(found)
    assert translate("the cat.", model=tmp_path / "new").texts
    # What is there is not made again, and its losses are remembered.
    again = train_translator(made / "train.tsv", **asked)
    assert [one.new for one in again.models] == [False, False]
    assert [one.curve for one in again.models] == [one.curve for one in found.models]


def test_a_training_takes_what_it_is_asked(made, tmp_path, monkeypatch):
    """The paper's own drafts and optimiser; what is too long is counted and said."""
    said = []
    monkeypatch.setattr("glauber.translation.data.say", said.append)
    found = train_translator(
        made / "train.tsv", out=tmp_path / "paper", steps=2, batch=16, vocabulary=60, width=32,
        heads=4, layers=1, corruption="random", kept=0.15, stages=3, remask=0.0, warmup=2,
        optimizer="adafactor", peak=3e-3, longest=9, device="cpu",
    )  # fmt: skip
    plan = json.loads((tmp_path / "paper" / "student.training.json").read_text())
    asked = {
        "corruption": "random", "kept": 0.15, "stages": 3, "remask": 0.0, "warmup": 2,
        "optimizer": "adafactor", "peak": 3e-3,
    }  # fmt: skip
    assert asked.items() <= plan.items()
    shape = json.loads((tmp_path / "paper" / "student.json").read_text())
    assert shape["heads"] == 4 and shape["n_decoder"] == 1
    vocabulary = load_vocabulary(tmp_path / "paper")
    pairs = read_pairs(made / "train.tsv")
    longer = sum(max(len(vocabulary.encode(text)) for text in pair) > 9 for pair in pairs)
    teacher = found.models[0]
    assert 0 < longer == teacher.n_dropped == len(pairs) - teacher.n_examples
    assert f"{longer} of 120 pairs are not trained on: more than 9 tokens" in said[0]
    assert f"({longer} more were too long)" in str(found)


def test_a_student_begins_as_its_teacher():
    teacher, student = tiny("ar"), tiny("refine").float()
    new = take_over(student, teacher)
    assert all(".placed." in name or ".norms.3." in name for name in new)
    theirs = dict(teacher.named_parameters())
    for name, weight in student.named_parameters():
        assert name in new or torch.equal(weight, theirs[name].float())


def test_the_studies_read_what_the_recipe_leaves(made):
    found = translate(["the cat sees.", "a dog."], model=made, steps=2, trace=True)
    assert [one.source for one in found.translations] == ["the cat sees.", "a dog."]
    assert all(1 <= len(one.trace) <= 2 for one in found.translations)
    assert translate("a dog.", model=made, decoder="ar").texts
    judged = evaluate_translator(made / "test.tsv", model=made, limit=4, timed=0, steps=[1])
    assert [one.system for one in judged.systems] == [
        "ar, greedy",
        "ar, beam 5",
        *REFINED,
        "ar on distilled pairs, beam 5",
    ]
    assert list(judged.figures()) == ["quality"]


@pytest.mark.parametrize(
    ("pairs", "asked", "said"),
    [
        ("nowhere.tsv", {}, "no file"),
        ("latin.tsv", {}, "it is not UTF-8 text"),
        ("broken.tsv.xz", {}, "no source and target with a tab"),
        ("short.tsv.xz", {}, "it is damaged xz"),
        ("empty.tsv", {}, "has no pair"),
        ("hub:wmt14", {}, "write hub:NAME:CONFIG"),
        ("hub:wmt14:de-en-zh", {}, "write hub:NAME:CONFIG"),
        ("hub:wmt14:", {}, "write hub:NAME:CONFIG"),
        ("train.tsv", {"width": 9}, "heads must divide"),
        ("train.tsv", {"steps": 0}, "at least 1"),
        ("train.tsv", {"batch": 10**9}, "not possible"),
        ("train.tsv", {"width": 8 * 10**5}, "GiB"),
        ("train.tsv", {"vocabulary": 10**9}, "not possible"),
        ("train.tsv", {"layers": -1}, "at least 1"),
        ("train.tsv", {"further": "latin.tsv"}, "not UTF-8"),
        ("train.tsv", {"out": "train.tsv"}, "is a file"),
        ("train.tsv", {"out": ""}, "has no name"),
        ("train.tsv", {"out": "."}, "contains other things"),
        ("train.tsv", {"out": "x" * 5000}, "cannot be the folder"),
        ("train.tsv", {"out": "a\0b"}, "cannot be the folder"),
        ("x" * 5000, {}, "no file"),
        ("train.tsv", {"seed": -1}, "seed is -1"),
        ("train.tsv", {"corruption": "noise"}, "corruption is 'noise'"),
        ("train.tsv", {"corruption": "cmlm", "stages": 2}, "has 1 stage"),
        ("train.tsv", {"kept": 1.5}, "kept is 1.5"),
        ("train.tsv", {"stages": 0}, "stages is 0"),
        ("train.tsv", {"optimizer": "sgd"}, "optimizer is 'sgd'"),
        ("train.tsv", {"warmup": 0}, "warmup is 0"),
        ("train.tsv", {"peak": -1.0}, "peak is -1"),
        ("train.tsv", {"heads": 7}, "7 heads must divide"),
        ("train.tsv", {"longest": 0}, "longest is 0"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(made, tmp_path, pairs, asked, said, monkeypatch):
    import lzma

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_bytes((made / "train.tsv").read_bytes())
    (tmp_path / "latin.tsv").write_bytes("abc\xe9\td\n".encode("latin-1"))
    (tmp_path / "broken.tsv.xz").write_bytes(b"no xz at all")
    (tmp_path / "short.tsv.xz").write_bytes(lzma.compress(b"a\tb\n" * 99)[:-20])
    (tmp_path / "empty.tsv").write_text("\n")
    with pytest.raises(GlauberError, match=said) as problem:
        train_translator(pairs, **({"out": "new"} | asked))
    assert "\n" not in str(problem.value) and not (tmp_path / "new").exists()
