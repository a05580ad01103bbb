"""What can befall the files of a run, one thing at a time."""

import json
import random
from collections.abc import Callable
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


def files_of(folder: Path) -> dict[str, list[Path]]:
    """The files of a run by their kind; the lock holds nothing."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "lock":
            found.setdefault(kind_of(path, folder), []).append(path)
    return found


def flip(path: Path, draw: random.Random) -> None:
    """One bit."""
    data = bytearray(path.read_bytes())
    at = draw.randrange(8 * len(data))
    data[at // 8] ^= 1 << at % 8
    path.write_bytes(data)


def lose(path: Path, draw: random.Random) -> None:
    """The whole file."""
    path.unlink()


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


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "flip": flip,
    "lose": lose,
    "shorten": shorten,
    "blank": blank,
    "edit": edit,
}
TWICE = (["run.json", "run.copy.json"], ["committed.json", "committed.copy.json"])
KINDS = (*DAMAGES, "swap", "foreign", "twice")


def flip_both(run: Path, draw: random.Random) -> tuple[str, list[Path]]:
    """A bit in both copies of a small file."""
    hit = [run / name for name in draw.choice(TWICE)]
    for path in hit:
        if path.is_file():
            flip(path, draw)
    return f"flip {' and '.join(path.name for path in hit)}", hit


def befall(run: Path, other: Path, kind: str, draw: random.Random) -> tuple[str, list[Path]]:
    """Damages a run at random; says how, and which files were hit."""
    if kind == "twice":
        return flip_both(run, draw)
    while True:
        of = files_of(run)
        path = draw.choice(of[draw.choice(list(of))])
        if kind == "edit" and path.suffix != ".json":
            continue
        hit, before = [path], path.read_bytes()
        if kind in DAMAGES:
            DAMAGES[kind](path, draw)
        elif kind == "foreign":
            theirs = other / path.relative_to(run)
            path.write_bytes(theirs.read_bytes() if theirs.is_file() else before)
        else:
            hit.append(draw.choice([p for k in of for p in of[k] if p.suffix == path.suffix]))
            path.write_bytes(hit[1].read_bytes())
            hit[1].write_bytes(before)
        if not path.is_file() or path.read_bytes() != before:
            return f"{kind} {' and '.join(str(p.relative_to(run)) for p in hit)}", hit


def sound_before(hit: str) -> int:
    """The steps before what was hit; a mark is made again from the one before it."""
    parts = hit.split("/")
    chunk = parts[0] == "events.zarr" and parts[-1] != "zarr.json"
    return EVERY * int(parts[-2]) if chunk and parts[1] not in ("tokens", "free") else 10**9


def lost_for_good(hit: list[str]) -> bool:
    """Whether nothing else tells what was hit: the start, or how the run was made."""
    start = ("events.zarr/tokens/c/0/0/0", "events.zarr/free/c/0/0")
    return set(TWICE[0]) <= set(hit) or any(one in start for one in hit)
