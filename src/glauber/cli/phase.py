"""glauber phase: where in temperature and length the start is forgotten."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.errors import GlauberError

if TYPE_CHECKING:
    from glauber.mixing.phase import PhaseDiagram
    from glauber.sweeps.folder import Sweep

PICTURE = "phase.html"


def phase(
    model: options.Model = "bundled:english",
    source: options.From = None,
    temperatures: Annotated[
        str, typer.Option(help="Temperatures, such as 0.5,1,2.")
    ] = "0.5,1,1.25,1.5,1.75,2,2.5",
    lengths: Annotated[str, typer.Option(help="Tokens of a text, such as 6,10,16.")] = "6,10,16",
    pairs: Annotated[int, typer.Option(help="Pairs of texts in each cell.")] = 12,
    steps: Annotated[int, typer.Option(help="Steps that a pair may take to meet.")] = 400,
    sweeps: Annotated[
        int | None, typer.Option(help="Steps in multiples of the length, instead of --steps.")
    ] = None,
    how: Annotated[str, typer.Option(help="maximal, inverse-cdf or gumbel-max.")] = "maximal",
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    on: options.On = "local",
    workers: options.Workers = None,
    address: options.Address = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder; one begun before is gone on with.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Sweep temperature and length: do two chains meet, how fast, and where is the boundary?"""
    from glauber.cli.numbers import numbers
    from glauber.cli.reading import refuse_int8
    from glauber.conditionals.starts import read_texts
    from glauber.sweeps.folder import Sweep

    refuse_int8(dtype)
    settings = {
        "model": model,
        "device": device,
        "dtype": dtype,
        "texts": None if source is None else read_texts(source),
        "pairs": pairs,
        "budget": steps,
        "sweeps": sweeps,
        "seed": seed,
        "how": how,
    }
    axes: dict[str, list[Any]] = {
        "length": [int(n) for n in numbers(lengths, "lengths", whole=True)],
        "temperature": numbers(temperatures, "temperatures"),
    }
    _check(settings, axes)
    folder = out or Path("sweeps") / f"phase-{Path(model.replace(':', '-')).name}-s{seed}"
    _run(folder, Sweep("coalescence", settings, axes), on, workers, address, json)


def _run(
    folder: Path, sweep: "Sweep", on: str, workers: int | None, address: str | None, json: bool
) -> None:
    from glauber.cli.screen import emit, say
    from glauber.cli.sweep import advance
    from glauber.figures.page import write_picture
    from glauber.mixing.phase import phase_diagram
    from glauber.plots.phase import plot_phase

    found = advance(folder, sweep, on=on, workers=workers, address=address, quiet=json)
    diagram = phase_diagram(found.values())
    write_picture(plot_phase(diagram), path=folder / PICTURE)
    told = _told(diagram) | {"sweep": str(folder), "settings": _brief(sweep.settings)}
    if json:
        emit(told)
        return
    _tell(diagram)
    say(f"the picture is {folder / PICTURE}")


def _check(settings: dict[str, Any], axes: dict[str, list[Any]]) -> None:
    """Refuses what no cell could use, before a model is loaded."""
    from glauber.conditionals.base import check_temperature
    from glauber.mixing.joint_draws import joint_draw_named

    joint_draw_named(settings["how"])
    for temperature in axes["temperature"]:
        check_temperature(temperature)
    budget = settings["budget"] if settings["sweeps"] is None else settings["sweeps"]
    for name, value in (("pairs", settings["pairs"]), ("budget", budget)):
        if value < 1:
            raise GlauberError(f"the {name} is {value}, but it must be at least 1.")
    for length in axes["length"]:
        if length < 1:
            raise GlauberError(f"a length is {length}, but it must be at least 1.")


def _brief(settings: dict[str, Any]) -> dict[str, Any]:
    texts = settings["texts"]
    return settings | {"texts": "bundled" if texts is None else len(texts)}


def _told(diagram: "PhaseDiagram") -> dict[str, Any]:
    from dataclasses import asdict

    cells = [
        asdict(cell)
        | {"share": cell.share, "interval": cell.interval, "median": asdict(cell.median)}
        for cell in diagram.cells
    ]
    return {
        "cells": cells,
        "crossovers": [asdict(one) for one in diagram.crossovers],
        "scaling": None if diagram.scaling is None else asdict(diagram.scaling),
    }


def _tell(diagram: "PhaseDiagram") -> None:
    from rich.table import Table

    from glauber.cli.screen import out

    table = Table("tokens", *(f"{t:g}" for t in diagram.temperatures), title="met, median steps")
    for n in diagram.lengths:
        cells = [diagram.cell(t, n) for t in diagram.temperatures]
        table.add_row(str(n), *("" if c is None else _cell(c) for c in cells))
    out.print(table)
    for one in diagram.crossovers:
        out.print(_crossover_line(one), highlight=False, soft_wrap=True)
    if diagram.scaling is not None:
        found = diagram.scaling
        out.print(
            f"crossover temperature ~ n^{found.rise:.2f} "
            f"({found.rise_interval[0]:.2f} to {found.rise_interval[1]:.2f}), "
            f"width ~ n^{-found.sharpening:.2f} "
            f"({-found.sharpening_interval[1]:.2f} to {-found.sharpening_interval[0]:.2f}): "
            "estimates, 95%",
            highlight=False,
            soft_wrap=True,
        )


def _cell(cell: Any) -> str:
    median = cell.median.value
    time = "" if median is None else f", {median:,.0f}"
    return f"{sum(cell.met)}/{len(cell.met)}{time}"


def _crossover_line(one: Any) -> str:
    if one.temperature is None:
        return f"{one.length} tokens: no crossover within these temperatures"
    low, high = one.interval
    narrow, wide = one.width_interval
    return (
        f"{one.length} tokens: half of the pairs meet at temperature {one.temperature:.3g} "
        f"({low:.3g} to {high:.3g}), width in log temperature {one.width:.2g} "
        f"({narrow:.2g} to {wide:.2g}); estimates, 95%"
    )
