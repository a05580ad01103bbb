"""Does a topic come back? Chains from other topics, and how often they visit the tracked one.

Baseline: 1 / labels, the score of a scorer that knows nothing. A chain crosses where one snapshot
lies at or below it and the next above. What happens between snapshots is not seen, so the crossings
that are counted are a lower bound on those of every step. An episode is a row of snapshots on one
side of the baseline. One that was on at the first snapshot is left out, since its beginning was not
seen; one that is still on at the last is censored.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from glauber.conditionals.starts import passages
from glauber.errors import GlauberError
from glauber.landscape.scorers import TopicScores, place_of
from glauber.runs.run import Run
from glauber.statistics import (
    Mean,
    MedianTime,
    mean_over_chains,
    median_time_by_chain,
    share_interval,
)

ALL = "all"


@dataclass(frozen=True)
class SeedRow:
    """The chains that began with one topic; scores are means over them, with intervals."""

    seed: str
    n_chains: int
    tracked_start: Mean
    tracked_end: Mean
    rise: Mean
    seed_start: Mean | None  # none where the seed is not one of the labels
    seed_end: Mean | None
    crossed: int  # chains that ever crossed the baseline upwards, as far as snapshots show
    crossed_interval: tuple[float, float]  # of that share, Clopper and Pearson
    crossings: Mean  # a chain
    peak: float  # the highest score at a snapshot, over all chains
    peak_at: tuple[int, int]  # its chain and step
    mean_peak: Mean  # the highest of each chain
    dwell: MedianTime  # steps above the baseline once there
    away: MedianTime  # steps until the return, once left

    def line(self) -> str:
        own = "-"
        if self.seed_start is not None and self.seed_end is not None:
            own = f"{self.seed_start.value:.3f} -> {self.seed_end.value:.3f}"
        low, high = self.crossed_interval
        return (
            f"{self.seed:>12}  {self.n_chains:>6}  {self.tracked_start.value:>6.3f} "
            f"{self.tracked_end.value:>6.3f}  {own:>14}  "
            f"{self.crossed:>3} ({low:>4.0%} to {high:>4.0%})  {self.peak:>5.3f}  "
            f"{_time(self.dwell):>5} {_time(self.away):>5}"
        )


@dataclass(frozen=True)
class Recurrence:
    """The table of one tracked topic under one scorer."""

    track: str
    baseline: float
    scorer: str
    every: int
    n_steps: int
    rows: list[SeedRow]  # a row a seed topic, and all chains together
    labels: list["LabelRow"]  # the same crossings of every label: is the tracked one special?
    kind: str = "estimate"

    def lines(self) -> Iterable[str]:
        """The table for the terminal."""
        yield (
            f"{self.track} by {self.scorer}; baseline {self.baseline:.3f}, snapshots every "
            f"{self.every} steps up to {self.n_steps:,} (estimates, 95% intervals in --json)"
        )
        yield (
            f"{'began with':>12}  chains  {'start':>6} {'end':>6}  {'own topic':>14}  "
            f"{'crossed (95%)':<18}  {'peak':>5}  {'dwell':>5} {'away':>5}"
        )
        yield from (row.line() for row in self.rows)
        crossed = sorted(self.labels, key=lambda row: -row.crossed)
        yield "chains that crossed the baseline, by label: " + ", ".join(
            f"{row.label} {row.crossed} of {row.n_chains}" for row in crossed
        )


@dataclass(frozen=True)
class LabelRow:
    """How many of all chains crossed the baseline of one label."""

    label: str
    n_chains: int
    began_below: int  # chains that could cross at once
    crossed: int
    interval: tuple[float, float]  # of the share, Clopper and Pearson


def recurrence(found: TopicScores, track: str, *, seeds: Sequence[str] | None = None) -> Recurrence:
    """The table; seeds names each chain's starting topic (without it: all chains together)."""
    n_chains = len(found.values)
    place_of(track, found.labels)
    check_several(n_chains)
    if seeds is not None and len(seeds) != n_chains:
        raise GlauberError(f"there are {len(seeds)} seed topics for {n_chains} chains.")
    names = list(dict.fromkeys(seeds or ()))
    rows = [
        _row(found, track, seed=name, chains=np.nonzero(np.array(seeds) == name)[0])
        for name in names
    ]
    rows.append(_row(found, track, seed=ALL, chains=np.arange(n_chains)))
    last = int(found.steps[-1])
    labels = [_label_row(found, label) for label in found.labels]
    return Recurrence(track, found.baseline, found.scorer, found.every, last, rows, labels)


def _label_row(found: TopicScores, label: str) -> LabelRow:
    above = found.of(label) > found.baseline
    crossed = int((~above[:, :-1] & above[:, 1:]).any(axis=1).sum())
    n = len(above)
    return LabelRow(label, n, int((~above[:, 0]).sum()), crossed, share_interval(crossed, n))


def _time(median: MedianTime) -> str:
    return "open" if median.value is None else f"{median.value:,.0f}"


def check_several(n_chains: int) -> None:
    """Refuses a single chain, which says nothing of how chains differ."""
    if n_chains < 2:
        raise GlauberError("there is one chain only, but a recurrence table needs several.")


def _row(found: TopicScores, track: str, *, seed: str, chains: NDArray[np.int64]) -> SeedRow:
    tracked = found.of(track)[chains]
    own = found.of(seed)[chains] if seed in found.labels else None
    above = tracked > found.baseline
    ups = (~above[:, :-1] & above[:, 1:]).sum(axis=1)
    crossed = int((ups > 0).sum())
    best = np.unravel_index(tracked.argmax(), tracked.shape)
    return SeedRow(
        seed=seed,
        n_chains=len(chains),
        tracked_start=_share(tracked[:, 0]),
        tracked_end=_share(tracked[:, -1]),
        rise=mean_over_chains(tracked[:, -1] - tracked[:, 0], bounds=(-1, 1)),
        seed_start=None if own is None else _share(own[:, 0]),
        seed_end=None if own is None else _share(own[:, -1]),
        crossed=crossed,
        crossed_interval=share_interval(crossed, len(chains)),
        crossings=mean_over_chains(ups, bounds=(0, np.inf)),
        peak=float(tracked.max()),
        peak_at=(int(chains[best[0]]), int(found.steps[best[1]])),
        mean_peak=_share(tracked.max(axis=1)),
        dwell=episodes(above, found.every).median(),
        away=episodes(~above, found.every).median()
        if above.any()
        else MedianTime(None, (None, None)),
    )


@dataclass(frozen=True, eq=False)
class Episodes:
    """Their lengths in steps, to within one gap between snapshots."""

    steps: NDArray[np.float64]  # (episodes,)
    ended: NDArray[np.bool_]  # (episodes,): false where the snapshots ended first
    chain: NDArray[np.int64]  # (episodes,)
    n_chains: int

    def median(self) -> MedianTime:
        """The Kaplan-Meier median, with an interval over chains."""
        return median_time_by_chain(self.steps, self.ended, self.chain)


def episodes(above: NDArray[np.bool_], every: int) -> Episodes:
    """The episodes (chains, snapshots) for which `above` holds, entered while looking."""
    steps, ended, chains = [], [], []
    for chain, row in enumerate(above):
        turns = np.nonzero(np.diff(row.astype(np.int8)))[0] + 1  # first snapshots on a new side
        bounds = [*turns.tolist(), len(row)]
        for begin, end in pairwise(bounds):
            if row[begin]:
                steps.append((end - begin) * every)
                ended.append(end < len(row))
                chains.append(chain)
    return Episodes(
        np.array(steps, np.float64), np.array(ended, bool), np.array(chains, int), len(above)
    )


def _share(values: NDArray[np.float64]) -> Mean:
    """The mean of scores (chains,); its interval ends where scores do, at 0 and 1."""
    return mean_over_chains(values, bounds=(0, 1))


@dataclass(frozen=True)
class Agreement:
    """Two scorers on the same texts."""

    scorers: tuple[str, str]
    same_label: float  # share of texts with the same highest label
    rank_correlation: float | None  # Spearman's, of the tracked scores; none where one is constant
    kind: str = "estimate"


def agreement(first: TopicScores, second: TopicScores, track: str) -> Agreement:
    """How far two scorers say the same of a run."""
    if first.labels != second.labels or not np.array_equal(first.steps, second.steps):
        raise GlauberError("two scorers can be compared on the same labels and snapshots only.")
    same = first.values.argmax(axis=2) == second.values.argmax(axis=2)
    one, other = first.of(track).ravel(), second.of(track).ravel()
    constant = np.ptp(one) == 0 or np.ptp(other) == 0
    rank = None if constant else float(spearmanr(one, other).statistic)
    return Agreement((first.scorer, second.scorer), float(same.mean()), rank)


def seeds_of(run: Run) -> list[str] | None:
    """The topic of the bundled passage that each chain began from; none if one began elsewhere."""
    known = [(_letters(text), topic) for topic, text in passages()]
    prefix = len(_letters(run.spec.prefix))
    found = []
    for row in run.tokens(0):
        start = _letters(run.vocabulary.decode(row))[prefix:]
        match = next((topic for text, topic in known if start and text.startswith(start)), None)
        if match is None:
            return None
        found.append(match)
    return found


def _letters(text: str) -> str:
    """The letters and digits alone, so that spaces and case do not matter."""
    return "".join(letter for letter in text.lower() if letter.isalnum())
