"""How does a translator learn? One loop, read top to bottom.

All randomness of a step (the rows, their corruption, dropout) comes from (seed, step), so a
training that was killed goes on from its checkpoint to the same weights on the same machine.
"""

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from glauber.errors import GlauberError
from glauber.progress import check_count, check_memory, check_seed, track
from glauber.result import one_of
from glauber.translation import fused
from glauber.translation.data import Corpus
from glauber.translation.model import BEGIN, END, FIRST_WORD, MASK, PAD, Shape, Translator
from glauber.translation.schedules import REMASK, least_sure, likely, stutters

SMOOTHING = 0.1  # of the labels
LENGTH_WEIGHT = 0.2  # of the length predictor's loss
CORRUPTIONS = ("random", "mask", "mixed", "cmlm")
OPTIMIZERS = ("adamw", "adafactor")
POINTS = 100  # of the loss curve
ATTENTION = (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH)
Curve = list[tuple[int, float]]  # (step, loss)
JOINED = (1, 1, 2, 3, 4)  # how many pairs make a row: the batches take turns


@dataclass(frozen=True)
class Plan:
    """How a training goes; the rates of the paper are in its section on training."""

    n_steps: int = 1000
    n_pairs: int = 1024  # pairs of a batch: rows times the pairs joined in a row
    peak: float = 2e-3
    last: float = 1e-5
    warmup: int = 300
    seed: int = 0
    stages: int = 2  # refine only: stage s learns from the output of stage s - 1
    corruption: str = "random"
    kept: float | None = 0.15  # None draws a rate for each row
    optimizer: str = "adamw"
    joined: bool = True
    remask: float = REMASK  # of a stage's output, up to this fraction is hidden from the next one

    def check(self) -> None:
        """Says what cannot be trained with."""
        check_count("number of steps", self.n_steps)
        check_count("pairs of a batch", self.n_pairs, least=4, most=10**7)
        check_count("number of stages", self.stages, most=100)
        check_count("number of warm-up steps", self.warmup)
        check_seed(self.seed)
        if not 0 < self.peak < math.inf:
            raise GlauberError(f"the highest learning rate is {self.peak}, but it is above 0.")
        if not 0 <= self.remask <= 1:
            raise GlauberError(f"the remask fraction is {self.remask}, but it is from 0 to 1.")
        one_of("the corruption", self.corruption, CORRUPTIONS)
        one_of("the optimizer", self.optimizer, OPTIMIZERS)
        if self.kept is not None and not 0 <= self.kept <= 1:
            raise GlauberError(f"the kept share is {self.kept}, but it is from 0 to 1.")
        if self.corruption == "cmlm" and self.stages != 1:
            raise GlauberError("the corruption cmlm has 1 stage: it never sees its own drafts.")

    def rate(self, step: int) -> float:
        """The learning rate: linear warm-up, then a cosine from `peak` to `last`."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        share = (step - self.warmup) / max(1, self.n_steps - self.warmup)
        return self.last + (self.peak - self.last) * (1 + math.cos(math.pi * share)) / 2


def check_size(shape: Shape, plan: Plan) -> None:
    """Refuses a translator or a batch that no memory holds: counts what is needed at least."""
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
        return _some_masked(target)
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


def _some_masked(target: Tensor) -> Tensor:
    """The target with a uniform number of its tokens masked, at least one; all sets alike."""
    length = (target != PAD).sum(1)
    count = 1 + (torch.rand(len(target), device=target.device) * length).long()
    uniform = torch.rand(target.shape, device=target.device)
    hidden = least_sure(uniform, target, torch.minimum(count, length))
    return target.masked_fill(hidden, MASK)


def ar_loss(model: Translator, source: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of each next token of the target, and of its end."""
    begin = torch.full_like(target[:, :1], BEGIN)
    labels = F.pad(target, (0, 1), value=PAD)
    labels = labels.scatter(1, (target != PAD).sum(1, keepdim=True), END)
    scores = model.follow(torch.cat([begin, target], 1), model.encode(source))
    return _cross_entropy(scores, labels)


def refine_loss(
    model: Translator, source: Tensor, target: Tensor, draft: Tensor, plan: Plan
) -> Tensor:
    """Cross-entropy at every position, averaged over the stages, and that of the length.

    Stage 1 sees the draft, each further one what the stage before made of it, as decoding does:
    repeats are hidden again in between, and what the model was least sure of. Of `cmlm` only
    what is masked counts.
    """
    memory = model.asked(model.encode(source))
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
    """The next stage's draft; a fraction of each row up to `remask` is hidden, the least sure."""
    guess, sure = likely(scores)
    guess = guess.masked_fill(target == PAD, PAD)
    share = torch.rand(len(guess), device=guess.device) * remask
    hidden = least_sure(sure, guess, ((guess != PAD).sum(1) * share).long())
    return guess.masked_fill(hidden | stutters(guess), MASK)


def train(
    model: Translator,
    corpus: Corpus,
    plan: Plan,
    *,
    checkpoint: Path | None = None,
    every: int = 500,
    name: str = "training",
) -> Curve:
    """Trains the model where it is and returns its losses; resumes from the checkpoint.

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
            if done % max(1, plan.n_steps // POINTS) == 0 or last:
                curve.append((done, loss.item()))
                advance(to=done, note=f"loss {curve[-1][1]:.3f}")
            if done % every == 0 or last:
                _save(checkpoint, model, optimizer, plan, curve, done)
    model.eval()
    return curve


def _loss(model: Translator, corpus: Corpus, plan: Plan, step: int) -> Tensor:
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
    flat, wanted = scores.flatten(0, 1), labels.flatten()
    if fused.cross_entropy_fits(flat):
        return fused.cross_entropy(flat, wanted, SMOOTHING, PAD)
    return F.cross_entropy(flat.float(), wanted, ignore_index=PAD, label_smoothing=SMOOTHING)


def _optimizer(model: Translator, plan: Plan) -> torch.optim.Optimizer:
    """AdamW, or the paper's Adafactor; only matrices decay."""
    if plan.optimizer == "adafactor":
        return torch.optim.Adafactor(model.parameters(), lr=plan.peak)
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": 0.01},
        {"params": vectors, "weight_decay": 0.0},
    ]
    fused = model.device.type == "cuda"
    return torch.optim.AdamW(groups, lr=plan.peak, betas=(0.9, 0.98), fused=fused)


def _save(
    path: Path | None,
    model: Translator,
    optimizer: torch.optim.Optimizer,
    plan: Plan,
    curve: Curve,
    step: int,
) -> None:
    """A whole checkpoint or none: it takes its name when it is written."""
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
    path: Path | None, model: Translator, optimizer: torch.optim.Optimizer, plan: Plan
) -> tuple[int, Curve]:
    """The step to go on from and the losses until there; 0 and none without a checkpoint."""
    if path is None or not path.is_file():
        return 0, []
    try:
        state = torch.load(path, map_location=model.device, weights_only=True)
        made = state["plan"]
    except (OSError, RuntimeError, EOFError, KeyError, TypeError, UnpicklingError) as problem:
        raise GlauberError(f"{path} is no checkpoint, or a broken one; remove it.") from problem
    if made != asdict(plan):
        raise GlauberError(f"{path} belongs to a training with another plan; remove it first.")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"]), [(int(step), float(loss)) for step, loss in state["curve"]]
