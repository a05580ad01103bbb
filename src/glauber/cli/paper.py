"""glauber paper: a table or figure of the papers, made again beside the published numbers."""

from pathlib import Path
from typing import Annotated

import typer

from glauber.cli import options


def paper(
    name: Annotated[str, typer.Argument(help="A piece such as A-table1, or list.")],
    scale: Annotated[
        str, typer.Option(help="small (bundled model) or paper (hub models).")
    ] = "small",
    seed: options.Seed = 0,
    out: Annotated[Path, typer.Option("--out", help="Folder for JSON and pictures.")] = Path(
        "papers"
    ),
    json: options.Json = False,
) -> None:
    """Make a table or figure of the papers again; `list` names them."""
    from glauber.cli.rows import show
    from glauber.cli.screen import emit, say
    from glauber.cli.screen import out as screen
    from glauber.papers import PIECES, reproduce

    if name == "list":
        if json:
            emit(dict(PIECES))
            return
        for piece, shows in PIECES.items():
            screen.print(f"{piece:>14}  {shows}", markup=False, highlight=False, soft_wrap=True)
        return
    made = reproduce(name, scale=scale, seed=seed)  # type: ignore[arg-type]
    files = made.write(out)
    if json:
        emit(made.told() | {"files": [str(file) for file in files]})
        return
    screen.print(made.how, markup=False, highlight=False, soft_wrap=True)
    show(made.rows, screen)
    for file in files:
        say(str(file), quiet=False)
