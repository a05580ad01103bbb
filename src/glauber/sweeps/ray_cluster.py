"""How does a Ray cluster share a sweep?

Each worker is an actor that opens the study once and streams finished cells back. When an actor or
its machine dies, the cells it still owed are given to a new actor. Only the driver writes to the
sweep's folder, so the machines need no common disk (unless cells are runs that are kept), but each
needs glauber and the model.
"""

import socket
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from glauber.errors import GlauberError
from glauber.extras import need
from glauber.sweeps.executor import TASKS_EACH, TRIES, Executor, Result, open_alone
from glauber.sweeps.folder import Cell, Sweep, pack, read_sweep

PATIENCE = 10.0  # seconds for a cluster's first answer


def on_ray(n_workers: int, address: str | None = None) -> Executor:
    """That many actors on the cluster at the address, or on one of this machine."""
    need("ray", "a sweep on Ray", otherwise="run it on processes")
    if n_workers < 1:
        raise GlauberError(f"there are {n_workers} workers, but a sweep needs at least one.")

    def execute(folder: Path, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Result]]:
        # Ray prints what it has to say about dead workers to stdout, which is for results.
        with redirect_stdout(sys.stderr), _connected(n_workers, address) as ray:
            tasks = deque(reversed(pack(cells, TASKS_EACH * n_workers)))  # the longest first
            workers = [_Actor(ray, folder) for _ in range(min(n_workers, len(tasks)))]
            yield from _share(ray, tasks, workers)

    return execute


@contextmanager
def _connected(n_workers: int, address: str | None) -> Iterator[Any]:
    """Ray, connected; a cluster of our own ends with us."""
    import ray

    if address is not None:
        _check_answers(address)
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    ours = not ray.is_initialized()
    try:
        if ours and address is None:
            ray.init(num_cpus=n_workers, **quiet)
        elif ours:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _silent(address) from error
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def _check_answers(address: str) -> None:
    """Refuses an address where nothing listens; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:  # such as auto: Ray looks on this machine, and knows at once
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, ValueError) as error:
        raise _silent(address) from error


def _silent(address: str | None) -> GlauberError:
    return GlauberError(f"no Ray cluster answers at {address}; finished cells are kept.")


class _Actor:
    """A worker on the cluster, the stream of its results, and the cells that it owes."""

    def __init__(self, ray: Any, folder: Path) -> None:
        self.ray, self.folder, self.sweep = ray, folder.absolute(), read_sweep(folder)
        self.owed: list[Cell] = []
        self.stream: Any = None
        self.lost: dict[str, int] = {}
        self._open()

    def _open(self) -> None:
        self.actor = self.ray.remote(num_cpus=1)(Opened).remote(self.folder, self.sweep)

    def give(self, tasks: deque[list[Cell]]) -> None:
        """Sends the next task, if there is one."""
        self.owed = list(tasks.popleft()) if tasks else []
        self.stream = self.actor.run.remote(self.owed) if self.owed else None

    def replace(self, tasks: deque[list[Cell]], error: Exception) -> None:
        """Begins again in another actor, with what the dead one still owed."""
        if self.owed:
            cell = self.owed[0].name
            self.lost[cell] = self.lost.get(cell, 0) + 1
            if self.lost[cell] >= TRIES:
                raise GlauberError(
                    f"{TRIES} workers died over the cell {cell}; finished cells are kept."
                ) from error
            tasks.appendleft(self.owed)
        self._open()
        self.give(tasks)


class Opened:
    """What runs in the actor."""

    def __init__(self, folder: Path, sweep: Sweep) -> None:
        self.work = open_alone(folder, sweep)

    def run(self, cells: list[Cell]) -> Iterator[tuple[Cell, Result]]:
        """Each cell as it is finished."""
        yield from self.work(cells)


def _share(
    ray: Any, tasks: deque[list[Cell]], workers: list[_Actor]
) -> Iterator[tuple[Cell, Result]]:
    for worker in workers:
        worker.give(tasks)
    while busy := {worker.stream: worker for worker in workers if worker.stream is not None}:
        ready, _ = ray.wait(list(busy), num_returns=1)
        for stream in ready:
            worker = busy[stream]
            try:
                cell, result = ray.get(next(stream))
            except StopIteration:
                worker.give(tasks)
                continue
            except ray.exceptions.RayActorError as error:
                worker.replace(tasks, error)
                continue
            except ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, GlauberError) else error from None
            worker.owed = [one for one in worker.owed if one.name != cell.name]
            yield cell, result
