"""How long does a chain stay above a level, and how long does it stay away?

A stretch is a run of looks on one side of the level. One that was on when the looks began is left
out, since its beginning was not seen; one that is still on at the end is censored.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from glauber.statistics import MedianTime, median_time_by_chain


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
        return median_time_by_chain(
            self.steps, self.ended, self.chain, n_chains=self.n_chains, seed=seed
        )


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
