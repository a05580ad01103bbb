"""Pseudo-log-likelihoods of texts.

PLL(x) = sum_i log pi_i(x_i | the visible tokens). Original (Salazar and others, 2020): token i
alone is hidden. Within-word left-to-right (Kauf and Ivanova, 2023): the later pieces of its word
are hidden with it, so that a rare word is not given away by its own ending. Neither is the
logarithm of a distribution: on incompatible conditionals even their ranking may differ from the
chain's. A text written in a random order has a distribution: see `likelihood_bound`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, Unpack

import torch
from torch import Tensor

from glauber.foundation.checks import OneOf
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import LengthOrWhole, ModelOrName, WhereAndDtype
from glauber.foundation.progress import say, track
from glauber.foundation.statistics import Estimate
from glauber.foundation.study import Result, counted, report_skipped, reported, study
from glauber.models.base import PAD, Model
from glauber.models.load import load
from glauber.studies.compatibility.pseudo_likelihood import pieces_left, pseudo_likelihood
from glauber.texts.continuations import (
    Continuation,
    continuation_fault,
    cut_contexts,
    keys_of,
    laid_out,
    split_contexts,
    words_of,
)
from glauber.texts.read import Corpus, Row
from glauber.texts.starts import legible, named_starts, read_sites, read_texts, skip

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

LISTED = 8  # texts whose tokens are drawn
PRINTED = 100  # texts that are printed
SINGLE = (
    "has a single token, and no other token says anything about it: a pseudo-log-likelihood needs "
    "at least two"
)
ScoredTexts = Annotated[str | Path | Sequence[str] | None, "Texts, each in quotes."]
ContextSites = Annotated[
    Sequence[int] | str,
    "Sites that are context and not scored, such as 0-4,9: counted from 0.",
]
ContextTexts = Annotated[
    str | Sequence[str] | None,
    "Context before each text, joined as it is: seen, never hidden, not scored.",
]


@study
def score(
    model: ModelOrName = "bundled:english",
    texts: ScoredTexts = None,
    *,
    variant: Annotated[
        str,
        "original, within-word, or auto: both where the tokenizer tells words apart.",
        OneOf(("auto", "original", "within-word")),
    ] = "auto",
    length: LengthOrWhole = None,
    freeze: ContextSites = (),
    given: ContextTexts = None,
    **where: Unpack[WhereAndDtype],
) -> "Scores":
    """Score texts by pseudo-log-likelihood.

    The sum over the tokens of log pi_i(x_i given the others), over the whole vocabulary at
    temperature 1; one row through the model for each token. The within-word variant needs a
    tokenizer that says which tokens make up one word; the original one needs none. With given, a
    text is scored after a context that is always visible, as lm-evaluation-harness does.
    """
    corpus, contexts = read_scored(texts, given, length, freeze)
    loaded_model = load(model, exact=True, **where)
    if not loaded_model.whole_vocabulary:
        raise GlauberError(
            f"{loaded_model.name} does not score the whole vocabulary at a hidden site, which a "
            "pseudo-log-likelihood needs."
        )
    scored = encode_scored(loaded_model, corpus, contexts, length=length, freeze=freeze, least=2)
    scores, note = _score_texts(loaded_model, scored, variant)
    kind = f"exact up to rounding in {loaded_model.dtype}"
    return Scores(
        loaded_model.name, loaded_model.fingerprint, loaded_model.dtype, kind, note, scores
    )


@dataclass(frozen=True, eq=False)
class Score:
    """A text's pseudo-log-likelihood, token by token, in nats; None for a variant left out."""

    number: int  # of the text among those given, from 1
    id: str  # that its source gives it
    text: str
    pieces: list[str]
    log_probs: list[float] | None
    log_probs_within_word: list[float] | None

    @reported
    def original(self) -> float | None:
        return None if self.log_probs is None else sum(self.log_probs)

    @reported
    def within_word(self) -> float | None:
        within = self.log_probs_within_word
        return None if within is None else sum(within)

    @property
    def variants(self) -> dict[str, list[float]]:
        """The log-probabilities of each variant that was evaluated."""
        both = {"original": self.log_probs, "within-word": self.log_probs_within_word}
        return {name: log_probs for name, log_probs in both.items() if log_probs is not None}


@dataclass(frozen=True, eq=False)
class Scores(Result):
    """Texts with their pseudo-log-likelihoods."""

    model: str
    weights: str  # fingerprint of the model
    dtype: str  # The dtype of the model's scores
    kind: str  # what the numbers are, in words
    note: str  # what was left out, and why
    scores: list[Score]

    @reported
    def unit(self) -> str:
        """The unit of every score."""
        return "nats"

    def lines(self) -> Iterable[str]:
        yield f"  original  within-word  tokens  text    (nats, {self.kind})"
        for score in self.scores[:PRINTED]:
            numbers = f"{number(score.original):>10}  {number(score.within_word):>11}"
            yield f"{numbers}  {len(score.pieces):6}  {score.text}"
        if len(self.scores) > PRINTED:
            yield f"and {counted(len(self.scores) - PRINTED, 'text')} more"
        if self.note:
            yield self.note

    def table(self) -> list[dict[str, object]]:
        """One row per text."""
        return [
            {"number": score.number, "id": score.id, "text": score.text}
            | {"tokens": len(score.pieces)}
            | {name: sum(log_probs) for name, log_probs in score.variants.items()}
            for score in self.scores
        ]

    def tokens(self) -> "pandas.DataFrame":
        """One row per token of each text."""
        import pandas

        rows = [
            {"number": score.number, "id": score.id, "site": site, "token": piece}
            | {name: log_probs[site] for name, log_probs in score.variants.items()}
            for score in self.scores
            for site, piece in enumerate(score.pieces)
        ]
        return pandas.DataFrame(rows)

    def figures(self) -> "dict[str, go.Figure]":
        """Each of the first texts token by token; of several texts, all of them together.

        Hover for the tokens where a text is long.
        """
        from glauber.interfaces.plots.compatibility import plot_scores, plot_totals

        figures = {}
        if len(self.scores) > 1:
            per_token = {
                name: [sum(score.variants[name]) / len(score.pieces) for score in self.scores]
                for name in self.scores[0].variants
            }
            figures["texts"] = plot_totals([score.text for score in self.scores], per_token)
        for number, score in enumerate(self.scores[:LISTED], 1):
            figures[f"text-{number}"] = plot_scores(score.pieces, score.variants, score.text)
        return figures


def number(value: Estimate | float | None) -> str:
    """As a column of numbers has it."""
    value = value.value if isinstance(value, Estimate) else value
    return "-" if value is None else f"{value:.3f}"


class ScoredTokens(NamedTuple):
    """Texts in tokens, and which of these are scored."""

    tokens: Tensor  # (texts, length)
    free: Tensor  # (texts, length): those that are scored
    rows: list[Row]  # the texts as they are read and cut, with their numbers and ids
    uncut: list[str]  # before they were cut
    continuations: list[Continuation] | None = None  # where there are contexts

    @property
    def keys(self) -> Tensor:
        """What keys the noise of each text: its context, or its number."""
        if self.continuations is not None:
            return keys_of(self.continuations)
        return torch.tensor([row.number - 1 for row in self.rows])


def read_scored(
    texts: ScoredTexts, given: ContextTexts, length: int | None, freeze: ContextSites
) -> tuple[Corpus, list[str] | None]:
    """The texts, and a context for each where some were given."""
    if texts is None:
        raise GlauberError("there is no text to score: give one in quotes, or a file of texts.")
    corpus = read_texts(texts)
    if given is None:
        return corpus, None
    contexts = [given] * len(corpus) if isinstance(given, str) else list(given)
    if len(contexts) != len(corpus) or not all(isinstance(text, str) for text in contexts):
        count = counted(len(corpus), "text")
        raise GlauberError(f"given is one context for all {count} or a list with one for each.")
    if length is not None or read_sites(freeze):
        raise GlauberError("with given, texts are scored whole: leave out length and freeze.")
    return corpus, contexts


def encode_scored(
    model: Model,
    corpus: Corpus,
    contexts: list[str] | None,
    *,
    length: int | None,
    freeze: ContextSites,
    least: int = 1,
) -> ScoredTokens:
    """The texts in tokens, cut, or after their contexts; those with fewer tokens are left out."""
    if contexts is not None:
        return _after_contexts(model, corpus, contexts)
    tokens, free, rows = named_starts(model, corpus, length=length, least=1, freeze=freeze)
    few = free.sum(dim=1) < least
    skipped = [skip(rows[i], SINGLE) for i in few.nonzero()[:, 0].tolist()]
    report_skipped(skipped, len(rows))
    tokens, free, rows = tokens[~few], free[~few], list(compress(rows, (~few).tolist()))
    uncut = [row.text for row in rows]
    if length is not None:
        cut = [model.vocabulary.decode(row[row != PAD].tolist()) for row in tokens]
        rows = [row._replace(text=text) for row, text in zip(rows, cut, strict=True)]
    return ScoredTokens(tokens, free, rows, uncut)


def _after_contexts(model: Model, corpus: Corpus, contexts: list[str]) -> ScoredTokens:
    """Texts after their contexts; those that cannot be read so are left out."""
    by_number = {row.number: row for row in corpus.rows}
    context = {row.number: text for row, text in zip(corpus.rows, contexts, strict=True)}
    joined = [row._replace(text=context[row.number] + row.text) for row in corpus.rows]
    legible_rows, skipped = legible(model.vocabulary, Corpus(joined, unknown=corpus.unknown))
    skipped = [
        skip(by_number[text.number], f"{text.reason} (counted with its context)")
        for text in skipped
    ]
    rows = [by_number[row.number] for row in legible_rows]
    continuations = split_contexts(model, [context[row.number] for row in rows], legible_rows)
    faults = [continuation_fault(model, part) for part in continuations]
    skipped += [skip(row, fault) for row, fault in zip(rows, faults, strict=True) if fault]
    report_skipped(skipped, len(corpus))
    sound = [not fault for fault in faults]
    rows, continuations = (
        list(compress(rows, sound)),
        cut_contexts(model, list(compress(continuations, sound))),
    )
    tokens, free = laid_out(model, continuations)
    return ScoredTokens(tokens, free, rows, [row.text for row in rows], continuations)


def _score_texts(model: Model, scored: ScoredTokens, variant: str) -> tuple[list[Score], str]:
    """The pseudo-log-likelihoods of each text, and a note on what was left out."""
    tokens, free = scored.tokens, scored.free
    word_numbers, note = _words(model, scored, variant)
    differs = (
        free & (pieces_left(word_numbers) > 1)
        if word_numbers is not None
        else torch.zeros_like(free)
    )
    # Where no later piece of the word is hidden too, the two variants ask the same question.
    alone = free if variant != "within-word" else free & ~differs
    rows, longest = int(alone.sum() + differs.sum()), int(free.sum(dim=1).max())
    n_texts = len(scored.rows)
    say(f"{n_texts:,} texts: {rows:,} rows of up to {longest} tokens through {model.name}")
    with track("tokens", rows) as advance:
        original = pseudo_likelihood(model, tokens, alone, advance=advance)
        within = pseudo_likelihood(model, tokens, differs, words=word_numbers, advance=advance)
    within = torch.where(differs, within, original)
    spell = model.vocabulary.spell
    return [
        Score(
            row.number,
            row.id,
            row.text,
            pieces=[spell(token) for token in tokens[i, free[i]].tolist()],
            log_probs=None if variant == "within-word" else original[i, free[i]].tolist(),
            log_probs_within_word=None if word_numbers is None else within[i, free[i]].tolist(),
        )
        for i, row in enumerate(scored.rows)
    ], note


def _words(model: Model, scored: ScoredTokens, variant: str) -> tuple[Tensor | None, str]:
    """The word of each free token (texts, length), or None and why it is not known."""
    if variant == "original":
        return None, ""
    free = scored.free
    try:
        if scored.continuations is not None:
            return words_of(model, scored.continuations, free), ""
        word_numbers = model.vocabulary.words(scored.uncut)
    except GlauberError as error:
        if variant == "within-word":
            raise
        return None, f"the within-word variant is left out: {error}"
    if word_numbers.shape[1] < free.shape[1]:
        raise GlauberError("the tokens of a text and of its words do not agree.")
    return word_numbers[:, : free.shape[1]].masked_fill(~free, PAD), ""
