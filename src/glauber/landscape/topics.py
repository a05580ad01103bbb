"""What is the text about, along the run?

A scorer spreads one unit of belief over a list of labels: its scores say which of them a text is
about, supposing that it is about one of them. They do not say whether it is about any.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.mixing.drift import Listener, blocks, check_looks
from glauber.runs.run import Run
from glauber.statistics import Mean, mean_over_chains

Floats = NDArray[np.float64]
TEXTS = 512  # texts scored in one call, about
LOOKS = 50  # of a run, about, where nobody says how often to look


@dataclass(frozen=True)
class Scorer:
    """A named map from texts to scores over labels."""

    name: str
    labels: tuple[str, ...]
    score: Callable[[Sequence[str]], Floats]  # n texts -> (n, labels), rows that sum to one

    @property
    def baseline(self) -> float:
        """The score of each label for a scorer that knows nothing."""
        return 1 / len(self.labels)


@dataclass(frozen=True, eq=False)
class TopicScores:
    """The scores of each chain's text at each look."""

    steps: NDArray[np.int64]  # (looks,): 0, every, 2 every, …
    values: Floats  # (chains, looks, labels), the last axis sums to one
    labels: tuple[str, ...]
    scorer: str
    every: int

    @property
    def baseline(self) -> float:
        return 1 / len(self.labels)

    def of(self, label: str) -> Floats:
        """The scores (chains, looks) of one label."""
        return np.asarray(self.values[:, :, place_of(label, self.labels)])


def topic_scores(
    run: Run,
    scorer: Scorer,
    *,
    every: int | None = None,
    free_only: bool = False,
    listener: Listener | None = None,
) -> TopicScores:
    """The scores along a stored run, with a look every so many steps (default: 50 looks).

    free_only leaves a frozen prefix and frozen sites out of what the scorer reads.
    """
    every = looks_apart(run, every)
    steps, columns = [], []
    for block in blocks(run, every, max(1, TEXTS // run.n_chains)):
        texts = [text for _, tokens in block for text in texts_of(run, tokens, free_only)]
        scores = scorer.score(texts).reshape(len(block), run.n_chains, -1)
        columns += list(scores)
        steps += [step for step, _ in block]
        if listener is not None:
            listener(len(steps), 1 + run.steps // every)
    stacked = np.stack(columns, axis=1)
    return TopicScores(np.array(steps), stacked, scorer.labels, scorer.name, every)


def texts_of(run: Run, tokens: NDArray[np.int64], free_only: bool) -> list[str]:
    """The text of each row of tokens (chains, length), of its free sites alone if so told."""
    rows = zip(tokens, run.free, strict=True)
    return [run.vocabulary.decode(row[free] if free_only else row) for row, free in rows]


def looks_apart(run: Run, every: int | None) -> int:
    """The steps between looks, if the run has room for them."""
    if run.steps == 0:
        raise GlauberError(f"the run {run.folder} has no steps yet: there is nothing to look at.")
    every = max(1, run.steps // LOOKS) if every is None else every
    check_looks(run, every)
    return every


def score_mean(values: Floats) -> Mean:
    """The mean of scores (chains,); its interval ends where scores do, at 0 and 1."""
    return mean_over_chains(values, bounds=(0.0, 1.0))


def check_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels without spaces around them; refuses fewer than two, empty ones and repeats."""
    found = tuple(label.strip() for label in labels)
    if len(found) < 2:
        raise GlauberError("a list of labels needs at least two, or every score would be one.")
    if not all(found) or len(set(found)) < len(found):
        raise GlauberError(f"a label is empty or given twice in {', '.join(found)}.")
    return found


def place_of(label: str, labels: Sequence[str]) -> int:
    """Where a label stands in the list."""
    if label not in labels:
        raise GlauberError(f"{label} is not among the labels: {', '.join(labels)}.")
    return list(labels).index(label)
