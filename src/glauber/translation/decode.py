"""What does a translator that predicts every position at once say after a few passes?

Four schedules. `refine` (PaDIR) predicts every position again in each pass. The others hide
positions: `mask-predict` predicts the hidden ones and hides the least confident again, fewer in
each pass; `easy-first` keeps the most confident of the hidden, `left-to-right` the leftmost.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from glauber.errors import GlauberError
from glauber.translation.model import FIRST_WORD, MASK, PAD, Memory

ORDERS = ("refine", "mask-predict", "easy-first", "left-to-right")


class Denoiser(Protocol):
    """A model that sees its own draft: no set of conditionals, for what it sees there matters."""

    def denoise(self, draft: Tensor, memory: Memory) -> Tensor:
        """draft (rows, length), PAD behind -> scores (rows, length, vocab)."""
        ...


@dataclass(frozen=True)
class Schedule:
    """Which positions a pass writes, and for how many passes."""

    n_steps: int = 4
    order: str = "refine"
    remask_stutter: bool = True  # refine only, between passes
    drop_repeats: bool = True  # refine only, at the end

    def check(self) -> None:
        """Says what cannot be decoded with."""
        if self.n_steps < 1:
            raise GlauberError(f"the number of steps is {self.n_steps}, but it must be at least 1.")
        if self.order not in ORDERS:
            raise GlauberError(f"the decoder must be one of {', '.join(ORDERS)}.")


class Drafts(NamedTuple):
    """tokens (rows, length), PAD behind; score (rows,); n_passes; every pass (rows, length)."""

    tokens: Tensor
    score: Tensor  # mean log-probability of the tokens in the pass that wrote them
    n_passes: int
    trace: list[Tensor]


@torch.inference_mode()
def decode(model: Denoiser, memory: Memory, lengths: Tensor, schedule: Schedule) -> Drafts:
    """Drafts of the given lengths (rows,), from all MASK through the passes of the schedule."""
    schedule.check()
    places = torch.arange(int(lengths.max()), device=lengths.device)
    inside = places < lengths[:, None]
    draft = torch.where(inside, MASK, PAD)
    confidence = torch.zeros(draft.shape, device=lengths.device)
    before, trace = draft, []
    for step in range(1, schedule.n_steps + 1):
        best, said = _words(model.denoise(draft, memory))
        writes = inside if schedule.order == "refine" else draft == MASK
        after = torch.where(writes, said, draft)
        confidence = torch.where(writes, best, confidence)
        trace.append(after)
        # A refinement that repeats the last would repeat for ever: it sees nothing but its draft.
        fixed = schedule.order == "refine" and bool((after == before).all())
        if fixed or step == schedule.n_steps:
            break
        hide = _hides(schedule, step, after, confidence, writes & inside)
        draft, before = torch.where(hide & inside, MASK, after), after
    tokens = trace[-1]
    score = confidence.masked_fill(~inside, 0.0).sum(1) / lengths
    if schedule.order == "refine" and schedule.drop_repeats:
        tokens = without_repeats(tokens)
    return Drafts(tokens, score, len(trace), trace)


def stutters(tokens: Tensor) -> Tensor:
    """Where a token equals its left neighbour: (rows, length)."""
    same = torch.zeros_like(tokens, dtype=torch.bool)
    same[:, 1:] = (tokens[:, 1:] == tokens[:, :-1]) & (tokens[:, 1:] != PAD)
    return same


def without_repeats(tokens: Tensor) -> Tensor:
    """Each run of one token once, the rest moved to the left, PAD behind."""
    kept = tokens.masked_fill(stutters(tokens), PAD)
    return kept.gather(1, (kept == PAD).to(torch.uint8).argsort(dim=1, stable=True))


def _words(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The most likely word at each position and its log-probability among words."""
    best, said = scores[..., FIRST_WORD:].float().log_softmax(-1).max(-1)
    return best, said + FIRST_WORD


def _hides(
    schedule: Schedule, step: int, after: Tensor, confidence: Tensor, written: Tensor
) -> Tensor:
    """Which positions (rows, length) the next pass does not see."""
    if schedule.order == "refine":
        return stutters(after) if schedule.remask_stutter else torch.zeros_like(written)
    length = (after != PAD).sum(1)
    n_hidden = length * (schedule.n_steps - step) // schedule.n_steps
    if schedule.order == "mask-predict":
        order = confidence.masked_fill(after == PAD, torch.inf)
    elif schedule.order == "easy-first":
        order = confidence.masked_fill(~written, torch.inf)
    else:
        order = -torch.arange(after.shape[1], device=after.device).float().expand(after.shape)
        order = order.masked_fill(~written, torch.inf)
    rank = order.argsort(dim=1, stable=True).argsort(dim=1)
    return rank < n_hidden[:, None]
