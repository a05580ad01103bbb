"""glauber ising: the second paper's statements on models small enough to know everything."""

import typer

ising = typer.Typer(
    help="Ising models small enough to know everything about them.", no_args_is_help=True
)
