"""What is this text in the other language? From strings to strings, whatever the decoder.

The parallel decoders write drafts of several lengths. Which one is kept says a judge: the student
by its own score, the mean log-probability of the tokens with half of that of the length; or the
teacher. An autoregressive model cannot write a sentence at once, but it can read finished ones at
once, and says which is the likeliest (noisy parallel decoding).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from glauber.errors import GlauberError
from glauber.progress import Advance, check_count, check_memory, check_seed
from glauber.result import one_of
from glauber.translation.data import Vocabulary, padded
from glauber.translation.model import BEGIN, END, PAD, Memory, Translator
from glauber.translation.schedules import ORDERS, REMASK, Drafts, Noise, Schedule, decode, key
from glauber.translation.search import beam_search, greedy

DECODERS = (*ORDERS, "ar")
LENGTHS = ("predicted", "ratio", "oracle")
JUDGES = ("itself", "teacher")
MOST = 10_000  # beams, lengths or hypotheses
# Of the length's log-probability, set on the valid file. All of it, the joint law of the model,
# trusts the length too much; none of it prefers lengths that are easy to fill.
LENGTH_SHARE = 0.5


@dataclass(frozen=True)
class Translation:
    """A text in the other language; `trace` has the tokens after each pass.

    confidence, if it was asked for: the log-probability of each of them in the pass that wrote it;
    of an autoregressive model that of each token of the text, in one row.
    """

    text: str
    tokens: tuple[int, ...]
    score: float  # mean log-probability of a token: what the judge compared, and nothing more
    n_passes: int  # of the draft that was kept, until it stood still
    trace: tuple[tuple[int, ...], ...]
    confidence: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Decoding:
    """The decoding options: `decoder` is ar or an order of a schedule."""

    decoder: str = "refine-remask"
    n_steps: int = 4
    n_lengths: int = 5
    n_beams: int = 5  # ar only; 1 is greedy
    length: str = "predicted"  # or ratio: the source's times `ratio`; or oracle: the reference's
    ratio: float = 1.0
    initial: str | None = None  # mask or random; None: random for sundae, mask for the others
    remask_repeats: bool = True  # refining only
    remask: float = REMASK  # refine-remask only: fraction hidden after a pass, less each time
    drop_repeats: bool = True  # refining only
    n_hypotheses: int = 16  # sundae only: for each length
    seed: int = 0  # of whatever is drawn
    judge: str = "teacher"  # who chooses among the drafts of a sentence; or itself

    @property
    def schedule(self) -> Schedule:
        """What the passes do."""
        return Schedule(
            self.n_steps,
            self.decoder,
            self.remask_repeats,
            self.remask,
            self.drop_repeats,
            self.initial,
        )

    @property
    def n_copies(self) -> int:
        """Hypotheses of each length."""
        return self.n_hypotheses if self.decoder == "sundae" else 1

    @property
    def n_drafts(self) -> int:
        """Drafts of a sentence that a judge chooses from."""
        return 1 if self.decoder == "ar" else self.n_lengths * self.n_copies

    @property
    def asks_teacher(self) -> bool:
        """Whether the teacher must be there to choose."""
        return self.judge == "teacher" and self.n_drafts > 1

    def check(self) -> None:
        """Says what no translator can decode with."""
        one_of("the decoder", self.decoder, DECODERS)
        one_of("the judge", self.judge, JUDGES)
        one_of("the length", self.length, LENGTHS)
        check_count("number of lengths", self.n_lengths, most=MOST)
        check_count("number of beams", self.n_beams, most=MOST)
        check_count("number of hypotheses", self.n_hypotheses, most=MOST)
        check_seed(self.seed)
        if not 0 < self.ratio < math.inf:
            raise GlauberError(f"the ratio is {self.ratio}, but it must be above 0.")
        if self.decoder != "ar":
            self.schedule.check()

    def check_model(self, model: Translator) -> None:
        """Says which model cannot be decoded so."""
        self.check()
        most, vocab = model.shape.max_length, model.shape.vocab_size
        if self.n_lengths >= most:
            raise GlauberError(f"there are only {most - 1} lengths to try.")
        if (self.decoder == "ar") != (model.shape.kind == "ar"):
            raise GlauberError(
                f"the decoder {self.decoder} does not fit a translator of kind {model.shape.kind}."
            )
        rows = self.n_beams if self.decoder == "ar" else self.n_drafts * most
        check_memory(8.0 * rows * vocab, "one sentence")


def translate_texts(
    model: Translator,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    *,
    decoding: Decoding | None = None,
    batch_size: int = 64,
    reference_lengths: Sequence[int] | None = None,
    teacher: Translator | None = None,
    confidence: bool = False,
    advance: Advance | None = None,
    unknown: str = "error",
) -> list[Translation]:
    """The translations, in the order of the texts; like lengths go through the model together.

    `reference_lengths` has the tokens of each text's reference, for the length `oracle` only;
    `teacher` chooses among drafts where the options say so.
    """
    decoding = decoding or Decoding()
    decoding.check_model(model)
    if decoding.asks_teacher and teacher is None:
        raise GlauberError("the judge is the teacher, but there is none.")
    needed = decoding.decoder != "ar" and decoding.length == "oracle"
    if needed and (reference_lengths is None or len(reference_lengths) != len(texts)):
        raise GlauberError("the length oracle needs a reference of each text.")
    sources = [
        vocabulary.read_source(text, model.shape.max_length, unknown=unknown) for text in texts
    ]
    order = sorted(range(len(texts)), key=lambda row: len(sources[row]))
    made: list[Translation | None] = [None] * len(texts)
    size = max(1, batch_size // decoding.n_copies)  # as much memory for one hypothesis as for many
    for begin in range(0, len(order), size):
        rows = order[begin : begin + size]
        source = padded([sources[row] for row in rows]).to(model.device)
        if decoding.decoder == "ar":
            batch = _searched(model, vocabulary, source, decoding.n_beams, confidence)
        else:
            known = torch.tensor([(reference_lengths or {row: 0})[row] for row in rows])[:, None]
            drafts = _best(model, source, decoding, known.to(model.device), teacher)
            batch = _translations(drafts, vocabulary, confidence)
        for row, one in zip(rows, batch, strict=True):
            made[row] = one
        if advance is not None:
            advance(len(rows))
    return [one for one in made if one is not None]


def _translations(drafts: Drafts, vocabulary: Vocabulary, confidence: bool) -> list[Translation]:
    traces = [step.tolist() for step in drafts.trace]
    sure = [step.tolist() for step in drafts.confidence] if confidence else []
    scores, passes = drafts.score.tolist(), drafts.n_passes.tolist()
    made = []
    for row, tokens in enumerate(map(_plain, drafts.tokens.tolist())):
        trace = tuple(_plain(step[row]) for step in traces[: passes[row]])
        seen = tuple(tuple(step[row][: len(done)]) for step, done in zip(sure, trace, strict=False))
        text = vocabulary.decode(list(tokens))
        made.append(Translation(text, tokens, scores[row], passes[row], trace, seen))
    return made


@torch.inference_mode()
def _searched(
    model: Translator, vocabulary: Vocabulary, source: Tensor, n_beams: int, confidence: bool
) -> list[Translation]:
    """Greedy or beam search; a pass for each token and its end."""
    memory = model.encode(source)
    found = beam_search(model, memory, n_beams) if n_beams > 1 else greedy(model, memory)
    tokens = [_plain(row) for row in found.tokens.tolist()]
    sure = read_log_probs(model, found.tokens, memory).tolist() if confidence else []
    seen = [(tuple(row[: len(done)]),) for row, done in zip(sure, tokens, strict=False)]
    return [
        Translation(vocabulary.decode(list(row)), row, score, len(row) + 1, (), *seen[at : at + 1])
        for at, (row, score) in enumerate(zip(tokens, found.score.tolist(), strict=True))
    ]


@torch.inference_mode()
def _best(
    model: Translator, source: Tensor, decoding: Decoding, known: Tensor, teacher: Translator | None
) -> Drafts:
    """The best draft of each row over its lengths and hypotheses, by the judge."""
    memory = model.asked(model.encode(source))
    log_probs = length_log_probs(model, memory, source)
    lengths = _lengths(source, log_probs, decoding, known).repeat_interleave(decoding.n_copies, 1)
    row = torch.arange(len(source), device=source.device)
    each = row.repeat_interleave(lengths.shape[1])
    noise = _noise(model, source, lengths, decoding)
    drafts = decode(model, memory.rows(each), lengths.flatten(), decoding.schedule, noise=noise)
    if decoding.judge == "teacher" and teacher is not None:
        score = teacher_score(teacher, drafts.tokens, teacher.encode(source).rows(each))
    else:
        # A length that was given and not predicted has no say.
        sure = log_probs.gather(1, lengths - 1) * (decoding.length == "predicted")
        score = own_score(drafts.score, lengths.flatten(), sure.flatten())
    best = row * lengths.shape[1] + score.unflatten(0, lengths.shape).argmax(1)
    return Drafts(
        drafts.tokens[best],
        score[best],
        drafts.n_passes[best],
        [step[best] for step in drafts.trace],
        [step[best] for step in drafts.confidence],
    )


def own_score(token_score: Tensor, lengths: Tensor, length_log_prob: Tensor) -> Tensor:
    """Mean log-probability of tokens and length, each (rows,), a token."""
    return token_score + LENGTH_SHARE * length_log_prob / lengths


@torch.inference_mode()
def teacher_score(teacher: Translator, tokens: Tensor, memory: Memory) -> Tensor:
    """The teacher's mean log-probability (rows,) of finished drafts (rows, length), END included.

    memory is the teacher's own of each row's source.
    """
    return read_log_probs(teacher, tokens, memory).sum(1) / ((tokens != PAD).sum(1) + 1)


@torch.inference_mode()
def read_log_probs(teacher: Translator, tokens: Tensor, memory: Memory) -> Tensor:
    """log-probabilities (rows, length + 1) of finished tokens (rows, length) and of END behind."""
    begin = torch.full_like(tokens[:, :1], BEGIN)
    labels = F.pad(tokens, (0, 1), value=PAD)
    labels = labels.scatter(1, (tokens != PAD).sum(1, keepdim=True), END)
    log_probs = teacher.follow(torch.cat([begin, tokens], 1), memory).float().log_softmax(-1)
    return log_probs.gather(2, labels[:, :, None])[:, :, 0].masked_fill(labels == PAD, 0.0)


def length_log_probs(model: Translator, memory: Memory, source: Tensor) -> Tensor:
    """The predictor's law (rows, max_length - 1) of the lengths 1, 2, …, max_length - 1."""
    most = model.shape.max_length
    read = (source != PAD).sum(1, keepdim=True)
    lengths = torch.arange(1, most, device=source.device)
    return model.length_scores(memory).float().gather(1, lengths - read + most).log_softmax(1)


def likely_lengths(log_probs: Tensor, n_lengths: int) -> Tensor:
    """The lengths (rows, n_lengths) that are the most likely, the first of them first."""
    return log_probs.topk(n_lengths, 1).indices + 1


def lengths_around(centre: Tensor, n_lengths: int, *, most: int) -> Tensor:
    """n, n - 1, n + 1, n - 2, n + 2, … around each n (rows, 1), from 1 to `most`."""
    spread = torch.arange(n_lengths, device=centre.device)
    return (centre + (spread + 1) // 2 * (1 - 2 * (spread % 2))).clamp(1, most)


def _lengths(source: Tensor, log_probs: Tensor, decoding: Decoding, known: Tensor) -> Tensor:
    """The lengths (rows, n_lengths) that are tried; known (rows, 1) is for the oracle."""
    if decoding.length == "predicted":
        return likely_lengths(log_probs, decoding.n_lengths)
    read = (source != PAD).sum(1, keepdim=True)
    centre = known if decoding.length == "oracle" else (read * decoding.ratio).round().long()
    return lengths_around(centre, decoding.n_lengths, most=log_probs.shape[1])


def _noise(model: Translator, source: Tensor, lengths: Tensor, decoding: Decoding) -> Noise | None:
    """The noise of every row and hypothesis, where the schedule draws anything."""
    if not (decoding.schedule.random_start or decoding.decoder == "sundae"):
        return None
    keys = [
        key(_plain(tokens), length, number % decoding.n_copies)
        for tokens, row in zip(source.tolist(), lengths.tolist(), strict=True)
        for number, length in enumerate(row)
    ]
    return Noise(decoding.seed, torch.tensor(keys, device=source.device), model.shape.vocab_size)


def _plain(tokens: list[int]) -> tuple[int, ...]:
    return tuple(token for token in tokens if token != PAD)
