"""What does a translator that predicts every position at once say after a few passes?

Five schedules. `refine` (PaDIR) predicts every position again in each pass; what repeats its left
neighbour and what it is least sure of is hidden from the next one. Three write hidden positions:
`mask-predict` predicts the hidden ones and hides the least confident again, fewer in each pass;
`easy-first` keeps the most confident of the hidden, `left-to-right` the leftmost. `sundae` draws
words before it settles on the likely ones (`sundae.py`).

Each row goes its own way: what becomes of it does not depend on the other rows of its batch.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from glauber.errors import GlauberError
from glauber.translation import fused, sundae
from glauber.translation.model import FIRST_WORD, MASK, PAD, Memory
from glauber.translation.noise import Noise

ORDERS = ("refine", "mask-predict", "easy-first", "left-to-right", "sundae")
INITIAL = ("mask", "random")
DOUBT = 0.5  # set on the valid file


class Denoiser(Protocol):
    """A model that sees its own draft: no set of conditionals, for what it sees there matters."""

    def denoise(self, draft: Tensor, memory: Memory) -> Tensor:
        """draft (rows, length), PAD behind -> scores (rows, length, vocab)."""
        ...


@dataclass(frozen=True)
class Schedule:
    """What a draft begins as, which positions a pass writes, and for how many passes."""

    n_steps: int = 4
    order: str = "refine"
    remask_stutter: bool = True  # refine only, between passes
    doubt: float = DOUBT  # refine only: share of the tokens hidden between passes, less each time
    drop_repeats: bool = True  # refine only, at the end
    initial: str | None = None  # mask or random (refine, sundae); None: random for sundae only

    @property
    def random_start(self) -> bool:
        """Whether a draft begins as random words and not as MASK."""
        return self.initial == "random" or (self.initial is None and self.order == "sundae")

    def check(self) -> None:
        """Says what cannot be decoded with."""
        if self.n_steps < 1:
            raise GlauberError(f"the number of steps is {self.n_steps}, but it must be at least 1.")
        if self.order not in ORDERS:
            raise GlauberError(f"the decoder must be one of {', '.join(ORDERS)}.")
        if not 0 <= self.doubt <= 1:
            raise GlauberError(f"the share in doubt is {self.doubt}, but it must be from 0 to 1.")
        if self.initial not in (None, *INITIAL):
            raise GlauberError(f"the initial tokens are {self.initial}, not mask or random.")
        if self.random_start and self.order not in ("refine", "sundae"):
            raise GlauberError(f"{self.order} fills masks: it cannot begin with random tokens.")


class Drafts(NamedTuple):
    """tokens (rows, length), PAD behind; score and n_passes (rows,); every pass (rows, length).

    A row that stands still keeps its tokens in the later passes of the trace.
    """

    tokens: Tensor
    score: Tensor  # mean log-probability of the tokens in the pass that wrote (sundae: saw) them
    n_passes: Tensor
    trace: list[Tensor]


@torch.inference_mode()
def decode(
    model: Denoiser,
    memory: Memory,
    lengths: Tensor,
    schedule: Schedule,
    *,
    noise: Noise | None = None,
) -> Drafts:
    """Drafts of the given lengths (rows,) through the passes of the schedule.

    A refinement sees nothing but its draft, so a row whose next draft is the present one, and that
    hides none of it out of doubt, would repeat it for ever: it stops, and the others go on
    without it.
    """
    schedule.check()
    inside = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
    draft = _first(inside, schedule, noise)
    tokens, confidence = draft, torch.zeros(draft.shape, device=draft.device)
    n_passes, trace = torch.zeros_like(lengths), []
    live = torch.arange(len(draft), device=draft.device)
    for step in range(1, schedule.n_steps + 1):
        scores, writes = model.denoise(draft, memory), _writes(schedule, draft)
        if schedule.order == "sundae":
            after, sure = _drawn(schedule, step, scores, draft, noise)
        else:
            after, sure = likely(scores)
            after = torch.where(writes, after, draft)
            sure = torch.where(writes, sure, confidence[live])
        tokens, confidence = tokens.index_copy(0, live, after), confidence.index_copy(0, live, sure)
        n_passes[live] += 1
        trace.append(tokens)
        ahead = torch.where(_hides(schedule, step, after, sure, writes), MASK, after)
        if schedule.order == "refine":
            doubts = _n_doubted(schedule, step, after) > 0
            moving = ((ahead != draft).any(1) | doubts).nonzero()[:, 0]
            if not len(moving):
                break
            if len(moving) < len(live):
                live, ahead, memory = live[moving], ahead[moving], memory.rows(moving)
        draft = ahead
    score = confidence.masked_fill(~inside, 0.0).sum(1) / lengths
    if schedule.order == "refine" and schedule.drop_repeats:
        tokens = without_repeats(tokens)
    return Drafts(tokens, score, n_passes, trace)


def stutters(tokens: Tensor) -> Tensor:
    """Where a token equals its left neighbour: (rows, length)."""
    same = torch.zeros_like(tokens, dtype=torch.bool)
    same[:, 1:] = (tokens[:, 1:] == tokens[:, :-1]) & (tokens[:, 1:] != PAD)
    return same


def least_sure(confidence: Tensor, tokens: Tensor, count: Tensor) -> Tensor:
    """Where (rows, length) the `count` (rows,) tokens with the least confidence are."""
    order = confidence.masked_fill(tokens == PAD, torch.inf)
    return order.argsort(dim=1, stable=True).argsort(dim=1) < count[:, None]


def without_repeats(tokens: Tensor) -> Tensor:
    """Each run of one token once, the rest moved to the left, PAD behind."""
    kept = tokens.masked_fill(stutters(tokens), PAD)
    return kept.gather(1, (kept == PAD).to(torch.uint8).argsort(dim=1, stable=True))


def _first(inside: Tensor, schedule: Schedule, noise: Noise | None) -> Tensor:
    """The draft before any pass: MASK or random words, PAD behind."""
    if (schedule.random_start or schedule.order == "sundae") and noise is None:
        raise GlauberError("random tokens need noise: give a seed and a key of each row.")
    if schedule.random_start and noise is not None:
        return noise.tokens(inside.shape[1]).masked_fill(~inside, PAD)
    return torch.where(inside, MASK, PAD)


def _writes(schedule: Schedule, draft: Tensor) -> Tensor:
    """Where (rows, length) a pass may write: everywhere, or what is hidden."""
    return draft != PAD if schedule.order in ("refine", "sundae") else draft == MASK


def _drawn(
    schedule: Schedule, step: int, scores: Tensor, draft: Tensor, noise: Noise | None
) -> tuple[Tensor, Tensor]:
    """A pass of sundae: what stands there then, and its log-probability."""
    assert noise is not None  # `_first` has seen to it
    fill, coin = noise.uniform(step, draft.shape[1])
    draws = step <= schedule.n_steps // 2
    return sundae.write(scores, draft, fill=fill, coin=coin, first=step == 1, draws=draws)


def likely(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The most likely word at each position, and its log-probability among words."""
    if fused.cross_entropy_fits(scores.flatten(0, 1)):
        return fused.likely(scores, FIRST_WORD)
    words = scores[..., FIRST_WORD:].float()
    best, said = words.max(-1)
    return said + FIRST_WORD, best - words.logsumexp(-1)


def _n_doubted(schedule: Schedule, step: int, after: Tensor) -> Tensor:
    """How many tokens (rows,) a refinement hides out of doubt after a pass; none after the last."""
    left = (schedule.n_steps - step) / schedule.n_steps
    return ((after != PAD).sum(1) * schedule.doubt * left).long()


def _hides(
    schedule: Schedule, step: int, after: Tensor, confidence: Tensor, written: Tensor
) -> Tensor:
    """Which positions (rows, length) the next pass does not see."""
    if schedule.order == "sundae":
        return torch.zeros_like(written)
    if schedule.order == "refine":
        hidden = least_sure(confidence, after, _n_doubted(schedule, step, after))
        return hidden | stutters(after) if schedule.remask_stutter else hidden
    n_hidden = (after != PAD).sum(1) * (schedule.n_steps - step) // schedule.n_steps
    if schedule.order == "mask-predict":
        return least_sure(confidence, after, n_hidden)
    if schedule.order == "easy-first":
        return least_sure(confidence.masked_fill(~written, torch.inf), after, n_hidden)
    later = -torch.arange(after.shape[1], device=after.device).float().expand(after.shape)
    return least_sure(later.masked_fill(~written, torch.inf), after, n_hidden)
