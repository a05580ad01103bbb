"""glauber report: a run in one page."""

from pathlib import Path
from typing import Annotated

import typer

from glauber.cli import options


def report(
    run: options.RunFolder,
    out: Annotated[Path, typer.Option("--out", help="HTML file of the page.")] = Path(
        "report.html"
    ),
    embedder: Annotated[
        str | None,
        typer.Option(help="A sentence-transformers model (default: the one in the package)."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="Another device than the run's.")] = None,
    json: options.Json = False,
) -> None:
    """Write one page about a run: traps, topics, basins, pictures, texts; it needs no network."""
    from glauber.cli.screen import emit, say
    from glauber.runs.run import Run
    from glauber.runs.signature import signature

    opened = Run(run)
    from glauber.explorer.report import write_report
    from glauber.runs.embedding import load_embedder
    from glauber.sampling.sample import reopen

    planned = reopen(opened, device=device)
    write_report(
        opened,
        out,
        laws=planned.laws,
        embedder=load_embedder(embedder, device),
        progress=lambda part: say(part, quiet=json),
    )
    if json:
        emit({"run": str(run), "page": str(out), "signature": signature(opened.spec)})
    else:
        say(f"the page is {out}")
