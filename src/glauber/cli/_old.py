"""The command line: one file per command; here they are put together."""

import typer

from glauber.cli.sweep import sweep

app = typer.Typer(name="glauber", add_completion=False)
app.add_typer(sweep, name="sweep")
