"""Does a topic come back? Chains from other topics, and how often they visit the tracked one.

Baseline: 1 / labels, the score of a scorer that knows nothing. A chain crosses where one snapshot
lies at or below it and the next above. What happens between snapshots is not seen, so the crossings
that are counted are a lower bound on those of every step. An episode is a row of snapshots on one
side of the baseline. One that was on at the first snapshot is left out, since its beginning was not
seen; one that is still on at the last is censored.

That many chains cross says little by itself: with many snapshots almost any label is above the
baseline at one of them. So each label is compared with the others in the same chains, and with
the same snapshots in random order, where no text leads to the next. Whether a label is special is a
permutation test: if labels are exchangeable, swapping them within each chain changes nothing, and
the largest of all labels' deviations is compared with its own distribution under such swaps
(Westfall and Young 1993). So some label is called special by mistake in at most 5% of runs.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import (
    CONFIDENCE,
    Estimate,
    MedianTime,
    clopper_pearson,
    clustered_median_time,
    clustered_proportion,
    mean_over_chains,
    proportion,
)
from glauber.foundation.study import counted
from glauber.runs.run import Run
from glauber.studies.landscape.scorers import TopicScores, place_of
from glauber.texts.starts import passages

ALL = "all"
ORDERS = 999  # random orders of the snapshots, and of the labels
SWAPPED_TOGETHER = 10**6  # random numbers drawn at once
NEVER = MedianTime(None, (None, None))


@dataclass(frozen=True)
class SeedRow:
    """The chains that began with one topic; scores are means over them, with intervals."""

    seed: str
    n_chains: int
    tracked_start: Estimate
    tracked_end: Estimate
    ends: list[float]  # the tracked score of each chain at the end, in the order of the chains
    rise: Estimate
    seed_start: Estimate | None  # none where the seed is not one of the labels
    seed_end: Estimate | None
    seed_change: Estimate | None  # end less start, chain by chain
    crossed: int  # chains that ever crossed the baseline upwards, as far as snapshots show
    crossed_interval: tuple[float, float]  # of that share, Clopper and Pearson
    crossings: Estimate  # a chain
    peak: float  # the highest score at a snapshot, over all chains
    peak_at: tuple[int, int]  # its chain and step
    mean_peak: Estimate  # the highest of each chain
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
        yield ""
        yield (
            f"{'every label':>12}  crossed     of those that began below   in random order  "
            f"stays, random   dwell   away  less the others (p over all labels)"
        )
        yield from (row.line() for row in sorted(self.labels, key=lambda row: -row.crossed))
        tracked = self.of(self.track)
        yield (
            f"{self.track}, share of chains that cross less that of the other labels: "
            f"{tracked.against_others.text()}: {tracked.verdict}"
        )

    def of(self, label: str) -> "LabelRow":
        """The row of one label."""
        return next(row for row in self.labels if row.label == label)


@dataclass(frozen=True)
class LabelRow:
    """Crossings of one label's baseline; the intervals of all labels hold together."""

    label: str
    n_chains: int
    crossed: int  # of all chains
    began_below: int  # chains that could cross at once; the figures below are of these
    share: Estimate  # of them that crossed
    against_others: (
        Estimate  # that share less the mean share of the other labels in the same chains
    )
    against_others_p: float  # of exchangeable labels, two-sided, over all labels together
    random_order: float  # the share if the same snapshots came in random order, a mean
    random_order_p: float  # two-sided, over all labels together (Bonferroni)
    stays: Estimate  # share of the snapshots above that are followed by another one above
    stays_random: float  # the same in random order
    dwell: MedianTime  # steps above the baseline once there
    away: MedianTime  # steps until the return, once left

    @property
    def special(self) -> str:
        """Whether chains come to this label more often than to others."""
        if self.against_others_p > 1 - CONFIDENCE:
            return "not told from the others"
        return "more than the others" if self.against_others.value > 0 else "less than the others"

    @property
    def verdict(self) -> str:
        """The same with its p-value, which accounts for all labels."""
        return f"{self.special} (p {self.against_others_p:.3f})"

    def line(self) -> str:
        return (
            f"{self.label:>12}  {self.crossed:>3} of {self.n_chains:<3}  {self.share.value:>5.0%} "
            f"{_ends(self.share):<14}  {self.random_order:>5.0%} (p {self.random_order_p:.3f})  "
            f"{_percent(self.stays.value)} {_percent(self.stays_random)}  {_time(self.dwell):>6} "
            f"{_time(self.away):>6}  {self.against_others.value:>+6.2f} {self.verdict}"
        )


def _percent(share: float) -> str:
    """A share; a dash where there was nothing to take it of."""
    return "    -" if math.isnan(share) else f"{share:>5.0%}"


def recurrence(
    scores: TopicScores, track: str, *, seeds: Sequence[str] | None = None
) -> Recurrence:
    """The table; seeds names each chain's starting topic (without it: all chains together)."""
    n_chains = len(scores.values)
    place_of(track, scores.labels)
    check_several(n_chains)
    if seeds is not None and len(seeds) != n_chains:
        raise GlauberError(f"there are {len(seeds)} seed topics for {counted(n_chains, 'chain')}.")
    names = list(dict.fromkeys(seeds or ()))
    rows = [
        _row(scores, track, seed=name, chains=np.nonzero(np.array(seeds) == name)[0])
        for name in names
    ]
    rows.append(_row(scores, track, seed=ALL, chains=np.arange(n_chains)))
    last = int(scores.steps[-1])
    labels = label_rows(scores)
    return Recurrence(track, scores.baseline, scores.scorer, scores.every, last, rows, labels)


def label_rows(scores: TopicScores, *, seed: int = 0) -> list[LabelRow]:
    """Every label against the others and against the same snapshots in random order."""
    above = scores.values > scores.baseline  # (chains, snapshots, labels)
    below, count = ~above[:, 0], len(scores.labels)
    crossed = _has_crossed(above)
    shuffled, stay_shuffled, p_values = _in_random_order(above, seed)
    others_p = exchangeable_p_values(crossed, below, seed=seed, orders=ORDERS)
    rows = []
    for number, label in enumerate(scores.labels):
        mine, own = below[:, number], above[:, :, number]
        up, on = int(crossed[mine, number].sum()), own[:, :-1]
        rows.append(
            LabelRow(
                label=label,
                n_chains=len(above),
                crossed=int(crossed[:, number].sum()),
                began_below=int(mine.sum()),
                share=proportion(up, int(mine.sum()), comparisons=count),
                against_others=_against_others(crossed, below, number),
                against_others_p=float(others_p[number]),
                random_order=float(shuffled[number]),
                random_order_p=float(p_values[number]),
                stays=clustered_proportion(
                    (on & own[:, 1:]).sum(axis=1), on.sum(axis=1), comparisons=count
                ),
                stays_random=float(stay_shuffled[number]),
                dwell=episodes(own, scores.every).median(),
                away=episodes(~own, scores.every).median() if own.any() else NEVER,
            )
        )
    return rows


def _has_crossed(above: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which chains (chains, labels) ever came from below to above."""
    return np.asarray((~above[:, :-1] & above[:, 1:]).any(axis=1))


def _against_others(crossed: NDArray[np.bool_], below: NDArray[np.bool_], label: int) -> Estimate:
    """Chain by chain, where a label began below: whether it crossed, less the share of the others
    that began below in the same chain."""
    others = below.copy()
    others[:, label] = False
    fair = below[:, label] & others.any(axis=1)
    theirs = (crossed & others)[fair].sum(axis=1) / others[fair].sum(axis=1)
    count = crossed.shape[1]
    return mean_over_chains(crossed[fair, label] - theirs, bounds=(-1, 1), comparisons=count)


def exchangeable_p_values(
    crossed: NDArray[np.bool_], below: NDArray[np.bool_], *, seed: int = 0, orders: int = ORDERS
) -> NDArray[np.float64]:
    """Two-sided p-values (labels,) of the deviation of each label from the others.

    If the labels of a chain that began below (chains, labels) are exchangeable, each of them is as
    likely to be among those that crossed. Under random swaps within chains the deviation of a
    label has mean 0 and a known variance; its p-value is the share of swaps in which the largest
    deviation of all labels, in standard deviations, is at least as large. With few chains it
    cannot be small: of nine labels and two chains it is at least 1/9.
    """
    eligible = below & (below.sum(axis=1, keepdims=True) > 1)
    n_eligible, n_crossed = eligible.sum(axis=1), (crossed & eligible).sum(axis=1)
    varies = (n_crossed > 0) & (n_crossed < n_eligible)
    if not varies.any():
        return np.ones(crossed.shape[1])
    eligible, n_crossed = eligible[varies], n_crossed[varies, None]
    n_eligible = n_eligible[varies, None]
    share = n_crossed / n_eligible
    scale = n_eligible / (n_eligible - 1)  # less the mean of the others, not of all
    variance = (eligible * share * (1 - share) * scale**2).sum(axis=0)  # (labels,)
    deviation_scale = np.sqrt(np.where(variance > 0, variance, np.inf))

    def deviations(crossings: NDArray[np.bool_]) -> NDArray[np.float64]:
        """In standard deviations (..., labels), of crossings (..., chains, labels)."""
        apart = (crossings - share) * scale * eligible
        return np.asarray(np.abs(apart.sum(axis=-2)) / deviation_scale)

    generator = np.random.Generator(np.random.Philox(seed))
    observed = deviations(crossed[varies])
    larger, together = np.zeros(len(observed)), max(1, SWAPPED_TOGETHER // eligible.size)
    for first in range(0, orders, together):
        shape = min(together, orders - first), *eligible.shape
        keys = np.where(eligible, generator.random(shape), 2.0)
        last = np.take_along_axis(np.sort(keys, axis=2), n_crossed[None] - 1, axis=2)
        largest = deviations(keys <= last).max(axis=1)
        larger += (largest[:, None] >= observed * (1 - 1e-9)).sum(axis=0)
    return np.asarray((1 + larger) / (1 + orders))


def _in_random_order(
    above: NDArray[np.bool_], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Share crossed and share that stays (labels,) if all snapshots behind the first were mixed
    among chains and times; and how likely a share as far out as the observed one then is."""
    generator = np.random.Generator(np.random.Philox(seed))
    start, later = above[:, :1], above[:, 1:]
    flat, below = later.reshape(-1, later.shape[2]), ~start[:, 0]
    shares, stays = [], []
    for _ in range(ORDERS):
        mixed = np.concatenate([start, generator.permutation(flat).reshape(later.shape)], axis=1)
        shares.append(_part(_has_crossed(mixed) & below, below, 0))
        stays.append(_part(mixed[:, :-1] & mixed[:, 1:], mixed[:, :-1], (0, 1)))
    seen, mixed_shares = _part(_has_crossed(above) & below, below, 0), np.stack(shares)
    side = np.minimum((mixed_shares <= seen).sum(axis=0), (mixed_shares >= seen).sum(axis=0))
    p_values = np.minimum(1.0, 2 * (1 + side) / (1 + ORDERS) * above.shape[2])
    return mixed_shares.mean(axis=0), np.stack(stays).mean(axis=0), p_values


def _part(some: NDArray[np.bool_], of: NDArray[np.bool_], axis: Any) -> NDArray[np.float64]:
    return np.asarray(some.sum(axis=axis) / np.maximum(of.sum(axis=axis), 1))


def _ends(mean: Estimate) -> str:
    if mean.interval is None:
        return "(no interval)"
    return f"({mean.interval[0]:.0%} to {mean.interval[1]:.0%})"


def _time(median: MedianTime) -> str:
    return "open" if median.value is None else f"{median.value:,.0f}"


def check_several(n_chains: int) -> None:
    """Refuses a single chain, which says nothing of how chains differ."""
    if n_chains < 2:
        raise GlauberError("there is one chain only, but a recurrence table needs several.")


def _row(scores: TopicScores, track: str, *, seed: str, chains: NDArray[np.int64]) -> SeedRow:
    tracked = scores.of(track)[chains]
    own = scores.of(seed)[chains] if seed in scores.labels else None
    above = tracked > scores.baseline
    ups = (~above[:, :-1] & above[:, 1:]).sum(axis=1)
    crossed = int((ups > 0).sum())
    best = np.unravel_index(tracked.argmax(), tracked.shape)
    return SeedRow(
        seed=seed,
        n_chains=len(chains),
        tracked_start=_share(tracked[:, 0]),
        tracked_end=_share(tracked[:, -1]),
        ends=tracked[:, -1].tolist(),
        rise=mean_over_chains(tracked[:, -1] - tracked[:, 0], bounds=(-1, 1)),
        seed_start=None if own is None else _share(own[:, 0]),
        seed_end=None if own is None else _share(own[:, -1]),
        seed_change=None
        if own is None
        else mean_over_chains(own[:, -1] - own[:, 0], bounds=(-1, 1)),
        crossed=crossed,
        crossed_interval=clopper_pearson(crossed, len(chains)),
        crossings=mean_over_chains(ups, bounds=(0, np.inf)),
        peak=float(tracked.max()),
        peak_at=(int(chains[best[0]]), int(scores.steps[best[1]])),
        mean_peak=_share(tracked.max(axis=1)),
        dwell=episodes(above, scores.every).median(),
        away=episodes(~above, scores.every).median() if above.any() else NEVER,
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
        return clustered_median_time(self.steps, self.ended, self.chain)


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


def _share(values: NDArray[np.float64]) -> Estimate:
    """The mean of scores (chains,); its interval ends where scores do, at 0 and 1."""
    return mean_over_chains(values, bounds=(0, 1))


def seeds_of(run: Run) -> list[str] | None:
    """The topic of the bundled passage that each chain began from; none if one began elsewhere."""
    known = [(_letters(text), topic) for topic, text in passages()]
    prefix = len(_letters(run.spec.prefix))
    topics = []
    for row in run.tokens(0):
        start = _letters(run.vocabulary.decode(row))[prefix:]
        match = next((topic for text, topic in known if start and text.startswith(start)), None)
        if match is None:
            return None
        topics.append(match)
    return topics


def _letters(text: str) -> str:
    """The letters and digits alone, so that spaces and case do not matter."""
    return "".join(letter for letter in text.lower() if letter.isalnum())
