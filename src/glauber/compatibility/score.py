"""How well does a text fit its own conditionals? Pseudo-log-likelihood, or a bound on -log p.

PLL(x) = sum_i log pi_i(x_i | the visible tokens). Original (Salazar and others, 2020): token i
alone is hidden. Within-word left-to-right (Kauf and Ivanova, 2023): the later pieces of its word
are hidden with it, so that a rare word is not given away by its own ending. Neither is the
logarithm of a law: on incompatible conditionals even their ranking may differ from the chain's.
What is a law is a text written in a random order, and `bound` is about that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from torch import Tensor

from glauber.compatibility.bound import (
    Likelihood,
    by_hidden_share,
    per_text,
    per_token,
    random_order_likelihoods,
    row_count,
)
from glauber.compatibility.pseudo_likelihood import (
    Score,
    Scores,
    figure_of,
    pieces_left,
    pseudo_likelihood,
)
from glauber.conditionals.base import PAD
from glauber.conditionals.load import load, refuse_int8
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import read_sites, read_texts, readable, spell_sites, starts
from glauber.errors import GlauberError
from glauber.parameters import Device, Dtype, LengthOrWhole, Model, Seed, Trust
from glauber.progress import check_count, check_seed, say, track
from glauber.result import Result, counted, model_parts, one_of, plain, signature, study
from glauber.statistics import Measured, mean_over_chains

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

VARIANTS = ("auto", "original", "within-word")
PRINTED = 20  # texts of a bound that are printed and drawn
SAMPLES, ORDERS = 16, 8


@study
def score(
    model: Model = "bundled:english",
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
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "Scores | Likelihoods":
    """Score texts by pseudo-log-likelihood, or bound their log-likelihood.

    The sum over the tokens of log pi_i(x_i given the others), over the whole vocabulary at
    temperature 1; one row through the model for each token. The within-word variant needs a
    tokenizer that says which tokens make up one word; the original one needs none.

    With bound, an upper bound on -log p(x), where p writes the tokens one by one in a random order
    (masked diffusion); beside it the mean over orders of log p_o(x), how much it depends on the
    order, and the log of the mean of p_o(x). If one joint law owned the conditionals every order
    would give the same log p(x). Estimates, and exact for up to five free tokens.
    """
    one_of("the variant", variant, VARIANTS)
    _check_bound(bound, variant, samples, orders, seed)
    refuse_int8(dtype)
    if texts is None:
        raise GlauberError("there is no text to score: give one in quotes, or a file of texts.")
    listed = read_texts(texts)
    opened = load(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    refuse_int8(opened)
    _check_model(opened, bound)
    cut: dict[str, Any] = {"length": length, "freeze": freeze}
    if bound:
        drawn = {"samples": samples, "orders": orders, "seed": seed}
        return _likelihoods(opened, listed, **drawn, **cut)
    scores, note = score_texts(opened, listed, variant=variant, **cut)
    asked = {"texts": len(scores), "variant": variant}
    made = signature(**model_parts(opened), **asked, **_spelled(**cut))
    kind = f"exact up to rounding in {opened.dtype}"
    return Scores(scores, opened.name, opened.fingerprint, opened.dtype, kind, note, made)


@dataclass(frozen=True, eq=False)
class Likelihoods(Result):
    """Texts with the bound on -log p and their log-likelihood along random orders."""

    texts: list[Likelihood]
    name: str
    weights: str
    dtype: str
    samples: int
    orders: int
    seed: int
    signature: str

    @property
    def bound(self) -> Measured:
        """Nats a text that -log p is at most, mean over texts."""
        return per_text([one.bound for one in self.texts])

    @property
    def bound_per_token(self) -> Measured:
        """Nats a token that -log p is at most."""
        return per_token([one.bound for one in self.texts], self.tokens)

    @property
    def log_likelihood(self) -> Measured | None:
        """Nats a text, the mean over orders and texts; None where no order was followed."""
        return per_text(self._along) if self._along else None

    @property
    def log_likelihood_per_token(self) -> Measured | None:
        """Nats a token, the mean over orders; None where no order was followed."""
        return per_token(self._along, self.tokens) if self._along else None

    @property
    def tokens(self) -> list[int]:
        """How many tokens of each text are scored."""
        return [one.tokens for one in self.texts]

    @property
    def _along(self) -> list[Measured]:
        """The log-likelihood of each text; nothing unless every text has one."""
        found = [one.log_likelihood for one in self.texts]
        known = [one for one in found if one is not None]
        return known if len(known) == len(found) else []

    @property
    def order_sd(self) -> Measured | None:
        """The mean over texts of the standard deviation over orders, in nats a text."""
        found = [one.order_sd for one in self.texts if one.order_sd is not None]
        if len(found) < 2:
            return found[0] if found and len(self.texts) == 1 else None
        return mean_over_chains([one.value for one in found], bounds=(0, float("inf")))

    def to_dict(self) -> dict[str, Any]:
        curve = by_hidden_share(self.texts)
        return {
            "model": self.name,
            "weights": self.weights,
            "dtype": self.dtype,
            "unit": "nats",
            "samples": self.samples,
            "orders": self.orders,
            "seed": self.seed,
            "tokens": sum(self.tokens),
            "bound": plain(self.bound),
            "bound_per_token": plain(self.bound_per_token),
            "log_likelihood": plain(self.log_likelihood),
            "log_likelihood_per_token": plain(self.log_likelihood_per_token),
            "order_sd": plain(self.order_sd),
            "by_hidden_share": [{"share": share, "nll": plain(nll)} for share, nll in curve],
            "texts": [one.to_dict() for one in self.texts],
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        yield "     bound        (95%)       log-likelihood  sd (orders)  log of mean  tokens  text"
        for one in self.texts[:PRINTED]:
            mean, sd, mixture = map(figure_of, (one.log_likelihood, one.order_sd, one.log_mean))
            ends = "exact" if one.exact else "-"
            if one.bound.interval is not None:
                ends = "{:.3f} to {:.3f}".format(*one.bound.interval)
            figures = f"{one.bound.value:10.3f}  {ends:^17}  {mean:>14}  {sd:>11}  {mixture:>11}"
            yield f"{figures}  {one.tokens:6}  {one.text}"
        if len(self.texts) > PRINTED:
            yield f"and {counted(len(self.texts) - PRINTED, 'text')} more"
        yield "all in nats; the bound is one on -log p, where p writes a text in a random order"
        over = "" if len(self.texts) == 1 else f", over {len(self.texts):,} texts"
        yield f"-log p a token is at most {self.bound_per_token.spoken()}{over}"
        yield f"-log p a text is at most {self.bound.spoken()}"
        if (along := self.log_likelihood_per_token) is not None:
            yield f"log-likelihood a token along random orders: {along.spoken()}"
        if (spread := self.order_sd) is not None:
            yield f"standard deviation over orders, a text: {spread.spoken()}; 0 for a joint law"
        curve = [f"{share:.0%}: {nll.value:.2f}" for share, nll in by_hidden_share(self.texts)]
        yield f"nats a hidden token by hidden share: {', '.join(curve)}"

    def frame(self) -> "pandas.DataFrame":
        """One row per text."""
        import pandas

        rows = [{"text": number} | one.to_row() for number, one in enumerate(self.texts, 1)]
        return pandas.DataFrame(rows)

    def figures(self) -> "dict[str, go.Figure]":
        """nll by hidden share; the log-likelihood along each order, text by text."""
        from glauber.figures.compatibility import plot_hidden_share, plot_orders

        found = {"hidden-share": plot_hidden_share(by_hidden_share(self.texts))}
        shown = [one for one in self.texts[:PRINTED] if len(one.log_probs)]
        if shown:
            along = [one.log_probs / one.tokens for one in shown]
            found["orders"] = plot_orders([one.text for one in shown], along)
        return found


def _likelihoods(
    model: Any, texts: list[str], *, samples: int, orders: int, seed: int, **cut: Any
) -> Likelihoods:
    """The bound and the log-likelihood along random orders, of each text."""
    tokens, free, texts = _cut(model, texts, **cut)
    drawn = {"samples": samples, "orders": orders, "seed": seed}
    rows = row_count(free, samples=samples, orders=orders)
    say(f"{counted(len(texts), 'text')}: {rows:,} rows through {model.name}")
    with track("rows", rows) as advance:
        found = random_order_likelihoods(model, tokens, free, advance=advance, **drawn)
    named = [replace(one, text=text) for one, text in zip(found, texts, strict=True)]
    made = signature(**model_parts(model), texts=len(texts), **drawn, **_spelled(**cut))
    return Likelihoods(
        named, model.name, model.fingerprint, model.dtype, samples, orders, seed, made
    )


def _cut(
    model: Any, texts: Sequence[str], *, length: int | None = None, freeze: Any = ()
) -> tuple[Tensor, Tensor, list[str]]:
    """Tokens and the sites that are scored (texts, length), and the texts as they are read."""
    texts = readable(model.vocabulary, texts)
    tokens, free = starts(model, texts, length=length, least=1, freeze=freeze)
    if length is not None:
        texts = [model.vocabulary.decode(row[row != PAD].tolist()) for row in tokens]
    return tokens, free, texts


def _spelled(*, length: int | None, freeze: Any) -> dict[str, Any]:
    return {"length": length, "freeze": spell_sites(read_sites(freeze)) or None}


def score_texts(
    model: MaskedLM, texts: Sequence[str], *, variant: str = "auto", **cut: Any
) -> tuple[list[Score], str]:
    """The pseudo-log-likelihoods of each text, and a note on what was left out."""
    whole = readable(model.vocabulary, texts)
    tokens, free, texts = _cut(model, whole, **cut)
    _check_tokens(free)
    words, note = _words(model, whole, free, variant)
    differs = free & (pieces_left(words) > 1) if words is not None else torch.zeros_like(free)
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
    model: MaskedLM, texts: list[str], free: Tensor, variant: str
) -> tuple[Tensor | None, str]:
    """The word of each free token (texts, length), or None and why it is not known."""
    if variant == "original":
        return None, ""
    try:
        words = model.vocabulary.words(texts)
    except GlauberError as error:
        if variant == "within-word":
            raise
        return None, f"the within-word variant is left out: {error}"
    if words.shape[1] < free.shape[1]:
        raise GlauberError("the tokens of a text and of its words do not agree.")
    return words[:, : free.shape[1]].masked_fill(~free, PAD), ""


def _check_tokens(free: Tensor) -> None:
    fewest = int(free.sum(dim=1).argmin())
    if int(free[fewest].sum()) < 2:
        raise GlauberError(
            f"text {fewest + 1} has a single token, and no other token says anything about it: "
            "a pseudo-log-likelihood needs at least two."
        )


def _check_bound(bound: bool, variant: str, samples: int, orders: int, seed: int) -> None:
    check_count("number of samples", samples)
    check_count("number of orders", orders, least=0)
    check_seed(seed)
    if bound and variant != "auto":
        raise GlauberError("a variant is one of the pseudo-log-likelihood: the bound has none.")
    if not bound and (samples, orders) != (SAMPLES, ORDERS):
        raise GlauberError("samples and orders are those of the bound: ask for it with bound.")


def _check_model(model: Any, bound: bool) -> None:
    if getattr(model, "whole_vocabulary", True):
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
