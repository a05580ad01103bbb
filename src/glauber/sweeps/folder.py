"""What is a sweep? A grid of cells, a header that says what they are, a file for each finished one.

sweep.json         the study, its settings and the axes; enough to run every cell again
cells/NAME.json    the result of a finished cell, written atomically
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from math import prod
from pathlib import Path
from typing import Any

from glauber.disk import check_new, write_json
from glauber.errors import GlauberError
from glauber.json_text import parse_json
from glauber.runs.spec import versions

FORMAT = 1
HEADER = "sweep.json"
AXIS = re.compile(r"[a-z_]{1,40}")
MOST = 10**6  # cells
# What glauber 0.1 called the studies.
OLD = {
    "chains": "glauber.sweeps.cells:open_runs",
    "glauber.sweeps.studies.chains:open_study": "glauber.sweeps.cells:open_runs",
    "coalescence": "glauber.mixing.phase:open_cells",
}


@dataclass(frozen=True)
class Cell:
    """One point of the grid: a value for each axis."""

    values: dict[str, Any]

    @property
    def name(self) -> str:
        """Such as `length-6_temperature-0.5`, a file's name."""
        return "_".join(f"{axis}-{value:g}" for axis, value in sorted(self.values.items()))

    def seed(self, seed: int) -> int:
        """A seed of the cell's own, the same whatever other cells there are."""
        digest = hashlib.sha256(f"{seed}|{self.name}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1


def grid(axes: Mapping[str, Sequence[Any]]) -> list[Cell]:
    """Every combination of the axes' values; the last axis changes fastest."""
    if not axes:
        raise GlauberError("the grid has no axis, so there is nothing to run.")
    for axis, values in axes.items():
        if len(values) == 0:
            raise GlauberError(f"the grid is empty: no {axis} is given.")
        if len(set(values)) < len(values):
            raise GlauberError(f"the grid names a {axis} twice.")
    if prod(len(values) for values in axes.values()) > MOST:
        raise GlauberError(f"the grid has more than {MOST:,} cells: give fewer values.")
    return [Cell(dict(zip(axes, point, strict=True))) for point in product(*axes.values())]


def pack(cells: Sequence[Cell], n_tasks: int) -> list[list[Cell]]:
    """The cells in at most n_tasks tasks of neighbours, as even as they go."""
    n_tasks = min(n_tasks, len(cells))
    cuts = [round(i * len(cells) / n_tasks) for i in range(n_tasks + 1)] if n_tasks else []
    return [list(cells[a:b]) for a, b in pairwise(cuts)]


@dataclass(frozen=True)
class Sweep:
    """What a sweep computes: a study by its name, its settings, and the grid's axes."""

    study: str  # module:function that opens the work, one of `executor.STUDIES`
    settings: dict[str, Any]  # plain JSON values
    axes: dict[str, list[Any]]

    @property
    def cells(self) -> list[Cell]:
        return grid(self.axes)


def begin(folder: Path, sweep: Sweep) -> None:
    """Makes the folder; one that holds the very same sweep is resumed."""
    cells = sweep.cells  # refuses a bad grid before anything is written
    if _there(folder / HEADER):
        if read_sweep(folder) != sweep:
            raise GlauberError(
                f"{folder} holds another sweep: give a new folder, or the settings it began with."
            )
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise GlauberError(f"the folder {folder} exists already and is not a sweep.")
    if not folder.is_dir():
        check_new(folder)
    made = {"format": FORMAT, **asdict(sweep), "n_cells": len(cells), "versions": versions()}
    with writing(folder):
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        write_json(folder / HEADER, made)


def read_sweep(folder: Path) -> Sweep:
    """The sweep of a folder; refuses damaged, foreign and newer ones."""
    if not _there(folder / HEADER):
        raise GlauberError(f"{folder} is not a sweep: it has no {HEADER}.")
    found = _read(folder / HEADER)
    try:
        if int(found["format"]) > FORMAT:
            raise GlauberError(f"{folder} was made by a newer glauber: use that one.")
        study, settings, axes = found["study"], found["settings"], found["axes"]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise GlauberError(f"the sweep {folder} is damaged: {HEADER} lacks entries.") from error
    if not (isinstance(study, str) and isinstance(settings, dict) and _are_axes(axes)):
        raise GlauberError(f"the sweep {folder} is damaged: an entry of {HEADER} is wrong.")
    return _renamed(Sweep(study, settings, axes))


def _are_axes(axes: Any) -> bool:
    """Whether these are names, each with numbers."""
    return isinstance(axes, dict) and all(
        AXIS.fullmatch(name) and isinstance(values, list) and all(map(_is_number, values))
        for name, values in axes.items()
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _renamed(sweep: Sweep) -> Sweep:
    """A sweep as it is named now; those of glauber 0.1 had other names."""
    words = {"budget": "steps", "how": "coupling"} if sweep.study == "coalescence" else {}
    settings = {words.get(name, name): value for name, value in sweep.settings.items()}
    return Sweep(OLD.get(sweep.study, sweep.study), settings, sweep.axes)


def _there(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def save(folder: Path, cell: Cell, result: Mapping[str, Any]) -> None:
    """Keeps the result of a finished cell."""
    with writing(folder):
        write_json(folder / "cells" / f"{cell.name}.json", {**cell.values, **result})


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The results of the cells that are finished, by name, in the grid's order."""
    found = {}
    for cell in read_sweep(folder).cells:
        path = folder / "cells" / f"{cell.name}.json"
        if path.is_file():
            one = _read(path)
            found[cell.name] = one if "budget" not in one else {"steps": one.pop("budget"), **one}
    return found


def left(folder: Path) -> Sequence[Cell]:
    """The cells that are still to run."""
    done = results(folder)
    return [cell for cell in read_sweep(folder).cells if cell.name not in done]


@contextmanager
def writing(folder: Path) -> Any:
    """Turns what the disk refuses into one sentence."""
    try:
        yield
    except OSError as error:
        raise GlauberError(
            f"{folder} cannot be written: {error.strerror or error}; finished cells are kept."
        ) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GlauberError(f"{path} is damaged: {_advice(path)}") from error
    if not isinstance(content, dict):
        raise GlauberError(f"{path} is damaged: {_advice(path)}")
    return content


def _advice(path: Path) -> str:
    """What brings a damaged file back, at the least cost."""
    if path.name != HEADER:
        return "rename or delete it, and its cell is run again."
    return (
        "put a copy of it back; or start the same sweep in a new folder, stop it, and copy the "
        f"files of {path.parent / 'cells'} there: `sweep resume` does not run those cells again."
    )
