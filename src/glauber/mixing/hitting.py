"""When does the distance from the start first reach a threshold?

A chain that has not reached it by the end of its run is censored: its time is known to be later.
Leaving such chains out would make slow mixing look fast, so they stay in everywhere.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import CensoredData, ecdf

from glauber.errors import GlauberError
from glauber.mixing.drift import LEVEL, Distances, Embed, blocks, check_looks
from glauber.runs.run import Run

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

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Each time lies above the first and at most at the second, (chains,); inf if censored."""
        low = np.where(self.hit, self.steps - self.every, self.steps).astype(np.float64)
        return low, np.where(self.hit, self.steps, np.inf)


@dataclass(frozen=True)
class MedianTime:
    """The Kaplan-Meier median; None where fewer than half of the chains are known to have hit."""

    value: float | None
    interval: tuple[float | None, float | None]  # an open end is None
    kind: str = "estimate"
    level: float = LEVEL


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


def median_time(times: HittingTimes) -> MedianTime:
    """The median of the censored times, by Kaplan and Meier, with its interval.

    The interval holds the times at which the log-log band of the survival crosses one half.
    """
    if times.n_hit == 0:
        return MedianTime(None, (None, None))
    data = CensoredData(uncensored=times.steps[times.hit], right=times.steps[~times.hit])
    survival = ecdf(data).sf
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # the band is not defined at 0 and at 1
        band = survival.confidence_interval(LEVEL, method="log-log")
    at, left = survival.quantiles, survival.probabilities
    # Where nobody is left, what k chains that hit together allow at most (Clopper and Pearson).
    together = np.array([(times.steps >= time).sum() for time in at])
    most = np.where(left > 0, left, 1 - ((1 - LEVEL) / 2) ** (1 / together))
    low, high = band.low.probabilities, band.high.probabilities
    ends = np.where(np.isnan(low), left, low), np.where(np.isnan(high), most, high)
    return MedianTime(_first_half(at, left), (_first_half(at, ends[0]), _first_half(at, ends[1])))


def _first_half(times: NDArray[np.float64], survival: NDArray[np.float64]) -> float | None:
    """The first time at which no more than half is left."""
    reached = np.nonzero(survival <= 0.5)[0]
    return float(times[reached[0]]) if len(reached) else None
