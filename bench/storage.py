"""What does storing events cost? python -m bench.storage [--turns N]

Synthetic events in 20 commits: the Zarr arrays of `Writer` and `Run` compared with the Parquet
segments of `FolderLog`. Times are the least of a few turns, in milliseconds; "seek" is the tokens
after three quarters of the steps, with a log that was just opened.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from glauber.runs.folder_log import FolderLog
from glauber.runs.log import Events
from glauber.runs.log_repair import inspect_log
from glauber.runs.replay import replaced
from glauber.runs.run import Run
from glauber.runs.spec import Spec
from glauber.runs.store import create, seal
from glauber.runs.verify import verify
from glauber.runs.writer import Writer

SIZES = ((8, 10_000), (64, 3_000), (4_096, 300))
COMMITS = 20
LENGTH, TOKENS = 22, 1000


def synthetic_events(n_chains: int, n_steps: int) -> tuple[np.ndarray, Events]:
    """Tokens to begin with, and events that follow from them."""
    rng = np.random.default_rng(0)
    shape = (n_chains, n_steps, 1)
    start = rng.integers(TOKENS, size=(n_chains, LENGTH)).astype(np.int32)
    events: Events = {
        "site": rng.integers(LENGTH, size=shape).astype(np.int32),
        "token": rng.integers(TOKENS, size=shape).astype(np.int32),
        "log_prob_old": (-9 * rng.random(shape)).astype(np.float32),
        "log_prob_new": (-9 * rng.random(shape)).astype(np.float32),
        "entropy": (5 * rng.random(shape)).astype(np.float32),
    }
    old, _ = replaced(start, events["site"], events["token"])
    return start, events | {"changed": old != events["token"]}


def parts(events: Events, limit: int) -> list[tuple[int, int]]:
    """The steps of each commit; none crosses a multiple of `limit`, as the Zarr writer needs."""
    n_steps = events["site"].shape[1]
    ends = {round(n_steps * number / COMMITS) for number in range(COMMITS + 1)}
    ends |= set(range(0, n_steps, limit))
    bounds = sorted(ends)
    return list(itertools.pairwise(bounds))


def write_zarr(folder: Path, spec: Spec, start: np.ndarray, events: Events) -> float:
    """The seconds of all commits."""
    create(folder, start, np.ones(start.shape, bool), 1)
    seal(folder, spec)
    tokens, seconds = start, 0.0
    with Writer(folder) as writer:
        for first, last in parts(events, writer.every):
            part = {name: values[:, first:last] for name, values in events.items()}
            _, tokens = replaced(tokens, part["site"], part["token"])
            marks = {last: tokens} if last % writer.every == 0 else {}
            began = time.perf_counter()
            writer.append(part, marks)
            seconds += time.perf_counter() - began
    return seconds


def write_parquet(folder: Path, spec: Spec, start: np.ndarray, events: Events) -> float:
    """The seconds of all commits."""
    seconds = 0.0
    with FolderLog.create(folder, spec, start, np.ones(start.shape, bool)) as log:
        for first, last in parts(events, events["site"].shape[1]):
            part = {name: values[:, first:last] for name, values in events.items()}
            began = time.perf_counter()
            log.append(part)
            seconds += time.perf_counter() - began
    return seconds


def read_all(log: Any) -> None:
    for name in log.fields:
        log.read(name)


def least(turns: int, work: Callable[[], object]) -> float:
    """The least milliseconds of some turns."""
    times = []
    for _ in range(turns):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return 1000 * min(times)


def measure(
    name: str,
    size: tuple[int, int],
    turns: int,
    write: Callable[..., float],
    read: Callable[[Path], Any],
    check: Callable[[Path], object],
) -> None:
    """Print one line for one way of storing."""
    n_chains, n_steps = size
    start, events = synthetic_events(n_chains, n_steps)
    spec = Spec("synthetic", "0" * 12, "cpu", "float32", 0, n_steps, n_chains, 1.0)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "0"
        commits = [write(Path(parent) / str(turn), spec, start, events) for turn in range(turns)]
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        columns = {
            "bytes/event": sum(sizes) / (n_chains * n_steps),
            "files": len(sizes),
            "all commits": 1000 * min(commits),
            "read all": least(turns, lambda: read_all(read(folder))),
            "one chain": least(turns, lambda: read(folder).read("token")[0]),
            "seek": least(turns, lambda: read(folder).tokens(3 * n_steps // 4)),
            "verify": least(turns, lambda: check(folder)),
        }
    values = ", ".join(f"{what} {value:,.1f}" for what, value in columns.items())
    print(f"{n_chains:,} x {n_steps:,}, {name}: {values}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    for size in SIZES:
        measure("Zarr", size, args.turns, write_zarr, Run, verify)
        measure("Parquet", size, args.turns, write_parquet, FolderLog, inspect_log)


if __name__ == "__main__":
    main()
