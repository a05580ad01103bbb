"""Which cells does a sweep have, and how are they handed out?"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from glauber.errors import GlauberError


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
    return [Cell(dict(zip(axes, point, strict=True))) for point in product(*axes.values())]


def pack(cells: Sequence[Cell], n_tasks: int) -> list[list[Cell]]:
    """The cells in at most n_tasks tasks of neighbours, as even as they go."""
    n_tasks = min(n_tasks, len(cells))
    cuts = [round(i * len(cells) / n_tasks) for i in range(n_tasks + 1)] if n_tasks else []
    return [list(cells[a:b]) for a, b in pairwise(cuts)]
