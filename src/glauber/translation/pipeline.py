"""From pairs of sentences to translators: prepare, learn, distil.

Each step reads what the one before left in one folder:

    pairs.tsv, vocabulary.model      prepare
    teacher.safetensors              learn("teacher"): autoregressive, on the pairs
    distilled.tsv                    distil: the teacher's translation becomes the target
    student.safetensors              learn("student"): refinement, on the distilled pairs
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from glauber.errors import GlauberError
from glauber.translation.data import Corpus, Pair, by_source, read_pairs, write_pairs
from glauber.translation.evaluation import machine
from glauber.translation.model import Shape, Translator
from glauber.translation.store import VOCABULARY, load, load_vocabulary, save
from glauber.translation.train import Plan, train
from glauber.translation.translate import Way, translate
from glauber.translation.vocabulary import Vocabulary

PAIRS, DISTILLED = "pairs.tsv", "distilled.tsv"
# Of each model that the recipe makes: its kind, and the pairs that it learns from.
MODELS = {
    "teacher": ("ar", PAIRS),
    "student": ("refine", DISTILLED),
    "ar-distilled": ("ar", DISTILLED),
    "student-raw": ("refine", PAIRS),
}
Hear = Callable[[int, float], None]


@dataclass(frozen=True)
class Learnt:
    """What a training cost and where it ended."""

    name: str
    loss: float
    n_examples: int
    n_parameters: int
    seconds: float
    device: str


def read_training(name: str) -> list[Pair]:
    """Pairs of a file, or of a data set on the hub (`hub:NAME:CONFIG`) where it can be reached."""
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


def prepare(pairs: list[Pair], folder: Path, *, vocab_size: int = 8000) -> Vocabulary:
    """Writes the pairs and a vocabulary learnt from both sides of them."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = Vocabulary.learn([text for pair in pairs for text in pair], vocab_size)
    (folder / VOCABULARY).write_bytes(vocabulary.serialized)
    write_pairs(folder / PAIRS, pairs)
    return vocabulary


def learn(
    folder: Path,
    name: str,
    plan: Plan,
    *,
    shape: Shape,
    pairs: str | None = None,
    begin_from: str | None = None,
    device: str = "cpu",
    every: int = 500,
    hear: Hear = lambda step, loss: None,
) -> Learnt:
    """Trains the model of that name into the folder; goes on from its checkpoint after a kill.

    `begin_from` names a model of the folder whose weights are taken over where names and shapes
    agree: a student that begins as its teacher has its encoder from the first step.
    """
    vocabulary = load_vocabulary(folder)
    corpus = Corpus.of(read_pairs(folder / (pairs or MODELS[name][1])), vocabulary)
    torch.manual_seed(plan.seed)
    model = Translator(shape)
    if begin_from is not None:
        take_over(model, load(folder, begin_from))
    begun = time.perf_counter()
    loss = train(
        model.to(device),
        corpus,
        plan,
        checkpoint=folder / f"{name}.checkpoint.pt",
        every=every,
        hear=hear,
    )
    save(model, folder, name)
    learnt = Learnt(
        name=name,
        loss=loss,
        n_examples=len(corpus),
        n_parameters=sum(weight.numel() for weight in model.parameters()),
        seconds=time.perf_counter() - begun,
        device=machine(device),
    )
    told = asdict(plan) | {"begin_from": begin_from} | asdict(learnt)
    (folder / f"{name}.training.json").write_text(json.dumps(told, indent=2) + "\n")
    return learnt


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
    sources = _readable(list(dict.fromkeys(sources)), vocabulary, teacher.shape.max_length)
    way = Way("ar", n_beams=n_beams)
    made = translate(teacher, vocabulary, sources, way=way, batch_size=batch_size)
    pairs = [(source, one.text) for source, one in zip(sources, made, strict=True) if one.text]
    write_pairs(folder / DISTILLED, pairs)
    return len(pairs)


def _readable(sources: list[str], vocabulary: Vocabulary, most: int) -> list[str]:
    """Those that `translate` takes: known characters only, and not too many tokens."""
    unknown = int(vocabulary.pieces.unk_id())
    encoded = vocabulary.encode_many(sources)
    return [
        source
        for source, tokens in zip(sources, encoded, strict=True)
        if 0 < len(tokens) < most and unknown not in tokens
    ]


def make(
    pairs: list[Pair],
    folder: Path,
    plan: Plan,
    *,
    shape: Shape,
    further: Sequence[str] = (),
    device: str = "cpu",
    hear: Callable[[str], None] = lambda line: None,
) -> list[Learnt]:
    """All steps, teacher and student; those whose result is in the folder are not done again."""
    shape.check()
    if not (folder / VOCABULARY).is_file() or not (folder / PAIRS).is_file():
        vocabulary = prepare(pairs, folder, vocab_size=shape.vocab_size)
        hear(f"prepare: {len(pairs)} pairs, {vocabulary.size} tokens")
    shape, learnt = replace(shape, vocab_size=load_vocabulary(folder).size), []
    for name in ("teacher", "student"):
        if name == "student" and not (folder / DISTILLED).is_file():
            n_pairs = distil(folder, further=further, device=device)
            hear(f"distil: {n_pairs} sources")
        if (folder / f"{name}.safetensors").is_file():
            hear(f"{name}: there already")
            continue
        learnt.append(
            learn(
                folder,
                name,
                plan,
                shape=replace(shape, kind=MODELS[name][0]),
                begin_from="teacher" if name == "student" else None,
                device=device,
                hear=_spoken(name, plan, hear),
            )
        )
    return learnt


def read_lines(path: Path) -> list[str]:
    """The sentences of a file, one a line."""
    if not path.is_file():
        raise GlauberError(f"there is no file {path}.")
    return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _spoken(name: str, plan: Plan, hear: Callable[[str], None]) -> Hear:
    begun = time.perf_counter()

    def told(step: int, loss: float) -> None:
        seconds = time.perf_counter() - begun
        hear(f"{name}: step {step} of {plan.n_steps}, loss {loss:.3f}, {seconds:.0f} s")

    return told
