"""How likely is a token where it is hidden, alone or with others?

The pseudo-log-likelihood hides each token in turn, or with the later pieces of its word; an order
hides each token together with all that come after it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals, hide, log_probs
from glauber.conditionals.base_model import OnePass
from glauber.conditionals.batching import largest_call, lengths_of, rows_at_once
from glauber.conditionals.forward.packed import BLOCK, LONGEST, PACKED, PackedRows
from glauber.json_text import Record
from glauber.progress import Advance
from glauber.result import Result, counted, plain
from glauber.statistics import Estimate

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

LISTED = 8  # texts whose tokens are drawn
PRINTED = 100  # texts that are printed
PACKED_WORK = 2**38  # multiplications between two reports of progress: a second or two


@dataclass(frozen=True, eq=False)
class Score:
    """A text's pseudo-log-likelihood, token by token, in nats; None for a variant left out."""

    number: int  # of the text among those given, from 1
    id: str  # that its source gives it
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
    name: str  # of the model
    weights: str  # fingerprint of the model
    dtype: str
    kind: str  # what the numbers are, in words
    note: str  # what was left out, and why
    signature: str

    def to_dict(self) -> Record:
        listed = [
            {
                "number": one.number,
                "id": one.id,
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
        for one in self.scores[:PRINTED]:
            figures = f"{figure_of(one.original):>10}  {figure_of(one.within_word):>11}"
            yield f"{figures}  {len(one.pieces):6}  {one.text}"
        if len(self.scores) > PRINTED:
            yield f"and {counted(len(self.scores) - PRINTED, 'text')} more"
        if self.note:
            yield self.note

    def frame(self) -> "pandas.DataFrame":
        """One row per text."""
        import pandas

        rows = [
            {"number": score.number, "id": score.id, "text": score.text}
            | {"tokens": len(score.pieces)}
            | {name: sum(log_probs) for name, log_probs in score.variants.items()}
            for score in self.scores
        ]
        return pandas.DataFrame(rows)

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


def figure_of(value: Estimate | float | None) -> str:
    """As a table has it."""
    value = value.value if isinstance(value, Estimate) else value
    return "-" if value is None else f"{value:.3f}"


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
    later = torch.ones_like(rows) if words is None else pieces_left(words)[rows, sites]
    behind = torch.arange(int(later.max()) if len(later) else 1)
    hidden = torch.where(behind < later[:, None], sites[:, None] + behind, PAD)
    asked = hidden_log_probs(
        conditionals, tokens, rows, hidden, temperature=temperature, advance=advance
    )
    found[rows, sites] = asked[:, 0]
    return PseudoLikelihood(found)


def hidden_log_probs(
    conditionals: Conditionals,
    tokens: Tensor,
    rows: Tensor,
    sites: Tensor,
    *,
    asked: int = 1,
    temperature: float = 1.0,
    advance: Advance | None = None,
) -> Tensor:
    """log pi of the tokens that stand at hidden sites: (questions, asked) float64, NaN for PAD.

    Question q hides the sites[q] (k of them, PAD behind fewer) of row rows[q] of tokens together,
    and asks about the first ones. On a CPU the answer to one does not depend on the others.
    """
    found = torch.full((len(rows), asked), torch.nan, dtype=torch.float64)
    lengths = lengths_of(tokens)[rows]
    packer = conditionals.packed if isinstance(conditionals, OnePass) and asked == 1 else None
    fit = _fits(packer, lengths)
    if packer is not None and bool(fit.any()):
        for part in fit.nonzero()[:, 0].split(_packed_at_once(packer, tokens.shape[1])):
            visible = hide(tokens[rows[part]], sites[part, 1:], packer.hidden_token)
            found[part, 0] = packer.log_probs(visible, sites[part, 0], temperature=temperature)
            _count(advance, len(part))
    chosen = (~fit).nonzero()[:, 0]
    for part, laws in hidden_laws(
        conditionals, tokens, rows, sites, asked=asked, temperature=temperature, chosen=chosen
    ):
        about = sites[part, : min(laws.shape[1], asked)]
        stood = tokens[rows[part]].gather(1, about.clamp(min=0))
        each = laws[:, : about.shape[1]].gather(2, stood[..., None].to(laws.device))[..., 0].cpu()
        found[part, : about.shape[1]] = each.masked_fill(about == PAD, torch.nan)
        _count(advance, len(part))
    return found


def likeliest(conditionals: Conditionals, tokens: Tensor, rows: Tensor, sites: Tensor) -> Tensor:
    """Whether no token is likelier than the one that stands at the first hidden site, (questions,).

    Questions as in `hidden_log_probs`.
    """
    found = torch.zeros(len(rows), dtype=torch.bool)
    packer = conditionals.packed if isinstance(conditionals, OnePass) else None
    fit = _fits(packer, lengths_of(tokens)[rows])
    if packer is not None and bool(fit.any()):
        for part in fit.nonzero()[:, 0].split(_packed_at_once(packer, tokens.shape[1])):
            visible = hide(tokens[rows[part]], sites[part, 1:], packer.hidden_token)
            found[part] = packer.likeliest(visible, sites[part, 0])
    chosen = (~fit).nonzero()[:, 0]
    for part, laws in hidden_laws(conditionals, tokens, rows, sites, chosen=chosen):
        law = laws[:, 0].cpu()
        stood = law.gather(1, tokens[rows[part]].gather(1, sites[part, :1]))
        found[part] = stood[:, 0] >= law.amax(dim=1)
    return found


def hidden_laws(
    conditionals: Conditionals,
    tokens: Tensor,
    rows: Tensor,
    sites: Tensor,
    *,
    asked: int = 1,
    temperature: float = 1.0,
    chosen: Tensor | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Log-probabilities of every token at hidden sites, part by part as they are asked.

    Questions as in `hidden_log_probs`, all or the chosen ones. Each part is the numbers of some
    questions (n,) and their laws (n, asked sites, vocab) float64; what stands at PAD says nothing.
    """
    lengths = lengths_of(tokens)[rows]
    chosen = torch.arange(len(rows)) if chosen is None else chosen
    for part, k in _parts(conditionals, sites, lengths, chosen, asked):
        yield part, _laws(conditionals, tokens[rows[part]], sites[part, :k], asked, temperature)


def _laws(
    conditionals: Conditionals, tokens: Tensor, sites: Tensor, asked: int, temperature: float
) -> Tensor:
    """Log-probabilities (rows, asked or all sites, vocab) with the sites (rows, k) hidden.

    To a masked LM a hidden token is its mask token, so that the others need not be asked about;
    the width is always the same, since the bits of an answer may depend on it.
    """
    if isinstance(conditionals, OnePass):
        tokens = hide(tokens, sites, conditionals.hidden_token)
        sites = F.pad(sites[:, :asked], (0, max(0, asked - sites.shape[1])), value=PAD)
    return log_probs(conditionals, tokens, sites, temperature=temperature)


def _count(advance: Advance | None, more: int) -> None:
    if advance is not None and more:
        advance(more)


def _parts(
    conditionals: Conditionals, sites: Tensor, lengths: Tensor, chosen: Tensor, asked: int
) -> list[tuple[Tensor, int]]:
    """The chosen questions in parts of one call each, and how many sites those of a part have.

    Rows of one length go together; for rules other than masked LMs also those that hide as many.
    """
    chosen = chosen[lengths[chosen].argsort(stable=True)]
    if isinstance(conditionals, OnePass):
        groups = [(chosen, sites.shape[1], asked)] if len(chosen) else []
    else:
        hidden = (sites[chosen] != PAD).sum(dim=1)
        groups = [(chosen[hidden == k], k, k) for k in hidden.unique().tolist()]
    return [
        (part, k)
        for group, k, scored in groups
        for part in group.split(_at_once(conditionals, scored, int(lengths[group].max())))
    ]


def _at_once(conditionals: Conditionals, k: int, length: int) -> int:
    """Rows asked together: what the memory holds, on a CPU a few calls, so that progress shows."""
    device = getattr(conditionals, "device", torch.device("cpu"))
    most = rows_at_once(8 * k * conditionals.vocab_size, device)
    if device.type == "cuda":
        return most
    return min(most, 2 * largest_call(length) * torch.get_num_threads())


def _fits(packer: PackedRows | None, lengths: Tensor) -> Tensor:
    """Which rows are packed: (rows,) bool, from their lengths."""
    if packer is None:
        return torch.zeros_like(lengths, dtype=torch.bool)
    return packer.takes(lengths) & (lengths <= LONGEST)


def _packed_at_once(packer: PackedRows, length: int) -> int:
    """Packed rows between two reports of progress: two calls for each thread, or more if small."""
    together = max(PACKED_WORK // packer.work, 2 * torch.get_num_threads() * PACKED)
    return max(1, together // (length * BLOCK)) * BLOCK


def pieces_left(words: Tensor) -> Tensor:
    """How many pieces of its word there are from each token on, itself among them; PAD: 1."""
    left = torch.ones_like(words)
    for site in reversed(range(words.shape[1] - 1)):
        same = (words[:, site] == words[:, site + 1]) & (words[:, site] != PAD)
        left[:, site] += torch.where(same, left[:, site + 1], 0)
    return left
