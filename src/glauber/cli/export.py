"""glauber export: a run for other tools."""

from pathlib import Path
from typing import Annotated

import typer

from glauber.cli import options


def export(
    run: options.RunFolder,
    to: Annotated[str, typer.Option("--to", help="arviz, parquet, jsonl or text.")],
    out: Annotated[Path, typer.Option("--out", help="File to write.")],
    every: Annotated[int, typer.Option(help="jsonl: one object every so many steps.")] = 1,
    json: options.Json = False,
) -> None:
    """Write a run as ArviZ netCDF, Parquet, JSON lines or plain text."""
    from glauber.runs.export import export as write
    from glauber.runs.run import Run

    write(Run(run), to, out, every=every)
    from glauber.cli.screen import emit, say

    if json:
        emit({"run": str(run), "to": to, "out": str(out), "bytes": out.stat().st_size})
    else:
        say(f"{out}: {out.stat().st_size / 1e6:,.2f} MB")
