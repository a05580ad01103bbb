"""At which temperature does a text of that length begin to forget its start?

Coupled pairs at each (temperature, length): the share that met within the steps goes from 0 to 1 as
the chain gets hotter. The crossover of a length (mixing/crossover.py) is where half of them meet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glauber.conditionals.base import Conditionals, check_temperature
from glauber.errors import GlauberError
from glauber.mixing.crossover import Crossover, Fit, Scaling, fit, scaling
from glauber.mixing.pairs import joint_draw_named
from glauber.mixing.phase_cells import run_cells
from glauber.parameters import Device, Dtype, Model, Seed, Texts, Trust
from glauber.progress import check_count, check_memory, check_seed, say
from glauber.result import Result, one_of, plain, signature, study
from glauber.statistics import MedianTime, median_time, share_interval
from glauber.tables import table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

STEPS = 10**12  # more than anybody waits for
PLACES = ("local", "processes", "ray")
PICTURE = "phase.html"


@study
def phase(
    model: Model = "bundled:english",
    texts: Texts = None,
    *,
    temperatures: Annotated[Sequence[float], "Temperatures, such as 0.5,1,2."] = (
        0.5,
        1.0,
        1.25,
        1.5,
        1.75,
        2.0,
        2.5,
    ),
    lengths: Annotated[Sequence[int], "Tokens of a text, such as 6,10,16."] = (6, 10, 16),
    pairs: Annotated[int, "Pairs of texts in each cell."] = 12,
    steps: Annotated[int, "Steps that a pair may take to meet."] = 400,
    sweeps: Annotated[int | None, "Steps in multiples of the length, instead of --steps."] = None,
    coupling: Annotated[str, "maximal, inverse-cdf or gumbel-max."] = "maximal",
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
    on: Annotated[str, "local, processes or ray."] = "local",
    workers: Annotated[int | None, "Workers (default: one a core)."] = None,
    address: Annotated[
        str | None, "Address of a Ray cluster (default: one of this machine)."
    ] = None,
    out: Annotated[
        str | Path | None, "Folder that keeps each finished cell; an existing one is resumed."
    ] = None,
) -> "Phase":
    """Find where in temperature and length two chains meet, how fast, and where the boundary is.

    The coupling figure of paper A: the share of pairs that met within the steps and their median
    time (Kaplan and Meier) over temperature and length, the temperature at which half of the pairs
    of a length meet, and how it changes with length. All are estimates with 95% intervals. The
    same pairs of texts stand at every temperature of a length.
    """  # fmt: skip
    axes: dict[str, list[Any]] = {"length": list(lengths), "temperature": list(temperatures)}
    settings = {
        "texts": texts, "pairs": pairs, "steps": steps, "sweeps": sweeps, "seed": seed,
        "coupling": coupling, "device": device, "dtype": dtype,
    }  # fmt: skip
    _check(settings, axes)
    one_of("the place", on, PLACES)
    n_cells = len(axes["length"]) * len(axes["temperature"])
    say(f"{n_cells} cells of {pairs:,} pairs, at most {_most(settings, axes):,} steps each")
    found = run_cells(
        model, settings, axes, on=on, workers=workers, address=address, out=out,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
    name = model if isinstance(model, str) else _name(model)
    made = signature(
        model=name, pairs=pairs, steps=steps if sweeps is None else None, sweeps=sweeps,
        coupling=coupling, dtype=dtype, seed=seed,
    )  # fmt: skip
    diagram = phase_diagram(found)
    answer = Phase(
        **vars(diagram), name=name, folder=None if out is None else str(out), signature=made
    )
    if out is not None:
        from glauber.figures.page import write_picture

        write_picture(answer.figure(), path=Path(out) / PICTURE)
    return answer


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
    def short(self) -> str:
        """Pairs that met, and their median time where half did."""
        median = self.median.value
        time = "" if median is None else f", {median:,.0f}"
        return f"{sum(self.met)}/{len(self.met)}{time}"


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


@dataclass(frozen=True)
class Phase(PhaseDiagram, Result):
    """The phase diagram of a model: where in temperature and length two chains meet."""

    name: str
    folder: str | None  # that keeps the cells
    signature: str

    def to_dict(self) -> dict[str, Any]:
        cells = [
            asdict(cell)
            | {"share": cell.share, "interval": cell.interval, "median": asdict(cell.median)}
            for cell in self.cells
        ]
        record = {
            "model": self.name,
            "cells": cells,
            "crossovers": self.crossovers,
            "scaling": self.scaling,
            "folder": self.folder,
            "signature": self.signature,
        }
        return dict(plain(record))

    def lines(self) -> Iterable[str]:
        yield "pairs that met, and their median steps, by tokens (down) and temperature (across)"
        rows = []
        for n in self.lengths:
            found = {f"{t:g}": self.cell(t, n) for t in self.temperatures}
            rows.append({"tokens": n} | {t: "" if c is None else c.short for t, c in found.items()})
        yield from table(rows)
        for one in self.crossovers:
            yield _crossover_line(one)
        if self.scaling is not None:
            yield _scaling_line(self.scaling)
        if self.folder is not None:
            yield f"the cells are kept in {self.folder}, with the picture {PICTURE}"

    def frame(self) -> "pandas.DataFrame":
        """One row per cell."""
        import pandas

        rows = [
            {
                "length": cell.length, "temperature": cell.temperature, "steps": cell.steps,
                "pairs": len(cell.met), "met": sum(cell.met), "share": cell.share,
                "low": cell.interval[0], "high": cell.interval[1],
                "median_time": cell.median.value,
            }
            for cell in self.cells
        ]  # fmt: skip
        return pandas.DataFrame(rows)

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.mixing import plot_phase

        return {"phase": plot_phase(self)}


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


def _crossover_line(one: Crossover) -> str:
    if one.temperature is None or one.interval is None or one.width_interval is None:
        return f"{one.length} tokens: no crossover within these temperatures"
    low, high = one.interval
    narrow, wide = one.width_interval
    return (
        f"{one.length} tokens: half of the pairs meet at temperature {one.temperature:.3g} "
        f"({low:.3g} to {high:.3g}), width in log temperature {one.width:.2g} "
        f"({narrow:.2g} to {wide:.2g}); estimates, 95%"
    )


def _scaling_line(found: Scaling) -> str:
    low, high = found.rise_interval
    narrow, wide = found.sharpening_interval
    return (
        f"crossover temperature ~ n^{found.rise:.2f} ({low:.2f} to {high:.2f}), width ~ "
        f"n^{-found.sharpening:.2f} ({-wide:.2f} to {-narrow:.2f}): estimates, 95%"
    )


def _name(model: Conditionals) -> str:
    return str(getattr(model, "name", "")) or type(model).__name__


def _most(settings: dict[str, Any], axes: dict[str, list[Any]]) -> int:
    """Steps of the longest cell."""
    if settings["sweeps"] is None:
        return int(settings["steps"])
    return int(settings["sweeps"]) * max(axes["length"])


def _check(settings: dict[str, Any], axes: dict[str, list[Any]]) -> None:
    """Refuses what no cell could use, before a model is loaded."""
    joint_draw_named(settings["coupling"])
    check_seed(settings["seed"])
    for axis, values in axes.items():
        if not values:
            raise GlauberError(f"the grid is empty: no {axis} is given.")
        if len(set(values)) < len(values):
            raise GlauberError(f"the grid names a {axis} twice.")
    for temperature in axes["temperature"]:
        check_temperature(temperature)
    for length in axes["length"]:
        check_count("length", length, most=10**6)
    check_count("number of pairs", settings["pairs"])
    check_count("number of steps", settings["steps"], most=STEPS)
    if settings["sweeps"] is not None:
        check_count("number of sweeps", settings["sweeps"], most=STEPS)
    n_pairs = settings["pairs"] * len(axes["length"]) * len(axes["temperature"])
    check_memory(n_pairs * (40 * max(axes["length"]) + 400), f"{n_pairs:,} pairs of chains")
