"""How far do int8, bfloat16 and float32 take a model's conditionals from those in float64?

A context is a text with one hidden site; its conditional is the one that a chain at temperature 1
draws from. Everything here is an estimate, and only texts count as independent: contexts of one
text resemble each other.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import PAD, Model, log_probs
from glauber.conditionals.starts import starts
from glauber.conditionals.texts import Texts
from glauber.errors import GlauberError
from glauber.progress import Advance, check_memory, say, track
from glauber.result import plain
from glauber.statistics import Estimate, clustered_mean
from glauber.tables import table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

PRECISIONS = ("int8", "bfloat16", "float32")
CALL = 64  # contexts between two moves of the bar

Floats = NDArray[np.float64]


class Contexts(NamedTuple):
    """Texts with one hidden site each."""

    tokens: Tensor  # (contexts, length)
    sites: Tensor  # (contexts, 1)
    text: Tensor  # (contexts,): the number of its text

    @property
    def stood_there(self) -> Tensor:
        """The tokens at the sites, (contexts, 1)."""
        return self.tokens.gather(1, self.sites)


@dataclass(frozen=True, eq=False)
class Precision:
    """The differences of one precision from float64, one for each context."""

    dtype: str
    total_variation: Floats  # (contexts,)
    same_token: Floats  # (contexts,): 1 where the most probable token is the same
    nll_difference: Floats  # (contexts,): of the token that stood there, in nats
    text: NDArray[np.int64]  # (contexts,)
    reason: str = ""  # why the precision is not there

    @property
    def measured(self) -> dict[str, Estimate]:
        """The means, with intervals clustered by text."""
        return {
            "total_variation": clustered_mean(self.total_variation, self.text, bounds=(0, 1)),
            "same_token": clustered_mean(self.same_token, self.text, bounds=(0, 1)),
            "nll_difference": clustered_mean(self.nll_difference, self.text),
        }

    def to_dict(self) -> dict[str, Any]:
        if self.reason:
            return {"precision": self.dtype, "reason": self.reason}
        largest = float(self.total_variation.max())
        found = {"precision": self.dtype, **self.measured, "largest_total_variation": largest}
        return dict(plain(found))

    def row(self) -> dict[str, Any]:
        """A row of the table that a person reads."""
        if self.reason:
            return {"precision": self.dtype, "not there": self.reason}
        means = self.measured
        return {
            "precision": self.dtype,
            "total variation": _spoken(means["total_variation"]),
            "largest": f"{self.total_variation.max():.2g}",
            "same most probable token": _spoken(means["same_token"], ".1%"),
            "nll, difference": _spoken(means["nll_difference"]),
        }


@dataclass(frozen=True, eq=False)
class Precisions:
    """The error of each precision on one model and one machine."""

    rows: list[Precision]
    device: str
    n_contexts: int
    n_texts: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "beside": "float64",
            "device": self.device,
            "contexts": self.n_contexts,
            "texts": self.n_texts,
            "precisions": [row.to_dict() for row in self.rows],
        }

    def lines(self) -> Iterable[str]:
        yield (
            f"error beside float64 on {self.device}, over {self.n_contexts} contexts of "
            f"{self.n_texts} texts at temperature 1:"
        )
        yield from (line for line in table([row.row() for row in self.rows]) if line.strip())
        yield (
            "All figures are estimates; 95% intervals over texts. Total variation: mean and largest"
        )
        yield "over contexts. nll: of the token that stood there, in nats, minus that in float64."

    def frame(self) -> "pandas.DataFrame":
        """One row per precision and context."""
        import pandas

        names = ("total_variation", "same_token", "nll_difference", "text")
        parts = [
            pandas.DataFrame({"precision": row.dtype} | {one: getattr(row, one) for one in names})
            for row in self.rows
            if not row.reason
        ]
        return pandas.concat(parts, ignore_index=True)

    def figure(self) -> "go.Figure":
        """The share of contexts whose error is at most so large."""
        from glauber.figures.style import empty_figure

        under = f"total variation to float64, {self.n_contexts} contexts of {self.n_texts} texts"
        drawn = empty_figure("Error of each precision", under)
        for row in self.rows:
            if not row.reason:
                error = np.sort(row.total_variation).clip(1e-16)
                share = np.arange(1, len(error) + 1) / len(error)
                drawn.add_scatter(x=error, y=share, name=row.dtype, line_shape="hv")
        drawn.update_xaxes(type="log", title="total variation", tickformat=".0e")
        drawn.update_yaxes(title="share of contexts at most that far", tickformat=".0%")
        return drawn


def precisions(
    open_in: Callable[[str], Any],
    texts: Texts,
    *,
    contexts: int,
    length: int | None = None,
    seed: int = 0,
) -> Precisions:
    """The error of every precision; open_in gives the model in a precision."""
    exact = open_in("float64")
    asked = some_contexts(exact, texts, contexts=contexts, length=length, seed=seed)
    n = len(asked.sites)
    check_memory(16.0 * n * exact.vocab_size, f"the conditionals of {n:,} contexts")
    say(f"{n:,} contexts in float64 and in {', '.join(PRECISIONS)}.")
    with track("contexts", n * (1 + len(PRECISIONS))) as advance:
        expected = [found for _, found in _answers(exact, asked, advance)]
        device = exact.device.type
        del exact
        rows = [_precision(dtype, open_in, asked, expected, advance) for dtype in PRECISIONS]
    return Precisions(rows, device, n, len(asked.text.unique()))


def some_contexts(
    model: Model, texts: Texts, *, contexts: int, length: int | None = None, seed: int = 0
) -> Contexts:
    """Contexts that the texts take turns in giving, each with a site of its own.

    Only sites whose token may be proposed are hidden.
    """
    tokens, free = starts(model, texts, length=length)
    free = free & model.vocabulary.proposable()[tokens.clamp(min=0)] & (tokens != PAD)
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(free.shape, generator=generator).masked_fill_(~free, 2).argsort(dim=1)
    texts_in_turn = torch.randperm(len(tokens), generator=generator)
    turns = torch.arange(tokens.shape[1])[:, None] < free.sum(dim=1)[texts_in_turn]
    turn, which = turns.nonzero()[:contexts].unbind(dim=1)
    if not len(turn):
        raise GlauberError("no text has a token that may be proposed, so nothing can be hidden.")
    text = texts_in_turn[which]
    return Contexts(tokens[text], order[text, turn][:, None], text)


def _precision(
    dtype: str,
    open_in: Callable[[str], Any],
    asked: Contexts,
    expected: list[Tensor],
    advance: Advance,
) -> Precision:
    """The differences in one precision; why there are none, where it cannot be had."""
    try:
        model = open_in(dtype)
    except GlauberError as error:
        advance(len(asked.sites))
        nothing = np.zeros(0)
        return Precision(dtype, nothing, nothing, nothing, np.zeros(0, np.int64), str(error))
    parts = [
        _compared(exact, found, asked.stood_there[rows])
        for exact, (rows, found) in zip(expected, _answers(model, asked, advance), strict=True)
    ]
    apart, same, more = (torch.cat(one).numpy() for one in zip(*parts, strict=True))
    return Precision(dtype, apart, same, more, asked.text.numpy())


def _answers(model: Model, asked: Contexts, advance: Advance) -> Iterable[tuple[slice, Tensor]]:
    """The log-probabilities (rows, vocab) of some contexts after the others, and which these are.

    A precision that differs from float64 is compared while it is computed: none is stored.
    """
    conditionals, place = model.conditionals(), model.state_device
    for begin in range(0, len(asked.sites), CALL):
        rows = slice(begin, begin + CALL)
        found = log_probs(conditionals, asked.tokens[rows].to(place), asked.sites[rows].to(place))
        advance(len(found))
        yield rows, found[:, 0].cpu()


def _compared(exact: Tensor, found: Tensor, stood_there: Tensor) -> tuple[Tensor, ...]:
    """Total variation, whether the most probable token is the same, difference of the nll."""
    apart = (exact.exp() - found.exp()).abs().sum(dim=1) / 2
    same = (exact.argmax(dim=1) == found.argmax(dim=1)).double()
    more = (exact.gather(1, stood_there) - found.gather(1, stood_there))[:, 0]
    return apart, same, more


def _spoken(found: Estimate, shape: str = ".2g") -> str:
    """A figure and its interval, in few characters."""
    if found.interval is None:
        return f"{found.value:{shape}}"
    low, high = found.interval
    return f"{found.value:{shape}} ({low:{shape}} to {high:{shape}})"
