"""Training of translators from pairs of sentences: prepare, learn, distil.

Each step reads the files that the previous one wrote in one folder:

    pairs.tsv, vocabulary.model      prepare
    teacher.safetensors              learn("teacher"): autoregressive, on the pairs
    distilled.tsv                    distil: the teacher's translation becomes the target
    student.safetensors              learn("student"): refinement, on the distilled pairs

All randomness of a training step (the rows, their corruption, dropout) comes from (seed, step), so
a training that was killed resumes from its checkpoint to the same weights on the same machine.
"""

import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from glauber.foundation.checks import OneOf, Positive, Share, Whole, check_fields, check_seed
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json
from glauber.foundation.parameters import Device, Seed
from glauber.foundation.progress import check_memory, say, track
from glauber.foundation.study import Result, plain, study, visible
from glauber.models.weights import choose_device
from glauber.translation.data import (
    LONGEST,
    VOCABULARY,
    Corpus,
    Pair,
    SubwordVocabulary,
    load_vocabulary,
    read_lines,
    read_pairs,
    read_training,
    readable,
    write_pairs,
)
from glauber.translation.decoding import (
    REMASK,
    Decoding,
    least_sure,
    likely,
    stutters,
    translate_texts,
    with_end,
)
from glauber.translation.evaluation import machine
from glauber.translation.model import (
    BEGIN,
    FIRST_WORD,
    MASK,
    PAD,
    Shape,
    Translator,
    load,
    save,
)

PAIRS, DISTILLED = "pairs.tsv", "distilled.tsv"
# Of each model of the recipe: its kind, and the pairs that it is trained on.
MODELS = {
    "teacher": ("ar", PAIRS),
    "student": ("refine", DISTILLED),
    "ar-distilled": ("ar", DISTILLED),
    "student-raw": ("refine", PAIRS),
}
SMOOTHING = 0.1  # of the labels
LENGTH_WEIGHT = 0.2  # of the length predictor's loss
CORRUPTIONS = ("random", "mask", "mixed", "cmlm")
OPTIMIZERS = ("adamw", "adafactor")
CURVE_POINTS = 100
ATTENTION = (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH)
JOINED = (1, 1, 2, 3, 4)  # pairs joined in a row: the batches take turns
Curve = list[tuple[int, float]]  # (step, loss)
Batch, Stages, Size = Whole(4, 10**7), Whole(1, 100), Whole(1, 10**7)


@dataclass(frozen=True)
class TrainingPlan:
    """The hyperparameters of a training; the rates of the paper are in its section on training."""

    n_steps: Annotated[int, Whole()] = 1000
    n_pairs: Annotated[int, Batch] = 1024  # of a batch: rows times the pairs joined in a row
    peak: Annotated[float, Positive] = 2e-3
    last: float = 1e-5
    warmup: Annotated[int, Whole()] = 300
    seed: Annotated[int, check_seed] = 0
    stages: Annotated[int, Stages] = 2  # refine only: stage s learns from the output of stage s - 1
    corruption: Annotated[str, OneOf(CORRUPTIONS)] = "random"
    # Share of a draft; None draws one for each row.
    kept: Annotated[float | None, Share] = 0.15
    optimizer: Annotated[str, OneOf(OPTIMIZERS)] = "adamw"
    joined: bool = True
    # Largest fraction of a stage's output that is hidden from the next.
    remask: Annotated[float, Share] = REMASK

    def check(self) -> None:
        """Refuses hyperparameters that cannot be trained with."""
        check_fields(self)
        if self.corruption == "cmlm" and self.stages != 1:
            raise GlauberError("the corruption cmlm has 1 stage: it never reads its own drafts.")

    def rate(self, step: int) -> float:
        """The learning rate: linear warm-up, then a cosine from `peak` to `last`."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        share = (step - self.warmup) / max(1, self.n_steps - self.warmup)
        return self.last + (self.peak - self.last) * (1 + math.cos(math.pi * share)) / 2


def check_size(shape: Shape, plan: TrainingPlan) -> None:
    """Refuses a translator or a batch that does not fit into memory, from a lower bound."""
    attention, inner = 4 * shape.width**2, 2 * shape.width * shape.inner
    layer = shape.n_encoder * (attention + inner) + shape.n_decoder * (3 * attention + inner)
    # Weights, gradients and the two moments of Adam, in float32.
    check_memory(16.0 * (layer + shape.vocab_size * shape.width), "training such a translator")
    check_memory(8.0 * plan.n_pairs * shape.vocab_size, f"a batch of {plan.n_pairs:,} pairs")


def corrupt(
    target: Tensor, vocab_size: int, *, kind: str = "random", kept: float | None = 0.15
) -> Tensor:
    """A draft (rows, length) of the target in which each token is kept with probability `kept`.

    The others become uniformly random tokens (`random`, PaDIR), MASK (`mask`, as mask-predict
    learns), or one or the other by row (`mixed`: random with `kept`, MASK with a rate of its own
    for each row). `kept` None draws a rate u^2 with u uniform for each row: nearly empty drafts,
    with which decoding begins, are the most frequent. `cmlm` masks a number of tokens that is
    uniform from 1 to all of them, as a conditional masked language model learns. PAD stays.
    """
    if kind == "cmlm":
        return _mask_some(target)
    rows = (target.shape[0], 1)
    rates = torch.rand(rows, device=target.device).square()
    uniform = torch.rand(target.shape, device=target.device)
    noise = torch.randint(FIRST_WORD, vocab_size, target.shape, device=target.device)
    masked = torch.zeros(rows, dtype=torch.bool, device=target.device)
    if kind == "mask":
        masked |= True
    elif kind == "mixed":
        masked |= torch.rand(rows, device=target.device) < 0.5
    fixed = torch.full_like(rates, kept) if kept is not None else rates
    rate = torch.where(masked, rates, fixed) if kind == "mixed" else fixed
    draft = torch.where(masked, torch.full_like(target, MASK), noise)
    draft = torch.where(uniform < rate, target, draft)
    return draft.masked_fill(target == PAD, PAD)


def _mask_some(target: Tensor) -> Tensor:
    """The target with a uniform number of its tokens masked, at least one.

    All sets of that size have the same probability.
    """
    length = (target != PAD).sum(1)
    count = 1 + (torch.rand(len(target), device=target.device) * length).long()
    uniform = torch.rand(target.shape, device=target.device)
    hidden = least_sure(uniform, target, torch.minimum(count, length))
    return target.masked_fill(hidden, MASK)


def ar_loss(model: Translator, source: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of each next token of the target, and of its end."""
    begin = torch.full_like(target[:, :1], BEGIN)
    scores = model.follow(torch.cat([begin, target], 1), model.encode(source))
    return _cross_entropy(scores, with_end(target))


def refine_loss(
    model: Translator, source: Tensor, target: Tensor, draft: Tensor, plan: TrainingPlan
) -> Tensor:
    """Cross-entropy at every position, averaged over the stages, and that of the length.

    Stage 1 reads the draft, each further one the output of the previous stage, as in decoding:
    in between repeats are hidden again, and the tokens of the lowest confidence. With `cmlm` only
    masked positions count.
    """
    memory = model.project(model.encode(source))
    labels = target.masked_fill(draft != MASK, PAD) if plan.corruption == "cmlm" else target
    losses = []
    for stage in range(plan.stages):
        scores = model.denoise(draft, memory)
        losses.append(_cross_entropy(scores, labels))
        if stage + 1 < plan.stages:
            draft = _draft_from(scores.detach(), target, plan.remask)
    longer = (target != PAD).sum(1) - (source != PAD).sum(1) + model.shape.max_length
    length = F.cross_entropy(model.length_scores(memory).float(), longer)
    return torch.stack(losses).mean() + LENGTH_WEIGHT * length


def _draft_from(scores: Tensor, target: Tensor, remask: float) -> Tensor:
    """The next stage's draft; up to `remask` of each row, the least confident, is hidden."""
    guess, sure = likely(scores)
    guess = guess.masked_fill(target == PAD, PAD)
    share = torch.rand(len(guess), device=guess.device) * remask
    hidden = least_sure(sure, guess, ((guess != PAD).sum(1) * share).long())
    return guess.masked_fill(hidden | stutters(guess), MASK)


def train(
    model: Translator,
    corpus: Corpus,
    plan: TrainingPlan,
    *,
    checkpoint: Path | None = None,
    every: int = 500,
    name: str = "training",
) -> Curve:
    """Trains the model on its device and returns its losses; resumes from the checkpoint.

    The losses are those of about a hundred steps and of the last one, as (step, loss).
    """
    plan.check()
    device = model.device
    corpus = corpus.to(device)
    optimizer = _optimizer(model, plan)
    first, curve = _resume(checkpoint, model, optimizer, plan)
    model.train()
    # cuDNN's attention plans anew for every shape of a batch, which costs more than it saves.
    with torch.random.fork_rng(), sdpa_kernel([*ATTENTION]), track(name, plan.n_steps) as advance:
        for step in range(first, plan.n_steps):
            torch.manual_seed((plan.seed * 1_000_003 + step) % 2**63)
            loss = _loss(model, corpus, plan, step)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = plan.rate(step)
            optimizer.step()
            done, last = step + 1, step + 1 == plan.n_steps
            if done % max(1, plan.n_steps // CURVE_POINTS) == 0 or last:
                curve.append((done, loss.item()))
                advance(to=done, note=f"loss {curve[-1][1]:.3f}")
            if done % every == 0 or last:
                _save(checkpoint, model, optimizer, plan, curve, done)
    model.eval()
    return curve


def _loss(model: Translator, corpus: Corpus, plan: TrainingPlan, step: int) -> Tensor:
    """The loss on the batch of a step."""
    n_joined = JOINED[step % len(JOINED)] if plan.joined else 1
    source, target = corpus.batch(
        max(1, plan.n_pairs // n_joined), n_joined=n_joined, max_length=model.shape.max_length
    )
    kind = model.device.type
    with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
        if model.shape.kind == "ar":
            return ar_loss(model, source, target)
        draft = corrupt(target, model.shape.vocab_size, kind=plan.corruption, kept=plan.kept)
        return refine_loss(model, source, target, draft, plan)


def _cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean over the labels that are not PAD, smoothed while the model trains."""
    flat = scores.flatten(0, 1).float()
    return F.cross_entropy(flat, labels.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)


def _optimizer(model: Translator, plan: TrainingPlan) -> torch.optim.Optimizer:
    """AdamW, or the paper's Adafactor; only matrices decay."""
    if plan.optimizer == "adafactor":
        return torch.optim.Adafactor(model.parameters(), lr=plan.peak)
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": 0.01},
        {"params": vectors, "weight_decay": 0.0},
    ]
    on_gpu = model.device.type == "cuda"
    return torch.optim.AdamW(groups, lr=plan.peak, betas=(0.9, 0.98), fused=on_gpu)


def _save(
    path: Path | None,
    model: Translator,
    optimizer: torch.optim.Optimizer,
    plan: TrainingPlan,
    curve: Curve,
    step: int,
) -> None:
    """Writes the checkpoint; it takes its name when it is complete."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    state = {
        "step": step,
        "plan": asdict(plan),
        "curve": curve,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(state, part)
    os.replace(part, path)


def _resume(
    path: Path | None, model: Translator, optimizer: torch.optim.Optimizer, plan: TrainingPlan
) -> tuple[int, Curve]:
    """The next step and the losses so far; 0 and none without a checkpoint."""
    if path is None or not path.is_file():
        return 0, []
    try:
        state = torch.load(path, map_location=model.device, weights_only=True)
        stored = state["plan"]
    except (OSError, RuntimeError, EOFError, KeyError, TypeError, UnpicklingError) as problem:
        raise GlauberError(f"{path} is no checkpoint, or a broken one; remove it.") from problem
    if stored != asdict(plan):
        raise GlauberError(f"{path} belongs to a training with another plan; remove it first.")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"]), [(int(step), float(loss)) for step, loss in state["curve"]]


@dataclass(frozen=True)
class TrainedModel:
    """Cost and losses of the training of one model."""

    name: str
    loss: float  # of the last batch
    n_examples: int
    n_dropped: int  # pairs that were too long
    n_parameters: int
    seconds: float
    device: str
    curve: Curve  # (step, loss) of single batches
    new: bool = True  # false: it was in the folder before


def prepare(pairs: list[Pair], folder: Path, *, vocab_size: int = 8000) -> SubwordVocabulary:
    """Writes the pairs and a vocabulary learnt from both sides of them."""
    vocabulary = SubwordVocabulary.learn([text for pair in pairs for text in pair], vocab_size)
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
    plan: TrainingPlan,
    *,
    shape: Shape,
    pairs: str | None = None,
    begin_from: str | None = None,
    longest: int = LONGEST,
    device: str = "cpu",
    every: int = 500,
) -> TrainedModel:
    """Trains the model of that name into the folder; resumes from its checkpoint after a kill.

    `begin_from` names a model of the folder whose weights are copied where names and shapes agree:
    a student that begins as its teacher has its encoder from the first step.
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
    trained = TrainedModel(
        name=name,
        loss=curve[-1][1],
        n_examples=len(corpus),
        n_dropped=len(listed) - len(corpus),
        n_parameters=sum(weight.numel() for weight in model.parameters()),
        seconds=time.perf_counter() - began,
        device=machine(device),
        curve=curve,
    )
    record = asdict(plan) | {"begin_from": begin_from} | plain(trained)
    (folder / f"{name}.training.json").write_text(json.dumps(record, indent=2) + "\n")
    return trained


def read_trained(folder: Path, name: str) -> TrainedModel:
    """The record of a model that is in the folder before."""
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

    further: sentences without a translation; the teacher translates them, and the student is
    trained on them as on the others.
    """
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    teacher = load(folder, "teacher", device=device, dtype=dtype)
    vocabulary = load_vocabulary(folder)
    sources = [source for source, _ in read_pairs(folder / PAIRS)] + list(further)
    sources = readable(list(dict.fromkeys(sources)), vocabulary, teacher.shape.max_length)
    decoding = Decoding("ar", n_beams=n_beams)
    with track("sentences distilled", len(sources)) as advance:
        translations = translate_texts(
            teacher, vocabulary, sources, decoding=decoding, batch_size=batch_size, advance=advance
        )
    pairs = [
        (source, target.text)
        for source, target in zip(sources, translations, strict=True)
        if target.text
    ]
    write_pairs(folder / DISTILLED, pairs)
    return len(pairs)


def make(
    pairs: list[Pair],
    folder: Path,
    plan: TrainingPlan,
    *,
    shape: Shape,
    longest: int = LONGEST,
    further: Sequence[str] = (),
    device: str = "cpu",
) -> list[TrainedModel]:
    """All steps, teacher and student; those whose result is in the folder are skipped."""
    if not (folder / VOCABULARY).is_file() or not (folder / PAIRS).is_file():
        vocabulary = prepare(pairs, folder, vocab_size=shape.vocab_size)
        say(f"prepare: {len(pairs):,} pairs, {vocabulary.size:,} tokens")
    shape = replace(shape, vocab_size=load_vocabulary(folder).size)
    models = []
    for name, first in (("teacher", None), ("student", "teacher")):
        if name == "student" and not (folder / DISTILLED).is_file():
            n_pairs = distil(folder, further=further, device=device)
            say(f"distil: {n_pairs:,} sources")
        if (folder / f"{name}.safetensors").is_file():
            models.append(read_trained(folder, name))
            continue
        own = replace(shape, kind=MODELS[name][0])
        models.append(
            learn(folder, name, plan, shape=own, begin_from=first, longest=longest, device=device)
        )
    return models


@study
def train_translator(
    pairs: Annotated[str | Path, "Two-column file, plain or xz, or hub:NAME:CONFIG."],
    *,
    out: Annotated[str | Path, "Folder of the translator; an existing one is resumed."],
    steps: Annotated[int, "Training steps of teacher and student.", Whole()] = 5000,
    batch: Annotated[int, "Pairs of a batch.", Batch] = 2048,
    vocabulary: Annotated[int, "Tokens of the shared vocabulary.", Size] = 8000,
    width: Annotated[int, "Hidden units.", Size] = 256,
    heads: Annotated[int, "Attention heads; they divide the width.", Size] = 8,
    layers: Annotated[int, "Layers of encoder and decoder each.", Size] = 3,
    corruption: Annotated[
        str, "Corruption of the student's drafts: mask, random, mixed or cmlm.", OneOf(CORRUPTIONS)
    ] = "mask",
    kept: Annotated[
        float | None, "Share of a draft that is kept (default: drawn for each row).", Share
    ] = None,
    stages: Annotated[
        int | None,
        "Passes of the student, each on the output of the previous one (default: 2; cmlm: 1).",
        Stages,
    ] = None,
    remask: Annotated[
        float,
        "Largest fraction of tokens, the least confident, that is hidden between stages.",
        Share,
    ] = REMASK,
    optimizer: Annotated[str, "adamw or adafactor (the paper's).", OneOf(OPTIMIZERS)] = "adamw",
    peak: Annotated[float, "Highest learning rate.", Positive] = TrainingPlan.peak,
    warmup: Annotated[
        int | None, "Steps until then (default: a fifth, at most 400).", Whole()
    ] = None,
    longest: Annotated[
        int, "Tokens on a side of a pair; longer pairs are not used.", Size
    ] = LONGEST,
    further: Annotated[str | Path | None, "Sentences without a translation, one a line."] = None,
    seed: Seed = 0,
    device: Device = "auto",
) -> "TrainedTranslator":
    """Train a translator from pairs: a teacher, its distilled translations, and a student.

    What `translate` reads with `model=OUT`. Teacher and student are trained for as many steps; the
    student begins from the teacher's weights, which have seen as many pairs before it. The drafts
    of paper B are `corruption=random, kept=0.15, remask=0`, its optimiser adafactor.
    """
    plan = TrainingPlan(
        steps,
        batch,
        peak,
        seed=seed,
        corruption=corruption,
        kept=kept,
        optimizer=optimizer,
        warmup=max(1, min(400, steps // 5)) if warmup is None else warmup,
        remask=remask,
        stages=stages if stages is not None else 1 if corruption == "cmlm" else 2,
    )
    plan.check()
    shape = Shape(
        vocab_size=vocabulary,
        width=width,
        heads=heads,
        n_encoder=layers,
        n_decoder=layers,
        inner=5 * width // 2,
        max_length=max(Shape.max_length, 4 * longest + 4),
    )
    shape.check()
    check_size(shape, plan)
    folder = _check_folder(out)
    sentences = read_lines(Path(further)) if further else []
    listed = read_training(pairs)
    say(f"{len(listed):,} pairs; teacher and student, {steps:,} steps of {batch:,} pairs each")
    kind = choose_device(device).type
    models = make(
        listed, folder, plan, shape=shape, longest=longest, further=sentences, device=kind
    )
    return TrainedTranslator(folder, models)


@dataclass(frozen=True, eq=False)
class TrainedTranslator(Result):
    """A folder with a translator, and the losses of its training."""

    folder: Path
    models: list[TrainedModel]
    kind: str = "estimate: losses of single batches"  # What every number is

    FIGURES = {"loss": ("glauber.interfaces.plots.translation:plot_losses", "models")}

    def lines(self) -> Iterable[str]:
        for model in self.models:
            cost = f"{model.seconds:,.0f} s on {model.device}" if model.new else "present before"
            yield (
                f"{model.name}: {model.n_parameters:,} parameters, {model.n_examples:,} pairs"
                f"{f' ({model.n_dropped:,} more were too long)' if model.n_dropped else ''}, "
                f"loss {model.loss:.3f} (last batch), {cost}"
            )
        yield f'{self.folder} contains the translator: glauber translate "…" --model {self.folder}'

    def table(self) -> Iterable[Mapping[str, object]]:
        """One row for each loss that was recorded."""
        return [
            {"model": model.name, "step": step, "loss": loss}
            for model in self.models
            for step, loss in model.curve
        ]


def _check_folder(out: str | Path) -> Path:
    """The folder of the translator: new, empty, or with an unfinished translator."""
    folder = Path(out)
    try:
        if not str(out).strip():
            raise GlauberError("the folder of the translator has no name.")
        if "\0" in str(out):
            raise ValueError("it has a null byte")
        if folder.exists() and not folder.is_dir():
            raise GlauberError(f"{folder} is a file, not the folder of a translator.")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / VOCABULARY).is_file():
            raise GlauberError(
                f"{folder} contains other things than a translator; give a new name."
            )
    except (OSError, ValueError) as problem:
        text = f"{visible(str(out))[:200]} cannot be the folder of a translator"
        raise GlauberError(f"{text}: {getattr(problem, 'strerror', None) or problem}.") from problem
    return folder
