"""Does a topic come back? Chains from other topics, and how often they visit the tracked one.

Baseline: 1 / labels, the score of a scorer that knows nothing. A chain crosses where one look lies
at or below it and the next above. What happens between looks is not seen, so the crossings that
are counted are a lower bound on those of every step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from glauber.conditionals.starts import passages
from glauber.errors import GlauberError
from glauber.landscape.stretches import stretches
from glauber.landscape.topics import TopicScores, place_of, score_mean
from glauber.runs.run import Run
from glauber.statistics import Mean, MedianTime, mean_over_chains, share_interval

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
    crossed: int  # chains that ever crossed the baseline upwards, as far as looks show
    crossed_interval: tuple[float, float]  # of that share, Clopper and Pearson
    crossings: Mean  # a chain
    peak: float  # the highest score at a look, over all chains
    peak_at: tuple[int, int]  # its chain and step
    mean_peak: Mean  # the highest of each chain
    dwell: MedianTime  # steps above the baseline once there
    away: MedianTime  # steps until the return, once left


@dataclass(frozen=True)
class Recurrence:
    """The table of one tracked topic under one scorer."""

    track: str
    baseline: float
    scorer: str
    every: int
    n_steps: int
    rows: list[SeedRow]  # a row a seed topic, and all chains together
    kind: str = "estimate"


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
    return Recurrence(track, found.baseline, found.scorer, found.every, last, rows)


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
        tracked_start=score_mean(tracked[:, 0]),
        tracked_end=score_mean(tracked[:, -1]),
        rise=mean_over_chains(tracked[:, -1] - tracked[:, 0]),
        seed_start=None if own is None else score_mean(own[:, 0]),
        seed_end=None if own is None else score_mean(own[:, -1]),
        crossed=crossed,
        crossed_interval=share_interval(crossed, len(chains)),
        crossings=mean_over_chains(ups.astype(np.float64)),
        peak=float(tracked.max()),
        peak_at=(int(chains[best[0]]), int(found.steps[best[1]])),
        mean_peak=score_mean(tracked.max(axis=1)),
        dwell=stretches(above, found.every).median(),
        away=stretches(~above, found.every).median()
        if above.any()
        else MedianTime(None, (None, None)),
    )


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
        raise GlauberError("two scorers can be compared on the same labels and looks only.")
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
