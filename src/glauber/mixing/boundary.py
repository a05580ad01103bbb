"""Where is the boundary between chains that meet and chains that do not, at an equal budget?

A fixed number of steps is fewer sweeps for a longer text, so that a boundary that moves to higher
temperatures with length may only say that longer texts were given less. Each cell keeps the times
of its pairs, so the same pairs answer at equal steps and at equal sweeps: pairs that met later than
the smaller budget count as not met.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glauber.errors import GlauberError
from glauber.mixing.crossover import Crossover, Ends, Scaling, fit, scaling, shown
from glauber.statistics import FEW, MedianTime, mean_over_chains, median_time, share_interval


@dataclass(frozen=True)
class PhaseCell:
    """Pairs at one temperature and length."""

    temperature: float
    length: int
    steps: int
    times: tuple[int, ...]  # (pairs,) the step at which a pair met, or the last one
    met: tuple[bool, ...]  # (pairs,) False: censored

    @property
    def share(self) -> float:
        """The share of pairs that met within the steps."""
        return sum(self.met) / len(self.met)

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the chance to meet."""
        return share_interval(sum(self.met), len(self.met))

    @property
    def median(self) -> MedianTime:
        """The median time to meet, with the censored pairs kept."""
        return median_time(self.times, self.met)

    @property
    def median_sweeps(self) -> float | None:
        """The same median in steps for each token."""
        median = self.median.value
        return None if median is None else median / self.length

    @property
    def short(self) -> str:
        """Pairs that met, and their median time where half did."""
        median = self.median.value
        time = "" if median is None else f", {median:,.0f}"
        return f"{sum(self.met)}/{len(self.met)}{time}"

    def within(self, steps: int) -> "PhaseCell":
        """The same pairs, had they been stopped after so many steps."""
        met = tuple(m and time <= steps for m, time in zip(self.met, self.times, strict=True))
        times = tuple(min(time, steps) for time in self.times)
        return PhaseCell(self.temperature, self.length, min(self.steps, steps), times, met)


@dataclass(frozen=True)
class Boundary:
    """The crossover of each length, where every length has the same budget."""

    equal: Literal["steps", "sweeps"]
    budget: float  # steps, or steps for each token
    crossovers: tuple[Crossover, ...]
    scaling: Scaling | None  # None: fewer than two lengths, or no length shows its crossover

    def stopped(self, cell: PhaseCell) -> PhaseCell:
        """The cell within this budget."""
        steps = self.budget if self.equal == "steps" else self.budget * cell.length
        return cell.within(int(steps + 1e-6))

    @property
    def verdict(self) -> str:
        """Whether the boundary moves to higher temperatures as texts get longer."""
        rises = None if self.scaling is None else self.scaling.rises
        return {True: "rises", False: "falls", None: "cannot tell"}[rises]

    @property
    def line(self) -> str:
        of = "steps" if self.equal == "steps" else "steps a token"
        head = f"at equal {self.equal} ({self.budget:,.4g} {of})"
        if self.scaling is None:
            return f"{head}: too few lengths show a crossover to say how it changes with length"
        found = self.scaling
        low, high = found.sharpening_interval
        widths = shown((None if high is None else -high, None if low is None else -low))
        said = {"rises": "it rises with length", "falls": "it falls with length"}
        if found.rise_interval == (None, None):
            return f"{head}: so few pairs bound no change of the crossover with length"
        width = "is not bounded"
        if (low, high) != (None, None):
            width = f"as n^{-found.sharpening:.2f} ({widths})"
        return (
            f"{head} the crossover temperature goes as n^{found.rise:.2f} "
            f"({shown(found.rise_interval)}): {said.get(self.verdict, self.verdict)}; its width "
            f"{width}; estimates, 95%"
        )


@dataclass(frozen=True)
class ThresholdRatio:
    """How far above the measured crossover the contraction theorem begins to speak.

    The thresholds are of suprema over sampled contexts, so they and the ratio err to the low side.
    """

    length: int
    thresholds: tuple[float, ...]  # of some texts of that length
    threshold: float  # their geometric mean
    ratio: float | None  # to the crossover temperature; None where one of the two is not known
    interval: Ends
    kind: str = "estimate, too low if anything"

    @property
    def line(self) -> str:
        head = f"{self.length} tokens: contraction threshold {self.threshold:.3g}"
        if self.ratio is None:
            return f"{head} ({self.kind}), and no crossover to set it against"
        sure = "" if self.interval == (None, None) else f", {shown(self.interval, '.3g')} at 95%"
        return f"{head}, {self.ratio:.3g} times the crossover temperature ({self.kind}{sure})"


@dataclass(frozen=True)
class PhaseDiagram:
    """All cells, and the boundary at equal steps and at equal sweeps."""

    cells: tuple[PhaseCell, ...]
    at_steps: Boundary
    at_sweeps: Boundary

    @property
    def boundary(self) -> Boundary:
        """The one of the budget that the pairs were given."""
        whole = all(cell.steps == self.at_steps.budget for cell in self.cells)
        return self.at_steps if whole else self.at_sweeps

    @property
    def crossovers(self) -> tuple[Crossover, ...]:
        """Where pairs begin to meet, for each length."""
        return self.boundary.crossovers

    @property
    def scaling(self) -> Scaling | None:
        """How that temperature goes with the length."""
        return self.boundary.scaling

    @property
    def temperatures(self) -> list[float]:
        """Of the cells, each once."""
        return sorted({cell.temperature for cell in self.cells})

    @property
    def lengths(self) -> list[int]:
        """Of the cells, each once."""
        return sorted({cell.length for cell in self.cells})

    def cell(self, temperature: float, length: int) -> PhaseCell | None:
        """The cell there, if it was run."""
        found = [c for c in self.cells if (c.temperature, c.length) == (temperature, length)]
        return found[0] if found else None


def phase_diagram(results: Iterable[Mapping[str, Any]]) -> PhaseDiagram:
    """The diagram of cells given as temperature, length, steps, times and met."""
    cells = tuple(
        PhaseCell(
            float(one["temperature"]), int(one["length"]), int(one["steps"]),
            tuple(one["times"]), tuple(one["met"]),
        )
        for one in results
    )  # fmt: skip
    if not cells:
        raise GlauberError("no cell is finished yet, so there is nothing to draw.")
    steps = min(cell.steps for cell in cells)
    sweeps = min(cell.steps / cell.length for cell in cells)
    return PhaseDiagram(
        cells,
        Boundary("steps", steps, *_boundary([cell.within(steps) for cell in cells])),
        # A hair more, so that 400 / 7 sweeps of 7 tokens are 400 steps.
        Boundary(
            "sweeps",
            sweeps,
            *_boundary([cell.within(int(sweeps * cell.length + 1e-6)) for cell in cells]),
        ),
    )


def _boundary(cells: Sequence[PhaseCell]) -> tuple[tuple[Crossover, ...], Scaling | None]:
    temperatures = [cell.temperature for cell in cells]
    ends = (min(temperatures), max(temperatures))
    fits = []
    for n in sorted({cell.length for cell in cells}):
        row = [cell for cell in cells if cell.length == n]
        met = [(sum(cell.met), len(cell.met)) for cell in row]
        fits.append(fit(n, [cell.temperature for cell in row], met, ends=ends))
    seen = any(one.crossover.temperature is not None for one in fits)
    found = scaling(fits) if seen and len(fits) > 1 else None
    return tuple(one.crossover for one in fits), found


def over_crossover(thresholds: Sequence[float], crossover: Crossover) -> ThresholdRatio:
    """The ratio of the thresholds' geometric mean to the crossover, with its interval.

    On the log scale the two intervals, Student's over texts and the profile likelihood's, are put
    together by their squares on each side (the method of variance estimates recovery).
    """
    given = (crossover.length, tuple(thresholds))
    if crossover.temperature is None or not all(0 < one < np.inf for one in thresholds):
        return ThresholdRatio(*given, float(np.median(thresholds)), None, (None, None))
    mean, middle = mean_over_chains(np.log(thresholds)), float(np.log(crossover.temperature))
    few = len(thresholds) < FEW or mean.interval is None
    low, high = (-np.inf, np.inf) if few else mean.interval or (-np.inf, np.inf)
    cold, hot = (None if end is None else float(np.log(end)) for end in crossover.interval)
    ends: list[float | None] = [None, None]
    if np.isfinite(low) and hot is not None:
        ends[0] = float(np.exp(mean.value - middle - np.hypot(mean.value - low, hot - middle)))
    if np.isfinite(high) and cold is not None:
        ends[1] = float(np.exp(mean.value - middle + np.hypot(high - mean.value, middle - cold)))
    ratio = float(np.exp(mean.value - middle))
    return ThresholdRatio(*given, float(np.exp(mean.value)), ratio, (ends[0], ends[1]))
