"""Does the state model tell the future that the chains really had?

If the states keep enough of the text, T(lag)^k = T(k lag): what the model foretells over k lags is
what is counted over k lags. Compared between basins, with errors over redrawn chains.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from glauber.metastability.passage import Assignment
from glauber.metastability.state_model import Labels, kept_law, largest_set, transition_counts
from glauber.statistics import FEW, LEVEL, Estimate, Floats, over_chains

MULTIPLES = (2, 3, 4, 5)


@dataclass(frozen=True, eq=False)
class ChapmanKolmogorov:
    """Chances to go from basin to basin in k lags: foretold and counted."""

    multiples: tuple[int, ...]  # k
    foretold: Estimate  # (multiples, basins, basins)
    counted: Estimate  # the same
    difference: Estimate  # counted less foretold

    @property
    def worst(self) -> float | None:
        """The largest difference in its own standard errors; none for a single chain."""
        error = self.difference.standard_error
        if error is None or not np.isfinite(error).any():
            return None
        off = np.abs(self.difference.value)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(off < 1e-12, 0.0, off / error)  # without spread and without error
        return float(np.nanmax(ratios))

    @property
    def limit(self) -> float:
        """Standard errors that all comparisons together stay within, in 95% of true models."""
        error = self.difference.standard_error
        compared = 1 if error is None else max(1, int(np.isfinite(error).sum()))
        return float(norm.ppf(1 - (1 - LEVEL) / 2 / compared))

    @property
    def holds(self) -> bool | None:
        """Whether nothing speaks against the model; none where one chain cannot tell."""
        return None if self.worst is None else self.worst <= self.limit


def chapman_kolmogorov(
    labels: Labels, basin_of: Assignment, *, lag: int, seed: int = 0
) -> ChapmanKolmogorov | None:
    """The check at 2 to 5 lags, as far as half a chain allows; none where it allows none.

    basin_of (labels,) is the basin of each label, -1 for a label outside the model.
    """
    multiples = tuple(k for k in MULTIPLES if 2 * k * lag <= labels.shape[1])
    if not multiples:
        return None
    states = np.flatnonzero(basin_of >= 0)
    moved = [transition_counts(labels, k * lag) for k in (1, *multiples)]
    counts = [every[:, states[:, None], states] for every in moved]

    def both(weights: Floats) -> Floats:
        return _both([np.tensordot(weights, one, 1) for one in counts], basin_of[states], multiples)

    enough = chains_in(basin_of[labels]) >= FEW
    found = over_chains(both, len(labels), seed=seed).only_where(enough[:, None] & enough)
    return ChapmanKolmogorov(multiples, *(found.part(place) for place in range(3)))


def chains_in(basins: Labels) -> Assignment:
    """How many chains were ever in each basin; basins (chains, looks), -1 for nowhere."""
    return np.array([(basins == basin).any(axis=1).sum() for basin in range(basins.max() + 1)])


def _both(counts: list[Floats], basin: Assignment, multiples: tuple[int, ...]) -> Floats:
    """Foretold, counted and their difference: (3, multiples, basins, basins)."""
    n_basins = int(basin.max()) + 1
    found = np.full((3, len(multiples), n_basins, n_basins), np.nan)
    kept = largest_set(counts[0])
    inside = np.ix_(kept, kept)
    total = counts[0][inside]
    matrix = total / total.sum(axis=1, keepdims=True)
    law, basin = kept_law(matrix), basin[kept]
    members = np.eye(n_basins)[basin]  # (n, basins)
    for row, k in enumerate(multiples):
        later = counts[1 + row][inside]
        seen = later.sum(axis=1)
        weight = members * (law * (seen > 0))[:, None]  # states without a count at k say nothing
        there = weight.sum(axis=0) > 0
        weight = weight[:, there] / weight[:, there].sum(axis=0)
        direct = later / np.maximum(seen, 1)[:, None]
        found[0, row, there] = weight.T @ np.linalg.matrix_power(matrix, k) @ members
        found[1, row, there] = weight.T @ direct @ members
    found[2] = found[1] - found[0]
    return found
