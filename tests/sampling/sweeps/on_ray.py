"""Runs the sweep of a folder on a Ray cluster of two workers, and kills one in the middle.

A process of its own, because Ray leaves processes and warnings behind in the one that uses it.
Prints how many workers it killed.
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path

from glauber.sampling.sweeps.executors import choose_executor, run_sweep
from glauber.sampling.sweeps.folder import read_sweep
from glauber.studies.mixing.phase import open_cells

killed: list[int] = []


def running_tasks() -> list[int]:
    """Processes that run a task of ours."""
    pids = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and b"ray::run_task" in (process / "cmdline").read_bytes():
                pids.append(int(process.name))
        except OSError:  # it has ended meanwhile
            continue
    return pids


def kill_once(done: int, total: int) -> None:
    if done == 1 and not killed and (running := running_tasks()):
        os.kill(running[0], signal.SIGKILL)
        killed.append(running[0])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    work = partial(open_cells, read_sweep(folder).arguments)
    run_sweep(folder, work, executor=choose_executor("ray", workers=2), progress=kill_once)
    print(len(killed))
