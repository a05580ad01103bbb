"""python -m glauber.cli.reference: every command with its flags, as Markdown, from the studies."""

import inspect
import typing
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from glauber.cli.command import JSON, OUT, YES, Spelling, reading_options, spellings
from glauber.cli.group import LABORATORIES, MORE, ROOMS, panels


def reference() -> str:
    """The whole page."""
    lines = ["# Commands", "", "Made by `make docs` from the studies' signatures."]
    for title, group in panels().items():
        for name, home in group.items():
            if name not in LABORATORIES:
                lines += _section(title, f"glauber {name}", home, name)
    for room, title in LABORATORIES.items():
        for name, home in import_module(f"glauber.{ROOMS[room]}").STUDIES.items():
            lines += _section(title, f"glauber {room} {name}", home, name)
    return "\n".join(lines) + "\n"


def _section(title: str, called: str, home: str, name: str) -> Iterator[str]:
    study = getattr(import_module(f"glauber.{home}"), name.replace("-", "_"))
    spelled = spellings(study)
    positional = [one for one in spelled if _is_argument(study, one)]
    words = " ".join(f"[{one.upper()}]" for one in positional)
    yield from ("", f"## {called}", "", f"*{title}*", "", inspect.getdoc(study) or "", "")
    yield from (f"    {called} {words} [OPTIONS]".replace("  [", " ["), "")
    yield from ("| flag | default | meaning |", "|---|---|---|")
    for one, spelling in spelled.items():
        flag = one.upper() if one in positional else _flag(one)
        yield f"| `{flag}` | {_default(spelling)} | {_help(spelling)} |"
    for option, parameter in reading_options(spelled).items():
        flag = "--from" if option == "source" else _flag(option)
        default = f"`{parameter.default}`" if parameter.default else ""
        yield f"| `{flag}` | {default} | {typing.get_args(parameter.annotation)[1].help} |"
    if any(name in group for group in MORE.values()):
        return
    if "out" not in spelled:
        yield f"| `--out` | | {OUT} |"
    yield from (f"| `--yes` | | {YES} |", f"| `--json` | | {JSON} |")


def _is_argument(study: Any, name: str) -> bool:
    parameter = inspect.signature(study).parameters[name]
    return parameter.kind is parameter.POSITIONAL_OR_KEYWORD and not name.startswith("model")


def _flag(name: str) -> str:
    return "--model" if name == "models" else "--" + name.replace("_", "-")


def _default(spelling: Spelling) -> str:
    shown = spelling.default
    empty = shown is None or shown is ... or shown is False or shown == ""
    return "" if empty else f"`{shown}`"


def _help(spelling: Spelling) -> str:
    option = typing.get_args(spelling.annotation)[1]
    return str(option.help or "").replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
