"""glauber sweep: how far a sweep is, and going on with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options

if TYPE_CHECKING:
    from collections.abc import Callable

    from glauber.sweeps.folder import Sweep

sweep = typer.Typer(help="See how far a sweep is, and go on with it.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(help="Folder of a sweep.")]


@sweep.command()
def status(folder: Folder, json: options.Json = False) -> None:
    """Say what is finished and what is left."""
    from glauber.cli.screen import emit, out
    from glauber.sweeps.folder import left, read_sweep

    opened = read_sweep(folder)
    missing = left(folder)
    total = len(opened.cells)
    if json:
        emit(
            {
                "sweep": str(folder), "study": opened.study, "cells": total,
                "finished": total - len(missing), "left": [cell.name for cell in missing],
            }
        )  # fmt: skip
        return
    axes = ", ".join(f"{len(values)} x {axis}" for axis, values in opened.axes.items())
    out.print(f"{opened.study}: {axes}", highlight=False)
    out.print(f"{total - len(missing)} of {total} cells are finished", highlight=False)
    for cell in missing:
        out.print(f"  left: {cell.name}", highlight=False)
    if missing:
        out.print(f"go on with: glauber sweep resume {folder}", highlight=False, soft_wrap=True)


@sweep.command()
def resume(
    folder: Folder,
    on: options.On = "local",
    workers: options.Workers = None,
    address: options.Address = None,
    json: options.Json = False,
) -> None:
    """Run the cells that are left; where they run may change, the results do not."""
    from glauber.cli.screen import emit, say
    from glauber.sweeps.folder import read_sweep

    found = advance(folder, read_sweep(folder), on=on, workers=workers, address=address, quiet=json)
    if json:
        emit({"sweep": str(folder), "cells": list(found.values())})
    else:
        say(f"all {len(found)} cells are in {folder}")


def advance(
    folder: Path,
    sweep: "Sweep",
    *,
    on: str,
    workers: int | None,
    address: str | None,
    quiet: bool,
) -> dict[str, dict[str, Any]]:
    """Begins the sweep, or goes on with it, to its end; the results by cell."""
    from glauber.cli.screen import say
    from glauber.sweeps.folder import begin, left
    from glauber.sweeps.run import crew_named, run_sweep

    crew = crew_named(on, workers=workers, address=address)
    begin(folder, sweep)
    missing = len(left(folder))
    if 0 < missing < len(sweep.cells):
        say(f"{len(sweep.cells) - missing} of {len(sweep.cells)} cells are there already")
    with _watched(quiet) as progress:
        return run_sweep(folder, crew=crew, progress=progress)


@contextmanager
def _watched(quiet: bool) -> "Iterator[Callable[[int, int], None] | None]":
    """A progress bar over all cells."""
    if quiet:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from glauber.cli.screen import err

    bar = Progress(
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} cells"),
        BarColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=0)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@sweep.command()
def sample(
    out: Annotated[Path, typer.Option("--out", help="Folder; one begun before is gone on with.")],
    model: options.Model = "bundled:english",
    source: options.From = None,
    temperatures: Annotated[
        str, typer.Option(help="Temperatures, such as 0.5,1,2.")
    ] = "0.3,0.7,1,1.5,2",
    lengths: Annotated[str, typer.Option(help="Tokens of a text, such as 10,20.")] = "10,20",
    chains: Annotated[int, typer.Option(help="Chains of each run.")] = 8,
    steps: options.Steps = 500,
    scan: Annotated[str, typer.Option(help="As in glauber sample.")] = "uniform",
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.DrawingDtype = "float32",
    on: options.On = "local",
    workers: options.Workers = None,
    address: options.Address = None,
    json: options.Json = False,
) -> None:
    """Store a run for each temperature and length, and compare them in one table."""
    from glauber.cli.numbers import numbers
    from glauber.cli.screen import emit
    from glauber.conditionals.starts import read_texts
    from glauber.dynamics.scans import scan_named
    from glauber.errors import GlauberError
    from glauber.sweeps.folder import Sweep

    settings = {
        "model": model, "device": device, "dtype": dtype,
        "texts": None if source is None else read_texts(source),
        "chains": chains, "steps": steps, "scan": scan_named(scan).name, "seed": seed,
    }  # fmt: skip
    if steps < 1:
        raise GlauberError(f"the budget is {steps} steps, but it must be at least 1.")
    axes: dict[str, list[Any]] = {
        "length": numbers(lengths, "lengths", whole=True),
        "temperature": numbers(temperatures, "temperatures"),
    }
    found = advance(
        out,
        Sweep("glauber.sweeps.studies.chains:open_study", settings, axes),
        on=on,
        workers=workers,
        address=address,
        quiet=json,
    )
    if json:
        emit({"sweep": str(out), "cells": list(found.values())})
        return
    _compare(list(found.values()))


def _compare(cells: list[dict[str, Any]]) -> None:
    """The runs of a sweep in one table."""
    from rich.table import Table

    from glauber.cli.screen import out

    table = Table("tokens", "temperature", "changed", "entropy", "kept", "chain 0 ends as")
    for one in cells:
        table.add_row(
            str(one["length"]), f"{one['temperature']:g}", f"{one['changed']:.0%}",
            f"{one['entropy']:.2f}", f"{one['kept']:.0%}", one["text"],
        )  # fmt: skip
    out.print(table)
    out.print("changed: steps that changed a token; entropy: of a redraw, in nats;", style="dim")
    out.print("kept: sites that hold their first token at the end", style="dim")
