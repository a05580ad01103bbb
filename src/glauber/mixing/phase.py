"""At which temperature does a text of that length begin to forget its start?

Coupled pairs at each (temperature, length): the share that met within a budget goes from 0 to 1 as
the chain gets hotter. The crossover of a length (mixing/crossover.py) is where half of them meet.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from glauber.errors import GlauberError
from glauber.mixing.crossover import Crossover, Fit, Scaling, fit, scaling
from glauber.statistics import MedianTime, median_time, share_interval


@dataclass(frozen=True)
class PhaseCell:
    """Pairs at one temperature and length."""

    temperature: float
    length: int
    budget: int
    times: tuple[int, ...]  # (pairs,) the step at which a pair met, or the budget
    met: tuple[bool, ...]  # (pairs,) False: censored

    @property
    def share(self) -> float:
        """The share of pairs that met within the budget."""
        return sum(self.met) / len(self.met)

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the chance to meet."""
        return share_interval(sum(self.met), len(self.met))

    @property
    def median(self) -> MedianTime:
        """The median time to meet, with the censored pairs kept."""
        return median_time(self.times, self.met)


@dataclass(frozen=True)
class PhaseDiagram:
    """All cells, the crossover of each length, and how it changes with length."""

    cells: tuple[PhaseCell, ...]
    crossovers: tuple[Crossover, ...]
    scaling: Scaling | None  # None: fewer than two lengths show their crossover

    @property
    def temperatures(self) -> list[float]:
        return sorted({cell.temperature for cell in self.cells})

    @property
    def lengths(self) -> list[int]:
        return sorted({cell.length for cell in self.cells})

    def cell(self, temperature: float, length: int) -> PhaseCell | None:
        """The cell there, if it was run."""
        found = [c for c in self.cells if (c.temperature, c.length) == (temperature, length)]
        return found[0] if found else None


def phase_diagram(results: Iterable[Mapping[str, Any]]) -> PhaseDiagram:
    """The diagram of cells given as temperature, length, budget, times and met."""
    cells = tuple(
        PhaseCell(
            float(one["temperature"]), int(one["length"]), int(one["budget"]),
            tuple(one["times"]), tuple(one["met"]),
        )
        for one in results
    )  # fmt: skip
    if not cells:
        raise GlauberError("no cell is finished yet, so there is nothing to draw.")
    temperatures = [cell.temperature for cell in cells]
    ends = (min(temperatures), max(temperatures))
    fits = [
        _fit([c for c in cells if c.length == n], ends) for n in sorted({c.length for c in cells})
    ]
    shown = [one for one in fits if one.crossover.temperature is not None]
    return PhaseDiagram(
        cells, tuple(one.crossover for one in fits), scaling(shown) if len(shown) > 1 else None
    )


def _fit(cells: list[PhaseCell], ends: tuple[float, float]) -> Fit:
    return fit(
        cells[0].length,
        [cell.temperature for cell in cells],
        [(sum(cell.met), len(cell.met)) for cell in cells],
        ends=ends,
    )
