"""Has the distance from the start come to stay, does it still rise, or can neither be said?"""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.statistics import MIN_CHAINS, Estimate, mean_over_chains

if TYPE_CHECKING:
    from glauber.mixing.semantic_drift import Distances

Floats = NDArray[np.float64]
FEWEST = 8  # snapshots that a saturation level needs
MARGIN = 0.1  # of the level: what the distance may still rise over half of the run and be settled
STILL = 1e-6  # distances of equal texts differ by rounding


@dataclass(frozen=True)
class Saturation:
    """The level that the distance is at, and whether it has come to stay there.

    settled is an equivalence test: True where the 95% interval of the rise lies within the margin
    on both sides, so that a distance that rises by more is called settled in 5% of cases at most;
    False where the interval excludes zero instead; None where neither can be said.
    """

    level: Estimate  # over the last half of the snapshots
    rise: Estimate  # over these steps, by a line through them
    margin: float  # of the rise, in units of the distance: MARGIN times the level
    settled: bool | None
    reason: str | None = None  # why nothing can be said, where that is not the width of an interval

    @property
    def verdict(self) -> str:
        return {True: "settled", False: "still moving", None: "cannot tell"}[self.settled]

    @property
    def kind(self) -> str:
        """A distance that still rises has shown no more than a lower bound on its level."""
        if self.settled is False:
            return "lower bound" if self.rise.value > 0 else "unknown"
        return "estimate" if self.settled else "unknown"

    @property
    def line(self) -> str:
        """What is known, in one sentence."""
        value, ends = self.level.value, self.level.interval
        shown = "" if ends is None else f", 95% interval {ends[0]:.3f} to {ends[1]:.3f}"
        if self.reason is not None:
            return f"mean of the last half {value:.3f} (estimate); {self.reason}"
        low, high = self.rise.interval or (-np.inf, np.inf)
        rose = f"over the last half it rose by {self.rise.value:.3f} ({low:.3f} to {high:.3f})"
        if self.settled:
            return (
                f"saturation level {value:.3f} (estimate{shown}): {rose}, within the margin of "
                f"{self.margin:.3f}"
            )
        if self.settled is False:
            return f"no saturation yet: {rose}, to a mean of {value:.3f} ({self.kind}{shown})"
        return (
            f"mean of the last half {value:.3f} (estimate{shown}); cannot tell whether it stays: "
            f"{rose}, and settled would be within {self.margin:.3f}"
        )

    def record(self) -> Record:
        return asdict(self) | {"verdict": self.verdict, "kind": self.kind}


def saturation(found: "Distances", margin: float = MARGIN) -> Saturation:
    """The level of the last half of the snapshots, and whether it still rises there.

    Chains are independent, snapshots of one chain are not: a chain counts by its mean and by the
    rise of the line through its snapshots. The rise is within the margin if its mean less margin
    times the level is below zero, and its mean plus that is above: both are means over chains.
    """
    n = len(found.steps)
    if n < FEWEST:
        raise GlauberError(
            f"there are {n} snapshots, but a saturation level needs at least {FEWEST}: make the "
            "run longer, or take them more often."
        )
    late, times = found.values[:, n // 2 :], np.linspace(-0.5, 0.5, n - n // 2)
    levels, rises = late.mean(axis=1), late @ times / (times @ times)
    level = mean_over_chains(levels, bounds=(0.0, found.farthest), student=True)
    rise = mean_over_chains(rises)
    reason = _why_unknown(late)
    settled = None
    if reason is None and rise.interval is not None:
        below, above = (mean_over_chains(rises + side * levels) for side in (-margin, margin))
        within = (below.interval or (0, 1))[1] < 0 < (above.interval or (-1, 0))[0]
        moving = rise.interval[0] > 0 or rise.interval[1] < 0
        settled = True if within else False if moving else None
    return Saturation(level, rise, margin * level.value, settled, reason)


def _why_unknown(late: Floats) -> str | None:
    """Why these distances (chains, snapshots) can show nothing, if so."""
    if len(late) < MIN_CHAINS:
        return f"{MIN_CHAINS} chains at least could show whether that is where distances stay"
    if np.ptp(late, axis=1).max() <= STILL:
        return "no chain moved, and what stands still may leave later"
    return None
