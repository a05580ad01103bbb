"""How is a sweep run to its end, wherever it stopped before?"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glauber.errors import GlauberError
from glauber.sweeps.folder import left, read_sweep, results, save
from glauber.sweeps.work import Crew, here

PLACES = ("local", "processes", "ray")


def crew_named(on: str, *, workers: int | None = None, address: str | None = None) -> Crew:
    """The crew that works there; as many workers as this machine has cores, unless it is said."""
    n_workers = len(os.sched_getaffinity(0)) if workers is None else workers
    if address is not None and on != "ray":
        raise GlauberError(f"an address was given, but the sweep runs on {on}: that is for ray.")
    if on == "local":
        return here
    if on == "processes":
        from glauber.sweeps.processes import in_processes

        return in_processes(n_workers)
    if on == "ray":
        from glauber.sweeps.ray_cluster import on_ray

        return on_ray(n_workers, address)
    raise GlauberError(f"a sweep runs on {on}, but it must be one of {', '.join(PLACES)}.")


def run_sweep(
    folder: Path,
    *,
    crew: Crew = here,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Runs the cells that are left and keeps each as it is finished; the results by cell.

    progress is called with the cells finished and all cells, at the start and after each.
    """
    sweep, cells = read_sweep(folder), left(folder)
    total = len(sweep.cells)
    done = total - len(cells)
    tell = progress or (lambda done, total: None)
    tell(done, total)
    if cells:
        for cell, result in crew(folder, cells):
            save(folder, cell, result)
            done += 1
            tell(done, total)
    return results(folder)
