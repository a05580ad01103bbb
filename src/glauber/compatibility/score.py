"""How well does a text fit its own conditionals? Pseudo-log-likelihood.

PLL(x) = sum_i log pi_i(x_i | the visible tokens). Original (Salazar and others, 2020): token i
alone is hidden. Within-word left-to-right (Kauf and Ivanova, 2023): the later pieces of its word
are hidden with it, so that a rare word is not given away by its own ending. Neither is the
logarithm of a law: on incompatible conditionals even their ranking may differ from the chain's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals, log_probs
from glauber.conditionals.batching import lengths_of
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.packed import LONGEST, PackedRows
from glauber.errors import GlauberError

SCORES = 2**24  # scores held at once, 128 MiB in float64: a text of 512 tokens fits any machine
ROWS = 4096  # packed rows at once


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
    short = (lengths_of(tokens) <= LONGEST)[rows] & (packer is not None)
    if packer is not None and bool(short.any()):
        asked = rows[short], sites[short], later[short]
        found[asked[:2]] = _packed(packer, tokens, asked, temperature=temperature)
    rows, sites, later = rows[~short], sites[~short], later[~short]
    for k in later.unique().tolist():
        chosen = (later == k).nonzero()[:, 0]
        for part in chosen.split(max(1, SCORES // (k * conditionals.vocab_size))):
            row, site = rows[part], sites[part]
            hidden = site[:, None] + torch.arange(k)
            laws = log_probs(conditionals, tokens[row], hidden, temperature=temperature)[:, 0]
            found[row, site] = laws.gather(1, tokens[row, site][:, None])[:, 0]
    return PseudoLikelihood(found)


def _packer(conditionals: Conditionals) -> PackedRows | None:
    """The fastest way to score short rows, where the model and the machine allow it."""
    packer = conditionals.packed if isinstance(conditionals, MaskedLM) else None
    return packer if packer is not None and packer.usable() else None


def _packed(
    packer: PackedRows,
    tokens: Tensor,
    asked: tuple[Tensor, Tensor, Tensor],
    *,
    temperature: float,
) -> Tensor:
    """log pi of the tokens at (row, site, pieces left of the word), the later pieces hidden.

    To a masked LM a hidden token is its mask token, so one hidden site per row is enough.
    """
    found = []
    for row, site, later in zip(*(part.split(ROWS) for part in asked), strict=True):
        behind = torch.arange(tokens.shape[1]) - site[:, None]
        hidden = (behind > 0) & (behind < later[:, None])
        visible = tokens[row].masked_fill(hidden, packer.hidden_token)
        found.append(packer.log_probs(visible, site, temperature=temperature))
    return torch.cat(found)


def _pieces_left(words: Tensor) -> Tensor:
    """How many pieces of its word there are from each token on, itself among them; PAD: 1."""
    left = torch.ones_like(words)
    for site in reversed(range(words.shape[1] - 1)):
        same = (words[:, site] == words[:, site + 1]) & (words[:, site] != PAD)
        left[:, site] += torch.where(same, left[:, site + 1], 0)
    return left


@dataclass(frozen=True, eq=False)
class Score:
    """A text's pseudo-log-likelihood in both variants, token by token, in nats."""

    text: str
    pieces: list[str]
    log_probs: list[float]
    log_probs_within_word: list[float]

    @property
    def original(self) -> float:
        return sum(self.log_probs)

    @property
    def within_word(self) -> float:
        return sum(self.log_probs_within_word)


def score_texts(model: MaskedLM, texts: Sequence[str]) -> list[Score]:
    """Both pseudo-log-likelihoods of each text, over the whole vocabulary at temperature 1."""
    texts = [text.strip() for text in texts]
    if not texts:
        raise GlauberError("there is no text to score.")
    for number, text in enumerate(texts, 1):
        _check_text(model, text, number)
    tokens, free = model.vocabulary.encode(texts)
    words = model.vocabulary.words(texts)
    original = pseudo_likelihood(model, tokens, free).log_probs
    # Where no later piece of the word is hidden too, the two variants ask the same question.
    differs = free & (_pieces_left(words) > 1)
    within = pseudo_likelihood(model, tokens, differs, words=words).log_probs
    within = torch.where(differs, within, original)
    spell = model.vocabulary.text.spell
    return [
        Score(
            text,
            [spell(token) for token in tokens[row][free[row]].tolist()],
            original[row][free[row]].tolist(),
            within[row][free[row]].tolist(),
        )
        for row, text in enumerate(texts)
    ]


def _check_text(model: MaskedLM, text: str, number: int) -> None:
    if not text:
        raise GlauberError(f"text {number} is empty: there is no token to score.")
    count = model.vocabulary.count(text)
    if count < 2:
        raise GlauberError(
            f"text {number} has a single token, and no other token says anything about it: "
            "a pseudo-log-likelihood needs at least two."
        )
    longest = model.longest - model.vocabulary.tokenizer.num_special_tokens_to_add()
    if count > longest:
        raise GlauberError(
            f"text {number} has {count} tokens, but {model.name} reads at most {longest}."
        )
