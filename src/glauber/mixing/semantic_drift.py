"""How far has the text's meaning moved from where it began, and when did it get there?

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

from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.mixing.saturation import FEWEST, Saturation, saturation
from glauber.parameters import Device, Trust
from glauber.result import Result, counted, plain, signed, study
from glauber.runs.embedding import Choice, Embedder, as_embedder, check_embedder, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots, stride
from glauber.statistics import MedianTime, median_time

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

Floats = NDArray[np.float64]
TOO_FEW = "too few snapshots for a saturation level: take more, or make the run longer"
# Snapshots embedded together: a chain that hits early in a block costs no more than these.
BLOCK = 8


@study
def semantic_drift(
    run: Annotated[Run | str | Path, "The run's folder."],
    *,
    embedder: Annotated[
        Choice,
        "A sentence-transformers model, or tokens (default: the one in the package, for English).",
    ] = None,
    every: Annotated[int, "One snapshot every so many steps."] = 50,
    threshold: Annotated[float, "Distance whose hitting time is measured."] = 0.5,
    device: Device = "auto",
    trust_remote_code: Trust = False,
) -> "SemanticDrift":
    """Measure how far a run's texts moved in meaning: saturation level and hitting times.

    The two protocols of paper A (section 4, figure 3): the distance from the start over time, and
    the first time that it reaches a threshold, by Kaplan and Meier, with the chains that never did
    kept as censored. Where the embedder cannot read the texts, as with proteins, the distance is
    the share of free sites that hold another token, and the answer says so.
    """
    check_threshold(threshold)
    opened = Run.of(run)
    stride(opened, every)
    check_embedder(embedder, opened)
    chosen = choose_embedder(opened, embedder, device=device, trust_remote_code=trust_remote_code)
    found = distances(opened, chosen, every=every)
    return SemanticDrift(
        distances=found,
        saturation=saturation(found) if len(found.steps) >= FEWEST else None,
        times=hitting_times(found, threshold),
        temperatures=opened.temperatures,
        embedder=chosen.name,
        description=chosen.description,
        run=opened.name,
        signature=signed(opened.signature, embedder=chosen.name, every=every),
    )


@dataclass(frozen=True, eq=False)
class Distances:
    """The distance from the start, of each chain at each snapshot."""

    steps: NDArray[np.int64]  # (snapshots,): 0, every, 2 every, …
    values: Floats  # (chains, snapshots)
    every: int
    farthest: float = 2.0  # 1 - cosine of opposite embeddings; 1 for the share of sites that differ

    def at(self, step: int) -> Floats:
        """The distances (chains,) at a step: the first protocol of the paper, d at a fixed t."""
        found = np.nonzero(self.steps == step)[0]
        if len(found) == 0:
            raise GlauberError(
                f"there is no snapshot after step {step}: there is one every {self.every} steps "
                f"up to {self.steps[-1]}."
            )
        return np.asarray(self.values[:, found[0]])


@dataclass(frozen=True, eq=False)
class HittingTimes:
    """First snapshots at or above a threshold; the time itself lies in (step - every, step].

    A chain that has not reached it by the end of its run is censored: its time is known to be
    later. Leaving such chains out would make slow mixing look fast, so they stay in everywhere.
    """

    steps: NDArray[np.int64]  # (chains,): of the first such snapshot, or of the last one at all
    hit: NDArray[np.bool_]  # (chains,): false where the chain is censored
    every: int
    threshold: float

    @property
    def n_hit(self) -> int:
        return int(self.hit.sum())

    @property
    def median(self) -> MedianTime:
        """Their median, with the censored chains kept."""
        return median_time(self.steps, self.hit)

    def bounds(self) -> tuple[Floats, Floats]:
        """Each time lies above the first and at most at the second, (chains,); inf if censored."""
        low = np.where(self.hit, self.steps - self.every, self.steps).astype(np.float64)
        return low, np.where(self.hit, self.steps, np.inf)


@dataclass(frozen=True, eq=False)
class SemanticDrift(Result):
    """How far the chains of a run moved in meaning, where that stays, and when they got there."""

    distances: Distances
    saturation: Saturation | None  # None: too few snapshots
    times: HittingTimes
    temperatures: Floats  # (chains,)
    embedder: str
    description: str  # what a distance is
    run: str
    signature: str

    @property
    def median(self) -> Floats:
        """The median distance over the chains (snapshots,)."""
        return np.asarray(np.median(self.distances.values, axis=0))

    def to_dict(self) -> Record:
        found, level, times = self.distances, self.saturation, self.times
        record = {
            "steps": found.steps,
            "median": self.median,
            "distances": found.values,
            "every": found.every,
            "saturation": None if level is None else level.record(),
            "hitting_time": {
                "threshold": times.threshold,
                "hit": times.n_hit,
                "censored": len(times.hit) - times.n_hit,
                "steps": [s if h else None for s, h in zip(times.steps, times.hit, strict=True)],
                "median": times.median,
            },
            "run": self.run,
            "embedder": self.embedder,
            "distance": self.description,
            "signature": self.signature,
        }
        return dict(plain(record))

    def lines(self) -> Iterable[str]:
        steps, last = self.distances.steps, len(self.distances.steps) - 1
        yield self.description
        yield "median distance from the start (estimates)"
        for i in sorted({round(part * last / 5) for part in range(6)}):
            yield f"{steps[i]:>10,}  {self.median[i]:.3f}"
        if len(np.unique(self.temperatures)) > 1:
            yield "the chains have several temperatures, and the figures below are of all of them"
        yield TOO_FEW if self.saturation is None else self.saturation.line
        yield _time_line(self.times)

    def frame(self) -> "pandas.DataFrame":
        """One row per chain and snapshot."""
        import pandas

        found = self.distances
        n_chains, n = found.values.shape
        return pandas.DataFrame(
            {
                "chain": np.repeat(np.arange(n_chains), n),
                "temperature": np.repeat(self.temperatures, n),
                "step": np.tile(found.steps, n_chains),
                "distance": found.values.ravel(),
            }
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.mixing import plot_semantic_drift

        threshold = self.times.threshold
        return {
            "distance": plot_semantic_drift(self.distances, self.saturation, threshold=threshold)
        }


def distances(run: Run, embedder: Choice | Embedder = None, *, every: int = 50) -> Distances:
    """The distances of a stored run's chains, with a snapshot every so many steps."""
    found = snapshots(run, every=every)
    chosen = as_embedder(embedder)
    vectors = chosen.vectors(found).astype(np.float64)
    apart = 1 - (vectors * vectors[:, :1]).sum(axis=2)
    # Rounding may put the distance of equal texts a little below zero.
    farthest = 2.0 if chosen.reads_meaning else 1.0
    return Distances(found.steps, apart.clip(min=0, max=farthest), every, farthest)


def hitting_times(found: Distances, threshold: float) -> HittingTimes:
    """The second protocol's times: first snapshots with a distance of at least the threshold."""
    check_threshold(threshold)
    above = found.values >= threshold
    hit = np.asarray(above.any(axis=1))
    steps = np.where(hit, found.steps[above.argmax(axis=1)], found.steps[-1])
    return HittingTimes(steps, hit, found.every, threshold)


def first_passages(
    run: Run, embedder: Choice | Embedder, threshold: float, *, every: int = 1
) -> HittingTimes:
    """The same times from a stored run, embedding a chain's texts only until it has hit."""
    return passages_of(run, embedder, (threshold,), every=every)[threshold]


def passages_of(
    run: Run, embedder: Choice | Embedder, thresholds: Sequence[float], *, every: int = 1
) -> dict[float, HittingTimes]:
    """The times of several thresholds, embedding a chain's texts until it has hit the highest."""
    for threshold in thresholds:
        check_threshold(threshold)
    stride(run, every)
    chosen = as_embedder(embedder)
    if not chosen.reads_meaning:
        found = distances(run, chosen, every=every)
        return {threshold: hitting_times(found, threshold) for threshold in thresholds}
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
        for place, threshold in enumerate(thresholds):
            above = apart >= threshold
            now = above.any(axis=0) & ~hit[place, waiting]
            when = np.array([step for step, _ in block])[above.argmax(axis=0)]
            steps[place, waiting[now]], hit[place, waiting[now]] = when[now], True
    return {
        threshold: HittingTimes(steps[place], hit[place], every, threshold)
        for place, threshold in enumerate(thresholds)
    }


def check_threshold(threshold: float) -> None:
    """Refuses a distance that is passed at once or never."""
    if not 0 < threshold <= 2:
        raise GlauberError(
            f"the threshold is {threshold}, but 1 - cosine lies between 0 and 2, and a threshold "
            "must be above 0."
        )


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
