"""What is this text in the other language? From strings to strings, whatever the decoder."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glauber.errors import GlauberError
from glauber.translation.data import padded
from glauber.translation.decode import Drafts, Schedule, decode
from glauber.translation.model import PAD, Memory, Translator
from glauber.translation.search import beam_search, greedy
from glauber.translation.vocabulary import Vocabulary


@dataclass(frozen=True)
class Translation:
    """A text in the other language; `trace` has the tokens after each pass."""

    text: str
    tokens: tuple[int, ...]
    score: float  # mean log-probability of a token: an estimate of nothing but the model's taste
    n_passes: int
    trace: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Way:
    """How to translate: `decoder` is ar or an order of a schedule."""

    decoder: str = "refine"
    n_steps: int = 4
    n_lengths: int = 5
    n_beams: int = 5  # ar only; 1 is greedy
    length: str = "predicted"  # or ratio: the source's length times `ratio`
    ratio: float = 1.0

    def check(self, model: Translator) -> None:
        """Says which model cannot go this way."""
        if self.n_lengths < 1 or self.n_beams < 1:
            raise GlauberError("at least 1 length and 1 beam are needed.")
        if (self.decoder == "ar") != (model.shape.kind == "ar"):
            raise GlauberError(
                f"the decoder {self.decoder} does not fit a translator of kind {model.shape.kind}."
            )
        if self.decoder != "ar":
            Schedule(self.n_steps, self.decoder).check()


def translate(
    model: Translator,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    *,
    way: Way | None = None,
    batch_size: int = 64,
) -> list[Translation]:
    """The translations, in the order of the texts; like lengths go through the model together."""
    way = way or Way()
    way.check(model)
    sources = [vocabulary.read_source(text, model.shape.max_length) for text in texts]
    order = sorted(range(len(texts)), key=lambda row: len(sources[row]))
    made: list[Translation | None] = [None] * len(texts)
    for begin in range(0, len(order), batch_size):
        rows = order[begin : begin + batch_size]
        source = padded([sources[row] for row in rows]).to(model.device)
        for row, one in zip(rows, _batch(model, vocabulary, source, way), strict=True):
            made[row] = one
    return [one for one in made if one is not None]


@torch.inference_mode()
def _batch(
    model: Translator, vocabulary: Vocabulary, source: Tensor, way: Way
) -> list[Translation]:
    memory = model.encode(source)
    if way.decoder == "ar":
        found = (
            beam_search(model, memory, way.n_beams) if way.n_beams > 1 else greedy(model, memory)
        )
        tokens = [_plain(row) for row in found.tokens.tolist()]
        return [
            Translation(vocabulary.decode(list(row)), row, score, len(row) + 1, ())
            for row, score in zip(tokens, found.score.tolist(), strict=True)
        ]
    drafts, best = _drafts(model, memory, source, way)
    traces = [step[best].tolist() for step in drafts.trace]
    tokens = [_plain(row) for row in drafts.tokens[best].tolist()]
    scores = drafts.score[best].tolist()
    return [
        Translation(
            vocabulary.decode(list(tokens[row])),
            tokens[row],
            scores[row],
            drafts.n_passes,
            tuple(_plain(step[row]) for step in traces),
        )
        for row in range(len(tokens))
    ]


def likely_lengths(model: Translator, memory: Memory, source: Tensor, way: Way) -> Tensor:
    """The lengths (rows, n_lengths) to try, most likely first."""
    read, most = (source != PAD).sum(1, keepdim=True), model.shape.max_length
    if way.length == "ratio":
        spread = torch.arange(way.n_lengths, device=source.device)
        spread = (spread + 1) // 2 * (1 - 2 * (spread % 2))  # 0, -1, 1, -2, 2
        return ((read * way.ratio).round().long() + spread).clamp(1, most - 1)
    scores = model.length_scores(memory).float()
    lengths = torch.arange(scores.shape[1], device=source.device) + read - most
    scores = scores.masked_fill((lengths < 1) | (lengths > most - 1), -torch.inf)
    return lengths.gather(1, scores.topk(way.n_lengths, 1).indices)


def _drafts(model: Translator, memory: Memory, source: Tensor, way: Way) -> tuple[Drafts, Tensor]:
    """Drafts of every row and length, and which of them is each row's best."""
    lengths = likely_lengths(model, memory, source, way)
    rows = torch.arange(len(source), device=source.device)
    memory = memory.rows(rows.repeat_interleave(way.n_lengths))
    drafts = decode(model, memory, lengths.flatten(), Schedule(way.n_steps, way.decoder))
    best = drafts.score.unflatten(0, lengths.shape).argmax(1)
    return drafts, rows * way.n_lengths + best


def _plain(tokens: list[int]) -> tuple[int, ...]:
    return tuple(token for token in tokens if token != PAD)
