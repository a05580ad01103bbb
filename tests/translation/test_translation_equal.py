"""Are the models of the comparison at equal training trained equally, and is all of it recorded?"""

import argparse
import json
import lzma

import pytest

import recipes.translation_equal as equal
from glauber.translation.data import VOCABULARY, write_pairs
from glauber.translation.model import load, save
from glauber.translation.training import distil
from tiny_translation import tiny, toy_pairs, toy_vocabulary


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """The whole comparison at toy size, one model after the other in this process."""
    folder, vocabulary = tmp_path_factory.mktemp("equal"), toy_vocabulary()
    box = folder / "box"
    for name, kind in (("student", "refine"), ("teacher", "ar")):
        save(tiny(kind, vocabulary.size), box, name)
    (box / VOCABULARY).write_bytes(vocabulary.serialized)
    for number, name in enumerate(("train", "valid", "test")):
        write_pairs(folder / f"{name}.tsv", toy_pairs(40, seed=number))
    args = argparse.Namespace(
        train=folder / "train.tsv", valid=folder / "valid.tsv", test=folder / "test.tsv",
        work=folder / "work", out=folder / "equal.json.xz", device="cpu", batch=8, pairs=16,
        seconds=1000.0, decoding=1.0, models=list(equal.LEARNERS), limit=30, long=1, rows=64,
        began=0.0,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equal, "BUNDLED", box)
        patch.setattr(equal, "sources", lambda args: {"test": ["the cat.", "a dog."]})
        equal.prepare(args)
        (args.work / "ready").write_text(f"{distil(args.work)}\n")
        for name in args.models:  # as if each took a second for its step
            equal._write(args.work / f"{name}.pace.json", [0.0, 1.0, 1])
        args.began = equal.time.time()
        equal.set_plan(args, args.models)
        for name in (*args.models, *equal.SHIPPED):
            equal.work(name, args)
        equal.assemble(args, [*args.models, *equal.SHIPPED])
    return args, json.loads(lzma.decompress(args.out.read_bytes()))


def test_every_model_saw_as_many_pairs(record):
    args, made = record
    trained = made["training"]
    assert made["steps"] == 2 and list(trained) == list(equal.LEARNERS)
    assert {one["pairs seen"] for one in trained.values()} == {16}
    assert {(one["plan"]["peak"], one["plan"]["warmup"]) for one in trained.values()} == {(2e-3, 1)}
    passes = {name: one["decoder passes over a pair"] for name, one in trained.items()}
    assert passes == {
        "teacher": 1, "control": 1, "student": 2, "paper": 2, "cmlm": 1, "repeats-only": 2,
    }  # fmt: skip
    own = trained["paper"]["plan"]
    assert (own["corruption"], own["kept"], own["remask"]) == ("random", 0.15, 0.0)
    # None of them is the model that it began as.
    began = load(args.work, "shipped teacher").words.weight
    assert all(not began.equal(load(args.work, f"trained {name}").words.weight) for name in trained)


def test_every_way_of_decoding_is_recorded(record):
    _, made = record
    for name, learner in equal.LEARNERS.items():
        assert list(made["outputs"][name]) == list(learner.decodings)
    assert list(made["outputs"]["shipped student"]) == list(equal.SHIPPED["shipped student"])
    for ways in made["outputs"].values():
        for sets in ways.values():
            assert len(sets["test"]["texts"]) == 2 and sets["test"]["passes"] >= 1


def test_steps_are_cut_to_the_time(record, tmp_path):
    args = argparse.Namespace(**vars(record[0]) | {"work": tmp_path, "pairs": 10**6})
    args.began, args.seconds, args.decoding = equal.time.time(), 110.0, 10.0
    for name in args.models:
        equal._write(tmp_path / f"{name}.pace.json", [5.0, 25.0, 10])
    equal.set_plan(args, args.models)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["seconds a step"] == 2.0 and 44 <= plan["n_steps"] <= 46  # 93 s of 2 s each
