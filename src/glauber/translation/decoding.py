"""Translations by seven schedules of parallel decoding, or by autoregressive search.

`refine` (PaDIR) predicts every position again in each pass; what repeats its left neighbour is
hidden from the next one. `refine-remask`, which no paper has, also hides the tokens of the lowest
confidence. Three write hidden positions: `mask-predict` (CMLM) predicts the hidden ones and hides
the least confident again, fewer in each pass; `confident-first` keeps the most confident of the
hidden, `left-to-right` the leftmost.

`easy-first` (DisCo, Kasai and others, 2020) ranks the positions by their confidence in the first
pass. Each further pass predicts every position again, given the present words of those that rank
before it and nothing else, until no word changes. Such a draft differs by position, so a pass
costs as many as there are positions.

`sundae`, in the manner of Savinov and others (2022), is the stochastic one of table 2. It begins
with random tokens. The first half of the passes draws: every position that a coin chooses gets a
word from the model's distribution at a low temperature, so that hypotheses of one length part
ways. The second half settles: the positions whose present word is the least likely get their most
likely word, all others stay. The first pass writes every position in any case. The score of a
hypothesis is the mean log-probability of its words in the last pass.

Several lengths are tried, and a judge chooses among the drafts: the student by its own score, the
mean log-probability of the tokens plus half of that of the length; or the teacher. An
autoregressive model reads finished sentences in one pass and says which is the likeliest (noisy
parallel decoding).

Randomness comes from the counter-based generator of the chains, a fixed function of (seed, row,
pass, position). The key of a row is a checksum of the source's tokens, of the draft's length and of
the number of the hypothesis. So a sentence draws the same numbers alone, in any batch and in any
order of the texts, and what becomes of a row does not depend on the other rows of its batch.
"""

import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from glauber.dynamics import noise as counter
from glauber.dynamics.draws import first_beyond
from glauber.foundation.checks import OneOf, Positive, Share, Whole, check_fields, check_seed
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import Advance, check_memory
from glauber.translation.data import SubwordVocabulary, pad_rows
from glauber.translation.model import (
    BEGIN,
    END,
    FIRST_WORD,
    MASK,
    PAD,
    UNKNOWN,
    Cache,
    Memory,
    Translator,
)

REFINING = ("refine", "refine-remask")  # read and write every position
ORDERS = (
    *REFINING,
    "mask-predict",
    "easy-first",
    "confident-first",
    "left-to-right",
    "sundae",
)
DECODERS = (*ORDERS, "ar")
INITIAL = ("mask", "random")
LENGTHS = ("predicted", "ratio", "oracle")
JUDGES = ("itself", "teacher")
MAX_STEPS = 10_000  # no sentence has as many tokens
MAX_DRAFTS = 10_000  # beams, lengths or hypotheses
REMASK = 0.5  # chosen on the validation file
# Weight of the length's log-probability, chosen on the validation file. With weight 1, the joint
# distribution of the model, the length counts too much; with 0, lengths that are easy to fill win.
LENGTH_SHARE = 0.5
# Of sundae: temperature of the draws, share of positions that are drawn, and that are settled.
SUNDAE_TEMPERATURE, SUNDAE_DRAWN, SUNDAE_SETTLED = 0.3, 0.7, 0.5


# Of greedy and beam search.
FORBIDDEN = (PAD, UNKNOWN, BEGIN, MASK)  # tokens that no output has
LENGTH_PENALTY = 1.0  # a hypothesis scores its log-probability over its length to this power
Steps = Whole(1, MAX_STEPS)
Drafted = Whole(1, MAX_DRAFTS)


@dataclass(frozen=True)
class Decoding:
    """How texts are decoded."""

    decoder: Annotated[str, OneOf(DECODERS)] = "refine-remask"
    n_steps: Annotated[int, Steps] = 4
    n_lengths: Annotated[int, Drafted] = 5
    n_beams: Annotated[int, Drafted] = 5  # ar only; 1 is greedy
    # The predicted ones, the source's times `ratio`, or for oracle the reference's.
    length: Annotated[str, OneOf(LENGTHS)] = "predicted"
    ratio: Annotated[float, Positive] = 1.0
    # None: random for sundae, mask for the others.
    initial: Annotated[str | None, OneOf(INITIAL)] = None
    remask_repeats: bool = True  # refining only, between passes
    # refine-remask only: fraction hidden after a pass, less each time
    remask: Annotated[float, Share] = REMASK
    drop_repeats: bool = True  # refining only, at the end
    n_hypotheses: Annotated[int, Drafted] = 16  # sundae only: for each length
    seed: Annotated[int, check_seed] = 0  # of the noise
    judge: Annotated[str, OneOf(JUDGES)] = "teacher"  # chooses among the drafts; or itself
    cached: bool = True  # ar only: keys and values of earlier tokens are kept

    @property
    def random_start(self) -> bool:
        """Whether the first draft has random words instead of MASK."""
        return self.initial == "random" or (self.initial is None and self.decoder == "sundae")

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
        """Whether a teacher is needed to choose."""
        return self.judge == "teacher" and self.n_drafts > 1

    def check(self) -> None:
        """Refuses options that no translator can decode with."""
        check_fields(self)
        if self.random_start and self.decoder not in (*REFINING, "sundae", "ar"):
            raise GlauberError(f"{self.decoder} fills masks: it cannot begin with random tokens.")

    def check_model(self, model: Translator) -> None:
        """Refuses a model that cannot be decoded in this way."""
        self.check()
        max_length, vocab_size = model.shape.max_length, model.shape.vocab_size
        if self.n_lengths >= max_length:
            raise GlauberError(f"there are only {max_length - 1} lengths to try.")
        if (self.decoder == "ar") != (model.shape.kind == "ar"):
            raise GlauberError(
                f"the decoder {self.decoder} does not fit a translator of kind {model.shape.kind}."
            )
        rows = self.n_beams if self.decoder == "ar" else self.n_drafts * max_length
        check_memory(8.0 * rows * vocab_size, "one sentence")


class DecodingNoise(NamedTuple):
    """All the randomness of decoding rows with these keys (rows,)."""

    seed: int
    keys: Tensor
    vocab_size: int

    def rows(self, chosen: Tensor) -> "DecodingNoise":
        """The noise of the chosen rows."""
        return self._replace(keys=self.keys[chosen])

    def uniform(self, step: int, length: int) -> tuple[Tensor, Tensor]:
        """Two independent numbers in [0, 1) for each position of a pass: (rows, length) each."""
        device = self.keys.device
        seed, number = (torch.tensor(x, device=device) for x in (self.seed, step))
        slots = torch.arange(length, device=device)
        left, right = counter.random_bits(seed, self.keys[:, None], number, slots)
        return counter.uniform(left), counter.uniform(right)

    def tokens(self, length: int) -> Tensor:
        """Uniformly random words (rows, length), those of pass 0."""
        share, _ = self.uniform(0, length)
        return FIRST_WORD + (share * (self.vocab_size - FIRST_WORD)).long()


def key(source: Iterable[int], length: int, hypothesis: int) -> int:
    """The key of one row: a checksum of 32 bits; rows with equal keys share their numbers."""
    return zlib.crc32(array("q", [*source, -1, length, hypothesis]).tobytes())


class Denoiser(Protocol):
    """A model that reads its own draft: no `Conditionals`, because hidden sites matter to it."""

    def denoise(self, draft: Tensor, memory: Memory, site: int | None = None) -> Tensor:
        """draft (rows, length), padded -> scores (rows, length or one site, vocab)."""
        ...


class Drafts(NamedTuple):
    """tokens (rows, length), padded; score and n_passes (rows,); every pass (rows, length).

    A row that no longer changes keeps its tokens in the later passes of the trace. confidence:
    the log-probability of each token of the trace in the pass that wrote (sundae: read) it.
    """

    tokens: Tensor
    score: Tensor  # mean log-probability of the tokens in the pass that wrote (sundae: read) them
    n_passes: Tensor
    trace: list[Tensor]
    confidence: list[Tensor]


@torch.inference_mode()
def decode(
    model: Denoiser,
    memory: Memory,
    lengths: Tensor,
    decoding: Decoding,
    *,
    noise: DecodingNoise | None = None,
) -> Drafts:
    """Drafts of the given lengths (rows,) after the passes of the schedule.

    A refinement reads nothing but its draft, so a row whose next draft is the present one, and
    that hides none of its tokens of low confidence, would repeat it for ever: it stops, and the
    others go on without it. So does a row of `easy-first` in which no word has changed.
    """
    decoding.check()
    inside = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
    draft = _first_draft(inside, decoding, noise)
    tokens, confidence = draft, torch.zeros(draft.shape, device=draft.device)
    n_passes, trace, confidences = torch.zeros_like(lengths), list[Tensor](), list[Tensor]()
    live = torch.arange(len(draft), device=draft.device)
    for step in range(1, decoding.n_steps + 1):
        writable = _writable(decoding, draft)
        if decoding.decoder == "sundae":
            assert noise is not None  # `_first_draft` requires it
            fill, coin = noise.uniform(step, draft.shape[1])
            after, log_probs = sundae_pass(
                model.denoise(draft, memory),
                draft,
                fill=fill,
                coin=coin,
                first=step == 1,
                draws=step <= decoding.n_steps // 2,
            )
        else:
            easy = decoding.decoder == "easy-first" and step > 1
            after, log_probs = _predict(
                model, draft, memory, confidences[0][live] if easy else None
            )
            after = torch.where(writable, after, draft)
            log_probs = torch.where(writable, log_probs, confidence[live])
        tokens = tokens.index_copy(0, live, after)
        confidence = confidence.index_copy(0, live, log_probs)
        n_passes[live] += 1
        trace.append(tokens)
        confidences.append(confidence)
        hidden = _hidden(decoding, step, after, log_probs, writable)
        following = torch.where(hidden, MASK, after)
        if decoding.decoder in (*REFINING, "easy-first"):
            remasked = _n_remasked(decoding, step, after) > 0
            moving = ((following != draft).any(1) | remasked).nonzero()[:, 0]
            if not len(moving):
                break
            if len(moving) < len(live):
                live, following, memory = live[moving], following[moving], memory.rows(moving)
        draft = following
    score = confidence.masked_fill(~inside, 0.0).sum(1) / lengths
    if decoding.decoder in REFINING and decoding.drop_repeats:
        tokens = without_repeats(tokens)
    return Drafts(tokens, score, n_passes, trace, confidences)


def stutters(tokens: Tensor) -> Tensor:
    """Where a token equals its left neighbour: (rows, length)."""
    same = torch.zeros_like(tokens, dtype=torch.bool)
    same[:, 1:] = (tokens[:, 1:] == tokens[:, :-1]) & (tokens[:, 1:] != PAD)
    return same


def least_sure(confidence: Tensor, tokens: Tensor, count: Tensor) -> Tensor:
    """Where (rows, length) the `count` (rows,) tokens of the lowest confidence are."""
    order = confidence.masked_fill(tokens == PAD, torch.inf)
    return order.argsort(dim=1, stable=True).argsort(dim=1) < count[:, None]


def without_repeats(tokens: Tensor) -> Tensor:
    """Each run of one token once, the rest moved to the left and padded."""
    single = tokens.masked_fill(stutters(tokens), PAD)
    return single.gather(1, (single == PAD).to(torch.uint8).argsort(dim=1, stable=True))


def likely(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The most likely word at each position, and its log-probability among words."""
    word_scores = scores[..., FIRST_WORD:].float()
    best, chosen = word_scores.max(-1)
    return chosen + FIRST_WORD, best - word_scores.logsumexp(-1)


def _first_draft(inside: Tensor, decoding: Decoding, noise: DecodingNoise | None) -> Tensor:
    """The draft before any pass: MASK or random words, padded."""
    if (decoding.random_start or decoding.decoder == "sundae") and noise is None:
        raise GlauberError("random tokens need noise: give a seed and a key of each row.")
    if decoding.random_start and noise is not None:
        return noise.tokens(inside.shape[1]).masked_fill(~inside, PAD)
    return torch.where(inside, MASK, PAD)


def _writable(decoding: Decoding, draft: Tensor) -> Tensor:
    """Where (rows, length) a pass may write: everywhere, or at the hidden positions."""
    everywhere = (*REFINING, "easy-first", "sundae")
    return draft != PAD if decoding.decoder in everywhere else draft == MASK


def _predict(
    model: Denoiser, tokens: Tensor, memory: Memory, first: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Every position (rows, length) predicted from all words, or from the easier ones alone.

    first (rows, length): the confidence by which positions are ranked, the highest first. For a
    position all that rank later, itself included, are MASK.
    """
    if first is None:
        return likely(model.denoise(tokens, memory))
    after, confidence = tokens.clone(), torch.zeros_like(first)
    rank = first.masked_fill(tokens == PAD, -torch.inf)
    rank = rank.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    for site in range(tokens.shape[1]):
        draft = torch.where(rank < rank[:, site, None], tokens, MASK).masked_fill(
            tokens == PAD, PAD
        )
        word, log_prob = likely(model.denoise(draft, memory, site))
        after[:, site], confidence[:, site] = word[:, 0], log_prob[:, 0].to(confidence.dtype)
    return after, confidence


def _n_remasked(decoding: Decoding, step: int, after: Tensor) -> Tensor:
    """How many tokens of low confidence (rows,) a refinement hides after a pass; 0 at the last."""
    share = decoding.remask if decoding.decoder == "refine-remask" else 0.0
    left = (decoding.n_steps - step) / decoding.n_steps
    return ((after != PAD).sum(1) * share * left).long()


def _hidden(
    decoding: Decoding, step: int, after: Tensor, confidence: Tensor, written: Tensor
) -> Tensor:
    """Which positions (rows, length) are hidden from the next pass."""
    if decoding.decoder in ("sundae", "easy-first"):
        return torch.zeros_like(written)
    if decoding.decoder in REFINING:
        hidden = least_sure(confidence, after, _n_remasked(decoding, step, after))
        return hidden | stutters(after) if decoding.remask_repeats else hidden
    n_hidden = (after != PAD).sum(1) * (decoding.n_steps - step) // decoding.n_steps
    if decoding.decoder == "mask-predict":
        return least_sure(confidence, after, n_hidden)
    if decoding.decoder == "left-to-right":
        later = -torch.arange(after.shape[1], device=after.device).float()
        confidence = later.expand(after.shape)
    return least_sure(confidence.masked_fill(~written, torch.inf), after, n_hidden)


def sundae_pass(
    scores: Tensor, draft: Tensor, *, fill: Tensor, coin: Tensor, first: bool, draws: bool
) -> tuple[Tensor, Tensor]:
    """One pass: the new draft (rows, length) and the log-probability of each of its words.

    scores (rows, length, vocab); fill and coin (rows, length) in [0, 1).
    """
    inside, word_scores = draft != PAD, scores[..., FIRST_WORD:].float()
    log_probs = word_scores.log_softmax(-1)
    if draws:
        chosen = inverse_cdf(word_scores / SUNDAE_TEMPERATURE, fill)
        moved = coin < SUNDAE_DRAWN
    else:
        chosen = log_probs.argmax(-1)
        count = (inside.sum(1) * SUNDAE_SETTLED).ceil()
        moved = least_sure(_log_probs_of(log_probs, draft), draft, count)
    after = torch.where(inside & (moved | first), chosen + FIRST_WORD, draft)
    return after, _log_probs_of(log_probs, after)


def inverse_cdf(scores: Tensor, fill: Tensor) -> Tensor:
    """The entry (rows, length) at which the cumulated softmax of scores first exceeds fill."""
    mass = scores.softmax(-1).cumsum(-1)
    return first_beyond(mass, fill.to(mass.dtype) * mass[..., -1])


def _log_probs_of(log_probs: Tensor, tokens: Tensor) -> Tensor:
    """The log-probability of the given words; special tokens count as the first word."""
    return log_probs.gather(-1, (tokens - FIRST_WORD).clamp(min=0)[..., None])[..., 0]


@dataclass(frozen=True)
class Translation:
    """A translated text; `trace` has the tokens after each pass.

    confidence, on request: the log-probability of each of them in the pass that wrote it; of an
    autoregressive model that of each token of the text, in one row.
    """

    text: str
    tokens: tuple[int, ...]
    score: float  # mean log-probability of a token: what the judge compared
    n_passes: int  # until the chosen draft no longer changed
    trace: tuple[tuple[int, ...], ...]
    confidence: tuple[tuple[float, ...], ...] = ()


Lap = Callable[[str], None]  # called with the name of a part of the work when it is done


def translate_texts(
    model: Translator,
    vocabulary: SubwordVocabulary,
    texts: Sequence[str],
    *,
    decoding: Decoding | None = None,
    batch_size: int = 64,
    reference_lengths: Sequence[int] | None = None,
    teacher: Translator | None = None,
    confidence: bool = False,
    advance: Advance | None = None,
    unknown: str = "error",
    lap: Lap = lambda part: None,
) -> list[Translation]:
    """The translations, in the order of the texts; similar lengths go through the model together.

    reference_lengths: tokens of each text's reference, for the length `oracle` only; teacher:
    chooses among drafts if the options say so; lap: hears of each part of `timing.PARTS`.
    """
    decoding = decoding or Decoding()
    decoding.check_model(model)
    if decoding.asks_teacher and teacher is None:
        raise GlauberError("the judge is the teacher, but there is none.")
    oracle = decoding.decoder != "ar" and decoding.length == "oracle"
    if oracle and (reference_lengths is None or len(reference_lengths) != len(texts)):
        raise GlauberError("the length oracle needs a reference of each text.")
    sources = [
        vocabulary.read_source(text, model.shape.max_length, unknown=unknown) for text in texts
    ]
    order = sorted(range(len(texts)), key=lambda row: len(sources[row]))
    translations: dict[int, Translation] = {}
    size = max(1, batch_size // decoding.n_copies)  # as much memory for one hypothesis as for many
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        source = pad_rows([sources[row] for row in rows]).to(model.device)
        lap("tokens")
        if decoding.decoder == "ar":
            batch = _search(model, vocabulary, source, decoding, confidence, lap)
        else:
            known = torch.tensor([(reference_lengths or {row: 0})[row] for row in rows])[:, None]
            drafts = _best_drafts(model, source, decoding, known.to(model.device), teacher, lap)
            batch = _translations(drafts, vocabulary, confidence)
        lap("text")
        translations |= zip(rows, batch, strict=True)
        if advance is not None:
            advance(len(rows))
    return [translations[row] for row in range(len(texts))]


def _translations(
    drafts: Drafts, vocabulary: SubwordVocabulary, confidence: bool
) -> list[Translation]:
    steps = [step.tolist() for step in drafts.trace]
    log_probs = [step.tolist() for step in drafts.confidence] if confidence else []
    scores, passes = drafts.score.tolist(), drafts.n_passes.tolist()
    translations = []
    for row, tokens in enumerate(map(_strip_padding, drafts.tokens.tolist())):
        trace = tuple(_strip_padding(step[row]) for step in steps[: passes[row]])
        sure = tuple(
            tuple(step[row][: len(tokens_of_pass)])
            for step, tokens_of_pass in zip(log_probs, trace, strict=False)
        )
        text = vocabulary.decode(list(tokens))
        translations.append(Translation(text, tokens, scores[row], passes[row], trace, sure))
    return translations


@torch.inference_mode()
def _search(
    model: Translator,
    vocabulary: SubwordVocabulary,
    source: Tensor,
    decoding: Decoding,
    confidence: bool,
    lap: Lap,
) -> list[Translation]:
    """Greedy or beam search; a pass for each token and for the end."""
    memory = model.encode(source)
    lap("encoder")
    if decoding.n_beams > 1 or not decoding.cached:
        hypotheses = beam_search(model, memory, decoding.n_beams, cached=decoding.cached)
    else:
        hypotheses = greedy(model, memory)
    lap("decoder")
    log_probs = read_log_probs(model, hypotheses.tokens, memory).tolist() if confidence else []
    translations = []
    for row, (padded_tokens, score) in enumerate(
        zip(hypotheses.tokens.tolist(), hypotheses.score.tolist(), strict=True)
    ):
        tokens = _strip_padding(padded_tokens)
        sure = (tuple(log_probs[row][: len(tokens)]),) if confidence else ()
        text = vocabulary.decode(list(tokens))
        translations.append(Translation(text, tokens, score, len(tokens) + 1, (), sure))
    return translations


@torch.inference_mode()
def _best_drafts(
    model: Translator,
    source: Tensor,
    decoding: Decoding,
    known: Tensor,
    teacher: Translator | None,
    lap: Lap,
) -> Drafts:
    """The best draft of each row over its lengths and hypotheses, by the judge."""
    memory = model.project(model.encode(source))
    lap("encoder")
    log_probs = length_log_probs(model, memory, source)
    lengths = _lengths(source, log_probs, decoding, known).repeat_interleave(decoding.n_copies, 1)
    row = torch.arange(len(source), device=source.device)
    each = row.repeat_interleave(lengths.shape[1])
    noise = _noise(model, source, lengths, decoding)
    lap("lengths")
    drafts = decode(model, memory.rows(each), lengths.flatten(), decoding, noise=noise)
    lap("decoder")
    if decoding.judge == "teacher" and teacher is not None:
        score = teacher_score(teacher, drafts.tokens, teacher.encode(source).rows(each))
    else:
        # A length that was given and not predicted does not count.
        sure = log_probs.gather(1, lengths - 1) * (decoding.length == "predicted")
        score = drafts.score + LENGTH_SHARE * sure.flatten() / lengths.flatten()
    best = row * lengths.shape[1] + score.unflatten(0, lengths.shape).argmax(1)
    return Drafts(
        drafts.tokens[best],
        score[best],
        drafts.n_passes[best],
        [step[best] for step in drafts.trace],
        [step[best] for step in drafts.confidence],
    )


@torch.inference_mode()
def teacher_score(teacher: Translator, tokens: Tensor, memory: Memory) -> Tensor:
    """The teacher's mean log-probability (rows,) of finished drafts (rows, length), END included.

    memory is the teacher's own of each row's source.
    """
    return read_log_probs(teacher, tokens, memory).sum(1) / ((tokens != PAD).sum(1) + 1)


@torch.inference_mode()
def read_log_probs(teacher: Translator, tokens: Tensor, memory: Memory) -> Tensor:
    """Log-probabilities (rows, length + 1) of finished tokens (rows, length) and of END."""
    begin = torch.full_like(tokens[:, :1], BEGIN)
    labels = with_end(tokens)
    log_probs = teacher.follow(torch.cat([begin, tokens], 1), memory).float().log_softmax(-1)
    return log_probs.gather(2, labels[:, :, None])[:, :, 0].masked_fill(labels == PAD, 0.0)


def with_end(tokens: Tensor) -> Tensor:
    """(rows, length), padded -> (rows, length + 1) with END after the last token."""
    padded_tokens = F.pad(tokens, (0, 1), value=PAD)
    return padded_tokens.scatter(1, (tokens != PAD).sum(1, keepdim=True), END)


def length_log_probs(model: Translator, memory: Memory, source: Tensor) -> Tensor:
    """The predicted log-probabilities (rows, max_length - 1) of lengths 1 to max_length - 1."""
    most = model.shape.max_length
    read = (source != PAD).sum(1, keepdim=True)
    lengths = torch.arange(1, most, device=source.device)
    return model.length_scores(memory).float().gather(1, lengths - read + most).log_softmax(1)


def likely_lengths(log_probs: Tensor, n_lengths: int) -> Tensor:
    """The most likely lengths (rows, n_lengths), in order."""
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


def _noise(
    model: Translator, source: Tensor, lengths: Tensor, decoding: Decoding
) -> DecodingNoise | None:
    """The noise of every row and hypothesis; None if the schedule draws nothing."""
    if not (decoding.random_start or decoding.decoder == "sundae"):
        return None
    keys = [
        key(_strip_padding(tokens), length, number % decoding.n_copies)
        for tokens, row in zip(source.tolist(), lengths.tolist(), strict=True)
        for number, length in enumerate(row)
    ]
    return DecodingNoise(
        decoding.seed, torch.tensor(keys, device=source.device), model.shape.vocab_size
    )


def _strip_padding(tokens: list[int]) -> tuple[int, ...]:
    return tuple(token for token in tokens if token != PAD)


# Greedy and beam search of the autoregressive model, token by token with its cache.


class Hypotheses(NamedTuple):
    """tokens (rows, length), padded, without END; score (rows,), a mean log-probability."""

    tokens: Tensor
    score: Tensor


def limits(memory: Memory, max_length: int) -> Tensor:
    """The most tokens (rows,) that a search writes for each source."""
    read = memory.visible[:, 0, 0].sum(1)
    return (2 * read + 10).clamp(max=max_length - 1)


@torch.inference_mode()
def greedy(model: Translator, memory: Memory) -> Hypotheses:
    """The most likely token at each step."""
    limit = limits(memory, model.shape.max_length)
    token = torch.full_like(limit, BEGIN)[:, None]
    total, done = torch.zeros(len(token), device=token.device), limit < 0
    cache, written = model.empty_cache(), []
    for step in range(int(limit.max()) + 1):
        log_probs = next_log_probs(model, token, memory, cache)
        chosen = torch.where(step >= limit, END, log_probs.argmax(1))
        gained = log_probs.gather(1, chosen[:, None])[:, 0]
        total = total + gained.masked_fill(done, 0.0)
        token = torch.where(done, PAD, chosen)[:, None]
        written.append(token)
        done = done | (chosen == END)
        if bool(done.all()):
            break
    return _without_end(torch.cat(written, 1), total)


@torch.inference_mode()
def beam_search(
    model: Translator, memory: Memory, n_beams: int = 5, *, cached: bool = True
) -> Hypotheses:
    """The best hypothesis, of `n_beams` at every step.

    Without the cache every step reads the source's projections and all tokens so far anew.
    """
    limit, rows = limits(memory, model.shape.max_length), len(memory.states)
    device = memory.states.device
    limit = limit.repeat_interleave(n_beams)
    memory = memory.rows(torch.arange(rows, device=device).repeat_interleave(n_beams))
    written = torch.full((rows * n_beams, 1), BEGIN, device=device)
    total = torch.full((rows, n_beams), -torch.inf, device=device)
    total[:, 0] = 0.0  # the beams begin as one
    done, cache = torch.zeros(rows * n_beams, dtype=torch.bool, device=device), model.empty_cache()
    first = torch.arange(rows, device=device)[:, None] * n_beams
    for step in range(int(limit.max()) + 1):
        if cached:
            log_probs = next_log_probs(model, written[:, -1:], memory, cache)
        else:
            log_probs = next_log_probs(model, written, memory, model.empty_cache())
        log_probs = _close_finished(log_probs, done, step >= limit)
        reached = (total[:, :, None] + log_probs.unflatten(0, (rows, n_beams))).flatten(1)
        total, flat = reached.topk(n_beams, 1)
        parent = (first + flat // log_probs.shape[1]).flatten()
        token = (flat % log_probs.shape[1]).flatten()
        written = torch.cat([written[parent], token[:, None]], 1)
        for layer in cache if cached else ():
            layer["key"], layer["value"] = layer["key"][parent], layer["value"][parent]
        done = done[parent] | (token == END)
        if bool(done.all()):
            break
    return _best(written[:, 1:].unflatten(0, (rows, n_beams)), total)


def next_log_probs(model: Translator, token: Tensor, memory: Memory, cache: Cache) -> Tensor:
    """Log-probabilities (rows, vocab) of the token after those that are new (rows, new)."""
    log_probs = model.follow(token, memory, cache)[:, -1].float().log_softmax(-1)
    log_probs[:, FORBIDDEN] = -torch.inf
    return log_probs


def _close_finished(log_probs: Tensor, done: Tensor, full: Tensor) -> Tensor:
    """A finished row continues with PAD, at no cost; a full one must end."""
    only_end = log_probs[:, END].clone()
    log_probs = log_probs.masked_fill((done | full)[:, None], -torch.inf)
    log_probs[:, END] = torch.where(done, -torch.inf, only_end)
    log_probs[:, PAD] = torch.where(done, 0.0, -torch.inf)
    return log_probs


def _best(tokens: Tensor, total: Tensor) -> Hypotheses:
    """The best beam of each row; tokens (rows, beams, length)."""
    written = (tokens != PAD).sum(2)
    best = (total / written**LENGTH_PENALTY).argmax(1)
    row = torch.arange(len(tokens), device=tokens.device)
    return _without_end(tokens[row, best], total[row, best])


def _without_end(tokens: Tensor, total: Tensor) -> Hypotheses:
    """Without END; it counts in the score."""
    score = total / (tokens != PAD).sum(1)
    return Hypotheses(tokens.masked_fill(tokens == END, PAD), score)
