"""Which pages does the API have? One for each group of studies, one for the rest, and the rooms.

All of it is read from `glauber.STUDIES` and the sources, so that a new study appears by itself.
"""

import logging
import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from textwrap import dedent

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import glauber
from website.descriptions import (
    Descriptions,
    classes_named,
    found,
    help_of_results,
    methods,
    undocumented,
    walk,
)

ROOT = Path(__file__).parent.parent
COMMANDS = {"sweeps": "sweep"}  # of rooms whose command has another name
log = logging.getLogger("mkdocs.hooks.api")


@cache
def package() -> griffe.Module:
    """The package as its sources say; nothing of it is run."""
    loaded = griffe.load(
        "glauber",
        search_paths=[ROOT / "src"],
        extensions=griffe.load_extensions(Descriptions()),
        allow_inspection=False,
        resolve_aliases=True,
    )
    assert isinstance(loaded, griffe.Module)
    return loaded


def pages() -> dict[str, tuple[str, str]]:
    """The title and the text of each page, by its place."""
    made = {
        f"api/{slug(title)}.md": (title, "\n".join(_group(title, group)))
        for title, group in glauber.STUDIES.items()
    }
    others = {f"glauber.{name}": f"{home}.{name}" for name, home in glauber.OTHERS.items()}
    made["api/others.md"] = ("Models, runs and results", "\n".join(_entries("glauber", others)))
    for room in sorted(glauber.ROOMS, reverse=True):
        made[f"api/{room}.md"] = (f"glauber.{room}", "\n".join(_room(room)))
    table = "models.table"
    made["api/table.md"] = (f"glauber.{table}", "\n".join(_module(table, defined(table))))
    return {place: (title, f"# {title}\n\n{text}") for place, (title, text) in made.items()}


def slug(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def _group(title: str, group: dict[str, str]) -> Iterator[str]:
    yield from ("Each function is a command too.", "")
    for name, home in group.items():
        yield from _study(f"glauber.{name}", f"{home}.{name}", f"glauber {name.replace('_', '-')}")


def _room(room: str) -> Iterator[str]:
    """A room with studies of its own, or one whose `__all__` says what is there."""
    home = glauber.ROOMS[room]
    if "STUDIES" not in package()[home].members:
        yield from _module(home, exported(home), room)
        return
    yield from (*_about(home), "")
    command = f"glauber {COMMANDS.get(room, room)}"
    for name, home in getattr(glauber, room).STUDIES.items():
        yield from _study(f"glauber.{room}.{name}", f"{home}.{name}", f"{command} {name}")


def _module(home: str, paths: list[str], room: str = "") -> Iterator[str]:
    yield from (*_about(home), "")
    yield from _entries(f"glauber.{room or home}", {path.split(".")[-1]: path for path in paths})


def _about(room: str) -> Iterator[str]:
    """A module's docstring: prose, code that is indented, and lists in columns, as they are."""
    blocks = package()[room].docstring.value.split("\n\n")
    for kind, group in groupby(blocks, key=_kind):
        text = "\n\n".join(group)
        yield text if kind == "prose" else f"```{kind}\n{dedent(text)}\n```"
        yield ""


def _kind(block: str) -> str:
    indented = [line.startswith("    ") for line in block.splitlines()]
    return "python" if all(indented) else "text" if any(indented) else "prose"


def exported(room: str) -> list[str]:
    """What a room's `__all__` names, in its order, as paths of the places that define it."""
    return [_home(package()[room], name) for name in package()[room].exports or ()]


def _home(room: griffe.Module, name: str) -> str:
    """Where a room takes a name from; one that it imports late is sought among its files."""
    one = room.members.get(name) or next(one for one in walk(room) if one.name == name)
    return (one.final_target if one.is_alias else one).path.removeprefix("glauber.")


def defined(module: str) -> list[str]:
    """The public classes and functions of a module."""
    members = package()[module].members.items()
    shown = [name for name, one in members if not one.is_alias and not name.startswith("_")]
    return [f"{module}.{name}" for name in shown if not package()[f"{module}.{name}"].is_attribute]


def _study(shown: str, path: str, command: str) -> Iterator[str]:
    """A study, the command that it is, and the result that it returns."""
    yield from _entry(shown, path, level=2)
    anchor = command.replace(" ", "-")
    yield from (f"In a terminal: [`{command}`](../commands.md#{anchor}).", "")
    for result in results(path):
        if not _told(result):
            yield from _entry(result.split(".")[-1], result, level=3)


def _told(path: str) -> bool:
    """Whether a class has its place among the others, as `Run` has."""
    return path in {f"{home}.{name}" for name, home in glauber.OTHERS.items()}


def results(path: str) -> list[str]:
    """The classes of the package that a function returns."""
    one = package()[path]
    named = classes_named(one.returns) if isinstance(one, griffe.Function) else []
    held = [found(package(), name) for name in named]
    return [cls.path.removeprefix("glauber.") for cls in held if isinstance(cls, griffe.Class)]


def _entries(prefix: str, paths: dict[str, str]) -> Iterator[str]:
    for shown, path in paths.items():
        yield from _entry(shown, path, level=2)
        for result in results(path) if prefix == "glauber" else ():
            if not _told(result):
                yield from _entry(result.split(".")[-1], result, level=3)


def _entry(shown: str, path: str, level: int) -> Iterator[str]:
    """One object; of a class the methods and properties, its fields being a table already."""
    one = package()[path]
    yield from (f"::: glauber.{path}", "    options:")
    yield from (f"      heading: {shown}", f"      toc_label: {shown.removeprefix('glauber.')}")
    yield f"      heading_level: {level}"
    if isinstance(one, griffe.Class):
        told = [f"'{method.name}'" for method in methods(one) if method.docstring]
        yield f"      members: [{', '.join(told)}]" if told else "      members: false"
    yield ""


def public() -> set[str]:
    """Every path that a page shows."""
    texts = "\n".join(text for _, text in pages().values())
    return set(re.findall(r"^::: glauber\.(\S+)$", texts, re.M))


def silent() -> list[str]:
    """Public names without a word about them."""
    helps = help_of_results(package())
    rooms = [room for room in sorted(glauber.ROOMS) if not package()[glauber.ROOMS[room]].docstring]
    shown = [package()[path] for path in sorted(public())]
    return rooms + [bare for one in shown for bare in undocumented(package(), one, helps)]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the pages behind the entry `API: api` of the navigation."""
    entries = [{title: place} for place, (title, _) in pages().items()]
    config.nav = [
        {name: entries if value == "api" else value for name, value in entry.items()}
        for entry in config.nav or ()
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages, and complains of public names without a docstring."""
    for place, (_, text) in pages().items():
        files.append(File.generated(config, place, content=text))
    for name in silent():
        log.warning(f"no docstring, and no comment behind it: {name}")
    return files
