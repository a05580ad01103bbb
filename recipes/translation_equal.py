"""Do a teacher, its distilled control and a student translate alike after as much training?

All begin from the weights of the shipped teacher, and each learns from as many further pairs, in
batches of the same size, by the same schedule, side by side on one GPU. On a machine with torch,
sentencepiece, safetensors and numpy alone:

    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True PYTHONPATH=src:. \\
        python -m recipes.translation_equal \\
        --train .carry/tatoeba-en-es-train.tsv.xz --valid .carry/tatoeba-en-es-valid.tsv.xz \\
        --test .carry/tatoeba-en-es-test.tsv.xz --work /tmp/equal --out $OUT/equal.json.xz \\
        --device cuda --pairs 4608000 --seconds 520

After a short trial of all at once the number of steps is set to what the seconds allow, at most
those that `--pairs` asks for, the same for every model. FILE.json.xz is written anew whenever a
translation is there, so that a kill leaves what was done; the same command goes on in `--work`.
`python -m recipes.translation_equal_scores` scores it where sacrebleu is.
"""

from __future__ import annotations

import argparse
import copy
import json
import lzma
import multiprocessing
import os
import shutil
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from glauber.translation.data import (
    VOCABULARY,
    Corpus,
    by_source,
    load_vocabulary,
    long_pairs,
    read_pairs,
    write_pairs,
)
from glauber.translation.decoding import Decoding, translate_texts
from glauber.translation.evaluation import machine
from glauber.translation.model import BUNDLED, Translator, load, save
from glauber.translation.training import DISTILLED, PAIRS, TrainingPlan, distil, take_over, train

own = partial(Decoding, judge="itself")
judged = partial(Decoding, judge="teacher")
TRIAL = (30, 40)  # steps on a GPU: those that compile, and those that are timed
SEARCHES = {"greedy": own("ar", n_beams=1), "beam 5": own("ar", n_beams=5)}


def _at(decodings: dict[str, Decoding], *counts: int) -> dict[str, Decoding]:
    """Each way of decoding at each number of passes."""
    return {
        f"{name}, {n} step{'s' if n > 1 else ''}": replace(how, n_steps=n)
        for name, how in decodings.items()
        for n in counts
    }


REFINED = {
    "refine": own("refine"),
    "refine-remask": own("refine-remask"),
    "refine, judged by ar": judged("refine"),
    "refine-remask, judged by ar": judged("refine-remask"),
}
FROM_RANDOM = {
    "refine from random": own("refine", initial="random"),
    "refine": own("refine"),
    "refine from random, judged by ar": judged("refine", initial="random"),
    "refine-remask from random": own("refine-remask", initial="random"),
    "sundae": own("sundae", n_lengths=1),
}
FILLED = {
    "mask-predict": own("mask-predict"),
    "easy-first": own("easy-first"),
    "mask-predict, judged by ar": judged("mask-predict"),
    "confident-first": own("confident-first"),
}
ONE_PASS = {"refine": own("refine"), "mask-predict": own("mask-predict")}


@dataclass(frozen=True)
class Learner:
    """One model: its kind, the pairs that it learns from, how, and how it is decoded."""

    kind: str
    pairs: str
    decodings: dict[str, Decoding]
    changes: dict[str, Any]  # of the plan
    dropout: float = 0.1


LEARNERS = {
    # Dropout 0.2 is what the shipped teacher learnt with.
    "teacher": Learner("ar", PAIRS, SEARCHES, {}, 0.2),
    "control": Learner("ar", DISTILLED, SEARCHES, {}),
    "student": Learner(
        "refine", DISTILLED, _at(REFINED, 4, 10) | _at(ONE_PASS, 1),
        {"corruption": "mask", "kept": None, "stages": 2, "remask": 0.5},
    ),
    "paper": Learner(
        "refine", DISTILLED, _at(FROM_RANDOM, 4, 10) | _at(ONE_PASS, 1),
        {"corruption": "random", "kept": 0.15, "stages": 2, "remask": 0.0},
    ),
    "cmlm": Learner(
        "refine", DISTILLED, _at(FILLED, 4, 10), {"corruption": "cmlm", "stages": 1}
    ),
    "repeats-only": Learner(
        "refine", DISTILLED, _at(REFINED, 4, 10),
        {"corruption": "mask", "kept": None, "stages": 2, "remask": 0.0},
    ),
}  # fmt: skip
SHIPPED = {"shipped teacher": SEARCHES, "shipped student": _at(REFINED, 4, 10)}
DEFAULT = ("teacher", "control", "student", "paper", "cmlm")


def main(words: list[str] | None = None) -> None:
    """Reads the command line, trains and decodes side by side, and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name in ("train", "valid", "test", "work", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pairs", type=int, default=4_608_000, help="of each model, at most")
    parser.add_argument("--batch", type=int, default=2048, help="pairs of a batch")
    parser.add_argument("--seconds", type=float, default=520.0, help="for everything")
    parser.add_argument("--decoding", type=float, default=90.0, help="seconds of that to translate")
    parser.add_argument("--models", nargs="+", choices=LEARNERS, default=list(DEFAULT))
    parser.add_argument("--limit", type=int, default=None, help="sentences of each file")
    parser.add_argument("--long", type=int, default=200, help="long pairs")
    parser.add_argument("--rows", type=int, default=256, help="sentences translated together")
    args = parser.parse_args(words)
    args.began = time.time()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    prepare(args)
    context = multiprocessing.get_context("spawn")
    names = [*args.models, *SHIPPED]
    workers = {name: context.Process(target=work, args=(name, args)) for name in names}
    for worker in workers.values():
        worker.start()
    spread_work(args, workers)
    for name, worker in workers.items():
        if worker.is_alive():
            print(f"{name}: out of time", flush=True)
            worker.terminate()
            worker.join()
    assemble(args, names)


def prepare(args: argparse.Namespace) -> None:
    """The folder of all models: the shipped ones, the vocabulary, the pairs."""
    args.work.mkdir(parents=True, exist_ok=True)
    for model in ("teacher", "student"):
        for end in ("json", "safetensors"):
            shutil.copyfile(BUNDLED / f"{model}.{end}", args.work / f"shipped {model}.{end}")
    for end in ("json", "safetensors"):  # what distils
        shutil.copyfile(BUNDLED / f"teacher.{end}", args.work / f"teacher.{end}")
    shutil.copyfile(BUNDLED / VOCABULARY, args.work / VOCABULARY)
    if not (args.work / PAIRS).is_file():
        write_pairs(args.work / PAIRS, read_pairs(args.train)[: args.limit])


def spread_work(args: argparse.Namespace, workers: dict[str, Any]) -> None:
    """Distils, sets the number of steps, and waits for the workers or for the end of the time."""
    if not (args.work / "ready").is_file():
        n_pairs = distil(args.work, device=args.device)
        (args.work / "ready").write_text(f"{n_pairs}\n")
        print(f"distilled {n_pairs:,} sources at {_spent(args):.0f} s", flush=True)
    deadline, latest = args.began + args.seconds - 8, 0.0
    while time.time() < deadline and any(one.is_alive() for one in workers.values()):
        time.sleep(0.2)
        if not (args.work / "plan.json").is_file():
            set_plan(args, [name for name in args.models if workers[name].is_alive()])
        written = [path.stat().st_mtime for path in args.work.glob("*.outputs.json")]
        if max(written, default=0.0) > latest and time.time() - args.began > 30:
            latest = max(written)
            assemble(args, list(workers))


def set_plan(args: argparse.Namespace, alive: list[str]) -> None:
    """Once every model has had its trial: as many steps for each as the time allows."""
    paces = [args.work / f"{name}.pace.json" for name in alive]
    if not alive or not all(path.is_file() for path in paces):
        return
    times = [json.loads(path.read_text()) for path in paces]
    step = (max(time[1] for time in times) - min(time[0] for time in times)) / times[0][2]
    left = 0.93 * (args.seconds - _spent(args) - args.decoding)
    n_steps = max(1, min(args.pairs // args.batch, int(left / step)))
    _write(args.work / "plan.json", {"n_steps": n_steps, "seconds a step": step})
    print(
        f"{len(alive)} models at once: {step:.3f} s a step of all; {n_steps:,} steps of "
        f"{args.batch:,} pairs each, at {_spent(args):.0f} s",
        flush=True,
    )


def work(name: str, args: argparse.Namespace) -> None:
    """One model from its first step to its translations; in a process of its own."""
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // (len(args.models) + 2)))
    if name in SHIPPED:
        _await(args.work / "plan.json")
        translate(name, load(args.work, name, device=args.device), SHIPPED[name], args)
        return
    learner = LEARNERS[name]
    model = learn(name, learner, args)
    translate(name, model, learner.decodings, args)


def learn(name: str, learner: Learner, args: argparse.Namespace) -> Translator:
    """The model, trained for as many steps as all others."""
    _await(args.work / "ready")
    teacher = load(args.work, "shipped teacher")
    shape = replace(teacher.shape, kind=learner.kind, dropout=learner.dropout)
    torch.manual_seed(0)
    model = Translator(shape)
    take_over(model, teacher)
    pairs = read_pairs(args.work / learner.pairs)
    corpus = Corpus.of(pairs, load_vocabulary(args.work)).to(args.device)
    model = model.to(args.device)
    if not (args.work / "plan.json").is_file():
        _trial(name, model, corpus, learner, args)
    _await(args.work / "plan.json")
    n_steps = json.loads((args.work / "plan.json").read_text())["n_steps"]
    plan, began = _plan(learner, n_steps, args), time.time()
    curve = train(
        model, corpus, plan, checkpoint=args.work / f"{name}.checkpoint.pt", every=500, name=name
    )
    save(model, args.work, f"trained {name}")
    record = {
        "pairs in the file": len(pairs),
        "pairs of at most 31 tokens": len(corpus),
        "pairs seen": n_steps * args.batch,
        "decoder passes over a pair": plan.stages if learner.kind == "refine" else 1,
        "dropout": learner.dropout,
        "plan": asdict(plan),
        "seconds": time.time() - began,
        "curve": curve,
    }
    _write(args.work / f"{name}.training.json", record)
    print(f"{name}: loss {curve[-1][1]:.3f} after {record['seconds']:.0f} s", flush=True)
    return model.eval()


def _plan(learner: Learner, n_steps: int, args: argparse.Namespace) -> TrainingPlan:
    warmup = max(1, min(300, n_steps // 8))
    return TrainingPlan(n_steps, args.batch, warmup=warmup, **learner.changes)


def _trial(
    name: str, model: Translator, corpus: Corpus, learner: Learner, args: argparse.Namespace
) -> None:
    """How long steps take while the others take theirs; the model itself learns nothing."""
    tried, (warm, timed) = copy.deepcopy(model), TRIAL if args.device == "cuda" else (1, 1)
    train(tried, corpus, _plan(learner, warm, args))
    begin = time.time()
    train(tried, corpus, _plan(learner, timed, args))
    _write(args.work / f"{name}.pace.json", [begin, time.time(), timed])


def translate(
    name: str, model: Translator, decodings: dict[str, Decoding], args: argparse.Namespace
) -> None:
    """Every set by every way of decoding, written one after the other."""
    vocabulary = load_vocabulary(args.work)
    judge = load(args.work, "shipped teacher", device=args.device)
    path, began, sets = args.work / f"{name}.outputs.json", time.time(), sources(args)
    done: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    for way, how in decodings.items():
        for which, texts in sets.items():
            if which in done.get(way, {}):
                continue
            made = translate_texts(
                model, vocabulary, texts, decoding=how, batch_size=args.rows, teacher=judge
            )
            done.setdefault(way, {})[which] = {
                "passes": sum(one.n_passes for one in made) / len(made),
                "texts": [one.text for one in made],
            }
        _write(path, done)
    print(f"{name}: translated in {time.time() - began:.0f} s", flush=True)


def sources(args: argparse.Namespace) -> dict[str, list[str]]:
    """The sentences of the test file, of the long set made from it, and of the valid file."""
    test, valid = read_pairs(args.test), read_pairs(args.valid)
    long = long_pairs(test, load_vocabulary(args.work), n_pairs=args.long)
    return {
        "test": [one.source for one in by_source(test)[: args.limit]],
        "long": [one.source for one in long],
        "valid": [one.source for one in by_source(valid)[: args.limit]],
    }


def assemble(args: argparse.Namespace, names: list[str]) -> None:
    """Everything that is there so far, in one file."""
    plan = args.work / "plan.json"
    record: dict[str, Any] = {
        "device": machine(args.device),
        "batch": args.batch,
        "steps": json.loads(plan.read_text())["n_steps"] if plan.is_file() else None,
        "begins from": "the shipped teacher",
        "judge": "the shipped teacher",
        "seconds": _spent(args),
        "training": {},
        "outputs": {},
    }
    for name in names:
        for part, end in (("training", "training"), ("outputs", "outputs")):
            path = args.work / f"{name}.{end}.json"
            if path.is_file():
                record[part][name] = json.loads(path.read_text())
    packed = lzma.compress(json.dumps(record, ensure_ascii=False).encode(), preset=4)
    part = args.out.with_name(args.out.name + ".part")
    part.write_bytes(packed)
    os.replace(part, args.out)


def _write(path: Path, record: Any) -> None:
    """The whole file or none."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(record, ensure_ascii=False))
    os.replace(part, path)


def _await(path: Path) -> None:
    """Waits until another process has written the file."""
    while not path.is_file():
        time.sleep(0.1)


def _spent(args: argparse.Namespace) -> float:
    return time.time() - args.began


if __name__ == "__main__":
    main()
