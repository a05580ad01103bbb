"""Is every damage to a run's files noticed, and is the longest sound beginning kept by a repair?

A file is chosen by its kind, so that the small ones are hit as often as the chunks, and one thing
befalls it. Then every reader must refuse, or see what it saw before; what `verify` calls sound
must all be readable; a repair must keep what was not hit; and `resume` must end with the bytes of
the run that nothing befell.
"""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import glauber
from bench.torture.readers import Refusal, Seen, frozen, observe
from bench.torture.subjects import EVERY, SUBJECTS, Subject, differences, small_parts, sound
from glauber.errors import GlauberError
from glauber.runs.run import Run

STOPPED = {"generation": 11}  # passes after which the unfinished run is stopped
LOST_FOR_GOOD = ("tokens/c/0/0/0", "free/c/0/0")  # the start: nothing else tells it


@dataclass(frozen=True)
class Made:
    """A subject's runs, and what readers see of them where they are tortured."""

    subject: Subject
    place: Path  # where the tortured copy lies
    whole: Path
    stopped: Path
    other: Path  # by another seed
    longer: Path
    seen: dict[str, Seen]  # of each of these

    def copy(self, which: str) -> Path:
        """A fresh copy of one of the runs, always at the same place."""
        shutil.rmtree(self.place, ignore_errors=True)
        return shutil.copytree(getattr(self, which), self.place)


def made(subject: Subject, home: Path) -> Made:
    """Makes a subject's runs in a folder."""
    names = ("whole", "stopped", "other", "longer")
    whole, stopped, other, longer = (home / name for name in names)
    with small_parts():
        subject.begin(whole)
        subject.stop(stopped, STOPPED.get(subject.name, 22))
        subject.begin(other, seed=1000)
        shutil.copytree(whole, longer)
        subject.extend(longer)
    found = Made(subject, home / "run", whole, stopped, other, longer, {})
    for name in ("whole", "stopped", "longer"):
        found.seen[name] = observe(found.copy(name))
        bad = {k: v for k, v in found.seen[name].items() if isinstance(v, Refusal)}
        if bad:
            raise SystemExit(f"{subject.name}: the undamaged run cannot be read: {bad}")
    return found


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
KINDS = (*DAMAGES, "swap", "foreign")


def befall(run: Path, other: Path, kind: str, draw: random.Random) -> tuple[str, list[Path]]:
    """Damages a run at random; says how, and which files were hit."""
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


@dataclass
class Trial:
    """What came of one damage."""

    what: str
    noticed: bool = True
    failures: list[str] = field(default_factory=list)
    kept: float | None = None  # share of the steps, after a repair
    refused: str = ""  # why it could not be repaired

    def fail(self, why: str) -> None:
        self.failures.append(why)


def trial(made: Made, which: str, kind: str, draw: random.Random) -> Trial:
    """One damage to one of a subject's runs, and everything that must hold after it."""
    run = made.copy(which)
    what, hit = befall(run, made.other, kind, draw)
    found = Trial(f"{made.subject.name}, {which}: {what}")
    damaged = run.with_name("damaged")
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(run, damaged)
    _check_readers(found, made.seen[which], run)
    for name, end in (("resume", "whole"), ("extend", "longer")):
        _again(damaged, run)
        _check_writer(found, made, name, end)
    _again(damaged, run)
    places = [path.relative_to(run) for path in hit]
    _check_repair(found, made, which, [str(one) for one in places])
    return found


def _again(damaged: Path, run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(damaged, run)


def _check_readers(found: Trial, before: Seen, run: Path) -> None:
    now = observe(run)
    found.noticed = not sound(run)
    for name, value in now.items():
        if isinstance(value, Refusal):
            if value.kind == "crashed":
                found.fail(f"{name} breaks down: {value.why}")
            elif not found.noticed:
                found.fail(f"verify sees nothing, but {name} says: {value.why}")
        elif value != before[name]:
            found.fail(f"{name} shows something else")


def _check_writer(found: Trial, made: Made, name: str, end: str) -> None:
    """resume and extend refuse, or end as if nothing had happened."""
    try:
        with small_parts():
            getattr(made.subject, name)(made.place)
    except GlauberError:
        return
    except Exception as error:
        return found.fail(f"{name} breaks down: {type(error).__name__}: {error}")
    if not differences(made.place, getattr(made, end)):
        return
    wrong = [k for k, seen in observe(made.place).items() if seen != made.seen[end][k]]
    if wrong:
        found.fail(f"{name} goes on, and then {', '.join(wrong)} differ")


def _check_repair(found: Trial, made: Made, which: str, hit: list[str]) -> None:
    """A repair keeps what was not hit, and what it keeps verifies and is resumed to the end."""
    repair = getattr(glauber, "repair", None)
    if repair is None:
        found.refused = "there is no repair"
        return
    run, model = made.place, made.subject.model()
    try:
        repair(run, model=model)
        if not sound(run):
            found.fail("what was repaired does not verify")
        _check_kept(found, Run(getattr(made, which)), Run(run), hit)
        with small_parts():
            made.subject.resume(run)
        differ = differences(run, made.whole)
        if differ:
            found.fail(f"repaired and resumed, the bytes differ: {', '.join(differ)}")
    except GlauberError as error:
        found.refused = str(error)
        if not any(one.endswith(LOST_FOR_GOOD) for one in hit):
            found.fail(f"not repaired: {error}")
    except Exception as error:
        found.fail(f"repair breaks down: {type(error).__name__}: {error}")


def _check_kept(found: Trial, before: Run, after: Run, hit: list[str]) -> None:
    found.kept = after.steps / before.steps
    least = min([before.steps, *map(sound_before, hit)])
    if after.steps < least:
        found.fail(f"{after.steps} steps are kept, but {least} are sound")
    for name in before.fields:
        if frozen(after.read(name)) != frozen(before.read(name, 0, after.steps)):
            found.fail(f"{name} of the steps that are kept differs")
    for step in range(after.steps + 1):
        if (after.tokens(step) != before.tokens(step)).any():
            return found.fail(f"the tokens after step {step} differ")
    return None


def sound_before(hit: str) -> int:
    """The steps before what was hit; a mark is made again from the one before it."""
    parts = hit.split("/")
    chunk = parts[0] == "events.zarr" and parts[-1] != "zarr.json"
    return EVERY * int(parts[-2]) if chunk and parts[1] not in ("tokens", "free") else 10**9


def damage(home: Path, *, count: int = 200, seed: int = 0, names: tuple[str, ...] = ()) -> int:
    """So many damages over all kinds of runs; prints a line for each kind, returns failures."""
    draw = random.Random(seed)
    subjects = [made(SUBJECTS[name], home / name) for name in names or SUBJECTS]
    tally: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        which = draw.choice(("whole", "stopped"))
        found = trial(draw.choice(subjects), which, kind, draw)
        tally[kind].update(_counts(found))
        if found.failures:
            print(f"  FAILED {found.what}: {'; '.join(found.failures)}", flush=True)
    for kind, counts in tally.items():
        print(f"damage, {kind}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    return sum(counts["failed"] for counts in tally.values())


def _counts(found: Trial) -> dict[str, int]:
    return {
        "trials": 1,
        "noticed": int(found.noticed),
        "harmless": int(not found.noticed and not found.failures),
        "repaired": int(found.kept is not None),
        "of them without loss": int(found.kept == 1.0),
        "refused by repair": int(bool(found.refused)),
        "failed": int(bool(found.failures)),
    }
