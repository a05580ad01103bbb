"""From pairs of sentences to translators: prepare, learn, distil.

Each step reads what the one before left in one folder:

    pairs.tsv, vocabulary.model      prepare
    teacher.safetensors              learn("teacher"): autoregressive, on the pairs
    distilled.tsv                    distil: the teacher's translation becomes the target
    student.safetensors              learn("student"): refinement, on the distilled pairs
"""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch

from glauber.conditionals.weights import choose_device
from glauber.errors import GlauberError
from glauber.json_text import parse_json
from glauber.parameters import Device, Seed
from glauber.progress import check_count, say, track
from glauber.result import Result, plain, signature, study, visible
from glauber.translation.data import (
    LONGEST,
    VOCABULARY,
    Corpus,
    Pair,
    Vocabulary,
    by_source,
    load_vocabulary,
    read_lines,
    read_pairs,
    read_training,
    readable,
    write_pairs,
)
from glauber.translation.decoding import Decoding, translate_texts
from glauber.translation.learning import Curve, Plan, check_size, train
from glauber.translation.model import Shape, Translator, load, save
from glauber.translation.schedules import REMASK
from glauber.translation.speed import machine

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

PAIRS, DISTILLED = "pairs.tsv", "distilled.tsv"
# Of each model that the recipe makes: its kind, and the pairs that it learns from.
MODELS = {
    "teacher": ("ar", PAIRS),
    "student": ("refine", DISTILLED),
    "ar-distilled": ("ar", DISTILLED),
    "student-raw": ("refine", PAIRS),
}


@study
def train_translator(
    pairs: Annotated[str | Path, "Two-column file, plain or xz, or hub:NAME:CONFIG."],
    *,
    out: Annotated[str | Path, "Folder of the translator; an existing one is resumed."],
    steps: Annotated[int, "Training steps of teacher and student."] = 5000,
    batch: Annotated[int, "Pairs of a batch."] = 2048,
    vocabulary: Annotated[int, "Tokens of the shared vocabulary."] = 8000,
    width: Annotated[int, "Hidden units."] = 256,
    heads: Annotated[int, "Attention heads; they divide the width."] = 8,
    layers: Annotated[int, "Layers of encoder and decoder each."] = 3,
    corruption: Annotated[str, "Of the student's drafts: mask, random, mixed or cmlm."] = "mask",
    kept: Annotated[
        float | None, "Share of a draft that is kept (default: drawn for each row)."
    ] = None,
    stages: Annotated[
        int | None, "Student's passes; each sees the one before (default: 2, of cmlm 1)."
    ] = None,
    remask: Annotated[float, "Fraction hidden between stages, the least sure, at most."] = REMASK,
    optimizer: Annotated[str, "adamw or adafactor (the paper's)."] = "adamw",
    peak: Annotated[float, "Highest learning rate."] = Plan.peak,
    warmup: Annotated[int | None, "Steps until then (default: a fifth, at most 400)."] = None,
    longest: Annotated[int, "Tokens on a side of a pair; longer pairs are not used."] = LONGEST,
    further: Annotated[str | Path | None, "Sentences without a translation, one a line."] = None,
    seed: Seed = 0,
    device: Device = "auto",
) -> "TrainedTranslator":
    """Train a translator from pairs: a teacher, its distilled translations, and a student.

    What `translate` reads with `model=OUT`. Teacher and student are trained for as many steps; the
    student begins from the teacher's weights, which have seen as many pairs before it. The drafts
    of paper B are `corruption=random, kept=0.15, remask=0`, its optimiser adafactor.
    """
    check_count("number of steps", steps)
    plan = Plan(
        steps, batch, peak, seed=seed, corruption=corruption, kept=kept, optimizer=optimizer,
        warmup=max(1, min(400, steps // 5)) if warmup is None else warmup, remask=remask,
        stages=stages if stages is not None else 1 if corruption == "cmlm" else 2,
    )  # fmt: skip
    plan.check()
    sizes = {
        "vocabulary": vocabulary, "width": width, "number of heads": heads,
        "number of layers": layers, "longest pair": longest,
    }  # fmt: skip
    for name, size in sizes.items():
        check_count(name, size, most=10**7)
    shape = Shape(
        vocab_size=vocabulary, width=width, heads=heads, n_encoder=layers, n_decoder=layers,
        inner=5 * width // 2, max_length=max(Shape.max_length, 4 * longest + 4),
    )  # fmt: skip
    shape.check()
    check_size(shape, plan)
    folder = _folder(out)
    sentences = read_lines(Path(further)) if further else []
    found = read_training(pairs)
    say(f"{len(found):,} pairs; teacher and student, {steps:,} steps of {batch:,} pairs each")
    on = choose_device(device).type
    models = make(found, folder, plan, shape=shape, longest=longest, further=sentences, device=on)
    made = signature(
        pairs=len(found), steps=steps, batch=batch, vocabulary=vocabulary, width=width, heads=heads,
        layers=layers, longest=longest, corruption=corruption, kept=kept, stages=plan.stages,
        remask=remask, optimizer=optimizer, peak=peak, warmup=plan.warmup, seed=seed, device=on,
    )  # fmt: skip
    return TrainedTranslator(folder, models, made)


@dataclass(frozen=True)
class TrainedModel:
    """What the training of a model cost, where it ended and how it got there."""

    name: str
    loss: float  # of the last batch
    n_examples: int
    n_dropped: int  # pairs that were too long
    n_parameters: int
    seconds: float
    device: str
    curve: Curve  # (step, loss) of single batches
    new: bool = True  # false: it was in the folder already


@dataclass(frozen=True, eq=False)
class TrainedTranslator(Result):
    """A folder with a translator, and the losses of its training."""

    folder: Path
    models: list[TrainedModel]
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "models": plain(self.models),
            "kind": "estimate: losses of single batches",
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        for one in self.models:
            how = f"{one.seconds:,.0f} s on {one.device}" if one.new else "there already"
            yield (
                f"{one.name}: {one.n_parameters:,} parameters, {one.n_examples:,} pairs"
                f"{f' ({one.n_dropped:,} more were too long)' if one.n_dropped else ''}, "
                f"loss {one.loss:.3f} (last batch), {how}"
            )
        yield f'{self.folder} holds the translator: glauber translate "…" --model {self.folder}'

    def frame(self) -> "pandas.DataFrame":
        """One row for each loss that was recorded."""
        import pandas

        rows = [(one.name, step, loss) for one in self.models for step, loss in one.curve]
        return pandas.DataFrame(rows, columns=["model", "step", "loss"])

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.translation import plot_losses

        return {"loss": plot_losses(self.models)}


def _folder(out: str | Path) -> Path:
    """Where the translator goes: a new or empty folder, or one with an unfinished translator."""
    folder = Path(out)
    try:
        if not str(out).strip():
            raise GlauberError("the folder of the translator has no name.")
        if "\0" in str(out):
            raise ValueError("it has a null byte")
        if folder.exists() and not folder.is_dir():
            raise GlauberError(f"{folder} is a file, not the folder of a translator.")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / VOCABULARY).is_file():
            raise GlauberError(f"{folder} holds other things than a translator; give a new name.")
    except (OSError, ValueError) as problem:
        text = f"{visible(str(out))[:200]} cannot be the folder of a translator"
        raise GlauberError(f"{text}: {getattr(problem, 'strerror', None) or problem}.") from problem
    return folder


def prepare(pairs: list[Pair], folder: Path, *, vocab_size: int = 8000) -> Vocabulary:
    """Writes the pairs and a vocabulary learnt from both sides of them."""
    vocabulary = Vocabulary.learn([text for pair in pairs for text in pair], vocab_size)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / VOCABULARY).write_bytes(vocabulary.serialized)
        write_pairs(folder / PAIRS, pairs)
    except OSError as error:
        raise GlauberError(f"{folder} cannot be written: {error.strerror or error}.") from error
    return vocabulary


def learn(
    folder: Path,
    name: str,
    plan: Plan,
    *,
    shape: Shape,
    pairs: str | None = None,
    begin_from: str | None = None,
    longest: int = LONGEST,
    device: str = "cpu",
    every: int = 500,
) -> TrainedModel:
    """Trains the model of that name into the folder; resumes from its checkpoint after a kill.

    `begin_from` names a model of the folder whose weights are taken over where names and shapes
    agree: a student that begins as its teacher has its encoder from the first step.
    """
    listed = read_pairs(folder / (pairs or MODELS[name][1]))
    corpus = Corpus.of(listed, load_vocabulary(folder), longest=longest)
    torch.manual_seed(plan.seed)
    model = Translator(shape)
    if begin_from is not None:
        take_over(model, load(folder, begin_from))
    began, checkpoint = time.perf_counter(), folder / f"{name}.checkpoint.pt"
    curve = train(
        model.to(device), corpus, plan, checkpoint=checkpoint, every=every, name=f"{name}, step"
    )
    save(model, folder, name)
    made = TrainedModel(
        name=name,
        loss=curve[-1][1],
        n_examples=len(corpus),
        n_dropped=len(listed) - len(corpus),
        n_parameters=sum(weight.numel() for weight in model.parameters()),
        seconds=time.perf_counter() - began,
        device=machine(device),
        curve=curve,
    )
    record = asdict(plan) | {"begin_from": begin_from} | plain(made)
    (folder / f"{name}.training.json").write_text(json.dumps(record, indent=2) + "\n")
    return made


def made_before(folder: Path, name: str) -> TrainedModel:
    """What is known of a model that the folder holds already."""
    n_parameters = sum(weight.numel() for weight in load(folder, name).parameters())
    try:
        record = parse_json((folder / f"{name}.training.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        record = {}
    return TrainedModel(
        name=name,
        loss=float(record.get("loss", "nan")),
        n_examples=int(record.get("n_examples", 0)),
        n_dropped=int(record.get("n_dropped", 0)),
        n_parameters=n_parameters,
        seconds=float(record.get("seconds", "nan")),
        device=str(record.get("device", "unknown")),
        curve=[(int(step), float(loss)) for step, loss in record.get("curve", [])],
        new=False,
    )


def take_over(model: Translator, other: Translator) -> list[str]:
    """Copies the weights that both have; returns the names of those that only `model` has."""
    theirs, ours = other.state_dict(), model.state_dict()
    shared = {
        name: theirs[name].to(weight.dtype)
        for name, weight in ours.items()
        if name in theirs and theirs[name].shape == weight.shape
    }
    model.load_state_dict(shared, strict=False)
    return [name for name in ours if name not in shared]


def distil(
    folder: Path,
    *,
    further: Sequence[str] = (),
    n_beams: int = 5,
    batch_size: int = 1024,
    device: str = "cpu",
) -> int:
    """Writes each source once with the teacher's translation of it; returns how many.

    `further` are sentences that nobody has translated: the teacher does, and the student learns
    from them as from the others.
    """
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    teacher, vocabulary = (
        load(folder, "teacher", device=device, dtype=dtype),
        load_vocabulary(folder),
    )
    sources = [one.source for one in by_source(read_pairs(folder / PAIRS))] + list(further)
    sources = readable(list(dict.fromkeys(sources)), vocabulary, teacher.shape.max_length)
    decoding = Decoding("ar", n_beams=n_beams)
    with track("sentences distilled", len(sources)) as advance:
        made = translate_texts(
            teacher, vocabulary, sources, decoding=decoding, batch_size=batch_size, advance=advance
        )
    pairs = [(source, one.text) for source, one in zip(sources, made, strict=True) if one.text]
    write_pairs(folder / DISTILLED, pairs)
    return len(pairs)


def make(
    pairs: list[Pair],
    folder: Path,
    plan: Plan,
    *,
    shape: Shape,
    longest: int = LONGEST,
    further: Sequence[str] = (),
    device: str = "cpu",
) -> list[TrainedModel]:
    """All steps, teacher and student; those whose result is in the folder are not done again."""
    if not (folder / VOCABULARY).is_file() or not (folder / PAIRS).is_file():
        vocabulary = prepare(pairs, folder, vocab_size=shape.vocab_size)
        say(f"prepare: {len(pairs):,} pairs, {vocabulary.size:,} tokens")
    shape, made = replace(shape, vocab_size=load_vocabulary(folder).size), []
    for name in ("teacher", "student"):
        if name == "student" and not (folder / DISTILLED).is_file():
            n_pairs = distil(folder, further=further, device=device)
            say(f"distil: {n_pairs:,} sources")
        if (folder / f"{name}.safetensors").is_file():
            made.append(made_before(folder, name))
            continue
        kind, first = MODELS[name][0], "teacher" if name == "student" else None
        made.append(
            learn(
                folder, name, plan, shape=replace(shape, kind=kind), begin_from=first,
                longest=longest, device=device,
            )
        )  # fmt: skip
    return made
