"""Does a run that is cut short continue to the same bytes, and is what was committed there?

`kills` forks a child for each kill, which kills itself before a chosen file operation, or is killed
by the clock. `power` sees every sync of a writer: after a cut a strict disk has the names and bytes
that were synced and nothing else, a ragged one also some of what was not. `readers` reads while a
child writes.
"""

import math
import os
import random
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from tests.faults.damage import KINDS
from tests.faults.disk import Disk, ragged
from tests.faults.subjects import (
    READERS,
    STEPS,
    SUBJECTS,
    Subject,
    small_parts,
    unfinished,
    wrong_end,
    wrong_readings,
)

import glauber
from glauber.foundation import disk
from glauber.foundation.errors import GlauberError
from glauber.runs import folder_log
from glauber.runs.folder_log import FolderLog
from glauber.runs.run import Run

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
OPERATIONS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link")


@contextmanager
def reporting(report: Callable[[int], object]) -> Iterator[None]:
    """Every commit of this process is reported after it returned."""
    append = FolderLog.append

    def reported(log: FolderLog, events: Any) -> None:
        append(log, events)
        report(log.steps)

    with patch.object(FolderLog, "append", reported):
        yield


# ---- kills


class Death:
    """Kills this process before its writing file operation of that number."""

    def __init__(self, home: Path, at: int | None) -> None:
        self.home, self.at, self.operations = str(home), at, 0
        sys.addaudithook(self._hook)
        fsync = os.fsync

        def watched(handle: int) -> None:
            self._tick(os.readlink(f"/proc/self/fd/{handle}"))
            fsync(handle)

        os.fsync = watched

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        opened = event == "open" and isinstance(args[2], int) and args[2] & WRITES
        if opened or event in OPERATIONS:
            self._tick(str(args[0]))

    def _tick(self, path: str) -> None:
        if path.startswith(self.home):
            self.operations += 1
            if self.operations == self.at:
                os.kill(os.getpid(), signal.SIGKILL)


def fork(act: Callable[[], Any]) -> int:
    """The number of a child that acts and ends."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        act()
        code = 0
    except GlauberError as error:
        print(f"  a child was refused: {error}", flush=True)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def kill(act: Callable[[], Any], after: float | None) -> tuple[bool, bool]:
    """Whether a child that acts was killed (after so many seconds), and whether it broke down."""

    def act_and_die() -> None:
        if after is not None:  # SIGALRM ends a process as SIGKILL does: nothing catches it
            signal.setitimer(signal.ITIMER_REAL, max(after, 1e-6))
        act()

    _, status = os.waitpid(fork(act_and_die), 0)
    return os.WIFSIGNALED(status), os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0


def kills(home: Path, *, count: int, seed: int) -> int:
    """So many trials, in which a writer or a repair is killed up to three times."""
    draw, failed, killed = random.Random(seed), 0, Counter[str]()
    for number in range(count):
        subject, repairs = draw.choice(list(SUBJECTS.values())), number % 4 == 3
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        deaths, reasons = kill_trial(subject, home / "run", draw, repairs=repairs)
        killed["repair" if repairs else "writer"] += deaths
        failed += bool(reasons)
        for reason in reasons:
            print(f"  FAILED {subject.name}: {reason}", flush=True)
    kinds = ", ".join(f"{number} of a {kind}" for kind, number in killed.items())
    print(f"kills: {count} trials, {killed.total()} kills ({kinds}), {failed} failed")
    return failed


def kill_trial(
    subject: Subject, folder: Path, draw: random.Random, *, repairs: bool
) -> tuple[int, list[str]]:
    """How often a writer or a repair was killed, and what was wrong after it."""
    notes = folder.parent.with_name("committed")
    notes.write_bytes(b"")
    _ = subject.complete  # made before the first child is forked
    if repairs:
        shutil.copytree(subject.stopped(37), folder)
        files = [*(folder / "events").iterdir(), *(folder / "states").iterdir()]
        for kind in ("flip", "delete"):
            path = files.pop(draw.randrange(len(files)))
            KINDS[kind](path, folder, draw)

    def act(at: int | None, seconds: float) -> None:
        with notes.open("ab", buffering=0) as file:
            Death(folder.parent, at)
            with small_parts(seconds), reporting(lambda steps: file.write(bytes([steps]))):
                (subject.repair if repairs else subject.finish)(folder)

    deaths, reasons = 0, []
    for _ in range(draw.choice((1, 1, 2, 3))):
        at, after = draw.randint(1, 40 if repairs else 110), None
        if draw.random() < 0.3:
            at, after = None, draw.uniform(0.0, 0.5)
        dead, broken = kill(partial(act, at, draw.choice((0.0, math.inf))), after)
        deaths += dead
        reasons += ["the next process breaks down"] if broken else []
    steps = max(notes.read_bytes(), default=-1)
    if repairs:
        subject.repair(folder)
        reasons += unfinished(subject, folder, 0, subject.compare_repaired)
    else:
        reasons += unfinished(subject, folder, steps)
    return deaths, [f"{steps} steps committed: {reason}" for reason in reasons]


# ---- power cuts


def power(home: Path, *, count: int, seed: int) -> int:
    """So many power cuts of every kind of run, on a strict and on a ragged disk each."""
    draw, failed, tried, syncs = random.Random(seed), Counter[str](), 0, 0
    for subject in SUBJECTS.values():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        _ = subject.complete
        watched = Disk(home)
        with watched.watching(), reporting(watched.commit), small_parts(0.0):
            subject.finish(home / "deep" / "run")
        watched.end()
        syncs += len(watched.moments)
        for moment in draw.sample(watched.moments, min(count, len(watched.moments))):
            for kind in ("strict", "ragged"):
                tree = moment.durable if kind == "strict" else ragged(moment, draw)
                shutil.rmtree(home)
                tree.build(watched.root, home, watched.kinds)
                reasons = unfinished(subject, home / "deep" / "run", moment.steps)
                tried, failed[kind] = tried + 1, failed[kind] + bool(reasons)
                if reasons:
                    about = f"{subject.name}, {kind}, {moment.steps} steps committed"
                    print(f"  FAILED {about}: {reasons[0]}", flush=True)
        watched.close()
    kinds = ", ".join(f"{number} failed on a {kind} disk" for kind, number in failed.items())
    print(f"power: {syncs} syncs, {tried} cuts, {kinds}")
    return failed.total()


# ---- readers next to a writer


def readers(home: Path, *, count: int, seed: int) -> int:
    """At least so many readings next to a writer of every kind of run."""
    draw, failed = random.Random(seed), 0
    for subject in SUBJECTS.values():
        _ = [subject.expected(name, steps) for name in READERS for steps in range(STEPS + 1)
             if steps <= subject.complete.steps]  # fmt: skip
        lengths, wrong = Counter[int](), 0
        while lengths.total() < count:
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            folder = home / "run"

            def act(folder: Path = folder, subject: Subject = subject) -> None:
                with small_parts(0.0):
                    subject.finish(folder)

            child, opened = fork(act), None
            while os.waitpid(child, os.WNOHANG) == (0, 0):
                if not folder.exists():
                    continue
                # A run that was opened before, its newest steps, or one that is opened now.
                opened = draw.choice((opened, opened and opened.newest(), None)) or Run(folder)
                lengths[opened.steps] += 1
                reasons = wrong_readings(subject, opened, names=draw.sample(list(READERS), 2))
                if draw.random() < 0.2 and glauber.verify(folder).damages:
                    reasons.append("verify reports damage")
                wrong += bool(reasons)
                for reason in reasons:
                    print(f"  FAILED {subject.name}, {opened.steps} steps: {reason}", flush=True)
            for reason in wrong_end(subject, folder):
                wrong += 1
                print(f"  FAILED {subject.name}: {reason}", flush=True)
        print(
            f"readers, {subject.name}: {lengths.total()} readings at {len(lengths)} lengths, "
            f"{wrong} failed",
            flush=True,
        )
        failed += wrong
    return failed


# ---- writers with a known mistake


@contextmanager
def without_sync() -> Iterator[None]:
    """A writer that never waits for the disk."""
    with patch.object(disk, "flush_to_disk", lambda handle: None):
        yield


@contextmanager
def manifest_first() -> Iterator[None]:
    """A writer that commits before it writes what the commit names."""
    waiting: dict[Path, bytes] = {}
    write_manifest = folder_log.write_manifest

    def write(log: FolderLog, name: str, content: bytes, digests: dict[str, str]) -> None:
        waiting[log.folder / name] = content
        digests[name] = disk.digest(content)

    def commit(folder: Path, manifest: folder_log.Manifest) -> None:
        write_manifest(folder, manifest)
        for path, content in waiting.items():
            disk.write_file(path, content)
        waiting.clear()
        disk.sync(folder, folder / "events", folder / "states")

    with ExitStack() as stack:
        stack.enter_context(patch.object(FolderLog, "_write", write))
        stack.enter_context(patch.object(folder_log, "write_manifest", commit))
        yield


BROKEN_WRITERS = {"without-sync": without_sync, "manifest-first": manifest_first}
