"""How well does a text fit its own conditionals? Pseudo-log-likelihood, or a bound on -log p.

PLL(x) = sum_i log pi_i(x_i | the visible tokens). Original (Salazar and others, 2020): token i
alone is hidden. Within-word left-to-right (Kauf and Ivanova, 2023): the later pieces of its word
are hidden with it, so that a rare word is not given away by its own ending. Neither is the
logarithm of a law: on incompatible conditionals even their ranking may differ from the chain's.
What is a law is a text written in a random order, and `bound` is about that.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from glauber.compatibility.bound import random_order_likelihoods, row_count
from glauber.compatibility.likelihoods import Likelihoods
from glauber.compatibility.pseudo_likelihood import (
    Score,
    Scores,
    pieces_left,
    pseudo_likelihood,
)
from glauber.conditionals.base import PAD, Model
from glauber.conditionals.continuations import (
    Continuation,
    continuation_fault,
    cut_contexts,
    keys_of,
    laid_out,
    split_contexts,
    words_of,
)
from glauber.conditionals.load import load
from glauber.conditionals.starts import (
    legible,
    named_starts,
    read_sites,
    read_texts,
    skip,
    spell_sites,
)
from glauber.conditionals.texts import Corpus, Row, Texts
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.parameters import Device, Dtype, LengthOrWhole, ModelOrName, Seed, Trust
from glauber.progress import check_count, check_seed, say, track
from glauber.result import counted, model_parts, one_of, report_skipped, signature, study

VARIANTS = ("auto", "original", "within-word")
SAMPLES, ORDERS = 16, 8
SINGLE = (
    "has a single token, and no other token says anything about it: a pseudo-log-likelihood needs "
    "at least two"
)


@study
def score(
    model: ModelOrName = "bundled:english",
    texts: Annotated[str | Path | Sequence[str] | None, "Texts, each in quotes."] = None,
    *,
    variant: Annotated[
        str, "original, within-word, or auto: both where the tokenizer tells words apart."
    ] = "auto",
    bound: Annotated[
        bool, "The masked-diffusion bound and the log-likelihood along random orders instead."
    ] = False,
    samples: Annotated[int, "Of the bound: pairs of random hidden sets, two rows each."] = SAMPLES,
    orders: Annotated[
        int, "Of the bound: random orders followed to their end, one row a token; 0: none."
    ] = ORDERS,
    length: LengthOrWhole = None,
    freeze: Annotated[
        Sequence[int] | str,
        "Sites that are context and not scored, such as 0-4,9: counted from 0.",
    ] = (),
    given: Annotated[
        str | Sequence[str] | None,
        "Context before each text, joined as it is: seen, never hidden, not scored.",
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "Scores | Likelihoods":
    """Score texts by pseudo-log-likelihood, or bound their log-likelihood.

    The sum over the tokens of log pi_i(x_i given the others), over the whole vocabulary at
    temperature 1; one row through the model for each token. The within-word variant needs a
    tokenizer that says which tokens make up one word; the original one needs none. With given, a
    text is scored behind a context that is always visible, as lm-evaluation-harness does.

    With bound, an upper bound on -log p(x), where p writes the tokens one by one in a random order
    (masked diffusion); beside it the mean over orders of log p_o(x), how much it depends on the
    order, and the log of the mean of p_o(x). If one joint law owned the conditionals every order
    would give the same log p(x). Estimates, and exact for up to five free tokens.
    """
    one_of("the variant", variant, VARIANTS)
    _check_bound(bound, variant, samples, orders, seed)
    if texts is None:
        raise GlauberError("there is no text to score: give one in quotes, or a file of texts.")
    corpus = read_texts(texts)
    contexts = _contexts(given, len(corpus), length, freeze)
    opened = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    _check_model(opened, bound)
    cut: dict[str, Any] = {"length": length, "freeze": freeze, "contexts": contexts}
    if bound:
        drawn = {"samples": samples, "orders": orders, "seed": seed}
        return _likelihoods(opened, corpus, **drawn, **cut)
    scores, note = score_texts(opened, corpus, variant=variant, **cut)
    asked = {"texts": len(scores), "variant": variant}
    made = signature(**model_parts(opened), **asked, **_spelled(**cut))
    kind = f"exact up to rounding in {opened.dtype}"
    return Scores(scores, opened.name, opened.fingerprint, opened.dtype, kind, note, made)


def _likelihoods(
    model: Model, texts: Corpus, *, samples: int, orders: int, seed: int, **cut: Any
) -> Likelihoods:
    """The bound and the log-likelihood along random orders, of each text."""
    asked = _asked(model, texts, **cut)
    drawn = {"samples": samples, "orders": orders, "seed": seed}
    rows = row_count(asked.free, samples=samples, orders=orders)
    say(f"{counted(len(asked.rows), 'text')}: {rows:,} rows through {model.name}")
    with track("rows", rows) as advance:
        found = random_order_likelihoods(
            model, asked.tokens, asked.free, keys=asked.keys, advance=advance, **drawn
        )
    named = [
        replace(likelihood, text=row.text, number=row.number, id=row.id)
        for likelihood, row in zip(found, asked.rows, strict=True)
    ]
    made = signature(**model_parts(model), texts=len(named), **drawn, **_spelled(**cut))
    return Likelihoods(
        named, model.name, model.fingerprint, model.dtype, samples, orders, seed, made
    )


class Asked(NamedTuple):
    """Texts in tokens, and which of these are scored."""

    tokens: Tensor  # (texts, length)
    free: Tensor  # (texts, length): those that are scored
    rows: list[Row]  # the texts as they are read and cut, with their numbers and ids
    whole: list[str]  # before they were cut
    behind: list[Continuation] | None = None  # where there are contexts

    @property
    def keys(self) -> Tensor:
        """What keys the noise of each text: its context, or its number."""
        if self.behind is not None:
            return keys_of(self.behind)
        return torch.tensor([row.number - 1 for row in self.rows])


def _asked(
    model: Model,
    texts: Texts,
    *,
    length: int | None = None,
    freeze: Any = (),
    contexts: list[str] | None = None,
    least: int = 1,
) -> Asked:
    """The texts in tokens, cut, or behind their contexts; those with fewer tokens are left out."""
    corpus = read_texts(texts)
    if contexts is not None:
        return _behind_contexts(model, corpus, contexts)
    tokens, free, rows = named_starts(model, corpus, length=length, least=1, freeze=freeze)
    few = free.sum(dim=1) < least
    skipped = [skip(rows[i], SINGLE) for i in few.nonzero()[:, 0].tolist()]
    report_skipped(skipped, len(rows))
    tokens, free, rows = tokens[~few], free[~few], list(compress(rows, (~few).tolist()))
    whole = [row.text for row in rows]
    if length is not None:
        cut = [model.vocabulary.decode(row[row != PAD].tolist()) for row in tokens]
        rows = [row._replace(text=text) for row, text in zip(rows, cut, strict=True)]
    return Asked(tokens, free, rows, whole)


def _behind_contexts(model: Model, corpus: Corpus, contexts: list[str]) -> Asked:
    """Texts after their contexts; those that cannot be read so are left out."""
    given = {row.number: row for row in corpus.rows}
    context = {row.number: text for row, text in zip(corpus.rows, contexts, strict=True)}
    joined = [row._replace(text=context[row.number] + row.text) for row in corpus.rows]
    legible_rows, skipped = legible(model.vocabulary, Corpus(joined, unknown=corpus.unknown))
    skipped = [
        skip(given[text.number], f"{text.reason} (counted with its context)") for text in skipped
    ]
    rows = [given[row.number] for row in legible_rows]
    behind = split_contexts(model, [context[row.number] for row in rows], legible_rows)
    faults = [continuation_fault(model, one) for one in behind]
    skipped += [skip(row, fault) for row, fault in zip(rows, faults, strict=True) if fault]
    report_skipped(skipped, len(corpus))
    kept = [not fault for fault in faults]
    rows, behind = list(compress(rows, kept)), cut_contexts(model, list(compress(behind, kept)))
    tokens, free = laid_out(model, behind)
    return Asked(tokens, free, rows, [row.text for row in rows], behind)


def _contexts(given: Any, count: int, length: int | None, freeze: Any) -> list[str] | None:
    """A context for each text, where some were given."""
    if given is None:
        return None
    listed = [given] * count if isinstance(given, str) else list(given)
    if len(listed) != count or not all(isinstance(one, str) for one in listed):
        raise GlauberError(
            f"given is one context for all {counted(count, 'text')} or a list with one for each."
        )
    if length is not None or read_sites(freeze):
        raise GlauberError("with given, texts are scored whole: leave out length and freeze.")
    return listed


def _spelled(*, length: int | None, freeze: Any, contexts: list[str] | None) -> Record:
    frozen = spell_sites(read_sites(freeze)) or None
    return {"length": length, "freeze": frozen, "given": None if contexts is None else "contexts"}


def score_texts(
    model: Model, texts: Texts, *, variant: str = "auto", **cut: Any
) -> tuple[list[Score], str]:
    """The pseudo-log-likelihoods of each text, and a note on what was left out."""
    asked = _asked(model, texts, least=2, **cut)
    tokens, free = asked.tokens, asked.free
    words, note = _words(model, asked, variant)
    differs = free & (pieces_left(words) > 1) if words is not None else torch.zeros_like(free)
    # Where no later piece of the word is hidden too, the two variants ask the same question.
    alone = free if variant != "within-word" else free & ~differs
    rows, longest = int(alone.sum() + differs.sum()), int(free.sum(dim=1).max())
    say(f"{len(asked.rows):,} texts: {rows:,} rows of up to {longest} tokens through {model.name}")
    with track("tokens", rows) as advance:
        plain_ones = pseudo_likelihood(model, tokens, alone, advance=advance).log_probs
        within = pseudo_likelihood(model, tokens, differs, words=words, advance=advance).log_probs
    found = {"original": plain_ones, "within-word": torch.where(differs, within, plain_ones)}
    left_out = {"within-word"} if words is None else set()
    left_out |= {"original"} if variant == "within-word" else set()

    def listed(row: int, name: str) -> list[float] | None:
        return None if name in left_out else found[name][row][free[row]].tolist()

    spell = model.vocabulary.spell
    pieces = [
        [spell(token) for token in row[there].tolist()]
        for row, there in zip(tokens, free, strict=True)
    ]
    return [
        Score(
            row.number, row.id, row.text, pieces[i], listed(i, "original"), listed(i, "within-word")
        )
        for i, row in enumerate(asked.rows)
    ], note


def _words(model: Model, asked: Asked, variant: str) -> tuple[Tensor | None, str]:
    """The word of each free token (texts, length), or None and why it is not known."""
    if variant == "original":
        return None, ""
    free = asked.free
    try:
        if asked.behind is not None:
            return words_of(model, asked.behind, free), ""
        words = model.vocabulary.words(asked.whole)
    except GlauberError as error:
        if variant == "within-word":
            raise
        return None, f"the within-word variant is left out: {error}"
    if words.shape[1] < free.shape[1]:
        raise GlauberError("the tokens of a text and of its words do not agree.")
    return words[:, : free.shape[1]].masked_fill(~free, PAD), ""


def _check_bound(bound: bool, variant: str, samples: int, orders: int, seed: int) -> None:
    check_count("number of samples", samples)
    check_count("number of orders", orders, least=0)
    check_seed(seed)
    if bound and variant != "auto":
        raise GlauberError("a variant is one of the pseudo-log-likelihood: the bound has none.")
    if not bound and (samples, orders) != (SAMPLES, ORDERS):
        raise GlauberError("samples and orders are those of the bound: ask for it with bound.")


def _check_model(model: Model, bound: bool) -> None:
    if model.whole_vocabulary:
        return
    if bound:
        raise GlauberError(
            f"{model.name} is autoregressive: its log-likelihood is exactly the sum of "
            "log p(x_t | x_<t) from left to right (`log_joint` in Python) and needs no bound."
        )
    raise GlauberError(
        f"{model.name} does not score the whole vocabulary at a hidden site, which a "
        "pseudo-log-likelihood needs."
    )
