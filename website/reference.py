"""Every command with its flags, as Markdown: python -m website.reference."""

import inspect
from collections.abc import Iterator
from importlib import import_module

import glauber
from glauber.interfaces.cli.group import LABORATORIES, ROOMS, Vendored, panels, single


def reference() -> str:
    """The whole page."""
    lines = ["# Commands", "", "Made by `make docs` from the studies' signatures."]
    for title, group in panels().items():
        for name, home in group.items():
            if name not in LABORATORIES:
                lines += _section(title, f"glauber {name}", home, name)
    for room, title in LABORATORIES.items():
        for name, home in getattr(glauber, ROOMS[room]).STUDIES.items():
            lines += _section(title, f"glauber {room} {name}", home, name)
    return "\n".join(lines) + "\n"


def _section(title: str, line: str, home: str, name: str) -> Iterator[str]:
    study = getattr(import_module(f"glauber.{home}"), name.replace("-", "_"))
    parameters = single(name, home).params
    arguments = [f"[{_flag(parameter)}]" for parameter in parameters if _is_argument(parameter)]
    yield from ("", f"## {line}", "", f"*{title}*", "", inspect.getdoc(study) or "", "")
    yield from (" ".join(["   ", line, *arguments, "[OPTIONS]"]), "")
    yield from ("| flag | default | meaning |", "|---|---|---|")
    for parameter in parameters:
        default = parameter.default
        shown = "" if default is None or default is False or default == "" else f"`{default}`"
        meaning = str(parameter.help or "").replace("|", "\\|")
        yield f"| `{_flag(parameter)}` | {shown} | {meaning} |"


def _is_argument(parameter: Vendored) -> bool:
    return bool(parameter.param_type_name == "argument")


def _flag(parameter: Vendored) -> str:
    return str(parameter.name).upper() if _is_argument(parameter) else str(parameter.opts[0])


if __name__ == "__main__":
    print(reference(), end="")
