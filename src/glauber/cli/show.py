"""glauber show: a chain's text over time, changes highlighted."""

from typing import Annotated, Any

import typer

from glauber.cli import options


def show(
    run: options.RunFolder,
    chain: Annotated[int, typer.Option(help="Which chain.")] = 0,
    rows: Annotated[int, typer.Option(help="How many moments, evenly spread.")] = 20,
    every: Annotated[int | None, typer.Option(help="One moment every so many steps.")] = None,
    json: options.Json = False,
) -> None:
    """Show a chain's text over time; what changed since the row above is highlighted."""
    from glauber.errors import GlauberError
    from glauber.runs.run import Run
    from glauber.runs.timeline import Look, looks_at, timeline

    opened = Run(run)
    if every is not None and every < 1:
        raise GlauberError(f"every is {every}, but it must be at least 1.")
    steps = looks_at(opened, rows) if every is None else list(range(0, opened.steps + 1, every))
    looks = timeline(opened, chain, steps)
    if json:
        from glauber.cli.screen import emit

        emit({"run": str(run), "chain": chain, "looks": [_plain(look) for look in looks]})
        return
    from rich.text import Text

    from glauber.cli.screen import out

    def line(look: Look) -> Text:
        text = Text(f"{look.step:>8,} ", style="dim")
        for piece in look.pieces:
            text.append(
                piece.text,
                "bold black on yellow" if piece.changed else "dim" if piece.frozen else "none",
            )
        return text

    for look in looks:
        out.print(line(look), highlight=False)


def _plain(look: Any) -> dict[str, Any]:
    changed = [site for site, piece in enumerate(look.pieces) if piece.changed]
    return {"step": look.step, "text": look.text, "changed": changed}
