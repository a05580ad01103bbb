"""What is cut short: the commands that write a run, and how a person goes on after each."""

import math
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import glauber
from bench.torture.harm import flip, sound_before
from bench.torture.subjects import (
    SUBJECTS,
    Subject,
    differences,
    small_parts,
    sound,
    to_earlier_format,
)
from glauber.runs.run import Run


@dataclass(frozen=True)
class Operation:
    """A command that writes, from a prepared folder to a known end."""

    name: str
    act: Callable[[Path], None]
    again: Callable[[Path], None]  # after it was cut short, to the end
    end: Path  # the run that nothing befell
    prepared: Path | None = None  # what is there before; nothing where a run is begun
    least: int = 0  # steps that are safe before it begins
    seconds: float = 0.0  # between commits
    mends: bool = False  # before it the run is damaged, or of an earlier format

    def prepare(self, home: Path) -> Path:
        """The folder that it writes, in a home of its own."""
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        if self.prepared is not None:
            shutil.copytree(self.prepared, home / "run")
        return home / "run"

    def check(self, folder: Path, least: int) -> list[str]:
        """What is wrong after it was cut short, with so many steps committed before."""
        if not folder.exists():
            wrong = [] if least == 0 and self.prepared is None else ["the run is not there"]
        else:
            wrong = self._committed(folder, least)
        try:
            with small_parts(self.seconds):
                self.again(folder)
            differ = differences(folder, self.end)
        except Exception as error:
            return [*wrong, f"it cannot go on: {type(error).__name__}: {error}"]
        return [*wrong, f"the end differs: {', '.join(differ)}"] if differ else wrong

    def _committed(self, folder: Path, least: int) -> list[str]:
        """What is called committed is there, and is what it was."""
        if self.mends:  # it may be as damaged as before; `again` tells what was kept
            return []
        if not sound(folder):
            return ["it does not verify"]
        run, whole = Run(folder), Run(self.end)
        wrong = [f"{run.steps} of {least} steps"] if run.steps < least else []
        same = (run.tokens() == whole.tokens(run.steps)).all()
        return wrong if same else [*wrong, "the tokens differ"]


def operations(home: Path, names: tuple[str, ...] = ()) -> list[Operation]:
    """The operations of these names, or all: of runs of 1, 2, 3 and 8 chains."""
    found = []
    for name in names or MAKERS:
        (home / name).mkdir(parents=True)
        made = MAKERS[name](home / name)
        found.append(replace(made, name=name))
    return found


def _begun(subject: Subject, home: Path, seconds: float) -> Operation:
    """A run from nothing."""
    with small_parts(seconds):
        subject.begin(home / "end")

    def again(folder: Path) -> None:
        (subject.resume if folder.exists() else subject.begin)(folder)

    return Operation("", subject.begin, again, home / "end", seconds=seconds)


def _extended(subject: Subject, home: Path, seconds: float) -> Operation:
    """A finished run made longer."""
    with small_parts(seconds):
        subject.begin(home / "before")
        shutil.copytree(home / "before", home / "end")
        subject.extend(home / "end")
    steps = Run(home / "before").steps
    before, end = home / "before", home / "end"
    return Operation("", subject.extend, subject.extend, end, before, steps, seconds)


def _repaired(subject: Subject, home: Path, hit: list[str]) -> Operation:
    """A damaged run; after the repair it is resumed."""
    with small_parts():
        subject.begin(home / "end")
    shutil.copytree(home / "end", home / "before")
    for file in hit:
        flip(home / "before" / file, random.Random(1))
    return _mended(subject, home, min(map(sound_before, hit)))


def _migrated(subject: Subject, home: Path, *, resumed: bool) -> Operation:
    """A run of an earlier format, repaired or resumed."""
    with small_parts():
        subject.begin(home / "end")
        subject.stop(home / "before", 22)
    to_earlier_format(home / "before")
    steps = Run(home / "before").steps
    if not resumed:
        return _mended(subject, home, steps)
    before, end = home / "before", home / "end"
    return Operation("", subject.resume, subject.resume, end, before, steps, mends=True)


def _mended(subject: Subject, home: Path, least: int) -> Operation:
    def act(folder: Path) -> None:
        glauber.repair(folder, model=subject.model())

    def again(folder: Path) -> None:
        act(folder)
        kept = Run(folder).steps
        if kept < min(least, Run(home / "end").steps):
            raise ValueError(f"only {kept} of {least} sound steps are kept")
        subject.resume(folder)

    return Operation("", act, again, home / "end", home / "before", least, mends=True)


CHUNK = "events.zarr/entropy/c/0/1/0"
SMALL = ["run.json", "committed.json", "finished.json", "events.zarr/tokens/c/2/0/0"]
MAKERS: dict[str, Callable[[Path], Operation]] = {
    "sample, a step a commit": lambda home: _begun(SUBJECTS["one chain"], home, 0.0),
    "sample": lambda home: _begun(SUBJECTS["eight chains"], home, math.inf),
    "sample, constrained": lambda home: _begun(SUBJECTS["constrained"], home, math.inf),
    "extend": lambda home: _extended(SUBJECTS["blocks"], home, math.inf),
    "extend, a step a commit": lambda home: _extended(SUBJECTS["adaptive"], home, 0.0),
    "generate": lambda home: _begun(SUBJECTS["generation"], home, 0.0),
    "repair, a chunk": lambda home: _repaired(SUBJECTS["constrained"], home, [CHUNK]),
    "repair, small files": lambda home: _repaired(SUBJECTS["plain"], home, SMALL),
    "resume of an earlier format": lambda home: _migrated(SUBJECTS["table"], home, resumed=True),
    "repair of an earlier format": lambda home: _migrated(SUBJECTS["plain"], home, resumed=False),
}
