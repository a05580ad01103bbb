"""How well does a text fit its own conditionals? Pseudo-log-likelihood.

PLL(x) = sum_i log pi_i(x_i | the visible tokens). Original (Salazar and others, 2020): token i
alone is hidden. Within-word left-to-right (Kauf and Ivanova, 2023): the later pieces of its word
are hidden with it, so that a rare word is not given away by its own ending. Neither is the
logarithm of a law: on incompatible conditionals even their ranking may differ from the chain's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals, log_probs
from glauber.conditionals.batching import largest_call, lengths_of, rows_at_once
from glauber.conditionals.forward.packed import BLOCK, LONGEST, PACKED, PackedRows
from glauber.conditionals.load import load, refuse_int8
from glauber.conditionals.masked_lm import MaskedLM, OnePass
from glauber.conditionals.starts import read_texts, readable, starts
from glauber.errors import GlauberError
from glauber.parameters import Device, Dtype, Model, Trust
from glauber.progress import Advance, say, track
from glauber.result import Result, model_parts, one_of, plain, signature, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

PACKED_WORK = 2**38  # multiplications between two reports of progress: a second or two
VARIANTS = ("auto", "original", "within-word")
LISTED = 8  # texts whose tokens are drawn


@study
def score(
    model: Model = "bundled:english",
    texts: Annotated[str | Path | Sequence[str] | None, "Texts, each in quotes."] = None,
    *,
    variant: Annotated[
        str, "original, within-word, or auto: both where the tokenizer tells words apart."
    ] = "auto",
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "Scores":
    """Score texts by pseudo-log-likelihood, original and within-word left-to-right.

    The sum over the tokens of log pi_i(x_i given the others), over the whole vocabulary at
    temperature 1; one row through the model for each token. The within-word variant needs a
    tokenizer that says which tokens make up one word; the original one needs none.
    """
    one_of("the variant", variant, VARIANTS)
    refuse_int8(dtype)
    if texts is None:
        raise GlauberError("there is no text to score: give one in quotes, or a file of texts.")
    listed = read_texts(texts)
    opened = load(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    refuse_int8(opened)
    if not getattr(opened, "whole_vocabulary", True):
        raise GlauberError(
            f"{opened.name} does not score the whole vocabulary at a hidden site, which a "
            "pseudo-log-likelihood needs."
        )
    scores, note = score_texts(opened, listed, variant=variant)
    made = signature(**model_parts(opened), texts=len(scores), variant=variant)
    kind = f"exact up to rounding in {opened.dtype}"
    return Scores(scores, opened.name, opened.fingerprint, opened.dtype, kind, note, made)


@dataclass(frozen=True, eq=False)
class Score:
    """A text's pseudo-log-likelihood, token by token, in nats; None for a variant left out."""

    text: str
    pieces: list[str]
    log_probs: list[float] | None
    log_probs_within_word: list[float] | None

    @property
    def original(self) -> float | None:
        return None if self.log_probs is None else sum(self.log_probs)

    @property
    def within_word(self) -> float | None:
        within = self.log_probs_within_word
        return None if within is None else sum(within)

    @property
    def variants(self) -> dict[str, list[float]]:
        """The log-probabilities of each variant that was asked for."""
        both = {"original": self.log_probs, "within-word": self.log_probs_within_word}
        return {name: found for name, found in both.items() if found is not None}


@dataclass(frozen=True, eq=False)
class Scores(Result):
    """Texts with their pseudo-log-likelihoods."""

    scores: list[Score]
    name: str
    weights: str
    dtype: str
    kind: str
    note: str  # what was left out, and why
    signature: str

    def to_dict(self) -> dict[str, Any]:
        listed = [
            {
                "text": one.text,
                "original": one.original,
                "within_word": one.within_word,
                "tokens": len(one.pieces),
                "pieces": one.pieces,
                "log_probs": one.log_probs,
                "log_probs_within_word": one.log_probs_within_word,
            }
            for one in self.scores
        ]
        return {
            "model": self.name,
            "weights": self.weights,
            "dtype": self.dtype,
            "unit": "nats",
            "kind": self.kind,
            "note": self.note or None,
            "scores": plain(listed),
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        yield f"  original  within-word  tokens  text    (nats, {self.kind})"
        for one in self.scores:
            figures = f"{_figure(one.original):>10}  {_figure(one.within_word):>11}"
            yield f"{figures}  {len(one.pieces):6}  {one.text}"
        if self.note:
            yield self.note

    def frame(self) -> "pandas.DataFrame":
        """One row per token of each text."""
        import pandas

        rows = [
            {"text": number, "site": site, "token": piece}
            | {f"{name} log_prob": found[site] for name, found in one.variants.items()}
            for number, one in enumerate(self.scores, 1)
            for site, piece in enumerate(one.pieces)
        ]
        return pandas.DataFrame(rows)

    def figures(self) -> "dict[str, go.Figure]":
        """Each of the first texts token by token; of several texts, all of them beside each other.

        Hover for the tokens where a text is long.
        """
        from glauber.figures.compatibility import plot_scores, plot_totals

        found = {}
        if len(self.scores) > 1:
            per_token = {
                name: [sum(one.variants[name]) / len(one.pieces) for one in self.scores]
                for name in self.scores[0].variants
            }
            found["texts"] = plot_totals([one.text for one in self.scores], per_token)
        for number, one in enumerate(self.scores[:LISTED], 1):
            found[f"text-{number}"] = plot_scores(one.pieces, one.variants, one.text)
        return found


def score_texts(
    model: MaskedLM, texts: Sequence[str], *, variant: str = "auto"
) -> tuple[list[Score], str]:
    """The pseudo-log-likelihoods of each text, and a note on what was left out."""
    texts = readable(model.vocabulary, texts)
    tokens, free = starts(model, texts)
    _check_tokens(free)
    words, note = _words(model, texts, tokens, variant)
    differs = free & (_pieces_left(words) > 1) if words is not None else torch.zeros_like(free)
    # Where no later piece of the word is hidden too, the two variants ask the same question.
    alone = free if variant != "within-word" else free & ~differs
    rows, longest = int(alone.sum() + differs.sum()), int(free.sum(dim=1).max())
    say(f"{len(texts)} texts: {rows:,} rows of up to {longest} tokens through {model.name}")
    with track("tokens", rows) as advance:
        plain_ones = pseudo_likelihood(model, tokens, alone, advance=advance).log_probs
        within = pseudo_likelihood(model, tokens, differs, words=words, advance=advance).log_probs
    found = {"original": plain_ones, "within-word": torch.where(differs, within, plain_ones)}
    left_out = {"within-word"} if words is None else set()
    left_out |= {"original"} if variant == "within-word" else set()

    def listed(row: int, name: str) -> list[float] | None:
        return None if name in left_out else found[name][row][free[row]].tolist()

    spell = model.vocabulary.spell
    pieces = [[spell(token) for token in tokens[i][free[i]].tolist()] for i in range(len(texts))]
    return [
        Score(text, pieces[i], listed(i, "original"), listed(i, "within-word"))
        for i, text in enumerate(texts)
    ], note


def _words(
    model: MaskedLM, texts: list[str], tokens: Tensor, variant: str
) -> tuple[Tensor | None, str]:
    """The word of each token (texts, length), or None and why it is not known."""
    if variant == "original":
        return None, ""
    try:
        words = model.vocabulary.words(texts)
    except GlauberError as error:
        if variant == "within-word":
            raise
        return None, f"the within-word variant is left out: {error}"
    if words.shape != tokens.shape:
        raise GlauberError("the tokens of a text and of its words do not agree.")
    return words, ""


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _check_tokens(free: Tensor) -> None:
    fewest = int(free.sum(dim=1).argmin())
    if int(free[fewest].sum()) < 2:
        raise GlauberError(
            f"text {fewest + 1} has a single token, and no other token says anything about it: "
            "a pseudo-log-likelihood needs at least two."
        )


@dataclass(frozen=True, eq=False)
class PseudoLikelihood:
    """log pi_i(x_i | visible tokens) of each scored token, (rows, length); NaN elsewhere."""

    log_probs: Tensor
    kind: str = "exact"  # up to the rounding of the conditionals' own dtype

    @property
    def totals(self) -> Tensor:
        """The pseudo-log-likelihood of each row, (rows,) float64, in nats."""
        return self.log_probs.nansum(dim=1)


def pseudo_likelihood(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor | None = None,
    *,
    words: Tensor | None = None,
    temperature: float = 1.0,
    advance: Advance | None = None,
) -> PseudoLikelihood:
    """The pseudo-log-likelihood of tokens (rows, length), PAD behind shorter rows.

    free (rows, length) marks the tokens to score (default: all). With words (rows, length), the
    number of the word that each token is a piece of, it is the within-word left-to-right variant.
    """
    there = tokens != PAD
    free = there if free is None else free & there
    found = torch.full(tokens.shape, torch.nan, dtype=torch.float64)
    rows, sites = free.nonzero(as_tuple=True)
    later = torch.ones_like(rows) if words is None else _pieces_left(words)[rows, sites]
    packer = _packer(conditionals)
    fit = _fits(packer, lengths_of(tokens))[rows]
    if packer is not None and bool(fit.any()):
        asked = rows[fit], sites[fit], later[fit]
        found[asked[:2]] = _packed(packer, tokens, asked, temperature, advance)
    rows, sites, later = rows[~fit], sites[~fit], later[~fit]
    for k in later.unique().tolist():
        chosen = (later == k).nonzero()[:, 0]
        for part in chosen.split(_at_once(conditionals, k, tokens.shape[1])):
            row, site = rows[part], sites[part]
            hidden = site[:, None] + torch.arange(k)
            each = log_probs(conditionals, tokens[row], hidden, temperature=temperature)[:, 0]
            found[row, site] = each.gather(1, tokens[row, site][:, None])[:, 0].cpu()
            if advance is not None:
                advance(len(part))
    return PseudoLikelihood(found)


def _at_once(conditionals: Conditionals, k: int, length: int) -> int:
    """Rows asked together: what the memory holds, on a CPU a few calls, so that progress shows."""
    device = getattr(conditionals, "device", torch.device("cpu"))
    most = rows_at_once(8 * k * conditionals.vocab_size, device)
    if device.type == "cuda":
        return most
    return min(most, 2 * largest_call(length) * torch.get_num_threads())


def _packer(conditionals: Conditionals) -> PackedRows | None:
    """The fastest way to score rows, where the model allows it."""
    return conditionals.packed if isinstance(conditionals, OnePass) else None


def _fits(packer: PackedRows | None, lengths: Tensor) -> Tensor:
    """Which rows are packed: (rows,) bool, from their lengths."""
    if packer is None:
        return torch.zeros_like(lengths, dtype=torch.bool)
    return packer.takes(lengths) & (lengths <= LONGEST)


def _packed(
    packer: PackedRows,
    tokens: Tensor,
    asked: tuple[Tensor, Tensor, Tensor],
    temperature: float,
    advance: Advance | None,
) -> Tensor:
    """log pi of the tokens at (row, site, pieces left of the word), the later pieces hidden.

    To a masked LM a hidden token is its mask token, so one hidden site per row is enough.
    """
    found = []
    at_once = _packed_at_once(packer, tokens.shape[1])
    for row, site, later in zip(*(part.split(at_once) for part in asked), strict=True):
        behind = torch.arange(tokens.shape[1]) - site[:, None]
        hidden = (behind > 0) & (behind < later[:, None])
        visible = tokens[row].masked_fill(hidden, packer.hidden_token)
        found.append(packer.log_probs(visible, site, temperature=temperature))
        if advance is not None:
            advance(len(row))
    return torch.cat(found)


def _packed_at_once(packer: PackedRows, length: int) -> int:
    """Packed rows between two reports of progress: two calls for each thread, or more if small."""
    together = max(PACKED_WORK // packer.work, 2 * torch.get_num_threads() * PACKED)
    return max(1, together // (length * BLOCK)) * BLOCK


def _pieces_left(words: Tensor) -> Tensor:
    """How many pieces of its word there are from each token on, itself among them; PAD: 1."""
    left = torch.ones_like(words)
    for site in reversed(range(words.shape[1] - 1)):
        same = (words[:, site] == words[:, site + 1]) & (words[:, site] != PAD)
        left[:, site] += torch.where(same, left[:, site + 1], 0)
    return left
