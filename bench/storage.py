"""What does storing events cost? python -m bench.storage [--turns N] [--old CHECKOUT]

Synthetic events in 20 commits to a log in a folder. Times are the least of a few turns, in
milliseconds; "seek" is the tokens after three quarters of the steps, with a log that was just
opened, and "digests" is how long the digests of all files take, which a first reading compares.
--old names a checkout of a version that stored Zarr arrays; its own bench is run for comparison.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from glauber.foundation.disk import digest
from glauber.runs.folder_log import FolderLog
from glauber.runs.log import Events, Log
from glauber.runs.spec import Spec
from glauber.runs.verify import inspect_log

SIZES = ((8, 10_000), (64, 3_000), (4_096, 300))
COMMITS = 20
LENGTH, TOKENS = 22, 1000


def synthetic_events(n_chains: int, n_steps: int) -> tuple[np.ndarray, Events]:
    """Tokens to begin with, and events of these chains."""
    rng = np.random.default_rng(0)
    shape = (n_chains, n_steps, 1)
    start = rng.integers(TOKENS, size=(n_chains, LENGTH)).astype(np.int32)
    events: Events = {
        "site": rng.integers(LENGTH, size=shape).astype(np.int32),
        "token": rng.integers(TOKENS, size=shape).astype(np.int32),
        "changed": rng.random(shape) < 0.9,
        "log_prob_old": (-9 * rng.random(shape)).astype(np.float32),
        "log_prob_new": (-9 * rng.random(shape)).astype(np.float32),
        "entropy": (5 * rng.random(shape)).astype(np.float32),
    }
    return start, events


def write(folder: Path, spec: Spec, start: np.ndarray, events: Events) -> float:
    """The seconds of all commits."""
    seconds = 0.0
    ends = [round(spec.steps * number / COMMITS) for number in range(COMMITS + 1)]
    with FolderLog.create(folder, spec, start, np.ones(start.shape, bool)) as log:
        for first, last in itertools.pairwise(ends):
            part = {name: values[:, first:last] for name, values in events.items()}
            began = time.perf_counter()
            log.append(part)
            seconds += time.perf_counter() - began
    return seconds


def read_all(log: Log) -> None:
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


def measure(n_chains: int, n_steps: int, turns: int) -> None:
    """Print one line for one size."""
    start, events = synthetic_events(n_chains, n_steps)
    spec = Spec("synthetic", "0" * 12, "cpu", "float32", 0, n_steps, n_chains, 1.0)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "0"
        commits = [write(Path(parent) / str(turn), spec, start, events) for turn in range(turns)]
        contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
        columns = {
            "bytes/event": sum(map(len, contents)) / (n_chains * n_steps),
            "files": len(contents),
            "all commits": 1000 * min(commits),
            "read all": least(turns, lambda: read_all(FolderLog(folder))),
            "one chain": least(turns, lambda: FolderLog(folder).read("token")[0]),
            "seek": least(turns, lambda: FolderLog(folder).tokens(3 * n_steps // 4)),
            "verify": least(turns, lambda: inspect_log(folder)),
            "digests": least(turns, lambda: [digest(content) for content in contents]),
        }
    values = ", ".join(f"{what} {value:,.1f}" for what, value in columns.items())
    print(f"{n_chains:,} x {n_steps:,}: {values}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--old", type=Path)
    args = parser.parse_args()
    for n_chains, n_steps in SIZES:
        measure(n_chains, n_steps, args.turns)
    if args.old is not None:
        command = [sys.executable, "-m", "bench.storage", "--turns", str(args.turns)]
        environment = os.environ | {"PYTHONPATH": str(args.old.resolve() / "src")}
        subprocess.run(command, cwd=args.old, env=environment, check=True)


if __name__ == "__main__":
    main()
