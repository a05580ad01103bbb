"""From pairs of sentences to a translator that refines: how the one in the package was made.

    python -m recipes.translation prepare --train TRAIN.tsv.xz --out WORK
    python -m recipes.translation teacher --out WORK          # autoregressive, on the pairs
    python -m recipes.translation distil --out WORK           # the teacher's output is the target
    python -m recipes.translation student --out WORK          # refinement, on distilled pairs
    python -m recipes.translation ar-distilled --out WORK     # the control of table 1
    python -m recipes.translation evaluate --test TEST.tsv.xz --out WORK

Each step reads what the one before left in WORK, and goes on from its checkpoint after a kill.
`--train` takes any two-column file, or `hub:NAME:CONFIG` of Hugging Face datasets (wmt14:de-en).
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import torch

from glauber.errors import GlauberError
from glauber.translation.data import (
    Corpus,
    Judged,
    Pair,
    by_source,
    long_pairs,
    read_pairs,
    write_pairs,
)
from glauber.translation.model import Shape, Translator
from glauber.translation.score import latency, quality
from glauber.translation.store import VOCABULARY, load, load_vocabulary, save
from glauber.translation.train import Plan, train
from glauber.translation.translate import Translation, Way, translate
from glauber.translation.vocabulary import Vocabulary

# What is compared: a model of WORK and how it decodes.
SYSTEMS = {
    "teacher, greedy": ("teacher", Way("ar", n_beams=1)),
    "teacher, beam 5": ("teacher", Way("ar", n_beams=5)),
    "ar-distilled, greedy": ("ar-distilled", Way("ar", n_beams=1)),
    "ar-distilled, beam 5": ("ar-distilled", Way("ar", n_beams=5)),
    "refine, 1 step": ("student", Way(n_steps=1)),
    "refine, 4 steps": ("student", Way(n_steps=4)),
    "refine, 10 steps": ("student", Way(n_steps=10)),
    "refine, 4 steps, 1 length": ("student", Way(n_steps=4, n_lengths=1)),
    "mask-predict, 4 steps": ("student", Way("mask-predict", n_steps=4)),
    "mask-predict, 10 steps": ("student", Way("mask-predict", n_steps=10)),
    "easy-first, 10 steps": ("student", Way("easy-first", n_steps=10)),
}


def read_training(name: str) -> list[Pair]:
    """Pairs of a file, or of a data set on the hub where that can be reached."""
    if not name.startswith("hub:"):
        return read_pairs(Path(name))
    try:
        from datasets import load_dataset
    except ImportError as missing:
        raise GlauberError(
            "hub names need the package datasets: pip install datasets."
        ) from missing
    _, name, config = name.split(":")
    left, right = config.split("-")
    rows = load_dataset(name, config, split="train")["translation"]
    return [(row[left], row[right]) for row in rows]


def prepare(args: argparse.Namespace) -> None:
    """Pairs and their vocabulary."""
    args.out.mkdir(parents=True, exist_ok=True)
    pairs = read_training(args.train)
    vocabulary = Vocabulary.learn([text for pair in pairs for text in pair], args.vocab)
    (args.out / VOCABULARY).write_bytes(vocabulary.serialized)
    write_pairs(args.out / "pairs.tsv", pairs)
    print(f"prepare: {len(pairs)} pairs, {vocabulary.size} tokens", flush=True)


def learn(args: argparse.Namespace, name: str, kind: str, pairs: str) -> None:
    """One training, from WORK/PAIRS to WORK/NAME.safetensors."""
    vocabulary = load_vocabulary(args.out)
    corpus = Corpus.of(read_pairs(args.out / pairs), vocabulary)
    torch.manual_seed(args.seed)
    shape = Shape(
        kind, vocabulary.size, args.width, args.heads, args.layers, args.layers, args.inner,
        dropout=args.dropout,
    )  # fmt: skip
    model = Translator(shape).to(args.device)
    plan = Plan(
        args.steps, args.batch, args.peak, 1e-5, args.warmup, args.seed, args.stages,
        args.corruption, args.kept, args.optimizer,
    )  # fmt: skip
    begun = time.perf_counter()

    def hear(step: int, loss: float) -> None:
        seconds = time.perf_counter() - begun
        print(f"{name}: step {step}, loss {loss:.3f}, {seconds:.0f} s", flush=True)

    checkpoint = args.out / f"{name}.checkpoint.pt"
    loss = train(model, corpus, plan, checkpoint=checkpoint, every=args.every, hear=hear)
    save(model, args.out, name)
    told = asdict(plan) | {
        "loss": loss,
        "pairs": len(corpus),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "seconds": time.perf_counter() - begun,
        "device": torch.cuda.get_device_name() if args.device == "cuda" else args.device,
    }
    (args.out / f"{name}.training.json").write_text(json.dumps(told, indent=2) + "\n")


def distil(args: argparse.Namespace) -> None:
    """Each source once with the teacher's translation of it."""
    teacher = load(args.out, "teacher", device=args.device, dtype=_dtype(args.device))
    vocabulary = load_vocabulary(args.out)
    sources = [one.source for one in by_source(read_pairs(args.out / "pairs.tsv"))]
    begun = time.perf_counter()
    readable = _readable(sources, vocabulary, teacher)
    way = Way("ar", n_beams=args.beams)
    made = translate(teacher, vocabulary, readable, way=way, batch_size=args.batch)
    pairs = [(source, one.text) for source, one in zip(readable, made, strict=True) if one.text]
    write_pairs(args.out / "distilled.tsv", pairs)
    print(f"distil: {len(pairs)} sources, {time.perf_counter() - begun:.0f} s", flush=True)


def _readable(sources: list[str], vocabulary: Vocabulary, model: Translator) -> list[str]:
    encoded = vocabulary.encode_many(sources)
    most = model.shape.max_length
    return [s for s, tokens in zip(sources, encoded, strict=True) if 0 < len(tokens) < most]


def evaluate(args: argparse.Namespace) -> None:
    """Every system on the test file and on the long set, to WORK/evaluation.json."""
    vocabulary = load_vocabulary(args.out)
    pairs = read_pairs(args.test)
    sets = {
        "test": by_source(pairs)[: args.limit],
        "long": long_pairs(pairs, vocabulary, n_pairs=args.long),
    }
    rows = []
    for system, (name, way) in SYSTEMS.items():
        if not (args.out / f"{name}.safetensors").is_file():
            continue
        model = load(args.out, name, device=args.device)
        for which, judged in sets.items():
            row = _judge(model, vocabulary, judged, way, args)
            rows.append({"system": system, "set": which, **asdict(way), **row})
            shown = {k: v for k, v in row.items() if k not in ("outputs", "chrf_signature")}
            print(system, which, json.dumps(shown), flush=True)
    told = {"device": _named(args.device), "rows": rows}
    (args.out / "evaluation.json").write_text(json.dumps(told, ensure_ascii=False) + "\n")


def _judge(
    model: Translator,
    vocabulary: Vocabulary,
    judged: list[Judged],
    way: Way,
    args: argparse.Namespace,
) -> dict[str, object]:
    made = translate(model, vocabulary, [one.source for one in judged], way=way, batch_size=64)
    outputs = [one.text for one in made]
    row: dict[str, object] = {"n_passes": sum(one.n_passes for one in made) / len(made)}
    if args.outputs_only:
        row["outputs"] = outputs
    else:
        row |= asdict(quality(outputs, judged))
    if args.timed:

        def alone(text: str) -> list[Translation]:
            return translate(model, vocabulary, [text], way=way)

        row["latency"] = asdict(latency(alone, [one.source for one in judged[: args.timed]]))
    return row


def _named(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{device}, {torch.get_num_threads()} threads"


def _dtype(device: str) -> torch.dtype:
    return torch.bfloat16 if device == "cuda" else torch.float32


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
    trainings = {
        "teacher": ("ar", "pairs.tsv"),
        "student": ("refine", "distilled.tsv"),
        "ar-distilled": ("ar", "distilled.tsv"),
        "student-raw": ("refine", "pairs.tsv"),
    }
    for name, (kind, pairs) in trainings.items():
        one = step(name, lambda args: learn(args, *args.training), training=(name, kind, pairs))
        one.add_argument("--steps", type=int, default=5000)
        one.add_argument("--batch", type=int, default=2048, help="pairs of a batch")
        one.add_argument("--peak", type=float, default=2e-3)
        one.add_argument("--warmup", type=int, default=400)
        one.add_argument("--stages", type=int, default=2)
        one.add_argument("--corruption", default="mixed")
        one.add_argument("--kept", type=float, default=0.15)
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
    one = step("evaluate", evaluate)
    one.add_argument("--test", type=Path, required=True)
    one.add_argument("--limit", type=int, default=None, help="sentences of the test file")
    one.add_argument("--long", type=int, default=200, help="pairs of the long set")
    one.add_argument("--timed", type=int, default=100, help="sentences timed alone; 0 times none")
    one.add_argument("--outputs-only", action="store_true", help="keep the texts, score them later")
    args = parser.parse_args(words)
    args.run(args)


if __name__ == "__main__":
    main()
