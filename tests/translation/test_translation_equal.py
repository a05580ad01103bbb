"""Are the models of the comparison at equal training trained equally, and is all of it recorded?"""

import argparse
import json
import lzma

import numpy as np
import pytest
import torch

import recipes.translation_equal as equal
from glauber.translation.data import (
    VOCABULARY,
    by_source,
    load_vocabulary,
    long_pairs,
    read_pairs,
    write_pairs,
)
from glauber.translation.evaluation import TEST_PAIRS
from glauber.translation.model import BUNDLED, Shape, Translator, load, save
from glauber.translation.score import bleu_counts, bleu_of, paired_difference, quality
from glauber.translation.training import distil
from recipes.translation_equal_scores import scored
from tiny_translation import toy_pairs, toy_vocabulary


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """The whole comparison at toy size, one model after the other in this process."""
    folder, vocabulary = tmp_path_factory.mktemp("equal"), toy_vocabulary()
    torch.manual_seed(0)
    box = folder / "box"
    for name, kind in (("student", "refine"), ("teacher", "ar")):
        shape = Shape(kind, vocabulary.size, 32, 2, 1, 1, 48, max_length=20)
        save(Translator(shape), box, name)
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


def test_steps_are_cut_to_the_time(record, tmp_path, monkeypatch):
    monkeypatch.setattr(equal.time, "time", lambda: 1000.0)  # no time passes
    args = argparse.Namespace(**vars(record[0]) | {"work": tmp_path, "pairs": 10**6})
    args.began, args.seconds, args.decoding = 1000.0, 110.0, 10.0
    for name in args.models:
        equal._write(tmp_path / f"{name}.pace.json", [5.0, 25.0, 10])
    equal.set_plan(args, args.models)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["seconds a step"] == 2.0 and plan["n_steps"] == 46  # 93 s of 2 s each


def test_scores_are_those_of_the_texts():
    judged = {"test": by_source(toy_pairs(40, seed=2))}
    good = [one.references[0] for one in judged["test"]]
    worse = [" ".join(text.split()[:-1]) + "." for text in good]
    said = {"control": good, "teacher": worse}
    record = {
        "device": "toy",
        "training": {"control": {"pairs seen": 8, "curve": [[1, 2.5]], "seconds": 1.0}},
        "outputs": {
            name: {"beam 5": {"test": {"passes": 3.0, "texts": texts}}}
            for name, texts in said.items()
        },
    }
    found = scored(record, judged)
    assert found["models"] == {"control": {"pairs seen": 8, "seconds": 1.0, "loss": 2.5}}
    scores = {row["system"]: row["bleu"] for row in found["rows"]}
    assert scores["control: beam 5"] == pytest.approx(100.0)
    (moved,) = [
        one for one in found["differences"]
        if (one["system"], one["less"], one["of"]) == ("teacher: beam 5", "control: beam 5", "BLEU")
    ]  # fmt: skip
    expected = scores["teacher: beam 5"] - 100
    assert moved["value"] == pytest.approx(expected) and moved["sentences"] == len(good)
    assert moved["interval"][0] < moved["value"] < moved["interval"][1] < 0


@pytest.fixture(scope="module")
def long_set():
    return long_pairs(read_pairs(TEST_PAIRS), load_vocabulary(BUNDLED), n_pairs=200)


@pytest.fixture(scope="module")
def shipped():
    """Translations of the long set by the control and by the paper's student."""
    texts = json.loads(lzma.decompress((BUNDLED / "equal.json.xz").read_bytes()))["outputs"]
    return {
        name: texts[name.split(": ")[0]][name.split(": ")[1]]["long"]["texts"]
        for name in ("control: beam 5", "paper: refine from random, 4 steps")
    }


def test_paired_intervals_of_bleu_keep_their_level(shipped, long_set):
    """Sets of 40 sentences drawn from 200, whose difference is known."""
    control, student = (bleu_counts(outputs, long_set) for outputs in shipped.values())
    known = bleu_of(student.sum(0)) - bleu_of(control.sum(0))
    draws, held = np.random.default_rng(1).integers(200, size=(150, 40)), 0
    for rows in draws:
        low, high = paired_difference(student[rows], control[rows], bleu_of).interval
        held += low <= known <= high
    # 150 intervals of 95%: the standard error of the share is 0.018.
    assert held / 150 > 0.95 - 3 * 0.018


def test_the_shipped_record_is_that_of_the_shipped_translations(shipped, long_set):
    """The long set scored again; its differences by a bootstrap over sentences of our own."""
    stored = json.loads((BUNDLED / "equal.json").read_text())
    said, judged = shipped, long_set
    for row in stored["rows"]:
        if row["set"] == "long" and row["system"] in said:
            assert quality(said[row["system"]], judged).bleu == pytest.approx(row["bleu"])
    (moved,) = [
        one for one in stored["differences"]
        if (one["set"], one["of"], one["less"]) == ("long", "BLEU", "control: beam 5")
        and one["system"] in said
    ]  # fmt: skip
    control, student = (bleu_counts(outputs, judged) for outputs in said.values())
    draws = np.random.default_rng(0).integers(200, size=(400, 200))
    drawn = [bleu_of(student[rows].sum(0)) - bleu_of(control[rows].sum(0)) for rows in draws]
    # A standard deviation from 400 draws has a relative error of 1 / sqrt(800) = 0.035.
    assert moved["standard_error"] == pytest.approx(np.std(drawn, ddof=1), rel=4 * 0.035)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert moved["interval"] == pytest.approx([low, high], abs=0.5 * moved["standard_error"])
    assert {one["pairs seen"] for one in stored["models"].values()} == {1908 * 2048}
