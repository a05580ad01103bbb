"""What is this text in the other language? From strings to strings, whatever the decoder."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glauber.errors import GlauberError
from glauber.translation.choice import JUDGES, own_taste, teachers_taste
from glauber.translation.data import padded
from glauber.translation.decode import DOUBT, Drafts, Schedule, decode
from glauber.translation.lengths import (
    LENGTHS,
    length_log_probs,
    lengths_around,
    likely_lengths,
)
from glauber.translation.model import PAD, Translator
from glauber.translation.noise import Noise, key
from glauber.translation.search import beam_search, greedy
from glauber.translation.vocabulary import Vocabulary


@dataclass(frozen=True)
class Translation:
    """A text in the other language; `trace` has the tokens after each pass."""

    text: str
    tokens: tuple[int, ...]
    score: float  # mean log-probability of a token: an estimate of nothing but the judge's taste
    n_passes: int  # of the draft that was kept, until it stood still
    trace: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Way:
    """How to translate: `decoder` is ar or an order of a schedule."""

    decoder: str = "refine"
    n_steps: int = 4
    n_lengths: int = 5
    n_beams: int = 5  # ar only; 1 is greedy
    length: str = "predicted"  # or ratio: the source's times `ratio`; or oracle: the reference's
    ratio: float = 1.0
    initial: str | None = None  # mask or random; None: random for sundae, mask for the others
    remask_stutter: bool = True  # refine only
    doubt: float = DOUBT  # refine only: share of the tokens hidden between passes, less each time
    drop_repeats: bool = True  # refine only
    n_hypotheses: int = 16  # sundae only: for each length
    seed: int = 0  # of whatever is drawn
    judge: str = "itself"  # who chooses among the drafts of a sentence; or teacher

    @property
    def schedule(self) -> Schedule:
        """What the passes do."""
        return Schedule(
            self.n_steps,
            self.decoder,
            self.remask_stutter,
            self.doubt,
            self.drop_repeats,
            self.initial,
        )

    @property
    def n_copies(self) -> int:
        """Hypotheses of each length."""
        return self.n_hypotheses if self.decoder == "sundae" else 1

    def check(self, model: Translator) -> None:
        """Says which model cannot go this way."""
        if self.n_lengths < 1 or self.n_beams < 1 or self.n_hypotheses < 1:
            raise GlauberError("at least 1 length, 1 beam and 1 hypothesis are needed.")
        if self.n_lengths >= model.shape.max_length:
            raise GlauberError(f"there are only {model.shape.max_length - 1} lengths to try.")
        if self.length not in LENGTHS or not 0 < self.ratio < math.inf:
            raise GlauberError(f"lengths are {', '.join(LENGTHS)}, the ratio is above 0.")
        if self.judge not in JUDGES:
            raise GlauberError(f"the judge must be one of {', '.join(JUDGES)}.")
        if self.decoder != "ar":
            self.schedule.check()
        if (self.decoder == "ar") != (model.shape.kind == "ar"):
            raise GlauberError(
                f"the decoder {self.decoder} does not fit a translator of kind {model.shape.kind}."
            )


def translate(
    model: Translator,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    *,
    way: Way | None = None,
    batch_size: int = 64,
    reference_lengths: Sequence[int] | None = None,
    teacher: Translator | None = None,
) -> list[Translation]:
    """The translations, in the order of the texts; like lengths go through the model together.

    `reference_lengths` has the tokens of each text's reference, for the way `oracle` only;
    `teacher` chooses among drafts where the way says so.
    """
    way = way or Way()
    way.check(model)
    n_drafts = 1 if way.decoder == "ar" else way.n_lengths * way.n_copies
    if n_drafts > 1 and way.judge == "teacher" and teacher is None:
        raise GlauberError("the judge is the teacher, but there is none.")
    told = way.decoder == "ar" or way.length != "oracle"
    if not told and (reference_lengths is None or len(reference_lengths) != len(texts)):
        raise GlauberError("the length oracle needs a reference of each text.")
    sources = [vocabulary.read_source(text, model.shape.max_length) for text in texts]
    order = sorted(range(len(texts)), key=lambda row: len(sources[row]))
    made: list[Translation | None] = [None] * len(texts)
    size = max(1, batch_size // way.n_copies)  # as much memory for one hypothesis as for many
    for begin in range(0, len(order), size):
        rows = order[begin : begin + size]
        source = padded([sources[row] for row in rows]).to(model.device)
        known = torch.tensor([(reference_lengths or {row: 0})[row] for row in rows])[:, None]
        known = known.to(model.device)
        batch = _batch(model, vocabulary, source, way, known, teacher)
        for row, one in zip(rows, batch, strict=True):
            made[row] = one
    return [one for one in made if one is not None]


@torch.inference_mode()
def _batch(
    model: Translator,
    vocabulary: Vocabulary,
    source: Tensor,
    way: Way,
    known: Tensor,
    teacher: Translator | None,
) -> list[Translation]:
    if way.decoder == "ar":
        memory = model.encode(source)
        found = (
            beam_search(model, memory, way.n_beams) if way.n_beams > 1 else greedy(model, memory)
        )
        tokens = [_plain(row) for row in found.tokens.tolist()]
        return [
            Translation(vocabulary.decode(list(row)), row, score, len(row) + 1, ())
            for row, score in zip(tokens, found.score.tolist(), strict=True)
        ]
    drafts = _best(model, source, way, known, teacher)
    traces = [step.tolist() for step in drafts.trace]
    tokens = [_plain(row) for row in drafts.tokens.tolist()]
    return [
        Translation(
            vocabulary.decode(list(tokens[row])),
            tokens[row],
            score,
            n_passes,
            tuple(_plain(step[row]) for step in traces[:n_passes]),
        )
        for row, (score, n_passes) in enumerate(
            zip(drafts.score.tolist(), drafts.n_passes.tolist(), strict=True)
        )
    ]


def _lengths(source: Tensor, laws: Tensor, way: Way, known: Tensor) -> Tensor:
    """The lengths (rows, n_lengths) that the way tries; known (rows, 1) is for the oracle."""
    if way.length == "predicted":
        return likely_lengths(laws, way.n_lengths)
    read = (source != PAD).sum(1, keepdim=True)
    centre = known if way.length == "oracle" else (read * way.ratio).round().long()
    return lengths_around(centre, way.n_lengths, most=laws.shape[1])


def _best(
    model: Translator, source: Tensor, way: Way, known: Tensor, teacher: Translator | None
) -> Drafts:
    """The best draft of each row over its lengths and hypotheses, by the judge of the way."""
    memory = model.asked(model.encode(source))
    laws = length_log_probs(model, memory, source)
    lengths = _lengths(source, laws, way, known).repeat_interleave(way.n_copies, 1)
    row = torch.arange(len(source), device=source.device)
    each = row.repeat_interleave(lengths.shape[1])
    noise = _noise(model, source, lengths, way)
    drafts = decode(model, memory.rows(each), lengths.flatten(), way.schedule, noise=noise)
    if way.judge == "teacher" and teacher is not None:
        taste = teachers_taste(teacher, drafts.tokens, teacher.encode(source).rows(each))
    else:
        # A length that was given and not predicted has no say.
        sure = laws.gather(1, lengths - 1) * (way.length == "predicted")
        taste = own_taste(drafts.score, lengths.flatten(), sure.flatten())
    best = row * lengths.shape[1] + taste.unflatten(0, lengths.shape).argmax(1)
    return Drafts(
        drafts.tokens[best],
        taste[best],
        drafts.n_passes[best],
        [step[best] for step in drafts.trace],
    )


def _noise(model: Translator, source: Tensor, lengths: Tensor, way: Way) -> Noise | None:
    """The noise of every row and hypothesis, where the schedule draws anything."""
    if not (way.schedule.random_start or way.decoder == "sundae"):
        return None
    keys = [
        key(_plain(tokens), length, number % way.n_copies)
        for tokens, row in zip(source.tolist(), lengths.tolist(), strict=True)
        for number, length in enumerate(row)
    ]
    return Noise(way.seed, torch.tensor(keys, device=source.device), model.shape.vocab_size)


def _plain(tokens: list[int]) -> tuple[int, ...]:
    return tuple(token for token in tokens if token != PAD)
