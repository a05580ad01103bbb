"""What do checksums cost? python -m bench.integrity [--chains N] [--steps N] [--turns N]

A run of made-up events is written in parts of 256 steps and read again, in turns with and without
comparing digests; and how long the digests of a part take of the time of its commit.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from glauber.conditionals.shelf import bundled_folder
from glauber.runs.integrity import digest_of
from glauber.runs.replay import replaced
from glauber.runs.run import Run
from glauber.runs.spec import Spec
from glauber.runs.store import Events, create, seal
from glauber.runs.writer import Writer

PART, LENGTH, TOKENS = 256, 30, 1000


def made_up(chains: int, steps: int) -> tuple[np.ndarray, Events]:
    """Tokens to begin with, and events that follow from them."""
    rng = np.random.default_rng(0)
    start = rng.integers(TOKENS, size=(chains, LENGTH))
    events: Events = {
        "site": rng.integers(LENGTH, size=(chains, steps, 1)),
        "token": rng.integers(TOKENS, size=(chains, steps, 1)),
        **{name: -rng.random((chains, steps, 1)) for name in ("log_prob_old", "log_prob_new")},
        "entropy": rng.random((chains, steps, 1)),
    }
    old, _ = replaced(start, events["site"], events["token"])
    return start, events | {"changed": old != events["token"]}


def written(folder: Path, start: np.ndarray, events: Events) -> list[float]:
    """Makes the run; the seconds of each commit."""
    chains, steps = events["site"].shape[:2]
    create(folder, start, np.ones(start.shape, bool), 1)
    (folder / "tokenizer").mkdir()
    shutil.copy(bundled_folder("english") / "tokenizer.json", folder / "tokenizer")
    seal(folder, Spec("made up", "0" * 12, "cpu", "float32", 0, steps, chains, 1.0))
    seconds, now = [], start
    with Writer(folder) as writer:
        for first in range(0, steps, PART):
            part = {name: one[:, first : first + PART] for name, one in events.items()}
            _, now = replaced(now, part["site"], part["token"])
            last = first + part["site"].shape[1]
            began = time.perf_counter()
            writer.append(part, {last: now} if last % writer.every == 0 else {})
            seconds.append(time.perf_counter() - began)
        writer.finish()
    return seconds


def read(folder: Path, *, compared: bool) -> None:
    """Opens the run and reads all of it."""
    run = Run(folder)
    run._stored.has_digests = compared
    for name in run.fields:
        run.read(name)
    run.tokens()


def best(turns: int, *works: Callable[[], object]) -> list[float]:
    """The least seconds of each work, taken in turns."""
    found = [[] for _ in works]  # type: list[list[float]]
    for _ in range(turns):
        for seconds, work in zip(found, works, strict=True):
            began = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - began)
    return [min(seconds) for seconds in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("--chains", 8), ("--steps", 10_000), ("--turns", 20)):
        parser.add_argument(name, type=int, default=default)
    given = parser.parse_args()
    start, events = made_up(given.chains, given.steps)
    part = {name: one[:, :PART].astype(np.float32) for name, one in events.items()}
    with tempfile.TemporaryDirectory(dir=".") as place:
        folder = Path(place) / "run"
        folder.mkdir()
        commits = written(folder, start, events)
        plain, compared = best(
            given.turns,
            lambda: read(folder, compared=False),
            lambda: read(folder, compared=True),
        )
        (hashed,) = best(given.turns, lambda: [digest_of(one) for one in part.values()])
    print(f"{given.chains} chains x {given.steps:,} steps")
    print(
        f"first reading {1e3 * compared:.1f} ms, without comparing {1e3 * plain:.1f} ms: ", end=""
    )
    print(f"{compared / plain - 1:+.1%}")
    middle = float(np.median(commits))
    print(f"a commit of {PART} steps {1e3 * middle:.1f} ms (median of {len(commits)}), ", end="")
    print(f"of which digests {1e3 * hashed:.2f} ms: {hashed / middle:.1%}")


if __name__ == "__main__":
    main()
