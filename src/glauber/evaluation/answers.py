"""What can a masked model say where log p(continuation | context) is asked for?

It has no such number; it has these:

pll          sum over the continuation's tokens of log pi(token | all others), each hidden alone and
             the context visible. Exact up to rounding, and the logarithm of no law.
within-word  the same with the later pieces of a token's word hidden too.
bound        a lower bound on log p(continuation | context), where p writes the tokens of the
             continuation in a random order (masked diffusion): exact for up to five tokens, else
             an estimate.
exact        of an autoregressive model: log p itself, from left to right.

They are computed by the functions that `glauber.score` calls, so that the numbers are the same.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glauber.compatibility.likelihood_bound import SAMPLES, random_order_likelihoods, row_count
from glauber.compatibility.pseudo_likelihood import likeliest, pseudo_likelihood
from glauber.conditionals.base import PAD, Conditionals, Model
from glauber.conditionals.causal_lm import CausalLM
from glauber.conditionals.continuations import Continuation, keys_of, laid_out, words_of
from glauber.errors import GlauberError, GlauberWarning
from glauber.progress import Advance, say, track
from glauber.result import counted

FIGURES = {
    "pll": "pseudo-log-likelihood, each token hidden alone: exact up to rounding, and no "
    "log-likelihood",
    "within-word": "pseudo-log-likelihood, each token hidden with the later pieces of its word: "
    "exact up to rounding, and no log-likelihood",
    "bound": "lower bound on the log-likelihood of writing in a random order: exact for up to five "
    "tokens, else an estimate with a standard error",
    "exact": "log-likelihood from left to right, exact up to rounding",
}
GREEDY = (
    "each token is the likeliest one where it and all later ones of the continuation are hidden: "
    "filling from left to right with the likeliest token writes the continuation"
)
TOGETHER = 512  # texts in one pass, where no batch size is given


@dataclass(frozen=True)
class Answer:
    """A figure of one text behind its context, in nats."""

    value: float
    kind: str  # exact or estimate
    standard_error: float | None  # of an estimate
    tokens: int  # that were scored
    greedy: bool


def joined(parts: Sequence[Answer]) -> Answer:
    """The sum over parts of one text, whose errors are independent."""
    errors = [part.standard_error for part in parts if part.standard_error is not None]
    return Answer(
        sum(part.value for part in parts),
        "estimate" if any(part.kind == "estimate" for part in parts) else "exact",
        math.hypot(*errors) if errors else None,
        sum(part.tokens for part in parts),
        all(part.greedy for part in parts),
    )


NOTHING = Answer(0.0, "exact", None, 0, True)  # a text without tokens is certain


@dataclass(frozen=True)
class Figure:
    """Which figure of a model is asked for; the answers depend on each text alone."""

    model: Model
    score: str  # a name of FIGURES
    samples: int = SAMPLES
    seed: int = 0
    batch_size: int | None = None

    def __call__(self, given: Sequence[Continuation], *, whole: bool = False) -> list[Answer]:
        """The answer of each, in batches of similar length.

        Whole texts are averaged over and not compared: their noise is independent, and nobody
        asks whether they are greedy.
        """
        empty = sum(not one.own for one in given)
        if empty:
            message = f"{empty} of {counted(len(given), 'text')} without tokens: the figure is 0."
            warnings.warn(message, GlauberWarning, stacklevel=3)
        places = [place for place, one in enumerate(given) if one.own]
        places.sort(key=lambda place: len(given[place].pieces))
        found = dict.fromkeys(range(len(given)), NOTHING)
        rows, size = sum(self._rows(given[place]) for place in places), self.batch_size or TOGETHER
        say(f"{counted(len(places), 'text')}: {rows:,} rows through {self.model.name}")
        with track("rows", rows) as advance:
            for first in range(0, len(places), size):
                some = places[first : first + size]
                each = self._batch([given[place] for place in some], whole, advance)
                found |= zip(some, each, strict=True)
        return [found[place] for place in range(len(given))]

    def _rows(self, one: Continuation) -> int:
        """Rows through the model that the figure takes."""
        if self.score == "bound":
            free = torch.ones(1, len(one.own), dtype=torch.bool)
            return row_count(free, samples=self.samples, orders=0)
        return 1 if self.score == "exact" else len(one.own)

    def _batch(self, given: list[Continuation], whole: bool, advance: Advance) -> Iterator[Answer]:
        """The answers of texts that go through the model together."""
        tokens, free = laid_out(self.model, given)
        if self.score == "exact":
            yield from self._exact(tokens, free)
            advance(len(given))
            return
        greedy = [False] * len(given) if whole else is_greedy(self.model, tokens, free)
        if self.score == "bound":
            keys = keys_of(given, of="texts" if whole else "contexts")
            found = self._bounds(keys, tokens, free, advance)
        else:
            found = self._pseudo(given, tokens, free, advance)
        for (value, error, kind), there, best in zip(found, free, greedy, strict=True):
            yield Answer(value, kind, error, int(there.sum()), best)

    def _pseudo(
        self, given: list[Continuation], tokens: Tensor, free: Tensor, advance: Advance
    ) -> Iterator[tuple[float, float | None, str]]:
        words = words_of(self.model, given, free) if self.score == "within-word" else None
        log_probs = pseudo_likelihood(self.model, tokens, free, words=words, advance=advance)
        for row, scored in zip(log_probs, free, strict=True):
            yield sum(row[scored].tolist()), None, "exact"

    def _bounds(
        self, keys: Tensor, tokens: Tensor, free: Tensor, advance: Advance
    ) -> Iterator[tuple[float, float | None, str]]:
        for one in random_order_likelihoods(
            self.model, tokens, free, samples=self.samples, orders=0, seed=self.seed,
            keys=keys, advance=advance,
        ):  # fmt: skip
            yield -one.bound.value, one.bound.standard_error, one.bound.kind

    def _exact(self, tokens: Tensor, free: Tensor) -> Iterator[Answer]:
        assert isinstance(self.model, CausalLM)  # others have no exact figure
        log_probs, best = self.model.token_log_probs(tokens)
        for each, largest, there in zip(log_probs, best, free, strict=True):
            if bool(each[there].isnan().any()):
                raise GlauberError(
                    f"{self.model.name} has no opening token: a text without a context has no "
                    "likelihood."
                )
            greedy = bool(largest[there].all())
            yield Answer(sum(each[there].tolist()), "exact", None, int(there.sum()), greedy)


def is_greedy(model: Conditionals, tokens: Tensor, free: Tensor) -> list[bool]:
    """Whether filling the free sites from left to right with the likeliest token writes the text.

    tokens and free (rows, length). Site after site, as long as the text is the one written.
    """
    column = torch.arange(free.shape[1])
    n = free.sum(dim=1)
    sites = (~free).long().argsort(dim=1, stable=True).masked_fill(column >= n[:, None], PAD)
    found = torch.ones(len(tokens), dtype=torch.bool)
    for place in range(int(n.max())):
        rows = (found & (n > place)).nonzero()[:, 0]
        if len(rows):
            found[rows] = likeliest(model, tokens, rows, sites[rows, place : int(n.max())])
    return found.tolist()


def figure_named(model: Model, asked: str) -> str:
    """The figure that a model can give."""
    causal = isinstance(model, CausalLM)
    if not causal and not model.whole_vocabulary:
        raise GlauberError(f"{model.name} does not score the whole vocabulary at a hidden site.")
    chosen = ("exact" if causal else "pll") if asked == "auto" else asked
    if causal and chosen != "exact":
        raise GlauberError(
            f"{model.name} is autoregressive: its log-likelihood is exact, and {asked} is for "
            "masked models."
        )
    if chosen == "exact" and not causal:
        raise GlauberError(
            f"{model.name} is masked and has no exact log-likelihood: take pll, within-word or "
            "bound."
        )
    return chosen
