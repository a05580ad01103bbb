"""How sure is a figure that all chains together give? Redraw the chains.

Looks of one chain depend on each other, chains do not: so whole chains are redrawn, with
repetition, and the figure is worked out again each time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError

Floats = NDArray[np.float64]
LEVEL = 0.95
RESAMPLES = 200
FEW = 3  # chains that a figure with an error rests on, at least: redrawing one shows no spread
Statistic = Callable[[Floats], Floats]  # how often each chain counts (chains,) -> figures


@dataclass(frozen=True, eq=False)
class Estimate:
    """Figures of any shape, with what a bootstrap over chains says of each.

    A figure is nan where too little was seen for it. standard_error, low and high are none for a
    single chain, and nan where fewer than half of the resamples had the figure or fewer than three
    chains stand behind it.
    """

    value: Floats
    standard_error: Floats | None
    low: Floats | None  # ends of the interval
    high: Floats | None
    kind: str = "estimate"
    level: float = LEVEL

    def part(self, places: Any) -> "Estimate":
        """Some of the figures, chosen as numpy chooses."""
        error, low, high = (
            None if end is None else np.asarray(end[places])
            for end in (self.standard_error, self.low, self.high)
        )
        return Estimate(np.asarray(self.value[places]), error, low, high)

    def only_where(self, enough: NDArray[np.bool_]) -> "Estimate":
        """The same figures, with errors only where enough chains stand behind one."""
        error, low, high = (
            None if end is None else np.where(enough, end, np.nan)
            for end in (self.standard_error, self.low, self.high)
        )
        return Estimate(self.value, error, low, high)


def estimate(
    statistic: Statistic, n_chains: int, *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """The figures of all chains, each counted once, with errors over redrawn chains."""
    value = statistic(np.ones(n_chains))
    if n_chains < 2:
        return Estimate(value, None, None, None)
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(n_chains, np.full(n_chains, 1 / n_chains), size=resamples)
    drawn = np.stack([_redrawn(statistic, row, value.shape) for row in weights.astype(np.float64)])
    kept = np.isfinite(drawn)
    enough = kept.sum(axis=0) * 2 >= resamples
    filled = np.where(kept, drawn, np.nan)
    filled[:, ~enough] = 0.0  # so that no column is empty; these get nan below
    tail = (1 - LEVEL) / 2
    ends = np.nanquantile(filled, [tail, 1 - tail], axis=0)
    parts = (np.nanstd(filled, axis=0, ddof=1), ends[0], ends[1])
    error, low, high = (np.where(enough, part, np.nan) for part in parts)
    return Estimate(value, error, low, high)


def _redrawn(statistic: Statistic, weights: Floats, shape: tuple[int, ...]) -> Floats:
    """The figures of redrawn chains; nan where these chains alone cannot have them."""
    try:
        return statistic(weights)
    except GlauberError:
        return np.full(shape, np.nan)
