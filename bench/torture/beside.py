"""Does a reader beside a writer ever see damage that is none, or something that was not written?

A child writes, and everything is read again and again until it ends.
"""

import os
import random
import time
from collections import Counter
from pathlib import Path

from bench.torture.kills import forking
from bench.torture.operations import Operation, operations
from bench.torture.readers import READERS, Refusal, frozen, observe
from bench.torture.subjects import small_parts, sound
from glauber.errors import GlauberError
from glauber.runs.run import Run

NAMES = ("sample, a step a commit", "sample", "extend", "generate", "resume of an earlier format")


def beside(home: Path, *, count: int = 100, seed: int = 0, names: tuple[str, ...] = NAMES) -> int:
    """At least so many readings beside every operation; prints a line for each."""
    draw, failed = random.Random(seed), 0
    for operation in operations(home / "made", names):
        done, wrong = Counter[str](), 0
        while done.total() < count:
            wrong += _beside(operation, home / "trial", draw, done)
        steps = len(done)
        print(
            f"beside, {operation.name}: {done.total()} readings at {steps} lengths, {wrong} failed",
            flush=True,
        )
        failed += wrong
    return failed


def _beside(operation: Operation, home: Path, draw: random.Random, done: Counter[str]) -> int:
    """Reads while a child writes; how often something was wrong."""
    folder, whole, wrong = operation.prepare(home), Run(operation.end), 0

    def act() -> None:
        with small_parts(operation.seconds):
            operation.act(folder)

    child = forking(act)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if not (folder / "run.json").exists():
            time.sleep(0.001)
            continue
        steps, why = _read(folder, whole, draw)
        done[steps] += 1
        if why:
            wrong += 1
            print(f"  FAILED beside {operation.name}, {steps} steps: {why}", flush=True)
    return wrong


def _read(folder: Path, whole: Run, draw: random.Random) -> tuple[str, str]:
    """One reading: how many steps there were, and what was wrong."""
    steps = "?"
    try:
        run = Run(folder)
        steps = str(run.steps)
        for name in draw.sample(run.fields, 2):
            if frozen(run.read(name)) != frozen(whole.read(name, 0, run.steps)):
                return steps, f"{name} differs"
        if (run.tokens() != whole.tokens(run.steps)).any():
            return steps, "the tokens differ"
    except GlauberError as error:
        return steps, str(error)
    name = draw.choice(sorted(READERS))
    seen = observe(folder, (name,))[name]
    if isinstance(seen, Refusal) and "no steps yet" not in seen.why:
        return steps, f"{name}: {seen.why}"
    return steps, "" if sound(folder) else "verify says that it is damaged"
