"""The page of verdicts, as Markdown: python -m website.verdicts FOLDER ...

A folder is what `glauber paper all --out FOLDER`, or the same with single pieces, has stored. Each
becomes a section, which names its command, models and versions.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json
from glauber.foundation.tables import short
from glauber.papers.claims import WORDS, Claim
from glauber.papers.page import COUNTED, NOTE, claim_row, shown
from glauber.papers.work import FLAGS

HEADINGS = {"disagrees": "Disagree", "cannot tell": "Cannot be told", "agrees": "Agree"}
SCALES = {"small": "At the small scale", "paper": "At the papers' scale"}
INTRODUCTION = f"""\
# Which published claims hold here?

Every published claim that a piece of the papers tests, with its verdict, disagreements first.
{NOTE}
If it is below the size of our sample, the published effect would probably have been observed.
There is none where the effect lies outside the region that agrees, where no effect is named, or
where our quantity has no interval. One true claim in twenty may be called wrong by chance.

A is *Mixing Times of Glauber Dynamics on Masked Language Models*, B is *Promises and Pitfalls of
Generative Masked Language Modeling*. [papers.md](papers.md) says how pieces are made and what a
verdict is, [statistics.md](statistics.md) how intervals are made, and [coverage.md](coverage.md)
what of the papers is here. `FOLDER/index.html` shows for each claim what differs from the paper and
what is our own choice. This page is made by `make verdicts` from stored results."""


def read(folder: Path) -> dict[str, Any]:
    """The stored pieces of a folder: of all of them, or of single ones."""
    files = [folder / "index.json"]
    if not files[0].is_file():
        files = sorted(path for path in folder.glob("*.json") if re.match("[AB]-", path.name))
    if not files:
        raise GlauberError(f"{folder} has no results: glauber paper all --out {folder} makes them.")
    records = [parse_json(path.read_text(encoding="utf-8")) for path in files]
    return {
        name: {key: value for record in records for key, value in record[name].items()}
        for name in ("pieces", "missing")
    } | {"all": files[0].name == "index.json"}


def page(folders: Iterable[Path]) -> str:
    """The whole page."""
    sections = [line for folder in folders for line in _section(read(folder))]
    if not sections:
        raise GlauberError("give at least one folder of results.")
    return "\n".join([INTRODUCTION, *sections]) + "\n"


def _section(results: Mapping[str, Any]) -> Iterator[str]:
    pieces: dict[str, dict[str, Any]] = results["pieces"]
    claims = {
        name: [Claim.from_dict(record) for record in piece["claims"]]
        for name, piece in pieces.items()
    }
    by_word: dict[str, list[tuple[str, Claim]]] = {word: [] for word in WORDS}
    for name, own in claims.items():
        for claim in own:
            by_word[claim.verdict.word].append((name, claim))
    counts = ", ".join(f"{len(rows)} {COUNTED[word]}" for word, rows in by_word.items())
    total = sum(map(len, claims.values()))
    scale = " and ".join(dict.fromkeys(SCALES[piece["scale"]] for piece in pieces.values()))
    yield from ("", f"## {scale}", "", *(f"    {line}" for line in _commands(results)), "")
    yield f"Published claims tested: {total}; {counts}. {_made_with(pieces)}"
    for word, rows in by_word.items():
        if rows:
            yield from ("", f"### {HEADINGS[word]}: {len(rows)}", "")
            yield from _table(word, rows)
    if silent := [name for name, own in claims.items() if not own]:
        yield from ("", f"Without a claim that can be tested: {', '.join(silent)}.")
    for name, reason in results["missing"].items():
        yield from ("", f"{name} cannot be made: {_cell(reason)}")


def _commands(results: Mapping[str, Any]) -> list[str]:
    """The commands that make these results again."""
    pieces = results["pieces"]
    given: dict[str, object] = {}
    for piece in pieces.values():
        given |= piece["given"]
    if results["all"] and pieces:
        return [_command("all", next(iter(pieces.values())), given)]
    return [_command(name, piece, piece["given"]) for name, piece in pieces.items()]


def _command(name: str, piece: Mapping[str, Any], given: Mapping[str, object]) -> str:
    words = ["glauber paper", name]
    words += [] if piece["scale"] == "small" else [f"--scale {piece['scale']}"]
    words += [] if piece["seeds"] == [0] else [f"--seeds {','.join(map(str, piece['seeds']))}"]
    words += [f"{FLAGS[key]} {'FILE' if key == 'texts' else v}" for key, v in given.items()]
    return " ".join([*words, "--out FOLDER"])


def _made_with(pieces: Mapping[str, Mapping[str, Any]]) -> str:
    models = {str(piece["model"]) for piece in pieces.values() if piece["model"]}
    versions = {
        ", ".join(f"{name} {version}" for name, version in piece["versions"].items())
        for piece in pieces.values()
    }
    return f"Models: {'; '.join(sorted(models))}. Versions: {'; '.join(sorted(versions))}."


def _table(word: str, claims: Iterable[tuple[str, Claim]]) -> Iterator[str]:
    more = ["power", "sample size"] if word == "cannot tell" else []
    names = ["piece", "published claim", "published", "ours", "agrees if", *more]
    yield f"| {' | '.join(names)} |"
    yield "|---" * len(names) + "|"
    for piece, claim in claims:
        row = claim_row(claim)
        published = "no number" if claim.published is None else short(claim.published)
        ours = f"{claim.quantity.name}: {shown(claim.quantity)}"
        cells = [piece, row["claim"], published, ours, row["agrees if"], *(row[m] for m in more)]
        yield f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Text in a cell of a table, where nothing is markup."""
    return re.sub(r"([\\`*_<>\[\]|])", r"\\\1", " ".join(text.split()))


if __name__ == "__main__":
    try:
        print(page([Path(name) for name in sys.argv[1:]]), end="")
    except GlauberError as error:
        sys.exit(str(error))
