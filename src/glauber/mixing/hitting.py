"""When does the distance from the start first reach a threshold?

A chain that has not reached it by the end of its run is censored: its time is known to be later.
Leaving such chains out would make slow mixing look fast, so they stay in everywhere.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.mixing.drift import Distances, Embed, blocks, check_looks
from glauber.runs.run import Run
from glauber.statistics import MedianTime, median_time

LOOKS = 8  # embedded together: a chain that hits early in a block costs no more than these


@dataclass(frozen=True, eq=False)
class HittingTimes:
    """First looks at or above a threshold; the time itself lies in (step - every, step]."""

    steps: NDArray[np.int64]  # (chains,): of the first such look, or of the last look at all
    hit: NDArray[np.bool_]  # (chains,): false where the chain is censored
    every: int
    threshold: float

    @property
    def n_hit(self) -> int:
        return int(self.hit.sum())

    @property
    def median(self) -> MedianTime:
        """Their median, with the censored chains kept."""
        return median_time(self.steps, self.hit)

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Each time lies above the first and at most at the second, (chains,); inf if censored."""
        low = np.where(self.hit, self.steps - self.every, self.steps).astype(np.float64)
        return low, np.where(self.hit, self.steps, np.inf)


def hitting_times(found: Distances, threshold: float) -> HittingTimes:
    """The second protocol's times: first looks with a distance of at least the threshold."""
    check_threshold(threshold)
    above = found.values >= threshold
    hit = np.asarray(above.any(axis=1))
    steps = np.where(hit, found.steps[above.argmax(axis=1)], found.steps[-1])
    return HittingTimes(steps, hit, found.every, threshold)


def first_passages(run: Run, embed: Embed, threshold: float, *, every: int = 1) -> HittingTimes:
    """The same times from a stored run, embedding a chain's texts only until it has hit."""
    check_threshold(threshold)
    check_looks(run, every)
    waiting = np.arange(run.n_chains)
    steps, hit = np.full(run.n_chains, run.steps // every * every), np.zeros(run.n_chains, bool)
    start = np.asarray(embed([run.vocabulary.decode(row) for row in run.tokens(0)]), np.float64)
    for block in blocks(run, every, LOOKS):
        texts = [run.vocabulary.decode(tokens[chain]) for _, tokens in block for chain in waiting]
        vectors = np.asarray(embed(texts), np.float64).reshape(len(block), len(waiting), -1)
        above = 1 - (vectors * start[waiting]).sum(axis=2) >= threshold  # (looks, waiting)
        now = np.asarray(above.any(axis=0))
        when = np.array([step for step, _ in block])[above.argmax(axis=0)]
        steps[waiting[now]], hit[waiting[now]] = when[now], True
        waiting = waiting[~now]
        if len(waiting) == 0:
            break
    return HittingTimes(steps, hit, every, threshold)


def check_threshold(threshold: float) -> None:
    """Refuses a distance that is passed at once or never."""
    if not 0 < threshold <= 2:
        raise GlauberError(
            f"the threshold is {threshold}, but 1 - cosine lies between 0 and 2, and a threshold "
            "must be above 0."
        )
