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
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from glauber.foundation.checks import (
    OneOf,
    Positive,
    Real,
    Share,
    Whole,
    check_fields,
    check_seed,
)
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json
from glauber.foundation.progress import check_memory, say, track
from glauber.foundation.study import plain
from glauber.translation.data import (
    LONGEST,
    VOCABULARY,
    Corpus,
    Pair,
    SubwordVocabulary,
    load_vocabulary,
    read_pairs,
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
from glauber.translation.evaluation import CONTROL, machine
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
    CONTROL: ("ar", DISTILLED),
    "student-raw": ("refine", PAIRS),
}
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
    remask_repeats: bool = True  # tokens that repeat their left neighbour are hidden as well
    smoothing: Annotated[float, Share] = 0.1  # of the labels
    length_weight: Annotated[float, Real(0.0)] = 0.2  # refine only: of the length predictor's loss
    clip: Annotated[float, Real(0.0)] = 1.0  # largest norm of the gradient; 0: no limit

    def check(self) -> None:
        """Refuses hyperparameters that cannot be trained with."""
        check_fields(self)
        if self.corruption == "cmlm" and self.stages != 1:
            raise GlauberError("the corruption cmlm has 1 stage: it never reads its own drafts.")
        if self.peak < self.last:
            raise GlauberError(
                f"peak is {self.peak:g}, but the learning rate begins and ends at {self.last:g}."
            )

    def rate(self, step: int) -> float:
        """The learning rate: linear from `last` to `peak`, then a cosine back to `last`."""
        if step < self.warmup:
            return self.last + (self.peak - self.last) * step / self.warmup
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


def ar_loss(model: Translator, source: Tensor, target: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of each next token of the target, and of its end."""
    begin = torch.full_like(target[:, :1], BEGIN)
    scores = model.follow(torch.cat([begin, target], 1), model.encode(source))
    return _cross_entropy(scores, with_end(target), smoothing)


def refine_loss(
    model: Translator, source: Tensor, target: Tensor, draft: Tensor, plan: TrainingPlan
) -> Tensor:
    """Cross-entropy at every position, averaged over the stages, and that of the length.

    Stage 1 reads the draft, each further one the most likely tokens of the previous stage. As in
    decoding, repeats may be hidden in between (`remask_repeats`), and the tokens of the lowest
    confidence (`remask`); paper B's (L.59) has neither. With `cmlm` only masked positions count.
    """
    memory = model.project(model.encode(source))
    labels = target.masked_fill(draft != MASK, PAD) if plan.corruption == "cmlm" else target
    losses = []
    for stage in range(plan.stages):
        scores = model.denoise(draft, memory)
        losses.append(_cross_entropy(scores, labels, plan.smoothing))
        if stage + 1 < plan.stages:
            draft = _draft_from(scores.detach(), target, plan.remask, plan.remask_repeats)
    longer = (target != PAD).sum(1) - (source != PAD).sum(1) + model.shape.max_length
    length = F.cross_entropy(model.length_scores(memory).float(), longer)
    return torch.stack(losses).mean() + plan.length_weight * length


def _draft_from(scores: Tensor, target: Tensor, remask: float, repeats: bool = True) -> Tensor:
    """The next stage's draft; up to `remask` of each row, the least confident, is hidden.

    repeats: what equals its left neighbour is hidden as well.
    """
    guess, sure = likely(scores)
    guess = guess.masked_fill(target == PAD, PAD)
    share = torch.rand(len(guess), device=guess.device) * remask
    hidden = least_sure(sure, guess, ((guess != PAD).sum(1) * share).long())
    return guess.masked_fill(hidden | stutters(guess) if repeats else hidden, MASK)


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
            if plan.clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
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
            return ar_loss(model, source, target, smoothing=plan.smoothing)
        draft = corrupt(target, model.shape.vocab_size, kind=plan.corruption, kept=plan.kept)
        return refine_loss(model, source, target, draft, plan)


def _cross_entropy(scores: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Mean over the labels that are not PAD."""
    flat = scores.flatten(0, 1).float()
    return F.cross_entropy(flat, labels.flatten(), ignore_index=PAD, label_smoothing=smoothing)


def _optimizer(model: Translator, plan: TrainingPlan) -> torch.optim.Optimizer:
    """AdamW, of which only matrices decay, or Adafactor with the defaults of T5X.

    Those are a decay of 1 - t^-0.8, 1e-30 added to the squared gradients, steps relative to the
    parameter's root mean square (at least 1e-3), updates clipped at 1, no momentum and no weight
    decay. torch.optim.Adafactor has other constants and places for the 1e-30.
    """
    if plan.optimizer == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(
            model.parameters(),
            lr=plan.peak,
            eps=(1e-30, 1e-3),
            clip_threshold=1.0,
            decay_rate=-0.8,
            scale_parameter=True,
            relative_step=False,
        )
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


def prepare(
    pairs: list[Pair], folder: Path, *, vocab_size: int = 8000, texts: Sequence[str] = ()
) -> SubwordVocabulary:
    """Writes the pairs and a vocabulary learnt from both sides of them, or from other texts."""
    texts = texts or [text for pair in pairs for text in pair]
    vocabulary = SubwordVocabulary.learn(list(texts), vocab_size)
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
    vocabulary_texts: Sequence[str] = (),
    begin_from: str | None = "teacher",
    control: bool = False,
    device: str = "cpu",
) -> list[TrainedModel]:
    """All steps, teacher and student; those whose result is in the folder are skipped.

    begin_from: the weights of the student at first, those of the teacher or (None) random ones.
    control: as the student, an autoregressive model learns from the distilled pairs.
    """
    if not (folder / VOCABULARY).is_file() or not (folder / PAIRS).is_file():
        vocabulary = prepare(pairs, folder, vocab_size=shape.vocab_size, texts=vocabulary_texts)
        say(f"prepare: {len(pairs):,} pairs, {vocabulary.size:,} tokens")
    else:
        vocabulary = _check_prepared(pairs, folder)
    shape = replace(shape, vocab_size=vocabulary.size)
    models = []
    names = ("teacher", "student", CONTROL) if control else ("teacher", "student")
    for name in names:
        first = None if name == "teacher" else begin_from
        own = replace(shape, kind=MODELS[name][0])
        trained = (folder / f"{name}.safetensors").is_file()
        if name == "student" and not trained:
            if (folder / DISTILLED).is_file():
                n_pairs = len(read_pairs(folder / DISTILLED))
                say(f"{DISTILLED} was in {folder} before: the student learns its {n_pairs:,} pairs")
            else:
                n_pairs = distil(folder, further=further, device=device)
                say(f"distil: {n_pairs:,} sources")
        if trained:
            _check_trained(folder, name, own)
            models.append(read_trained(folder, name))
        else:
            models.append(
                learn(
                    folder, name, plan, shape=own, begin_from=first, longest=longest, device=device
                )
            )
    return models


def _check_prepared(pairs: list[Pair], folder: Path) -> SubwordVocabulary:
    """The vocabulary of a folder that was prepared before, from the same pairs."""
    if read_pairs(folder / PAIRS) != pairs:
        raise GlauberError(f"{folder} was prepared from other pairs: give a new folder.")
    vocabulary = load_vocabulary(folder)
    say(f"{folder} is resumed: its vocabulary has {vocabulary.size:,} tokens")
    return vocabulary


def _check_trained(folder: Path, name: str, shape: Shape) -> None:
    """Refuses a trained model whose sizes are not the given ones."""
    found, given = asdict(load(folder, name).shape), asdict(shape)
    if wrong := [key for key in given if found[key] != given[key] and key != "dropout"]:
        key = wrong[0]
        label = {"n_encoder": "encoder layers", "n_decoder": "decoder layers"}.get(key, key)
        raise GlauberError(
            f"the {name} in {folder} has {label.replace('_', ' ')} {found[key]} and not "
            f"{given[key]}: give a new folder."
        )
