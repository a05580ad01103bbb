"""The distance of the texts' meaning from the start: where it stays, and when it got there.

d_t = 1 - cos(e(x_0), e(x_t)) for a sentence embedding e: 0 at the start; it rises until the start
is forgotten, and then stays at a level that two unrelated texts of the chain would have. Where no
embedding reads the texts, e compares tokens, and d_t is the share of free sites that differ.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Device, Trust
from glauber.foundation.statistics import (
    MIN_CHAINS,
    Estimate,
    MedianTime,
    jackknife,
    mean_over_chains,
    median_time,
)
from glauber.foundation.study import Result, counted, reported, study
from glauber.runs.embedding import Choice, Embedder, as_embedder, check_embedder, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots, stride

if TYPE_CHECKING:
    import plotly.graph_objects as go

Floats = NDArray[np.float64]
MIN_SNAPSHOTS = 8  # that a saturation level needs
MARGIN = 0.1  # of the level: what the distance may still rise over half of the run and be settled
STILL = 1e-6  # distances of equal texts differ by rounding
TOO_FEW = "too few snapshots for a saturation level: take more, or make the run longer"
# Snapshots embedded together: a chain that hits early in a block costs no more than these.
BLOCK = 8


def check_threshold(name: str, value: float) -> None:
    """Refuses a distance that is passed at once or never."""
    if not 0 < value <= 2:
        raise GlauberError(
            f"{name} is {value}, but 1 - cosine lies between 0 and 2, and a threshold must be "
            "above 0."
        )


@study
def semantic_drift(
    run: Annotated[Run | str | Path, "The run's folder."],
    *,
    embedder: Annotated[
        Choice,
        "A sentence-transformers model, or tokens (default: the one in the package, for English).",
    ] = None,
    every: Annotated[int, "One snapshot every so many steps."] = 50,
    threshold: Annotated[float, "Distance whose hitting time is measured.", check_threshold] = 0.5,
    device: Device = "auto",
    trust_remote_code: Trust = False,
) -> "SemanticDrift":
    """Measure how far a run's texts moved in meaning: saturation level and hitting times.

    The two protocols of paper A (section 6.1, figure 3, and appendix B): the distance from the
    start over time, and the first time that it reaches a threshold, by Kaplan and Meier, with the
    chains that never did counted as censored. Where the embedder cannot read the texts, as with
    proteins, the distance is the share of free sites that have another token, and the answer says
    so.
    """
    stored_run = Run.of(run)
    stride(stored_run, every)
    check_embedder(embedder, stored_run)
    chosen = choose_embedder(
        stored_run, embedder, device=device, trust_remote_code=trust_remote_code
    )
    chosen.check_threshold(threshold)
    moved = distances(stored_run, chosen, every=every)
    enough = len(moved.steps) >= MIN_SNAPSHOTS
    return SemanticDrift(
        run=stored_run.name,
        embedder=chosen.name,
        description=chosen.description,
        temperatures=stored_run.temperatures,
        distances=moved,
        saturation=saturation(moved) if enough else None,
        fitted=fit_saturation(moved) if enough else None,
        times=hitting_times(moved, threshold),
    )


@dataclass(frozen=True, eq=False)
class DriftDistances:
    """The distance from the start, of each chain at each snapshot."""

    steps: NDArray[np.int64]  # (snapshots,): 0, every, 2 every, …
    values: Floats  # (chains, snapshots)
    every: int
    farthest: float = 2.0  # 1 - cosine of opposite embeddings; 1 for the share of sites that differ

    def at(self, step: int) -> Floats:
        """The distances (chains,) at a step: the first protocol of the paper, d at a fixed t."""
        columns = np.nonzero(self.steps == step)[0]
        if len(columns) == 0:
            raise GlauberError(
                f"there is no snapshot after step {step}: there is one every {self.every} steps "
                f"up to {self.steps[-1]}."
            )
        return np.asarray(self.values[:, columns[0]])


@dataclass(frozen=True, eq=False)
class HittingTimes:
    """First snapshots at or above a threshold; the time itself lies in (step - every, step].

    A chain that has not reached it by the end of its run is censored: its time is known to be
    later. Leaving such chains out would make slow mixing look fast, so all of them count.
    """

    steps: NDArray[np.int64]  # (chains,): of the first such snapshot, or of the last one at all
    hit: NDArray[np.bool_]  # (chains,): false where the chain is censored
    every: int
    threshold: float

    @reported
    def n_hit(self) -> int:
        return int(self.hit.sum())

    @reported
    def median(self) -> MedianTime:
        """Their median, with the censored chains included."""
        return median_time(self.steps, self.hit)

    def bounds(self) -> tuple[Floats, Floats]:
        """Each time lies above the first and at most at the second, (chains,); inf if censored."""
        low = np.where(self.hit, self.steps - self.every, self.steps).astype(np.float64)
        return low, np.where(self.hit, self.steps, np.inf)


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

    @reported
    def verdict(self) -> str:
        return {True: "settled", False: "still moving", None: "cannot tell"}[self.settled]

    @reported
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


@dataclass(frozen=True)
class SaturationFit:
    """L (1 - exp(-t / T)), least squares to the mean distance; intervals leave out each chain."""

    level: Estimate  # L
    time: Estimate  # T, in steps
    reason: str = ""  # why the level is not known, where the curve does not bend

    def mean(self, steps: NDArray[np.int64]) -> Floats:
        """The fitted distance at the steps."""
        return np.asarray(self.level.value * -np.expm1(-steps / self.time.value))

    @property
    def line(self) -> str:
        if self.reason:
            return f"no fitted level: {self.reason}"
        return (
            f"fitted L (1 - exp(-t / T)): L {self.level.text()}, T {self.time.text()} steps "
            "(estimates)"
        )


@dataclass(frozen=True, eq=False)
class SemanticDrift(Result):
    """How far the chains of a run moved in meaning, where that stays, and when they got there."""

    run: str
    embedder: str
    description: str  # what a distance is
    temperatures: Floats  # (chains,)
    distances: DriftDistances
    saturation: Saturation | None  # None: too few snapshots
    fitted: SaturationFit | None  # likewise
    times: HittingTimes

    @reported
    def median(self) -> Floats:
        """The median distance over the chains (snapshots,)."""
        return np.asarray(np.median(self.distances.values, axis=0))

    def lines(self) -> Iterable[str]:
        steps, last = self.distances.steps, len(self.distances.steps) - 1
        yield self.description
        yield "median distance from the start (estimates)"
        for i in sorted({round(part * last / 5) for part in range(6)}):
            yield f"{steps[i]:>10,}  {self.median[i]:.3f}"
        if len(np.unique(self.temperatures)) > 1:
            yield "the chains have several temperatures, and the numbers below are of all of them"
        yield TOO_FEW if self.saturation is None else self.saturation.line
        if self.fitted is not None:
            yield self.fitted.line
        yield _time_line(self.times)

    def table(self) -> dict[str, object]:
        """One row per chain and snapshot."""
        n_chains, n = self.distances.values.shape
        return {
            "chain": np.repeat(np.arange(n_chains), n),
            "temperature": np.repeat(self.temperatures, n),
            "step": np.tile(self.distances.steps, n_chains),
            "distance": self.distances.values.ravel(),
        }

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.mixing import plot_semantic_drift

        threshold = self.times.threshold
        return {
            "distance": plot_semantic_drift(
                self.distances, self.saturation, self.fitted, threshold=threshold
            )
        }


def distances(run: Run, embedder: Choice | Embedder = None, *, every: int = 50) -> DriftDistances:
    """The distances of a stored run's chains, with a snapshot every so many steps."""
    texts = snapshots(run, every=every)
    chosen = as_embedder(embedder)
    vectors = chosen.vectors(texts).astype(np.float64)
    apart = 1 - (vectors * vectors[:, :1]).sum(axis=2)
    # Rounding may put the distance of equal texts a little below zero.
    apart = apart.clip(min=0, max=chosen.farthest)
    return DriftDistances(texts.steps, apart, every, chosen.farthest)


def hitting_times(distances: DriftDistances, threshold: float) -> HittingTimes:
    """The second protocol's times: first snapshots with a distance of at least the threshold."""
    above = distances.values >= threshold
    hit = np.asarray(above.any(axis=1))
    steps = np.where(hit, distances.steps[above.argmax(axis=1)], distances.steps[-1])
    return HittingTimes(steps, hit, distances.every, threshold)


def passages_of(
    run: Run, embedder: Choice | Embedder, thresholds: Sequence[float], *, every: int = 1
) -> dict[float, HittingTimes]:
    """The times of several thresholds, embedding a chain's texts until it has hit the highest."""
    stride(run, every)
    chosen = as_embedder(embedder)
    if not chosen.reads_meaning:
        every_distance = distances(run, chosen, every=every)
        return {threshold: hitting_times(every_distance, threshold) for threshold in thresholds}
    shape = (len(thresholds), run.n_chains)
    steps, hit = np.full(shape, run.steps // every * every), np.zeros(shape, bool)
    decode, snapshots = run.vocabulary.decode, run.states(every)
    start = np.asarray(chosen.embed([decode(row) for row in run.tokens(0)]), np.float64)
    while len(waiting := np.flatnonzero(~hit.all(axis=0))):
        if not (block := list(islice(snapshots, BLOCK))):
            break
        texts = [decode(tokens[chain]) for _, tokens in block for chain in waiting]
        vectors = np.asarray(chosen.embed(texts), np.float64).reshape(len(block), len(waiting), -1)
        apart = 1 - (vectors * start[waiting]).sum(axis=2)  # (snapshots, waiting)
        for number, threshold in enumerate(thresholds):
            above = apart >= threshold
            now = above.any(axis=0) & ~hit[number, waiting]
            when = np.array([step for step, _ in block])[above.argmax(axis=0)]
            steps[number, waiting[now]], hit[number, waiting[now]] = when[now], True
    return {
        threshold: HittingTimes(steps[number], hit[number], every, threshold)
        for number, threshold in enumerate(thresholds)
    }


def saturation(distances: DriftDistances, margin: float = MARGIN) -> Saturation:
    """The level of the last half of the snapshots, and whether it still rises there.

    Chains are independent, snapshots of one chain are not: a chain counts by its mean and by the
    rise of the line through its snapshots. The rise is within the margin if its mean less margin
    times the level is below zero, and its mean plus that is above: both are means over chains.
    """
    n = len(distances.steps)
    late, times = distances.values[:, n // 2 :], np.linspace(-0.5, 0.5, n - n // 2)
    levels, rises = late.mean(axis=1), late @ times / (times @ times)
    level = mean_over_chains(levels, bounds=(0.0, distances.farthest), student=True)
    rise = mean_over_chains(rises)
    reason = _why_unknown(late)
    settled = None
    if reason is None and rise.interval is not None:
        below, above = (mean_over_chains(rises + side * levels) for side in (-margin, margin))
        within = (below.interval or (0, 1))[1] < 0 < (above.interval or (-1, 0))[0]
        moving = rise.interval[0] > 0 or rise.interval[1] < 0
        settled = True if within else False if moving else None
    return Saturation(level, rise, margin * level.value, settled, reason)


def fit_saturation(distances: DriftDistances) -> SaturationFit:
    """The level and the time constant of the mean distance over time.

    At each T the best L is linear; T is searched from a tenth of the stride to ten runs. A curve
    that takes longer than the run has not bent enough to show its level.
    """
    steps, last = distances.steps.astype(np.float64), float(distances.steps[-1])
    low, high = np.log([distances.every / 10, 10 * last]).tolist()

    def fit(weights: Floats) -> Floats:
        mean = weights @ distances.values / weights.sum()

        def level(log_time: float) -> tuple[float, float]:
            curve = -np.expm1(-steps / np.exp(log_time))
            best = float(mean @ curve / (curve @ curve))
            return best, float(((mean - best * curve) ** 2).sum())

        grid = np.linspace(low, high, 60)
        near = grid[int(np.argmin([level(at)[1] for at in grid]))]
        reach = grid[1] - grid[0]
        at = minimize_scalar(
            lambda t: level(t)[1], bounds=(near - reach, near + reach), method="bounded"
        ).x
        return np.array([level(at)[0], np.exp(at)])

    both = jackknife(fit, len(distances.values), bounds=(0.0, np.inf))
    level, time = both.item(0), both.item(1)
    reason = ""
    if np.ptp(distances.values, axis=1).max() <= STILL:
        reason = "no chain moved"
    elif time.value > last:
        reason = f"the distance still rises: its time constant is beyond the {last:,.0f} steps"
    return SaturationFit(level, time, reason)


def _why_unknown(late: Floats) -> str | None:
    """Why these distances (chains, snapshots) can show nothing, if so."""
    if len(late) < MIN_CHAINS:
        return f"{MIN_CHAINS} chains at least could show whether that is where distances stay"
    if np.ptp(late, axis=1).max() <= STILL:
        return "no chain moved, and what stands still may leave later"
    return None


def _time_line(times: HittingTimes) -> str:
    line = f"{times.n_hit} of {counted(len(times.hit), 'chain')} reached {times.threshold:g}"
    median = times.median
    if median.value is None:
        return f"{line}; the median time lies beyond the run"
    low, high = ("open" if end is None else f"{end:,.0f}" for end in median.interval)
    ends = f"no interval: {median.reason}" if median.reason else f"95% interval {low} to {high}"
    return (
        f"{line}; median time {median.value:,.0f} steps (Kaplan-Meier estimate, {ends}, "
        f"snapshots {times.every} steps apart)"
    )
