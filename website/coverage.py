"""What is here of the papers, as Markdown: python -m website.coverage docs/coverage.

The folder has one TOML file for each paper, with one entry for each of its statements, tables,
figures and settings. The places of an entry are typed:

    command: rectangles --count 300        without the word glauber
    piece: A-table1                        of `glauber paper`
    python: glauber.exact.space.Space      a module, function, class or attribute
    test: tests/exact/test_space.py::test_conditionals
    docs: translation.md#what-is-learnt    a page below docs/, and one of its headings
    file: recipes/translation.py           from the root of the repository
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import glauber
from glauber.interfaces.cli.group import LABORATORIES, Vendored, app
from glauber.papers.paper import MODULES, pieces

STATES = ("covered", "partly", "missing", "not for software")
PACKAGE = Path(glauber.__file__).parent
INTRODUCTION = """\
# Coverage of the papers

Every statement, table, figure and setting of the two papers, and where it is here. *Covered*:
computed as the paper defines it, or as a reading that the remark states. *Partly* and *missing*:
the remark says what is absent. *Not for software*: nothing to compute. Numbers in parentheses are
sections of the paper. Our copies of the texts have lost some formulas and numbers, which the
remarks call lost. The verdicts on the published claims have a [page of their own](verdicts.md).

This page is made by `make docs` from the files in `docs/coverage/`."""


@dataclass(frozen=True)
class Item:
    """One statement, table, figure or setting of a paper, and its places here."""

    number: int
    item: str
    says: str  # in the paper
    state: str
    places: tuple[str, ...] = ()
    remark: str = ""


@dataclass(frozen=True)
class Paper:
    """A paper's items by part, in its order."""

    letter: str
    title: str
    parts: dict[str, list[Item]]

    @property
    def items(self) -> list[Item]:
        """The items of all parts."""
        return [item for part in self.parts.values() for item in part]


def read(folder: Path) -> list[Paper]:
    """The papers of the folder, in the order of their files."""
    papers = []
    for path in sorted(folder.glob("*.toml")):
        record = tomllib.loads(path.read_text(encoding="utf-8"))
        parts = {
            part["title"]: [
                Item(**each | {"places": tuple(each["places"])}) for each in part["item"]
            ]
            for part in record["part"]
        }
        papers.append(Paper(record["paper"], record["title"], parts))
    return papers


def faults(papers: Iterable[Paper], root: Path) -> Iterator[str]:
    """What is wrong with the entries: numbers, states, and places that do not exist in the root."""
    for paper in papers:
        numbers = [item.number for item in paper.items]
        for number in sorted({*numbers, *range(1, max(numbers) + 1)}):
            if numbers.count(number) != 1:
                yield f"{paper.letter}-{number} is there {numbers.count(number)} times"
        for item in paper.items:
            entry = f"{paper.letter}-{item.number}"
            if item.state not in STATES:
                yield f"{entry}: {item.state!r} is no state"
            if item.state == "covered" and not item.places:
                yield f"{entry} is covered and has no place"
            if item.state in ("partly", "missing", "not for software") and not item.remark:
                yield f"{entry} is {item.state} and does not say why"
            for place in item.places:
                if not exists(place, root):
                    yield f"{entry}: {place} does not exist"


def exists(place: str, root: Path) -> bool:
    """Whether the place is in the package or the repository."""
    kind, _, rest = place.partition(": ")
    path, _, name = rest.partition("::" if kind == "test" else "#")
    if kind == "command":
        return _is_command(rest.split())
    if kind == "piece":
        return rest in pieces()
    if kind == "python":
        return _home(rest) is not None
    if kind == "test":
        return (root / path).is_file() and name in _functions(root / path)
    if kind == "docs":
        page = root / "docs" / path
        return page.is_file() and (not name or name in _anchors(page))
    return kind == "file" and (root / rest).exists()


def _is_command(words: list[str]) -> bool:
    """Whether the command is there and has all the options."""
    found: Vendored = app
    for word in words[: 1 + (words[0] in LABORATORIES)]:
        known = hasattr(found, "homes") and word in found.homes
        found = found.get_command(None, word) if known else None
    if found is None or hasattr(found, "homes"):
        return False
    options = {flag for each in found.params for flag in [*each.opts, *each.secondary_opts]}
    return {word.split("=")[0] for word in words if word.startswith("--")} <= options


@cache
def _home(name: str) -> Path | None:
    """The file that defines what a dotted name of the package leads to."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        home = found.__name__
        for part in parts[length:]:
            if part in getattr(found, "__annotations__", {}):  # a field without a default
                break
            if not hasattr(found, part):
                return None
            found = getattr(found, part)
            if isinstance(found, type | FunctionType):
                home = found.__module__
        path = import_module(home).__file__
        return Path(path) if path and home.startswith("glauber.") else None
    return None


@cache
def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@cache
def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site and GitHub spell them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    words = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[-\s]+", "-", heading) for heading in words}


def page(papers: list[Paper]) -> str:
    """The whole page: counts first, then the items of each part."""
    lines = [INTRODUCTION, ""]
    for paper in papers:
        lines += [f"## Paper {paper.letter}: counts", "", *_counts(paper), ""]
    for paper in papers:
        lines += [f"## Paper {paper.letter}: {paper.title}", ""]
        for title, items in paper.parts.items():
            lines += [f"### {paper.letter}: {title}", "", *_table(items), ""]
    return "\n".join(lines)


def _counts(paper: Paper) -> Iterator[str]:
    yield f"| part | {' | '.join(STATES)} | all |"
    yield "|---|" + "---|" * (len(STATES) + 1)
    for title, items in [*paper.parts.items(), ("all", paper.items)]:
        states = Counter(item.state for item in items)
        numbers = " | ".join(str(states[state]) for state in STATES)
        yield f"| {title} | {numbers} | {len(items)} |"


def _table(items: list[Item]) -> Iterator[str]:
    yield "| # | what the paper says | state | where |"
    yield "|---|---|---|---|"
    for item in items:
        statement = f"**{_cell(item.item)}**<br>{_cell(item.says)}"
        state = f"{item.state}<br>{_cell(item.remark)}" if item.remark else item.state
        where = "<br>".join(map(link, item.places))
        yield f"| {item.number} | {statement} | {state} | {where} |"


def _cell(text: str) -> str:
    """Text in a cell of a table; bars and asterisks are no markup, code stays code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([\\*_<\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts).replace("|", "\\|")


def link(place: str) -> str:
    """A place as a link from a page of docs/, relative as in the repository."""
    kind, _, rest = place.partition(": ")
    if kind == "command":
        words = rest.split()
        anchor = "-".join(["glauber", *words[: 1 + (words[0] in LABORATORIES)]])
        return f"[`glauber {rest}`](commands.md#{anchor})".replace("|", "\\|")
    if kind == "piece":
        modules = (import_module(f"glauber.papers.{name}") for name in MODULES)
        name = next(module.__name__ for module in modules if rest in module.PIECES)
        return f"[`glauber paper {rest}`](../src/{name.replace('.', '/')}.py)"
    if kind == "python":
        home = (_home(rest) or PACKAGE).relative_to(PACKAGE).as_posix()
        shown = rest.removeprefix("glauber.").removeprefix("studies.")
        return f"[`{shown}`](../src/glauber/{home})"
    if kind == "test":
        path, _, name = rest.partition("::")
        return f"[`{name}`](../{path})"
    return f"[{rest}]({rest})" if kind == "docs" else f"[`{rest}`](../{rest})"


if __name__ == "__main__":
    print(page(read(Path(sys.argv[1]))), end="")
