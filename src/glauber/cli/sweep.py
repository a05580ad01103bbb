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
