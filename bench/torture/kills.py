"""Does a run that is killed at any moment go on to the same end?

A child is forked for each kill, from a process that has the model already. Half of the children
kill themselves before a chosen file operation, so that every phase is hit; the others are killed
from outside at a moment by the clock. Some of the commands that go on are killed as well.
"""

import os
import pickle
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.torture.operations import Operation, operations
from bench.torture.subjects import small_parts

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
WATCHED = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link")


class Moments:
    """Counts this process's writing file operations and kills it before the one of that number."""

    def __init__(self, home: Path, at: int | None = None) -> None:
        self.home, self.at = str(home), at
        self.seen: list[str] = []  # the phase of each operation

    def watch(self) -> None:
        """From now on."""
        sys.addaudithook(self._hook)
        fsync = os.fsync

        def watched(handle: int) -> None:
            self._tick(os.readlink(f"/proc/self/fd/{handle}"))
            fsync(handle)

        os.fsync = watched

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event in WATCHED or (event == "open" and isinstance(args[2], int) and args[2] & WRITES):
            self._tick(str(args[0]))

    def _tick(self, path: str) -> None:
        if path.startswith(self.home):
            self.seen.append(phase(path))
            if len(self.seen) == self.at:
                os.kill(os.getpid(), signal.SIGKILL)


def phase(path: str) -> str:
    """What a run is at when it touches a file."""
    if ".glauber-draft/" in path:
        return "creation"
    for name in ("committed", "finished", "run.", "tokenizer"):
        if name in path.rpartition("/run/")[2]:
            return name.strip(".")
    return "events" if "events.zarr" in path else "folder"


def forking(act: Callable[[], Any]) -> int:
    """The number of a child that acts and ends."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        act()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def forked(act: Callable[[], Any], after: float | None = None) -> bool:
    """Whether a child that acts was killed, maybe from here after so many seconds."""
    child = forking(act)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a child broke down before it was killed")
    return os.WIFSIGNALED(status)


def rehearsed(operation: Operation, home: Path) -> tuple[list[str], float]:
    """The phases of an operation's file operations in their order, and how long it takes."""
    folder, notes = operation.prepare(home), home.with_name("phases")

    def act() -> None:
        moments = Moments(home)
        moments.watch()
        with small_parts(operation.seconds):
            operation.act(folder)
        notes.write_bytes(pickle.dumps(moments.seen))

    begun = time.perf_counter()
    forked(act)
    return pickle.loads(notes.read_bytes()), time.perf_counter() - begun


def trial(
    operation: Operation, home: Path, seen: list[str], seconds: float, draw: random.Random
) -> tuple[Counter[str], list[str]]:
    """An operation killed once or a few times: in which phases, and what was wrong after it."""
    folder, hit = operation.prepare(home), Counter[str]()
    acts = [operation.act] + [operation.again] * draw.choice((0, 0, 1, 2))
    for act in acts:
        at, after = None, None
        if draw.random() < 0.6:
            chosen = draw.choice(sorted(set(seen)))
            at = 1 + draw.choice([i for i, one in enumerate(seen) if one == chosen])
        else:
            chosen, after = "by the clock", draw.uniform(0.0, seconds)

        def dying(act: Callable[[Path], None] = act, at: int | None = at) -> None:
            Moments(home, at).watch()
            with small_parts(operation.seconds):
                act(folder)

        if forked(dying, after):
            hit[chosen] += 1
    return hit, operation.check(folder, operation.least)


def kills(home: Path, *, count: int = 100, seed: int = 0, names: tuple[str, ...] = ()) -> int:
    """So many trials over all operations; prints a line for each, returns failures."""
    draw, failed = random.Random(seed), 0
    chosen = operations(home / "made", names)
    for number, operation in enumerate(chosen):
        seen, seconds = rehearsed(operation, home / "trial")
        wrong, hit = 0, Counter[str]()
        trials = count // len(chosen) + (number < count % len(chosen))
        for _ in range(trials):
            phases, why = trial(operation, home / "trial", seen, seconds, draw)
            hit += phases
            wrong += bool(why)
            if why:
                print(f"  FAILED {operation.name}, {dict(phases)}: {'; '.join(why)}", flush=True)
        parts = ", ".join(f"{n} {name}" for name, n in sorted(hit.items()))
        done = f"{trials} trials, {hit.total()} kills ({parts})"
        print(f"kills, {operation.name}: {done}, {wrong} failed", flush=True)
        failed += wrong
    return failed
