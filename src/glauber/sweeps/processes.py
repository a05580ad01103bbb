"""How do several processes share a sweep, and what if one of them dies?

Each worker has a pipe. It is sent a task, sends back each cell as it is finished, and asks for the
next task. When a pipe breaks, its worker has died: the cells it still owed go back to the front of
the queue and a new worker takes its place.
"""

import multiprocessing
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from glauber.errors import GlauberError
from glauber.sweeps.folder import read_sweep
from glauber.sweeps.grid import Cell, pack
from glauber.sweeps.work import Crew, Result, open_alone

TASKS_EACH = 6  # tasks per worker: few enough for full batches, enough for an even end
TRIES = 3  # workers that may die over the same cell


def in_processes(n_workers: int) -> Crew:
    """A crew of that many processes of this machine, each on one core."""
    if n_workers < 1:
        raise GlauberError(f"there are {n_workers} workers, but a sweep needs at least one.")

    def crew(folder: Path, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Result]]:
        tasks = deque(reversed(pack(cells, TASKS_EACH * n_workers)))  # the longest first
        workers = [_Worker(folder) for _ in range(min(n_workers, len(tasks)))]
        try:
            yield from _share(folder, tasks, workers)
        finally:
            for worker in workers:
                worker.stop()

    return crew


class _Worker:
    """A process, our end of its pipe, and the cells that it owes."""

    def __init__(self, folder: Path) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would copy torch's threads half
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(theirs, folder), daemon=True)
        self.process.start()
        theirs.close()
        self.owed: list[Cell] = []
        self.busy = False

    def give(self, tasks: deque[list[Cell]]) -> None:
        """Sends the next task, if there is one."""
        self.owed = list(tasks.popleft()) if tasks else []
        self.busy = bool(self.owed)
        if self.busy:
            with suppress(OSError):  # it has died: the broken pipe is noticed on the way back
                self.pipe.send(self.owed)

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _work(pipe: Connection, folder: Path) -> None:
    """What a worker does until its pipe is closed."""
    import os
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    parent = os.getppid()
    try:
        work = open_alone(folder, read_sweep(folder))
        while os.getppid() == parent:
            for cell, result in work(pipe.recv()):
                pipe.send((cell, result))
            pipe.send(None)
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        pipe.send(GlauberError(str(error)) if isinstance(error, GlauberError) else error)


def _share(
    folder: Path, tasks: deque[list[Cell]], workers: list[_Worker]
) -> Iterator[tuple[Cell, Result]]:
    lost: dict[str, int] = {}
    for worker in workers:
        worker.give(tasks)
    while busy := {worker.pipe: i for i, worker in enumerate(workers) if worker.busy}:
        for pipe in wait(list(busy)):
            place = busy[pipe]  # type: ignore[index]
            try:
                message = workers[place].pipe.recv()
            except (EOFError, OSError):
                workers[place] = _replaced(folder, workers[place], tasks, lost)
                continue
            if isinstance(message, Exception):
                raise message
            if message is None:
                workers[place].give(tasks)
            else:
                yield _received(workers[place], message)


def _replaced(
    folder: Path, dead: _Worker, tasks: deque[list[Cell]], lost: dict[str, int]
) -> _Worker:
    """A new worker in the place of a dead one, begun with what that one still owed."""
    dead.stop()
    if dead.owed:
        _mourn(dead, lost)
        tasks.appendleft(dead.owed)
    worker = _Worker(folder)
    worker.give(tasks)
    return worker


def _received(worker: _Worker, message: tuple[Cell, Result]) -> tuple[Cell, Result]:
    worker.owed = [cell for cell in worker.owed if cell.name != message[0].name]
    return message


def _mourn(worker: _Worker, lost: dict[str, int]) -> None:
    """Counts the death against the first cell that was owed; refuses to lose workers for ever."""
    cell = worker.owed[0].name
    lost[cell] = lost.get(cell, 0) + 1
    if lost[cell] >= TRIES:
        code: Any = worker.process.exitcode
        raise GlauberError(
            f"{TRIES} workers died over the cell {cell} (the last with exit code {code}); "
            "finished cells are kept."
        )
