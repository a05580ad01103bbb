"""The command line: one file per command; here they are put together."""

import typer

from glauber.cli.export import export
from glauber.cli.resume import extend, resume
from glauber.cli.sample import sample
from glauber.cli.show import show
from glauber.cli.sweep import sweep

app = typer.Typer(
    name="glauber",
    help="The dynamics of masked language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
CHAINS = (sample, resume, extend, show, export)
for command in CHAINS:
    app.command()(command)
app.add_typer(sweep, name="sweep")
