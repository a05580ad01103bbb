"""What can befall the files of a run, one thing at a time."""

import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.torture.subjects import EVERY


def kind_of(path: Path, folder: Path) -> str:
    """What a file of a run is."""
    inside = path.relative_to(folder).parts
    if inside[0] != "events.zarr":
        return inside[0]
    if inside[-1] == "zarr.json":
        return "array header" if len(inside) > 2 else "group header"
    return f"{inside[1]} chunk"


def a_file(run: Path, draw: random.Random) -> Path:
    """A file by its kind, so that small ones are hit as often as chunks; the lock holds nothing."""
    found: dict[str, list[Path]] = {}
    for path in sorted(run.rglob("*")):
        if path.is_file() and path.name != "lock":
            found.setdefault(kind_of(path, run), []).append(path)
    return draw.choice(found[draw.choice(list(found))])


def flip(path: Path, draw: random.Random) -> None:
    """One bit."""
    data = bytearray(path.read_bytes())
    at = draw.randrange(8 * len(data))
    data[at // 8] ^= 1 << at % 8
    path.write_bytes(data)


def shorten(path: Path, draw: random.Random) -> None:
    """Its end, or everything."""
    data = path.read_bytes()
    path.write_bytes(data[: draw.choice((0, draw.randrange(len(data))))])


def blank(path: Path, draw: random.Random) -> None:
    """A stretch of it, which becomes zeros."""
    data = bytearray(path.read_bytes())
    first = draw.randrange(len(data))
    last = draw.randint(first + 1, len(data))
    data[first:last] = bytes(last - first)
    path.write_bytes(data)


def edit(path: Path, draw: random.Random) -> None:
    """One entry of a JSON file: another value, or none."""
    whole = json.loads(path.read_bytes())
    at: Any = whole
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = draw.choice(keys)
        if not isinstance(at[key], dict | list) or not at[key] or draw.random() < 0.1:
            break
        at = at[key]
    if draw.random() < 0.3:
        del at[key]
    else:
        at[key] = _other(at[key], draw)
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _other(value: Any, draw: random.Random) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return draw.choice((0, 1, 2, 3, value + 1, value - 1, 2 * value))
    if isinstance(value, str):
        return draw.choice((value + "x", value[:-1], value[::-1]))
    return {} if isinstance(value, dict) else [] if isinstance(value, list) else 0


@dataclass(frozen=True)
class Beside:
    """Runs of the same call whose files may end up in a run."""

    other: Path  # by another seed
    earlier: Path  # the same run, as it was before


Harm = Callable[[Path, Beside, random.Random], list[Path]]


def _to_one(change: Callable[[Path, random.Random], None], *, json_only: bool = False) -> Harm:
    """A change of one file, which must really change it."""

    def befall(run: Path, beside: Beside, draw: random.Random) -> list[Path]:
        while True:
            path = a_file(run, draw)
            before = path.read_bytes()
            if not json_only or path.suffix == ".json":
                change(path, draw)
                if not path.is_file() or path.read_bytes() != before:
                    return [path]

    return befall


def _taken_from(which: str) -> Harm:
    """A file of another run at the same place."""

    def befall(run: Path, beside: Beside, draw: random.Random) -> list[Path]:
        while True:
            path = a_file(run, draw)
            theirs = getattr(beside, which) / path.relative_to(run)
            if theirs.is_file() and theirs.read_bytes() != path.read_bytes():
                shutil.copyfile(theirs, path)
                return [path]

    return befall


def swap(run: Path, beside: Beside, draw: random.Random) -> list[Path]:
    """Two files that change places."""
    one = other = a_file(run, draw)
    while one.suffix != other.suffix or one.read_bytes() == other.read_bytes():
        one, other = a_file(run, draw), a_file(run, draw)
    kept = one.read_bytes()
    shutil.copyfile(other, one)
    other.write_bytes(kept)
    return [one, other]


def twice(run: Path, beside: Beside, draw: random.Random) -> list[Path]:
    """Both copies of a small file: a bit in each, or those of another run."""
    hit, foreign = [run / name for name in draw.choice(TWICE)], draw.random() < 0.5
    for path in hit:
        if foreign:
            shutil.copyfile(beside.other / path.name, path)
        else:
            flip(path, draw)
    return hit


def lose_folder(run: Path, beside: Beside, draw: random.Random) -> list[Path]:
    """A folder with everything in it."""
    folder = draw.choice(sorted(path for path in run.rglob("*") if path.is_dir()))
    hit = [path for path in folder.rglob("*") if path.is_file()]
    shutil.rmtree(folder)
    return hit


def stray(run: Path, beside: Beside, draw: random.Random) -> list[Path]:
    """A file too many."""
    names = (".DS_Store", "notes.txt", "zarr.json", "added_tokens.json", "tokenizer.model", "7")
    folder = draw.choice(sorted(path for path in run.rglob("*") if path.is_dir()))
    path = folder / draw.choice(names)
    if path.exists():
        return stray(run, beside, draw)
    path.write_bytes(a_file(run, draw).read_bytes())
    return [path]


def _folder_instead(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()


TWICE = (["run.json", "run.copy.json"], ["committed.json", "committed.copy.json"])
KINDS: dict[str, Harm] = {
    "flip": _to_one(flip),
    "lose": _to_one(lambda path, draw: path.unlink()),
    "shorten": _to_one(shorten),
    "blank": _to_one(blank),
    "edit": _to_one(edit, json_only=True),
    "swap": swap,
    "foreign": _taken_from("other"),
    "stale": _taken_from("earlier"),
    "twice": twice,
    "lose a folder": lose_folder,
    "a folder instead": _to_one(_folder_instead),
    "stray": stray,
}


def sound_before(hit: str) -> int:
    """The steps before what was hit; a mark is made again from the one before it."""
    chunk = re.fullmatch(r"events\.zarr/(\w+)/c/0/(\d+)/0", hit)
    return EVERY * int(chunk[2]) if chunk and chunk[1] != "tokens" else 10**9


def may_be_lost(kind: str, hit: list[str]) -> bool:
    """Whether a repair may say no: nothing else tells what was hit, or something is in its way."""
    start = ("events.zarr/tokens/c/0/0/0", "events.zarr/free/c/0/0")
    gone = set(TWICE[0]) <= set(hit) or any(one in start for one in hit)
    headers = "events.zarr/zarr.json" in hit and len(hit) > 1  # which tell of each other
    return gone or headers or kind == "a folder instead"
