"""The commands, read off `glauber.STUDIES`; each is made when it is called.

The one-line help is the first line of each study's docstring, read without importing anything:
torch takes seconds to load.
"""

import ast
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

import glauber
from glauber.foundation.errors import GlauberError
from glauber.interfaces.cli.command import command

Vendored = Any  # contexts, commands and formatters: typer's copy of click has no public names
PACKAGE = Path(glauber.__file__).parent
OWN = {
    "sampling.sample",
    "papers.paper",
    "interfaces.explorer.explore",
}  # commands are made by interfaces/cli/live.py
MORE = {
    "Chains": {"explore": "interfaces.explorer.explore"}
}  # commands that are no studies: they stay open
LABORATORIES = {"ising": "Small models, known exactly", "sweep": "Many cells of one study"}
ROOMS = {"ising": "ising", "sweep": "sweeps"}
ALIASES = {"rectangle": "rectangles"}


def panels() -> dict[str, dict[str, str]]:
    """The commands of each group and the module that each comes from."""
    groups = {title: group | MORE.get(title, {}) for title, group in glauber.STUDIES.items()}
    groups["More"] = {name: name for name in LABORATORIES}
    return {
        title: {name.replace("_", "-"): home for name, home in group.items()}
        for title, group in groups.items()
    }


class Studies(TyperGroup):
    """The studies of the package, or of one laboratory of it."""

    homes: dict[str, str]  # command -> module
    titles: dict[str, list[str]]  # panel -> commands

    def list_commands(self, ctx: Vendored) -> list[str]:
        return list(self.homes)

    def get_command(self, ctx: Vendored, name: str) -> Vendored:
        name = ALIASES.get(name, name)
        if name not in self.homes:
            return None
        return laboratory(name) if name in LABORATORIES else single(name, self.homes[name])

    def resolve_command(self, ctx: Vendored, args: list[str]) -> Vendored:
        name = ALIASES.get(args[0], args[0])
        if name not in self.homes and not name.startswith("-"):
            near = get_close_matches(name, self.homes, n=1)
            hint = f"did you mean {near[0]}?" if near else f"{ctx.command_path} --help lists all."
            raise GlauberError(f"there is no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Vendored, formatter: Vendored) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.panel import Panel
        from rich.table import Table

        console = Console()
        console.print(f"\n[bold]Usage:[/] {escape(ctx.command_path)} COMMAND …\n\n{self.help}\n")
        for title, names in self.titles.items():
            table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
            for name in names:
                about = LABORATORIES.get(name) or summary(self.homes[name], name)
                table.add_row(f"[bold]{name}[/]", escape(about))
            console.print(Panel(table, title=title, title_align="left"))
        more = f"{escape(ctx.command_path)} COMMAND --help tells more; --version, and "
        console.print(more, end="")
        console.print("--install-completion for the shell.", highlight=False)


@cache
def single(name: str, home: str) -> Vendored:
    """The command of a study."""
    attribute = name.replace("-", "_")
    study = getattr(import_module(f"glauber.{home}"), attribute)
    make: Callable[..., Callable[..., None]] = command
    if home in OWN:
        from glauber.interfaces.cli.live import COMMANDS

        make = COMMANDS[attribute]
    holder = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    holder.command(name)(make(study))
    return typer.main.get_command(holder)


@cache
def laboratory(name: str) -> Vendored:
    """The group of a laboratory's studies."""
    room = getattr(glauber, ROOMS[name])
    return _group(name, {name: dict(room.STUDIES)}, (room.__doc__ or "").strip().splitlines()[0])


def summary(home: str, name: str) -> str:
    """The first line of a study's docstring."""
    path = PACKAGE.joinpath(*home.split("."))
    files = [path.with_suffix(".py"), path / "__init__.py"]
    text = next((file.read_text(encoding="utf-8") for file in files if file.exists()), "")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == name.replace("-", "_"):
            return (ast.get_docstring(node) or "").split("\n")[0]
    return ""


def _group(name: str, panels: dict[str, dict[str, str]], help_text: str) -> Studies:
    holder = typer.Typer(
        cls=Studies,
        name=name,
        help=help_text,
        no_args_is_help=True,
        add_completion=name == "glauber",
        pretty_exceptions_enable=False,
    )

    @holder.callback(invoke_without_command=True)
    def _root(
        version: bool = typer.Option(False, "--version", help="Print the version."),
    ) -> None:
        if version:
            print(glauber.__version__)
            raise typer.Exit

    group = typer.main.get_command(holder)
    assert isinstance(group, Studies)
    group.homes = {name: home for studies in panels.values() for name, home in studies.items()}
    group.titles = {title: list(studies) for title, studies in panels.items()}
    return group


app = _group("glauber", panels(), "The dynamics of masked language models.")
