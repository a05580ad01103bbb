"""Where do the cells of a sweep run? In this process, in several, or on a Ray cluster.

A study of cells is a function open(settings, folder) -> work, with work(cells) -> (cell, result)
of each when it is finished, opened once in each process. Results are plain JSON values and depend
on the settings and the cell alone, so it does not matter where, with whom and in which order cells
are run.

Each process has a pipe. It is sent a task, sends back each cell as it is finished, and asks for the
next task. When a pipe breaks, its worker died: the cells it still owed go back to the front of the
queue and a new worker takes its place.
"""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from glauber.errors import GlauberError
from glauber.progress import check_count, check_seed, usable_cores
from glauber.result import one_of
from glauber.sweeps.folder import Cell, Sweep, left, pack, read_sweep, results, save

PLACES = ("local", "processes", "ray")
WORKERS = 4096  # more than any machine has cores
TASKS_EACH = 6  # tasks per worker: few enough for full batches, enough for an even end
TRIES = 3  # workers that may die over the same cell
# The only functions that a sweep's folder may name: it may come from somebody else.
STUDIES = (
    "glauber.mixing.phase:open_cells",
    "glauber.sweeps.cells:open_runs",
    "glauber.papers.making:open_cells",
)
# What their settings must hold.
COMMON = {"model": str, "device": str, "dtype": str, "texts": list | None, "seed": int}
NEEDED: dict[str, dict[str, Any]] = {
    STUDIES[0]: COMMON | {"pairs": int, "steps": int | None, "coupling": str},
    STUDIES[1]: COMMON | {"chains": int, "steps": int, "scan": str},
    STUDIES[2]: {
        "names": list, "seeds": list, "folder": str, "scale": str, "device": str, "given": dict,
    },
}  # fmt: skip

Result = dict[str, Any]
Work = Callable[[Sequence[Cell]], Iterator[tuple[Cell, Result]]]
# What does the cells of a sweep's folder: (folder, cells) -> (cell, result) of each.
Executor = Callable[[Path, Sequence[Cell]], Iterator[tuple[Cell, Result]]]


def executor_named(on: str, *, workers: int | None = None, address: str | None = None) -> Executor:
    """What runs cells there, with as many workers as this machine has cores, unless it is said."""
    one_of("the place where a sweep runs", on, PLACES)
    if workers is not None:
        check_count("number of workers", workers, most=WORKERS)
    n_workers = usable_cores() if workers is None else workers
    if address is not None and on != "ray":
        raise GlauberError(f"an address was given, but the sweep runs on {on}: that is for ray.")
    if on == "processes":
        return in_processes(n_workers)
    if on == "ray":
        from glauber.sweeps.ray_cluster import on_ray

        return on_ray(n_workers, address)
    return here


def run_sweep(
    folder: Path,
    *,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Runs the cells that are left and keeps each as it is finished; the results by cell.

    progress is called with the cells finished and all cells, at the start and after each.
    """
    sweep, cells = read_sweep(folder), left(folder)
    total = len(sweep.cells)
    done = total - len(cells)
    report = progress or (lambda done, total: None)
    report(done, total)
    if cells:
        for cell, result in (executor or here)(folder, cells):
            save(folder, cell, result)
            done += 1
            report(done, total)
    return results(folder)


def open_work(folder: Path, sweep: Sweep) -> Work:
    """The work of the sweep's study, with its model loaded."""
    if sweep.study not in STUDIES:
        raise GlauberError(f"{folder} holds a sweep of {sweep.study}, which is not known here.")
    check_settings(folder, sweep)
    module, _, function = sweep.study.partition(":")
    try:
        opened: Work = getattr(import_module(module), function)(sweep.settings, folder)
    except (KeyError, TypeError) as error:
        raise GlauberError(f"the sweep {folder} is damaged: its settings do not fit.") from error
    return opened


def check_settings(folder: Path, sweep: Sweep) -> None:
    """Refuses settings that no sweep of ours has: the header may be damaged, or somebody else's."""
    given = sweep.settings
    for name, kind in NEEDED[sweep.study].items():
        if not isinstance(given.get(name), kind):
            raise GlauberError(f"the sweep {folder} is damaged: its {name} is missing or wrong.")
    try:
        check_seed(given.get("seed", 0))
        for name in ("steps", "sweeps", "pairs", "chains"):
            if given.get(name) is not None:
                check_count(name, given[name], most=10**12)
    except GlauberError as error:
        raise GlauberError(f"the sweep {folder} is damaged: {error}") from error


def open_alone(folder: Path, sweep: Sweep) -> Work:
    """The same on one thread, for a process that has others beside it."""
    import torch

    torch.set_num_threads(1)
    return open_work(folder, sweep)


def here(folder: Path, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Result]]:
    """All cells as one task in this process, so that its batches stay full to the end."""
    return open_work(folder, read_sweep(folder))(cells)


def in_processes(n_workers: int) -> Executor:
    """That many processes of this machine, each on one core."""
    if n_workers < 1:
        raise GlauberError(f"there are {n_workers} workers, but a sweep needs at least one.")

    def execute(folder: Path, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Result]]:
        tasks = deque(reversed(pack(cells, TASKS_EACH * n_workers)))  # the longest first
        workers = [_Worker(folder) for _ in range(min(n_workers, len(tasks)))]
        try:
            yield from _share(folder, tasks, workers)
        finally:
            for worker in workers:
                worker.stop()

    return execute


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
        _count_death(dead, lost)
        tasks.appendleft(dead.owed)
    worker = _Worker(folder)
    worker.give(tasks)
    return worker


def _received(worker: _Worker, message: tuple[Cell, Result]) -> tuple[Cell, Result]:
    worker.owed = [cell for cell in worker.owed if cell.name != message[0].name]
    return message


def _count_death(worker: _Worker, lost: dict[str, int]) -> None:
    """Counts the death against the first cell that was owed; refuses to lose workers for ever."""
    cell = worker.owed[0].name
    lost[cell] = lost.get(cell, 0) + 1
    if lost[cell] >= TRIES:
        code: Any = worker.process.exitcode
        raise GlauberError(
            f"{TRIES} workers died over the cell {cell} (the last with exit code {code}); "
            "finished cells are kept."
        )
