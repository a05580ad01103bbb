"""What does a translator that predicts every position at once say after a few passes?

Seven schedules. `refine` (PaDIR) predicts every position again in each pass; what repeats its left
neighbour is hidden from the next one. `refine-remask`, which no paper has, hides in addition what
it is least sure of. Three write hidden positions: `mask-predict` (CMLM) predicts the hidden ones
and hides the least confident again, fewer in each pass; `confident-first` keeps the most confident
of the hidden, `left-to-right` the leftmost.

`easy-first` (DisCo, Kasai and others, 2020) ranks the positions by their confidence in the first
pass. Each further pass predicts every position again, given the present words of those that rank
before it and nothing else, until no word changes. Such a draft differs by position, so a pass
costs as many as there are positions.

`sundae`, in the manner of Savinov and others (2022), is the stochastic one of table 2. It begins
with random tokens. The first half of the passes draws: every position that a coin chooses gets a
word from the model's law at a low temperature, so that hypotheses of one length part ways. The
second half settles: the positions whose present word the model doubts most get its most likely
word, all others stay. The first pass writes every position, whatever the half it is in. A
hypothesis scores the mean log-probability of its words as the last pass saw them.

Randomness comes from the counter-based generator of the chains, a fixed function of (seed, row,
pass, position). A row is known by what it translates: its key is a checksum of the source's tokens,
of the draft's length and of the number of the hypothesis. So a sentence draws the same numbers
alone, in any batch and in any order of the texts.

Each row goes its own way: what becomes of it does not depend on the other rows of its batch.
"""

import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from glauber.dynamics import noise as counter
from glauber.dynamics.draws import first_beyond
from glauber.errors import GlauberError
from glauber.progress import check_count
from glauber.result import one_of
from glauber.translation import fused
from glauber.translation.model import FIRST_WORD, MASK, PAD, Memory

REFINING = ("refine", "refine-remask")  # see and write every position
ORDERS = (
    *REFINING, "mask-predict", "easy-first", "confident-first", "left-to-right", "sundae",
)  # fmt: skip
INITIAL = ("mask", "random")
MOST_STEPS = 10_000  # no sentence has as many tokens
REMASK = 0.5  # set on the valid file


class Noise(NamedTuple):
    """All the randomness of decoding rows with these keys (rows,)."""

    seed: int
    keys: Tensor
    vocab_size: int

    def rows(self, chosen: Tensor) -> "Noise":
        """The noise of the chosen rows."""
        return self._replace(keys=self.keys[chosen])

    def uniform(self, step: int, length: int) -> tuple[Tensor, Tensor]:
        """Two independent numbers in [0, 1) for each position of a pass: (rows, length) each."""
        device = self.keys.device
        seed, passed = (torch.tensor(x, device=device) for x in (self.seed, step))
        slots = torch.arange(length, device=device)
        left, right = counter.random_bits(seed, self.keys[:, None], passed, slots)
        return counter.uniform(left), counter.uniform(right)

    def tokens(self, length: int) -> Tensor:
        """Uniformly random words (rows, length), those of pass 0."""
        share, _ = self.uniform(0, length)
        return FIRST_WORD + (share * (self.vocab_size - FIRST_WORD)).long()


def key(source: Iterable[int], length: int, hypothesis: int) -> int:
    """The key of one row: a checksum of 32 bits; rows that share one share their numbers."""
    return zlib.crc32(array("q", [*source, -1, length, hypothesis]).tobytes())


class Denoiser(Protocol):
    """A model that sees its own draft: no set of conditionals, for what it sees there matters."""

    def denoise(self, draft: Tensor, memory: Memory, site: int | None = None) -> Tensor:
        """draft (rows, length), PAD behind -> scores (rows, length or one site, vocab)."""
        ...


@dataclass(frozen=True)
class Schedule:
    """What a draft begins as, which positions a pass writes, and for how many passes."""

    n_steps: int = 4
    order: str = "refine-remask"
    remask_repeats: bool = True  # refining only, between passes
    remask: float = REMASK  # refine-remask only: fraction hidden after a pass, less each time
    drop_repeats: bool = True  # refining only, at the end
    initial: str | None = None  # mask or random (refining, sundae); None: random for sundae only

    @property
    def random_start(self) -> bool:
        """Whether a draft begins as random words and not as MASK."""
        return self.initial == "random" or (self.initial is None and self.order == "sundae")

    def check(self) -> None:
        """Says what cannot be decoded with."""
        check_count("number of steps", self.n_steps, most=MOST_STEPS)
        one_of("the decoder", self.order, ORDERS)
        if not 0 <= self.remask <= 1:
            raise GlauberError(f"the remask fraction is {self.remask}, but it is from 0 to 1.")
        if self.initial not in (None, *INITIAL):
            raise GlauberError(f"the initial tokens are {self.initial}, not mask or random.")
        if self.random_start and self.order not in (*REFINING, "sundae"):
            raise GlauberError(f"{self.order} fills masks: it cannot begin with random tokens.")


class Drafts(NamedTuple):
    """tokens (rows, length), PAD behind; score and n_passes (rows,); every pass (rows, length).

    A row that stands still keeps its tokens in the later passes of the trace. confidence has the
    log-probability of each token of the trace in the pass that wrote (sundae: saw) it.
    """

    tokens: Tensor
    score: Tensor  # mean log-probability of the tokens in the pass that wrote (sundae: saw) them
    n_passes: Tensor
    trace: list[Tensor]
    confidence: list[Tensor]


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
    hides none of what it is least sure of, would repeat it for ever: it stops, and the others go on
    without it. So does a row of `easy-first` in which no word has changed.
    """
    schedule.check()
    inside = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
    draft = _first(inside, schedule, noise)
    tokens, confidence = draft, torch.zeros(draft.shape, device=draft.device)
    n_passes, trace, seen = torch.zeros_like(lengths), list[Tensor](), list[Tensor]()
    live = torch.arange(len(draft), device=draft.device)
    for step in range(1, schedule.n_steps + 1):
        writes = _writes(schedule, draft)
        if schedule.order == "sundae":
            after, sure = _drawn(schedule, step, model.denoise(draft, memory), draft, noise)
        else:
            easy = schedule.order == "easy-first" and step > 1
            first = seen[0][live] if easy else None
            after, sure = _predicted(model, draft, memory, first)
            after = torch.where(writes, after, draft)
            sure = torch.where(writes, sure, confidence[live])
        tokens, confidence = tokens.index_copy(0, live, after), confidence.index_copy(0, live, sure)
        n_passes[live] += 1
        trace.append(tokens)
        seen.append(confidence)
        following = torch.where(_hides(schedule, step, after, sure, writes), MASK, after)
        if schedule.order in (*REFINING, "easy-first"):
            remasks = _n_remasked(schedule, step, after) > 0
            moving = ((following != draft).any(1) | remasks).nonzero()[:, 0]
            if not len(moving):
                break
            if len(moving) < len(live):
                live, following, memory = live[moving], following[moving], memory.rows(moving)
        draft = following
    score = confidence.masked_fill(~inside, 0.0).sum(1) / lengths
    if schedule.order in REFINING and schedule.drop_repeats:
        tokens = without_repeats(tokens)
    return Drafts(tokens, score, n_passes, trace, seen)


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
    whole = (*REFINING, "easy-first", "sundae")
    return draft != PAD if schedule.order in whole else draft == MASK


def _predicted(
    model: Denoiser, words: Tensor, memory: Memory, first: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Every position (rows, length) predicted from all words, or from the easier ones alone.

    first (rows, length) is the confidence that ranks them, the surest first; then all other
    positions, its own among them, are MASK for a position.
    """
    if first is None:
        return likely(model.denoise(words, memory))
    after, sure = words.clone(), torch.zeros_like(first)
    rank = first.masked_fill(words == PAD, -torch.inf)
    rank = rank.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    for site in range(words.shape[1]):
        draft = torch.where(rank < rank[:, site, None], words, MASK).masked_fill(words == PAD, PAD)
        said, certain = likely(model.denoise(draft, memory, site))
        after[:, site], sure[:, site] = said[:, 0], certain[:, 0].to(sure.dtype)
    return after, sure


def _drawn(
    schedule: Schedule, step: int, scores: Tensor, draft: Tensor, noise: Noise | None
) -> tuple[Tensor, Tensor]:
    """A pass of sundae: what stands there then, and its log-probability."""
    assert noise is not None  # `_first` has seen to it
    fill, coin = noise.uniform(step, draft.shape[1])
    draws = step <= schedule.n_steps // 2
    return sundae_pass(scores, draft, fill=fill, coin=coin, first=step == 1, draws=draws)


def likely(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The most likely word at each position, and its log-probability among words."""
    if fused.cross_entropy_fits(scores.flatten(0, 1)):
        return fused.likely(scores, FIRST_WORD)
    words = scores[..., FIRST_WORD:].float()
    best, drawn = words.max(-1)
    return drawn + FIRST_WORD, best - words.logsumexp(-1)


def _n_remasked(schedule: Schedule, step: int, after: Tensor) -> Tensor:
    """How many of its least sure tokens (rows,) a refinement hides after a pass, 0 at the last."""
    share = schedule.remask if schedule.order == "refine-remask" else 0.0
    left = (schedule.n_steps - step) / schedule.n_steps
    return ((after != PAD).sum(1) * share * left).long()


def _hides(
    schedule: Schedule, step: int, after: Tensor, confidence: Tensor, written: Tensor
) -> Tensor:
    """Which positions (rows, length) the next pass does not see."""
    if schedule.order in ("sundae", "easy-first"):
        return torch.zeros_like(written)
    if schedule.order in REFINING:
        hidden = least_sure(confidence, after, _n_remasked(schedule, step, after))
        return hidden | stutters(after) if schedule.remask_repeats else hidden
    n_hidden = (after != PAD).sum(1) * (schedule.n_steps - step) // schedule.n_steps
    if schedule.order == "mask-predict":
        return least_sure(confidence, after, n_hidden)
    if schedule.order == "confident-first":
        return least_sure(confidence.masked_fill(~written, torch.inf), after, n_hidden)
    later = -torch.arange(after.shape[1], device=after.device).float().expand(after.shape)
    return least_sure(later.masked_fill(~written, torch.inf), after, n_hidden)


class Sundae(NamedTuple):
    """Draws at `temperature`, at a share `moved` of the positions; settles a share `settled`."""

    temperature: float = 0.3
    moved: float = 0.7
    settled: float = 0.5


def sundae_pass(
    scores: Tensor, draft: Tensor, *, fill: Tensor, coin: Tensor, first: bool, draws: bool
) -> tuple[Tensor, Tensor]:
    """One pass: the new draft (rows, length) and the log-probability of each of its words.

    scores (rows, length, vocab); fill and coin (rows, length) in [0, 1).
    """
    how, inside = Sundae(), draft != PAD
    words = scores[..., FIRST_WORD:].float()
    log_probs = words.log_softmax(-1)
    if draws:
        drawn = inverse_cdf(words / how.temperature, fill)
        chosen = coin < how.moved
    else:
        drawn = log_probs.argmax(-1)
        chosen = _least_certain(_of(log_probs, draft - FIRST_WORD), inside, how.settled)
    after = torch.where(inside & (chosen | first), drawn + FIRST_WORD, draft)
    return after, _of(log_probs, after - FIRST_WORD)


def inverse_cdf(scores: Tensor, fill: Tensor) -> Tensor:
    """The entry (rows, length) at which the cumulated law of scores first exceeds fill."""
    mass = scores.softmax(-1).cumsum(-1)
    return first_beyond(mass, fill.to(mass.dtype) * mass[..., -1])


def _of(log_probs: Tensor, words: Tensor) -> Tensor:
    """The log-probability of the given words; what is no word counts as the first one."""
    return log_probs.gather(-1, words.clamp(min=0)[..., None])[..., 0]


def _least_certain(certainty: Tensor, inside: Tensor, share: float) -> Tensor:
    """The least certain positions of each row, a share of its length, at least one."""
    count = (inside.sum(1) * share).ceil()
    order = certainty.masked_fill(~inside, torch.inf).argsort(dim=1, stable=True)
    return order.argsort(dim=1) < count[:, None]
