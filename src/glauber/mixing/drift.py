"""How far has the text's meaning moved from where it began?

d_t = 1 - cos(e(x_0), e(x_t)) for a sentence embedding e: 0 at the start; it rises until the start
is forgotten, and then stays at a level that two unrelated texts of the chain would have.
The embedding comes as an argument: any function from texts to unit vectors.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.runs.export import trajectory
from glauber.runs.run import Run
from glauber.statistics import Mean, mean_over_chains

Floats = NDArray[np.float64]
Embed = Callable[[Sequence[str]], NDArray[np.float32]]  # n texts -> (n, d) unit vectors
Listener = Callable[[int, int], None]  # looks done, looks in all
TEXTS = 512  # texts embedded in one call, about


@dataclass(frozen=True, eq=False)
class Distances:
    """The embedding distance from the start, of each chain at each look."""

    steps: NDArray[np.int64]  # (looks,): 0, every, 2 every, …
    values: Floats  # (chains, looks)
    every: int

    def at(self, step: int) -> Floats:
        """The distances (chains,) at a look: the first protocol of the paper, d at a fixed t."""
        found = np.nonzero(self.steps == step)[0]
        if len(found) == 0:
            raise GlauberError(
                f"the distance was not looked at after step {step}: there are looks every "
                f"{self.every} steps up to {self.steps[-1]}."
            )
        return np.asarray(self.values[:, found[0]])


@dataclass(frozen=True)
class Saturation:
    """The level that the distance stays at, and whether it has come to stay."""

    level: Mean  # over the last quarter of the looks
    rise: Mean  # of that quarter over the one before
    settled: bool | None  # no rise that could be told from none; unknown for a single chain

    @property
    def kind(self) -> str:
        """A distance that still rises has shown no more than a lower bound on its level."""
        return "estimate" if self.settled else "lower bound" if self.settled is False else "unknown"


def distances(
    run: Run, embed: Embed, *, every: int = 50, listener: Listener | None = None
) -> Distances:
    """The distances of a stored run's chains, with a look every so many steps."""
    check_looks(run, every)
    total = 1 + run.steps // every
    steps, columns, first = [], [], None
    for block in blocks(run, every, max(1, TEXTS // run.n_chains)):
        texts = [run.vocabulary.decode(row) for _, tokens in block for row in tokens]
        vectors = np.asarray(embed(texts), np.float64).reshape(len(block), run.n_chains, -1)
        first = vectors[0] if first is None else first
        columns += [1 - (look * first).sum(axis=1) for look in vectors]
        steps += [step for step, _ in block]
        if listener is not None:
            listener(len(steps), total)
    # Rounding may put the distance of equal texts a little below zero.
    return Distances(np.array(steps), np.stack(columns, axis=1).clip(min=0), every)


def saturation(found: Distances) -> Saturation:
    """The level of the last quarter of the looks, and whether it still rose over the one before.

    Chains are independent, looks of one chain are not: a chain counts by its mean over a quarter.
    """
    n = len(found.steps)
    if n < 8:
        raise GlauberError(
            f"there are {n} looks, but a saturation level needs at least 8: make the run longer, "
            "or look more often."
        )
    late = found.values[:, -(n // 4) :].mean(axis=1)
    before = found.values[:, -2 * (n // 4) : -(n // 4)].mean(axis=1)
    rise = mean_over_chains(late - before)
    settled = None if rise.interval is None else rise.interval[0] <= 0
    return Saturation(mean_over_chains(late), rise, settled)


def check_looks(run: Run, every: int) -> None:
    """Refuses looks that the run is too short for."""
    if every < 1:
        raise GlauberError(f"every is {every}, but it must be at least 1.")
    if run.steps < every:
        raise GlauberError(
            f"the run {run.folder} has {run.steps} steps, but the looks are {every} steps apart: "
            "make it longer, or look more often."
        )


def blocks(run: Run, every: int, size: int) -> Iterator[list[tuple[int, NDArray[np.int64]]]]:
    """Successive looks (step, tokens (chains, length)), so many together."""
    looks = trajectory(run, every)
    while block := list(islice(looks, size)):
        yield block
