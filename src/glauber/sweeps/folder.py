"""What is a sweep on disk? A header that says what it is, and a file for each finished cell.

sweep.json         the study, its settings and the axes; enough to run every cell again
cells/NAME.json    the result of a finished cell, written in one stroke
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glauber.errors import GlauberError
from glauber.runs.spec import versions, write_json
from glauber.sweeps.grid import Cell, grid

FORMAT = 1
HEADER = "sweep.json"


@dataclass(frozen=True)
class Sweep:
    """What a sweep computes: a study by its name, its settings, and the grid's axes."""

    study: str  # a file of `glauber.sweeps.studies`
    settings: dict[str, Any]  # plain JSON values
    axes: dict[str, list[Any]]

    @property
    def cells(self) -> list[Cell]:
        return grid(self.axes)


def begin(folder: Path, sweep: Sweep) -> None:
    """Makes the folder; one that holds the very same sweep is gone on with."""
    cells = sweep.cells  # refuses a bad grid before anything is written
    if (folder / HEADER).exists():
        if read_sweep(folder) != sweep:
            raise GlauberError(
                f"{folder} holds another sweep: give a new folder, or the settings it began with."
            )
        return
    if folder.exists() and any(folder.iterdir()):
        raise GlauberError(f"the folder {folder} exists already and is not a sweep.")
    made = {"format": FORMAT, **asdict(sweep), "n_cells": len(cells), "versions": versions()}
    with writing(folder):
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        write_json(folder / HEADER, made)


def read_sweep(folder: Path) -> Sweep:
    """The sweep of a folder; refuses damaged and newer ones."""
    if not (folder / HEADER).is_file():
        raise GlauberError(f"{folder} is not a sweep: it has no {HEADER}.")
    found = _read(folder / HEADER)
    try:
        if int(found["format"]) > FORMAT:
            raise GlauberError(f"{folder} was made by a newer glauber: use that one.")
        return Sweep(str(found["study"]), dict(found["settings"]), dict(found["axes"]))
    except (KeyError, TypeError, ValueError) as error:
        raise GlauberError(f"the sweep {folder} is damaged: {HEADER} lacks entries.") from error


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
            found[cell.name] = _read(path)
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
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GlauberError(f"{path} is damaged: delete it, and its cell is run again.") from error
    if not isinstance(found, dict):
        raise GlauberError(f"{path} is damaged: delete it, and its cell is run again.")
    return found
