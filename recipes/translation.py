"""From pairs of sentences to a translator that refines: how the one in the package was made.

    python -m recipes.translation prepare --train TRAIN.tsv.xz --out WORK
    python -m recipes.translation teacher --out WORK          # autoregressive, on the pairs
    python -m recipes.translation distil --out WORK           # the teacher's output is the target
    python -m recipes.translation student --begin-from teacher --out WORK
    python -m recipes.translation ar-distilled --out WORK     # the control of table 1
    python -m recipes.translation evaluate --test TEST.tsv.xz --out WORK
    python -m recipes.translation ablate --test TEST.tsv.xz --out WORK
    python -m recipes.translation score-ablations --test TEST.tsv.xz --out WORK

Each step reads what the one before left in WORK, and goes on from its checkpoint after a kill.
`--train` takes any two-column file, or `hub:NAME:CONFIG` of Hugging Face datasets (wmt14:de-en).
`glauber train-translator` runs the first four in one go.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from glauber.translation.data import (
    Example,
    SubwordVocabulary,
    by_source,
    load_vocabulary,
    long_pairs,
    read_lines,
    read_pairs,
    read_split,
)
from glauber.translation.decoding import Decoding, Translation, translate_texts
from glauber.translation.evaluation import latency, machine
from glauber.translation.model import Shape, Translator, load
from glauber.translation.score import quality
from glauber.translation.training import MODELS, TrainingPlan
from glauber.translation.training import distil as distilled
from glauber.translation.training import learn as learnt
from glauber.translation.training import prepare as prepared
from recipes.translation_ablation import ablate as ablated
from recipes.translation_ablation import scored

ABLATED = "ablated.json"
own = partial(Decoding, judge="itself")
# What is compared: a model of WORK and how it decodes.
SYSTEMS = {
    "teacher, greedy": ("teacher", own("ar", n_beams=1)),
    "teacher, beam 5": ("teacher", own("ar", n_beams=5)),
    "ar-distilled, greedy": ("ar-distilled", own("ar", n_beams=1)),
    "ar-distilled, beam 5": ("ar-distilled", own("ar", n_beams=5)),
    "refine, 1 step": ("student", own("refine", n_steps=1)),
    "refine, 4 steps": ("student", own("refine", n_steps=4)),
    "refine, 10 steps": ("student", own("refine", n_steps=10)),
    "refine-remask, 4 steps": ("student", own(n_steps=4)),
    "refine-remask, 10 steps": ("student", own(n_steps=10)),
    "refine-remask, 4 steps, 1 length": ("student", own(n_steps=4, n_lengths=1)),
    "mask-predict, 4 steps": ("student", own("mask-predict", n_steps=4)),
    "mask-predict, 10 steps": ("student", own("mask-predict", n_steps=10)),
    "easy-first, 10 steps": ("student", own("easy-first", n_steps=10)),
}


def prepare(args: argparse.Namespace) -> None:
    """Pairs and their vocabulary."""
    pairs = read_split(args.train, "train")
    vocabulary = prepared(pairs, args.out, vocab_size=args.vocab)
    print(f"prepare: {len(pairs)} pairs, {vocabulary.size} tokens", flush=True)


def learn(args: argparse.Namespace, name: str) -> None:
    """One training, into WORK/NAME.safetensors."""
    shape = Shape(
        MODELS[name][0], load_vocabulary(args.out).size, args.width, args.heads, args.layers,
        args.layers, args.inner, dropout=args.dropout,
    )  # fmt: skip
    plan = TrainingPlan(
        args.steps, args.batch, args.peak, 1e-5, args.warmup, args.seed, args.stages,
        args.corruption, None if args.kept < 0 else args.kept, args.optimizer, remask=args.remask,
    )  # fmt: skip
    made = learnt(
        args.out, name, plan, shape=shape, begin_from=args.begin_from, device=args.device,
        every=args.every,
    )  # fmt: skip
    print(f"{name}: {args.steps} steps, loss {made.loss:.3f}, {made.seconds:.0f} s", flush=True)


def distil(args: argparse.Namespace) -> None:
    """Each source once with the teacher's translation of it, and further sentences likewise."""
    further = read_lines(args.further) if args.further else []
    begun = time.perf_counter()
    n_pairs = distilled(
        args.out, further=further, n_beams=args.beams, batch_size=args.batch, device=args.device
    )
    print(f"distil: {n_pairs} sources, {time.perf_counter() - begun:.0f} s", flush=True)


def ablate(args: argparse.Namespace) -> None:
    """Students that differ in one thing each; their translations, to WORK/ablated.json."""
    plan = TrainingPlan(args.steps, args.batch, warmup=args.warmup, corruption="mask", kept=None)
    record = ablated(
        args.out,
        example_sets(args),
        plan=plan,
        device=args.device,
        only=tuple(args.only),
        english=args.english,
    )
    (args.out / ABLATED).write_text(json.dumps(record, ensure_ascii=False) + "\n")


def score_ablations(args: argparse.Namespace) -> None:
    """The scores of those translations, to WORK/ablations.json; a GPU is not needed for it."""
    record = scored(json.loads((args.out / ABLATED).read_text()), example_sets(args))
    (args.out / "ablations.json").write_text(json.dumps(record, indent=1) + "\n")


def example_sets(args: argparse.Namespace) -> dict[str, list[Example]]:
    """The test file and the long set made from it."""
    pairs = read_pairs(args.test)
    return {
        "test": by_source(pairs)[: args.limit],
        "long": long_pairs(pairs, load_vocabulary(args.out), n_pairs=args.long),
    }


def evaluate(args: argparse.Namespace) -> None:
    """Every system on the test file and on the long set, to WORK/evaluation.json."""
    vocabulary = load_vocabulary(args.out)
    sets, rows = example_sets(args), []
    for system, (name, decoding) in SYSTEMS.items():
        if not (args.out / f"{name}.safetensors").is_file():
            continue
        model = load(args.out, name, device=args.device)
        for which, judged in sets.items():
            row = _judge(model, vocabulary, judged, decoding, args)
            rows.append({"system": system, "set": which, **asdict(decoding), **row})
            shown = {k: v for k, v in row.items() if k not in ("outputs", "chrf_signature")}
            print(system, which, json.dumps(shown), flush=True)
    record = {"device": machine(args.device), "rows": rows}
    (args.out / "evaluation.json").write_text(json.dumps(record, ensure_ascii=False) + "\n")


def _judge(
    model: Translator,
    vocabulary: SubwordVocabulary,
    judged: list[Example],
    decoding: Decoding,
    args: argparse.Namespace,
) -> dict[str, object]:
    sources = [one.source for one in judged]
    made = translate_texts(model, vocabulary, sources, decoding=decoding, batch_size=64)
    outputs = [one.text for one in made]
    row: dict[str, object] = {"n_passes": sum(one.n_passes for one in made) / len(made)}
    if args.outputs_only:
        row["outputs"] = outputs
    else:
        row |= asdict(quality(outputs, judged))
    if args.timed:

        def alone(text: str) -> list[Translation]:
            return translate_texts(model, vocabulary, [text], decoding=decoding)

        row["latency"] = asdict(latency(alone, sources[: args.timed]))
    return row


def main(words: list[str] | None = None) -> None:
    """Reads the command line and runs one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    steps = parser.add_subparsers(required=True)

    def step(name: str, run: object, **defaults: object) -> argparse.ArgumentParser:
        made = steps.add_parser(name)
        made.add_argument("--out", type=Path, required=True, help="the folder of all steps")
        made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
        made.set_defaults(run=run, **defaults)
        return made

    one = step("prepare", prepare)
    one.add_argument("--train", required=True)
    one.add_argument("--vocab", type=int, default=8000)
    for name in MODELS:
        one = step(name, lambda args: learn(args, args.model), model=name)
        one.add_argument("--steps", type=int, default=5000)
        one.add_argument("--batch", type=int, default=2048, help="pairs of a batch")
        one.add_argument("--peak", type=float, default=2e-3)
        one.add_argument("--warmup", type=int, default=400)
        one.add_argument("--stages", type=int, default=2)
        one.add_argument("--corruption", default="mask")
        one.add_argument("--kept", type=float, default=-1, help="share; below 0: drawn by row")
        one.add_argument("--remask", type=float, default=0.5, help="fraction hidden between stages")
        one.add_argument("--begin-from", help="a model of WORK whose weights are taken over")
        one.add_argument("--optimizer", default="adamw")
        one.add_argument("--width", type=int, default=256)
        one.add_argument("--heads", type=int, default=8)
        one.add_argument("--layers", type=int, default=3)
        one.add_argument("--inner", type=int, default=640)
        one.add_argument("--dropout", type=float, default=0.1)
        one.add_argument("--seed", type=int, default=0)
        one.add_argument("--every", type=int, default=500, help="steps between checkpoints")
    one = step("distil", distil)
    one.add_argument("--beams", type=int, default=5)
    one.add_argument("--batch", type=int, default=1024, help="sentences of a batch")
    one.add_argument("--further", type=Path, help="sentences without a translation, one a line")
    for name, run in (
        ("evaluate", evaluate),
        ("ablate", ablate),
        ("score-ablations", score_ablations),
    ):
        one = step(name, run)
        one.add_argument("--test", type=Path, required=True)
        one.add_argument("--limit", type=int, default=None, help="sentences of the test file")
        one.add_argument("--long", type=int, default=200, help="pairs of the long set")
        if name == "evaluate":
            one.add_argument("--timed", type=int, default=100, help="sentences timed alone")
            one.add_argument("--outputs-only", action="store_true", help="score the texts later")
        if name == "ablate":
            one.add_argument("--steps", type=int, default=1500)
            one.add_argument("--batch", type=int, default=2048, help="pairs of a batch")
            one.add_argument("--warmup", type=int, default=150)
            one.add_argument("--only", nargs="+", default=[], help="choices; default: all")
            one.add_argument("--english", type=Path, help="text for the generic vocabulary")
    args = parser.parse_args(words)
    args.run(args)


if __name__ == "__main__":
    main()
