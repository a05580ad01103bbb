"""The flags that mean the same in the commands about samplers of the clique model."""

from pathlib import Path
from typing import Annotated

import typer

from glauber.cli.numbers import numbers
from glauber.errors import GlauberError

Sites = Annotated[int, typer.Option(help="Number of sites N.")]
Clique = Annotated[int, typer.Option(help="Sites of the clique, all coupled alike.")]
Field = Annotated[float, typer.Option(help="Field h at every site.")]
Couplings = Annotated[
    str, typer.Option(help="Couplings J, such as 0.1,0.5 (each pair counts twice).")
]
Picture = Annotated[Path | None, typer.Option(help="HTML file of the picture.")]


def strengths(listed: str) -> list[float]:
    """The couplings of a list with commas, one at least."""
    found = numbers(listed, "couplings")
    if not found:
        raise GlauberError("no coupling was given: name one at least, such as 0.5.")
    return found
