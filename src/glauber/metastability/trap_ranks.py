"""Do firm texts hold longer? How the durations of traps rank with their gaps.

Two traps are compared where it is known which lasted longer: the shorter one must have ended. The
figure is Somers' D: the share of those pairs in which the longer one has the larger gap, less the
share in which it has the smaller one (Harrell's C is half of one plus D). A text that came back
has the same gaps each time, and texts a few edits apart have nearly the same: so a text counts
once, however often it was a trap, pairs within a family are left out, and the interval comes from
leaving out each family once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from glauber.errors import GlauberError
from glauber.metastability.episodes import Ints
from glauber.statistics import CONFIDENCE, MIN_CHAINS, Estimate, Floats, jackknife

FEWEST = 4  # families whose ranks are worth comparing


@dataclass(frozen=True)
class RankCorrelation:
    """Somers' D of the traps' durations and another of their figures, from -1 to 1."""

    value: float
    interval: tuple[float, float] | None
    n_traps: int
    n_families: int  # what is independent
    n_pairs: int  # of traps of different families whose order is known
    reason: str = ""  # why there is no interval
    kind: str = "estimate"
    level: float = CONFIDENCE


@dataclass(frozen=True)
class Ranks:
    """How durations rank with the mean gap and with the smallest, and with which better."""

    by_mean_gap: RankCorrelation
    by_min_gap: RankCorrelation
    difference: RankCorrelation  # by the mean gap less by the smallest

    @property
    def better(self) -> str | None:
        """The better predictor; none where the interval of the difference holds zero."""
        ends = self.difference.interval
        if ends is None or ends[0] <= 0 <= ends[1]:
            return None
        return "mean gap" if self.difference.value > 0 else "min gap"


def trap_ranks(
    durations: ArrayLike,
    ended: ArrayLike,
    gaps: Sequence[ArrayLike],
    *,
    text: ArrayLike,
    family: ArrayLike,
    chain: ArrayLike | None = None,
) -> Ranks | None:
    """Somers' D of durations (traps,) with each of two gaps (traps,), and their difference.

    ended (traps,): not where the duration is a lower bound. text and family (traps,) number what
    each trap's text and family is. None for fewer than four families, or where no order is known.
    chain (traps,) says where each was seen: no interval for fewer than three chains.
    """
    lasted, over = np.asarray(durations, np.float64), np.asarray(ended, np.bool_)
    _, which = np.unique(np.asarray(family), return_inverse=True)
    n_families = int(which.max()) + 1 if len(which) else 0
    if n_families < FEWEST:
        return None
    longer = _known_longer(lasted, over) & (which[:, None] != which)
    if not longer.any():
        return None
    _, named, times = np.unique(np.asarray(text), return_inverse=True, return_counts=True)
    weight = longer / times[named][:, None] / times[named]
    pairs = _by_family(weight, which)
    agree = [_by_family(weight * _rises(np.asarray(gap, np.float64)), which) for gap in gaps]
    made = _judged(agree, pairs, n_families)
    counts = len(lasted), n_families, int(longer.sum())
    n_chains = MIN_CHAINS if chain is None else len(np.unique(np.asarray(chain)))
    return Ranks(*(_named(one, counts, n_chains) for one in made))


def _known_longer(durations: Floats, ended: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether the second trap surely lasted longer than the first: (traps, traps)."""
    return (durations[:, None] < durations) & ended[:, None]


def _rises(gaps: Floats) -> Floats:
    """1 where the second's gap is larger, -1 where it is smaller: (traps, traps)."""
    return np.asarray(np.sign(gaps - gaps[:, None]))


def _by_family(values: Floats, which: NDArray[np.int64]) -> Floats:
    """Sums of (traps, traps) over pairs of families: (families, families)."""
    members = np.eye(int(which.max()) + 1)[which]
    return np.asarray(members.T @ values @ members)


def _judged(agree: list[Floats], pairs: Floats, n_families: int) -> list[Estimate]:
    """Both correlations and their difference, with intervals over families."""

    def both(weights: Floats) -> Floats:
        known = weights @ pairs @ weights
        if known <= 0:
            return np.full(2, np.nan)
        return np.array([weights @ one @ weights / known for one in agree])

    def apart(weights: Floats) -> Floats:
        found = both(weights)
        return np.asarray(found[:1] - found[1:])

    each = jackknife(both, n_families, scale="atanh")
    between = jackknife(apart, n_families, bounds=(-2.0, 2.0))
    return [each.item(0), each.item(1), between.item(0)]


def _named(found: Estimate, counts: tuple[int, int, int], n_chains: int) -> RankCorrelation:
    if n_chains < MIN_CHAINS:
        return RankCorrelation(found.value, None, *counts, "traps of fewer than three chains")
    reason = "" if found.interval else f"{counts[1]} families of traps give no interval"
    return RankCorrelation(found.value, found.interval, *counts, reason)


def families(rows: Sequence[Sequence[int]], *, reach: int = 3) -> list[list[int]]:
    """Row numbers grouped so that rows at most `reach` edits apart are together; largest first."""
    if reach < 0:
        raise GlauberError(f"the reach is {reach}, but a number of edits cannot be negative.")
    if not rows:
        return []
    near = csr_array(edit_distances(rows) <= reach)
    count, label = connected_components(near, directed=False)
    groups = [np.flatnonzero(label == one).tolist() for one in range(count)]
    return sorted(groups, key=lambda group: (-len(group), group))


def edit_distances(rows: Sequence[Sequence[int]]) -> Ints:
    """Insertions, deletions and replacements of tokens between each two rows: (rows, rows)."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), int(lengths.max())), -1)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return np.stack([_from_one(row, padded, lengths) for row in rows])


def _from_one(row: Sequence[int], padded: Ints, lengths: Ints) -> Ints:
    """The distances (rows,) of one row to the rows padded (rows, longest)."""
    longest = padded.shape[1]
    before = np.tile(np.arange(longest + 1), (len(padded), 1))  # to each beginning of each row
    for done, token in enumerate(row, start=1):
        now = np.empty_like(before)
        now[:, 0] = done
        for place in range(1, longest + 1):
            replaced = before[:, place - 1] + (padded[:, place - 1] != token)
            moved = np.minimum(before[:, place], now[:, place - 1]) + 1
            now[:, place] = np.minimum(replaced, moved)
        before = now
    return np.asarray(before[np.arange(len(padded)), lengths])
