"""The folder of a sweep: a header that says what the cells are, and a file for each finished cell.

sweep.json         the study, its arguments and the axes: enough to run every cell again
cells/NAME.json    the result of a finished cell, written atomically
"""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from glauber.foundation.disk import check_new, explained_errors, write_json
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import has_type, parse_json
from glauber.runs.spec import versions

FORMAT = 2
HEADER = "sweep.json"
KEPT = "finished cells are kept"
AXIS = re.compile(r"[a-z_]{1,40}")
MOST_CELLS = 10**6


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
    if prod(len(values) for values in axes.values()) > MOST_CELLS:
        raise GlauberError(f"the grid has more than {MOST_CELLS:,} cells: give fewer values.")
    return [Cell(dict(zip(axes, point, strict=True))) for point in product(*axes.values())]


@dataclass(frozen=True)
class Sweep:
    """A public study, the arguments that all cells share, and the grid's axes.

    The values of the axis `length` are the study's argument `lengths`.
    """

    study: str
    arguments: dict[str, Any]  # plain JSON values
    axes: dict[str, list[Any]]

    @property
    def cells(self) -> list[Cell]:
        return grid(self.axes)


def begin(folder: Path, sweep: Sweep) -> None:
    """Make the folder; one that contains the very same sweep is resumed."""
    cells = sweep.cells  # refuses a bad grid before anything is written
    if os.path.isfile(folder / HEADER):
        if read_sweep(folder) != sweep:
            raise GlauberError(
                f"{folder} contains another sweep: give a new folder, or the settings it began "
                "with."
            )
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise GlauberError(f"the folder {folder} exists already and is not a sweep.")
    if not folder.is_dir():
        check_new(folder)
    header = {"format": FORMAT, **asdict(sweep), "n_cells": len(cells), "versions": versions()}
    with explained_errors(folder, KEPT):
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        write_json(folder / HEADER, header)


def read_sweep(folder: Path) -> Sweep:
    """The sweep of a folder; refuses damaged and foreign ones, and those of another format."""
    if not os.path.isfile(folder / HEADER):
        raise GlauberError(f"{folder} is not a sweep: it has no {HEADER}.")
    header = _read(folder / HEADER)
    if header.get("format") != FORMAT:
        raise GlauberError(
            f"{folder} has the format {str(header.get('format'))[:20]}, but this glauber reads "
            f"sweeps of the format {FORMAT}: use the version that made it."
        )
    study, arguments, axes = header.get("study"), header.get("arguments"), header.get("axes", {})
    if (
        not isinstance(study, str)
        or not isinstance(arguments, dict)
        or not has_type(axes, dict[str, list[float]])
        or not all(map(AXIS.fullmatch, axes))
        or not all(abs(value) < 1e300 for values in axes.values() for value in values)
    ):
        raise GlauberError(f"the sweep {folder} is damaged: an entry of {HEADER} is wrong.")
    return Sweep(study, arguments, axes)


def save(folder: Path, cell: Cell, result: Mapping[str, Any]) -> None:
    """Keep the result of a finished cell."""
    with explained_errors(folder, KEPT):
        write_json(_path(folder, cell), {**cell.values, **result})


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The results of the cells that are finished, by name, in the grid's order."""
    cells = read_sweep(folder).cells
    return {cell.name: _read(_path(folder, cell)) for cell in cells if is_finished(folder, cell)}


def is_finished(folder: Path, cell: Cell) -> bool:
    """Whether the folder contains the result of a cell."""
    return _path(folder, cell).is_file()


def _path(folder: Path, cell: Cell) -> Path:
    return folder / "cells" / f"{cell.name}.json"


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; of a damaged file, what brings it back at the least cost."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = None
    if isinstance(content, dict):
        return content
    advice = "rename or delete it, and its cell is run again."
    if path.name == HEADER:
        advice = (
            "put a copy of it back; or start the same sweep in a new folder, stop it, and copy the "
            f"files of {path.parent / 'cells'} there: `sweep resume` does not run those cells "
            "again."
        )
    raise GlauberError(f"{path} is damaged: {advice}")
