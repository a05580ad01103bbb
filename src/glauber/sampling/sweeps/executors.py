"""Where the cells of a sweep run: in this process, in several, or on a Ray cluster.

A study opens its work once in each process: `open_work()` gives `work(cells)`, which yields (cell,
result) of each cell when it is finished. Results are plain JSON values that depend on the study's
arguments and the cell alone, so it does not matter where, with which other cells and in which order
cells run, and whatever a dead worker did not finish is run again.
"""

import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, redirect_stdout, suppress
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from glauber.foundation.errors import GlauberError
from glauber.foundation.extras import need
from glauber.foundation.progress import check_count, usable_cores
from glauber.foundation.study import one_of
from glauber.sampling.sweeps.folder import Cell, is_finished, read_sweep, results, save

PLACES = ("local", "processes", "ray")
MOST_WORKERS = 4096  # more than any machine has cores
TASKS_PER_WORKER = 6  # few enough for full batches, enough for an even end
ATTEMPTS = 3  # deaths of workers without a cell finished in between, after which a sweep ends
PATIENCE = 10.0  # seconds for a cluster's first answer

Result = dict[str, Any]
Work = Callable[[Sequence[Cell]], Iterator[tuple[Cell, Result]]]
OpenWork = Callable[[], Work]
# Saves the result of each cell in the sweep's folder and yields the cell.
Executor = Callable[[Path, OpenWork, Sequence[Cell]], Generator[Cell]]


def choose_executor(on: str, *, workers: int | None = None, address: str | None = None) -> Executor:
    """The executor for a place, with as many workers as this machine has cores by default."""
    one_of("the place where a sweep runs", on, PLACES)
    if workers is not None:
        check_count("number of workers", workers, most=MOST_WORKERS)
    if address is not None and on != "ray":
        raise GlauberError(f"an address was given, but the sweep runs on {on}: that is for ray.")
    if on == "local":
        return run_here
    n_workers = usable_cores() if workers is None else workers
    if on == "processes":
        return partial(run_in_processes, n_workers=n_workers)
    need("ray", "a sweep on Ray", otherwise="run it on processes")
    return partial(run_on_ray, n_workers=n_workers, address=address)


def run_sweep(
    folder: Path,
    open_work: OpenWork,
    *,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Result]:
    """Run the unfinished cells; the results of all by cell.

    progress is called with the numbers of finished cells and of all, at the start and after each.
    """
    cells = read_sweep(folder).cells
    missing = [cell for cell in cells if not is_finished(folder, cell)]
    report = progress or (lambda done, total: None)
    report(len(cells) - len(missing), len(cells))
    if missing:
        # Closed at once if the caller stops: workers must not outlast the sweep.
        with closing((executor or run_here)(folder, open_work, missing)) as finished:
            for number, _ in enumerate(finished, len(cells) - len(missing) + 1):
                report(number, len(cells))
    return results(folder)


def run_here(folder: Path, open_work: OpenWork, cells: Sequence[Cell]) -> Generator[Cell]:
    """All cells as one task in this process, so that its batches stay full to the end."""
    for cell, result in open_work()(cells):
        save(folder, cell, result)
        yield cell


def tasks(cells: Sequence[Cell], n_tasks: int) -> list[list[Cell]]:
    """The cells in at most n_tasks tasks of neighbours, as even as possible; the last ones first.

    The last cells of a grid have the longest texts.
    """
    n_tasks = min(n_tasks, len(cells))
    cuts = [round(i * len(cells) / n_tasks) for i in range(n_tasks + 1)]
    return [list(cells[first:last]) for first, last in pairwise(cuts)][::-1]


_opened: dict[str, Work] = {}  # of this worker, by the sweep's execution


def run_task(
    execution: str, open_work: OpenWork, cells: Sequence[Cell]
) -> Iterator[tuple[Cell, Result]]:
    """What a worker does: each cell as it is finished, on one thread."""
    if execution not in _opened:
        import torch

        torch.set_num_threads(1)
        _opened.clear()
        _opened[execution] = open_work()
    yield from _opened[execution](cells)


# ---- processes of this machine


def run_in_processes(
    folder: Path, open_work: OpenWork, cells: Sequence[Cell], *, n_workers: int
) -> Generator[Cell]:
    """That many processes, each on one core; a pool ends with a killed worker and is replaced."""
    unfinished = {cell.name: cell for cell in cells}
    failures = 0
    while unfinished:
        n_before = len(unfinished)
        batches = tasks(list(unfinished.values()), TASKS_PER_WORKER * n_workers)
        try:
            with _pool(n_workers) as pool:
                futures = [pool.submit(_save_task, folder, open_work, part) for part in batches]
                for future in as_completed(futures):
                    for cell in future.result():
                        yield unfinished.pop(cell.name)
        except BrokenProcessPool as error:
            saved = [name for name, cell in unfinished.items() if is_finished(folder, cell)]
            failures = 1 if saved or len(unfinished) < n_before else failures + 1
            if failures == ATTEMPTS:
                raise GlauberError(
                    f"workers died {ATTEMPTS} times without finishing a cell (is the memory too "
                    "small?); finished cells are kept."
                ) from error
            for name in saved:
                yield unfinished.pop(name)


@contextmanager
def _pool(n_workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose workers end with the block, or with this process, even if it is killed."""
    spawn = get_context("spawn")  # a fork would copy the state of torch's threads
    alive, ours = spawn.Pipe(duplex=False)
    pool = ProcessPoolExecutor(n_workers, spawn, initializer=_begin_worker, initargs=(alive,))
    try:
        yield pool
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)
        alive.close()


def _begin_worker(alive: Connection) -> None:
    """Leave interrupts to the parent, and end when the other end of the pipe is closed."""

    def end_with_parent() -> None:
        with suppress(EOFError):
            alive.recv()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def _save_task(folder: Path, open_work: OpenWork, cells: Sequence[Cell]) -> list[Cell]:
    """The cells of a task, each saved as soon as it is finished."""
    return list(run_here(folder, lambda: partial(run_task, "", open_work), cells))


# ---- a Ray cluster


def run_on_ray(
    folder: Path,
    open_work: OpenWork,
    cells: Sequence[Cell],
    *,
    n_workers: int,
    address: str | None = None,
) -> Generator[Cell]:
    """The cluster at the address, or one of this machine with that many workers.

    Only this process writes to the sweep's folder, so the machines need no common disk (unless
    cells are runs that are kept), but each needs glauber and the model.
    """
    # Ray prints what it has to say about dead workers to stdout, which is for results.
    with redirect_stdout(sys.stderr), _connect(n_workers, address) as ray:
        remote = ray.remote(num_cpus=1, num_returns="streaming", max_retries=ATTEMPTS - 1)
        task, execution, work = remote(run_task), uuid.uuid4().hex, ray.put(open_work)
        batches = tasks(cells, TASKS_PER_WORKER * n_workers)
        streams = [task.remote(execution, work, part) for part in batches]
        try:
            while streams:
                (stream,), streams = ray.wait(streams, num_returns=1)
                if (finished := _next_cell(ray, stream)) is not None:
                    streams.append(stream)
                    save(folder, *finished)
                    yield finished[0]
        finally:  # a cluster that is not ours goes on
            for stream in streams:
                ray.cancel(stream, force=True)


def _next_cell(ray: Any, stream: Any) -> tuple[Cell, Result] | None:
    """The next finished cell of a task; None after the last."""
    try:
        return ray.get(next(stream))
    except StopIteration:
        return None
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, GlauberError) else error from None
    except ray.exceptions.RayError as error:
        raise GlauberError(
            f"workers died {ATTEMPTS} times over a cell; finished cells are kept."
        ) from error


@contextmanager
def _connect(n_workers: int, address: str | None) -> Iterator[Any]:
    """Ray, connected; a cluster of our own ends with us."""
    import ray

    ours = not ray.is_initialized()
    cluster: dict[str, Any] = {"num_cpus": n_workers, "include_dashboard": False}
    try:
        if address is not None:
            _check_listening(address)
            cluster = {"address": address}
        if ours:
            ray.init(**cluster, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as error:
        raise GlauberError(
            f"no Ray cluster answers at {address}; finished cells are kept."
        ) from error
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def _check_listening(address: str) -> None:
    """An OSError or ValueError where nothing listens; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:  # else a name such as auto: Ray looks on this machine, and knows at once
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
