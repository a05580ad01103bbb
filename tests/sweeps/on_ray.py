"""Runs the sweep of a folder on a Ray cluster of two workers, and kills one in the middle.

A process of its own, because Ray leaves processes and warnings behind in the one that uses it.
Prints how many workers it killed.
"""

import os
import signal
import sys
from pathlib import Path

from glauber.sweeps.executor import executor_named, run_sweep

killed: list[int] = []


def actors() -> list[int]:
    """Processes that run our actors."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and b"ray::Opened" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


def kill_once(done: int, total: int) -> None:
    if done == 1 and not killed and (running := actors()):
        os.kill(running[0], signal.SIGKILL)
        killed.append(running[0])


if __name__ == "__main__":
    run_sweep(Path(sys.argv[1]), executor=executor_named("ray", workers=2), progress=kill_once)
    print(len(killed))
