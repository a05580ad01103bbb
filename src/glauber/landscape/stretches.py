"""How long does a chain stay above a level, and how long does it stay away?

A stretch is a run of looks on one side of the level. One that was on when the looks began is left
out, since its beginning was not seen; one that is still on at the end is censored.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from glauber.mixing.survival import LEVEL, MedianTime, median_time

RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Stretches:
    """Their lengths in steps, to within one gap between looks."""

    steps: NDArray[np.float64]  # (stretches,)
    ended: NDArray[np.bool_]  # (stretches,): false where the looks ended first
    chain: NDArray[np.int64]  # (stretches,)
    n_chains: int

    @property
    def n(self) -> int:
        return len(self.steps)

    def median(self, *, seed: int = 0) -> MedianTime:
        """The Kaplan-Meier median, with an interval from resampling chains.

        Stretches of one chain are not independent of each other; chains are.
        """
        if self.n == 0:
            return MedianTime(None, (None, None))
        generator = np.random.Generator(np.random.Philox(seed))
        even = np.full(self.n_chains, 1 / self.n_chains)
        counts = generator.multinomial(self.n_chains, even, size=RESAMPLES)  # (resamples, chains)
        medians = self._medians(counts.astype(np.float64))
        tails = (1 - LEVEL) / 2, (1 + LEVEL) / 2
        low, high = np.quantile(medians, tails, method="inverted_cdf")
        ends = tuple(None if np.isinf(end) else float(end) for end in (low, high))
        return MedianTime(median_time(self.steps, self.ended).value, (ends[0], ends[1]))

    def _medians(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Kaplan-Meier medians (resamples,) with chains as often as counts (resamples, chains)."""
        at = np.unique(self.steps[self.ended])
        if len(at) == 0:
            return np.full(len(counts), np.inf)
        whose = (np.arange(self.n_chains)[:, None] == self.chain).astype(np.float64)
        risk = counts @ (whose @ (self.steps[:, None] >= at))  # (resamples, times)
        gone = counts @ (whose @ ((self.steps[:, None] == at) & self.ended[:, None]))
        left = np.cumprod(1 - gone / np.maximum(risk, 1), axis=1)
        reached = left <= 0.5
        return np.where(reached.any(axis=1), at[reached.argmax(axis=1)], np.inf)


def stretches(above: NDArray[np.bool_], every: int) -> Stretches:
    """The stretches of looks (chains, looks) for which `above` holds, entered while looking."""
    steps, ended, chains = [], [], []
    for chain, row in enumerate(above):
        turns = np.nonzero(np.diff(row.astype(np.int8)))[0] + 1  # first looks on a new side
        bounds = [*turns.tolist(), len(row)]
        for begin, end in pairwise(bounds):
            if row[begin]:
                steps.append((end - begin) * every)
                ended.append(end < len(row))
                chains.append(chain)
    return Stretches(
        np.array(steps, np.float64), np.array(ended, bool), np.array(chains, int), len(above)
    )
