"""How does a translator learn? One loop, read top to bottom.

All randomness of a step (the rows, their corruption, dropout) comes from (seed, step), so a
training that was killed goes on from its checkpoint to the same weights on the same machine.
"""

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from glauber.errors import GlauberError
from glauber.translation import fused
from glauber.translation.corruption import KINDS, corrupt
from glauber.translation.data import Corpus
from glauber.translation.decode import DOUBT, least_sure, likely, stutters
from glauber.translation.model import BEGIN, END, MASK, PAD, Translator

SMOOTHING = 0.1  # of the labels
LENGTH_WEIGHT = 0.2  # of the length predictor's loss
ATTENTION = (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH)
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
    doubt: float = DOUBT  # of a stage's output, up to this share is hidden from the next stage

    def check(self) -> None:
        """Says what cannot be trained with."""
        if self.n_steps < 1 or self.n_pairs < 4 or self.stages < 1:
            raise GlauberError("training needs at least 1 step, 4 pairs a batch and 1 stage.")
        if not 0 <= self.doubt <= 1:
            raise GlauberError(f"the share in doubt is {self.doubt}, but it must be from 0 to 1.")
        if self.corruption not in KINDS:
            raise GlauberError(f"the corruption must be one of {', '.join(KINDS)}.")
        if self.optimizer not in ("adamw", "adafactor"):
            raise GlauberError("the optimizer must be adamw or adafactor.")

    def rate(self, step: int) -> float:
        """The learning rate: linear warm-up, then a cosine from `peak` to `last`."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        share = (step - self.warmup) / max(1, self.n_steps - self.warmup)
        return self.last + (self.peak - self.last) * (1 + math.cos(math.pi * share)) / 2


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
    repeats are hidden again in between, and what the model was least sure of.
    """
    memory = model.asked(model.encode(source))
    losses = []
    for stage in range(plan.stages):
        scores = model.denoise(draft, memory)
        losses.append(_cross_entropy(scores, target))
        if stage + 1 < plan.stages:
            draft = _draft_from(scores.detach(), target, plan.doubt)
    longer = (target != PAD).sum(1) - (source != PAD).sum(1) + model.shape.max_length
    length = F.cross_entropy(model.length_scores(memory).float(), longer)
    return torch.stack(losses).mean() + LENGTH_WEIGHT * length


def _draft_from(scores: Tensor, target: Tensor, doubt: float) -> Tensor:
    """The next stage's draft; a share of each row up to `doubt` is hidden, the least sure."""
    guess, sure = likely(scores)
    guess = guess.masked_fill(target == PAD, PAD)
    share = torch.rand(len(guess), device=guess.device) * doubt
    hidden = least_sure(sure, guess, ((guess != PAD).sum(1) * share).long())
    return guess.masked_fill(hidden | stutters(guess), MASK)


def train(
    model: Translator,
    corpus: Corpus,
    plan: Plan,
    *,
    checkpoint: Path | None = None,
    every: int = 500,
    hear: Callable[[int, float], None] = lambda step, loss: None,
) -> float:
    """Trains the model where it is and returns the last loss; goes on from the checkpoint."""
    plan.check()
    device = model.device
    corpus = corpus.to(device)
    optimizer = _optimizer(model, plan)
    begun = _resume(checkpoint, model, optimizer, plan)
    loss = torch.tensor(math.nan)
    model.train()
    # cuDNN's attention plans anew for every shape of a batch, which costs more than it saves.
    with torch.random.fork_rng(), sdpa_kernel([*ATTENTION]):
        for step in range(begun, plan.n_steps):
            torch.manual_seed(plan.seed * 1_000_003 + step)
            n_joined = JOINED[step % len(JOINED)] if plan.joined else 1
            source, target = corpus.batch(
                max(1, plan.n_pairs // n_joined),
                n_joined=n_joined,
                max_length=model.shape.max_length,
            )
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                if model.shape.kind == "ar":
                    loss = ar_loss(model, source, target)
                else:
                    draft = corrupt(
                        target, model.shape.vocab_size, kind=plan.corruption, kept=plan.kept
                    )
                    loss = refine_loss(model, source, target, draft, plan)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = plan.rate(step)
            optimizer.step()
            if (step + 1) % every == 0 or step + 1 == plan.n_steps:
                hear(step + 1, loss.item())
                _save(checkpoint, model, optimizer, plan, step + 1)
    model.eval()
    return loss.item()


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
    path: Path | None, model: Translator, optimizer: torch.optim.Optimizer, plan: Plan, step: int
) -> None:
    """A whole checkpoint or none: it takes its name when it is written."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    state = {
        "step": step,
        "plan": asdict(plan),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(state, part)
    os.replace(part, path)


def _resume(
    path: Path | None, model: Translator, optimizer: torch.optim.Optimizer, plan: Plan
) -> int:
    """The step to go on from; 0 without a checkpoint."""
    if path is None or not path.is_file():
        return 0
    state = torch.load(path, map_location=model.device, weights_only=True)
    if state["plan"] != asdict(plan):
        raise GlauberError(f"{path} belongs to a training with another plan; remove it first.")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
