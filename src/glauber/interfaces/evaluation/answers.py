"""The scores of a masked model where log p(continuation | context) is asked for.

A masked model has no such number; it has these:

pll          sum over the continuation's tokens of log pi(token | all others), each hidden alone and
             the context visible. Exact up to rounding, and not the logarithm of a distribution.
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

from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.progress import Advance, say, track
from glauber.foundation.study import counted
from glauber.models.base import PAD, Conditionals, Model
from glauber.models.causal_lm import CausalLM
from glauber.studies.compatibility.likelihood_bound import (
    SAMPLES,
    random_order_likelihoods,
    row_count,
)
from glauber.studies.compatibility.pseudo_likelihood import likeliest, pseudo_likelihood
from glauber.texts.continuations import Continuation, keys_of, laid_out, words_of

SCORES = {
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
BATCH = 512  # texts in one pass, by default


@dataclass(frozen=True)
class Answer:
    """The score of one text after its context, in nats."""

    value: float
    kind: str  # exact or estimate
    standard_error: float | None  # of an estimate
    tokens: int  # that were scored
    greedy: bool


def sum_answers(answers: Sequence[Answer]) -> Answer:
    """The sum over parts of one text, whose errors are independent."""
    errors = [part.standard_error for part in answers if part.standard_error is not None]
    return Answer(
        sum(part.value for part in answers),
        "estimate" if any(part.kind == "estimate" for part in answers) else "exact",
        math.hypot(*errors) if errors else None,
        sum(part.tokens for part in answers),
        all(part.greedy for part in answers),
    )


NOTHING = Answer(0.0, "exact", None, 0, True)  # a text without tokens has probability 1


@dataclass(frozen=True)
class ContinuationScorer:
    """A score of a model; the answers depend on each text alone."""

    model: Model
    name: str  # of SCORES
    samples: int = SAMPLES
    seed: int = 0
    batch_size: int | None = None

    def __call__(
        self, continuations: Sequence[Continuation], *, whole_texts: bool = False
    ) -> list[Answer]:
        """The answer of each, in batches of similar length.

        Whole texts are averaged over and not compared: their noise is independent, and whether
        they are greedy is not computed.
        """
        n = len(continuations)
        if empty := sum(not text.own for text in continuations):
            message = f"{empty} of {counted(n, 'text')} without tokens: the score is 0."
            warnings.warn(message, GlauberWarning, stacklevel=3)
        order = [number for number, text in enumerate(continuations) if text.own]
        order.sort(key=lambda number: len(continuations[number].pieces))
        answers = dict.fromkeys(range(n), NOTHING)
        rows = sum(self._rows(continuations[number]) for number in order)
        size = self.batch_size or BATCH
        say(f"{counted(len(order), 'text')}: {rows:,} rows through {self.model.name}")
        with track("rows", rows) as advance:
            for first in range(0, len(order), size):
                numbers = order[first : first + size]
                batch = [continuations[number] for number in numbers]
                answers |= zip(numbers, self._batch(batch, whole_texts, advance), strict=True)
        return [answers[number] for number in range(n)]

    def _rows(self, text: Continuation) -> int:
        """Rows through the model that the score takes."""
        if self.name == "bound":
            free = torch.ones(1, len(text.own), dtype=torch.bool)
            return row_count(free, samples=self.samples, orders=0)
        return 1 if self.name == "exact" else len(text.own)

    def _batch(
        self, texts: list[Continuation], whole_texts: bool, advance: Advance
    ) -> Iterator[Answer]:
        """The answers of texts that go through the model together."""
        tokens, free = laid_out(self.model, texts)
        if self.name == "exact":
            yield from self._exact(tokens, free)
            advance(len(texts))
            return
        greedy = [False] * len(texts) if whole_texts else is_greedy(self.model, tokens, free)
        if self.name == "bound":
            keys = keys_of(texts, of="texts" if whole_texts else "contexts")
            scores = self._bounds(keys, tokens, free, advance)
        else:
            scores = self._pseudo(texts, tokens, free, advance)
        for (value, error, kind), scored, best in zip(scores, free, greedy, strict=True):
            yield Answer(value, kind, error, int(scored.sum()), best)

    def _pseudo(
        self, texts: list[Continuation], tokens: Tensor, free: Tensor, advance: Advance
    ) -> Iterator[tuple[float, float | None, str]]:
        word_numbers = words_of(self.model, texts, free) if self.name == "within-word" else None
        log_probs = pseudo_likelihood(self.model, tokens, free, words=word_numbers, advance=advance)
        for row, scored in zip(log_probs, free, strict=True):
            yield sum(row[scored].tolist()), None, "exact"

    def _bounds(
        self, keys: Tensor, tokens: Tensor, free: Tensor, advance: Advance
    ) -> Iterator[tuple[float, float | None, str]]:
        likelihoods = random_order_likelihoods(
            self.model,
            tokens,
            free,
            samples=self.samples,
            orders=0,
            seed=self.seed,
            keys=keys,
            advance=advance,
        )
        for likelihood in likelihoods:
            bound = likelihood.bound
            yield -bound.value, bound.standard_error, bound.kind

    def _exact(self, tokens: Tensor, free: Tensor) -> Iterator[Answer]:
        assert isinstance(self.model, CausalLM)  # others have no exact score
        log_probs, best = self.model.token_log_probs(tokens)
        for each, largest, scored in zip(log_probs, best, free, strict=True):
            if bool(each[scored].isnan().any()):
                raise GlauberError(
                    f"{self.model.name} has no opening token: a text without a context has no "
                    "likelihood."
                )
            greedy = bool(largest[scored].all())
            yield Answer(sum(each[scored].tolist()), "exact", None, int(scored.sum()), greedy)


def is_greedy(model: Conditionals, tokens: Tensor, free: Tensor) -> list[bool]:
    """Whether filling the free sites from left to right with the likeliest token writes the text.

    tokens and free (rows, length). Site after site, as long as the text is the one written.
    """
    column = torch.arange(free.shape[1])
    n = free.sum(dim=1)
    sites = (~free).long().argsort(dim=1, stable=True).masked_fill(column >= n[:, None], PAD)
    greedy = torch.ones(len(tokens), dtype=torch.bool)
    for number in range(int(n.max())):
        rows = (greedy & (n > number)).nonzero()[:, 0]
        if len(rows):
            greedy[rows] = likeliest(model, tokens, rows, sites[rows, number : int(n.max())])
    return greedy.tolist()


def choose_score(model: Model, name: str) -> str:
    """The score of that name, if the model has it; auto: pll or exact."""
    causal = isinstance(model, CausalLM)
    if not causal and not model.whole_vocabulary:
        raise GlauberError(f"{model.name} does not score the whole vocabulary at a hidden site.")
    chosen = ("exact" if causal else "pll") if name == "auto" else name
    if causal and chosen != "exact":
        raise GlauberError(
            f"{model.name} is autoregressive: its log-likelihood is exact, and {name} is for "
            "masked models."
        )
    if chosen == "exact" and not causal:
        raise GlauberError(
            f"{model.name} is masked and has no exact log-likelihood: take pll, within-word or "
            "bound."
        )
    return chosen
