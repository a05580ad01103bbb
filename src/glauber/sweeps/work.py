"""Who does a cell's work? A study, opened once in each process.

A study is a function named as "module:function":

    function(settings, folder) -> work,    work(cells) -> (cell, result) of each when finished

Results are plain JSON values and depend on the settings and the cell alone, so it does not matter
where, with whom and in which order cells are run.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from glauber.errors import GlauberError
from glauber.sweeps.folder import Sweep, read_sweep
from glauber.sweeps.grid import Cell

# The only functions that a sweep's folder may name: it may come from somebody else.
STUDIES = ("glauber.mixing.phase_cells:open_cells", "glauber.sweeps.studies.chains:open_study")
Result = dict[str, Any]
Work = Callable[[Sequence[Cell]], Iterator[tuple[Cell, Result]]]
# What does the cells of a sweep's folder: (folder, cells) -> (cell, result) of each.
Crew = Callable[[Path, Sequence[Cell]], Iterator[tuple[Cell, Result]]]


def open_study(folder: Path, sweep: Sweep) -> Work:
    """The work of the sweep's study, with its model loaded."""
    if sweep.study not in STUDIES:
        raise GlauberError(f"{folder} holds a sweep of {sweep.study}, which is not known here.")
    module, _, function = sweep.study.partition(":")
    opened: Work = getattr(import_module(module), function)(sweep.settings, folder)
    return opened


def open_alone(folder: Path, sweep: Sweep) -> Work:
    """The same on one thread, for a process that has others beside it."""
    import torch

    torch.set_num_threads(1)
    return open_study(folder, sweep)


def here(folder: Path, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Result]]:
    """All cells as one task in this process, so that its batches stay full to the end."""
    return open_study(folder, read_sweep(folder))(cells)
