"""Is every damage noticed, and does a repair keep the longest sound prefix?

One thing befalls a random file of a run. Then every reader must refuse, or find what was written;
`resume` must refuse, or end with the values of the run that nothing befell; a repair must keep the
steps before the damage, and the repaired run must be continued to the same bytes.
"""

import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.faults.subjects import (
    READERS,
    SEGMENT_STEPS,
    STEPS,
    SUBJECTS,
    Subject,
    contents,
    small_parts,
    unfinished,
    values,
    wrong_end,
    wrong_readings,
)

import glauber
from glauber.foundation.errors import GlauberError
from glauber.runs.run import Run

Change = Callable[[Path, Path, random.Random], None]


def flip(path: Path, other: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def cut(path: Path, other: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])


def zero(path: Path, other: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    first = draw.randrange(len(content))
    last = draw.randint(first + 1, len(content))
    path.write_bytes(content[:first] + bytes(last - first) + content[last:])


def delete(path: Path, other: Path, draw: random.Random) -> None:
    path.unlink()


def empty(path: Path, other: Path, draw: random.Random) -> None:
    path.write_bytes(b"")


def swap(path: Path, other: Path, draw: random.Random) -> None:
    """With another file of the same folder."""
    siblings = sorted({*path.parent.iterdir()} - {path, path.parent / "lock"})
    sibling = draw.choice([item for item in siblings if item.is_file()] or [path])
    content = path.read_bytes()
    path.write_bytes(sibling.read_bytes())
    sibling.write_bytes(content)


def foreign(path: Path, other: Path, draw: random.Random) -> None:
    """The file of the same name of another run."""
    path.write_bytes((other / path.relative_to(path.parents[_depth(path)])).read_bytes())


def older(path: Path, other: Path, draw: random.Random) -> None:
    """The file of the same name of the same run, some steps before."""
    earlier = other.with_name("earlier") / path.relative_to(path.parents[_depth(path)])
    if earlier.exists():
        path.write_bytes(earlier.read_bytes())


def folder_instead(path: Path, other: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()


def lose_folder(path: Path, other: Path, draw: random.Random) -> None:
    """A folder of the run with everything in it, or the file where it is in none."""
    shutil.rmtree(path.parent) if _depth(path) else path.unlink()


def stray(path: Path, other: Path, draw: random.Random) -> None:
    """A copy of a file by another name."""
    names = ("notes.txt", "00000009.parquet", "tail-00000003.parquet", "added_tokens.json")
    target = path.with_name(draw.choice(names))
    if not target.exists():
        target.write_bytes(path.read_bytes())


def _depth(path: Path) -> int:
    return 0 if path.parent.name == "run" else 1


KINDS: dict[str, Change] = {
    change.__name__.replace("_", " "): change
    for change in (flip, cut, zero, delete, empty, swap, foreign, older, folder_instead,
                   lose_folder, stray)
}  # fmt: skip


def sound_before(name: str, steps: int) -> int:
    """The steps before a file's; those of a state are made again by replay."""
    number = re.search(r"events/(\d+)|(tail)-", name)
    if number is None:
        return steps
    segment = steps // SEGMENT_STEPS if number[2] else int(number[1])
    return min(steps, segment * SEGMENT_STEPS)


def trial(
    subject: Subject, home: Path, kind: str, steps: int, draw: random.Random
) -> tuple[Counter[str], list[str]]:
    """One damage to a run of so many steps: counts, and what was wrong after it."""
    shutil.rmtree(home, ignore_errors=True)
    folder, other = home / "run", home / "other"
    shutil.copytree(subject.stopped(steps), folder)
    shutil.copytree(subject.other.stopped(steps), other)
    shutil.copytree(subject.stopped(max(1, steps - 7)), home / "earlier")
    steps = Run(folder).steps
    before = contents(folder)
    file = draw.choice(sorted(before))
    KINDS[kind](folder / file, other, draw)
    after = contents(folder)
    hit = [name for name in before if after.get(name) != before[name]]
    strays = after.keys() - before.keys()
    wrong = wrong_readings(subject, folder, tolerant=True)
    damages = glauber.verify(folder).damages
    counts = Counter({"trials": 1, "noticed" if damages else "harmless": 1})
    if not damages:
        wrong += wrong_readings(subject, folder)
    shutil.copytree(folder, home / "resumed")
    try:
        glauber.resume(home / "resumed", model=subject.model)
    except GlauberError:
        pass
    else:
        _remove(home / "resumed", strays)
        wrong += wrong_end(subject, home / "resumed", values)
    try:
        subject.repair(folder)
    except GlauberError as error:
        counts["refused by repair"] += 1
        undecidable = kind in ("foreign", "swap") and steps == 0  # which file is of another run
        if "start.parquet" not in hit and kind != "folder instead" and not undecidable:
            wrong.append(f"not repaired: {error}")
        return counts, _about(wrong, subject, kind, hit, steps)
    kept = Run(folder).steps
    counts["repaired"] += 1
    counts["without loss"] += kept == steps
    if kept < min([steps, *(sound_before(name, steps) for name in hit)]):
        wrong.append(f"only {kept} steps were kept")
    _remove(folder, [*strays, *(hit if kind == "folder instead" else ())])
    wrong += unfinished(subject, folder, kept, subject.compare_repaired)
    return counts, _about(wrong, subject, kind, hit, steps)


def _remove(folder: Path, names: Iterable[str]) -> None:
    """Remove what nobody else does: files with other names, and folders."""
    for path in (folder / name for name in names):
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)


def _about(wrong: list[str], subject: Subject, kind: str, hit: list[str], steps: int) -> list[str]:
    where = f"{subject.name}, {kind} of {' and '.join(hit) or 'nothing'} at {steps} steps"
    return [f"{where}: {reason}" for reason in wrong]


def damage(home: Path, *, count: int, seed: int) -> int:
    """So many damages; prints their counts, returns failures."""
    draw, total = random.Random(seed), Counter[str]()
    for number in range(count):
        subject = draw.choice(list(SUBJECTS.values()))
        kind, steps = list(KINDS)[number % len(KINDS)], draw.choice((1, 9, 16, 27, 32, STEPS))
        with small_parts():
            counts, wrong = trial(subject, home, kind, steps, draw)
        total += counts | Counter(failed=bool(wrong))
        for reason in wrong:
            print(f"  FAILED {reason}", flush=True)
    print(f"damage with {len(READERS)} readers: ", end="")
    print(", ".join(f"{number} {what}" for what, number in total.items()))
    return total["failed"]
