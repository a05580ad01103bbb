"""How many designs are there, and which of those that chains met are new and apart?

A design changes some of n free positions of its parent, at most `budget` of them; position i may
take c_i other residues. So there are

    e_1(c) + … + e_budget(c)

designs, with e_j the elementary symmetric polynomial: the sum over all j positions of the product
of their choices. The parent itself is none.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.result import counted

Integers = NDArray[np.int64]


def count_designs(choices: Sequence[int], budget: int) -> int:
    """Sequences that differ from the parent at 1 to `budget` positions, exactly."""
    found = [1] + [0] * min(budget, len(choices))  # found[j] = e_j of the positions so far
    for count in choices:
        for j in range(len(found) - 1, 0, -1):
            found[j] += count * found[j - 1]
    return sum(found[1:])


def most_apart(choices: Sequence[int], budget: int, distance: int) -> int:
    """An upper bound of how many designs can differ from each other at `distance` positions.

    Without any distance - 1 of the positions they are still different (Singleton), so there are no
    more than sequences over the other positions; those with the fewest choices say most.
    """
    moving = sorted(count for count in choices if count)
    every = count_designs(moving, budget)
    if distance > min(len(moving), 2 * budget):
        return min(every, 1)
    return min(every, 1 + count_designs(moving[: len(moving) - distance + 1], budget))


def check_room(
    choices: Sequence[int], budget: int, designs: int, distance: int, name: str = "the parent"
) -> int:
    """The number of possible designs; refuses to look for more than can be."""
    every, wanted = count_designs(choices, budget), f"{counted(designs, 'design')} of {name}"
    if every == 0:
        raise GlauberError(
            f"no free position of {name} may take another residue, so there is no design."
        )
    if every < designs:
        raise GlauberError(
            f"{wanted} were asked for, but the free positions, their residues and the number of "
            f"mutations allow {every:,} only."
        )
    most = most_apart(choices, budget, distance)
    if most < designs:
        raise GlauberError(
            f"{wanted} were asked for, but no more than {most:,} can differ from each other at "
            f"{distance} positions (an upper bound)."
        )
    return every


class Met(NamedTuple):
    """Where a design was met first."""

    row: Integers  # its tokens at the free positions
    chain: int
    step: int
    temperature: float


@dataclass
class Picked:
    """Designs in the order in which chains met them, each new and apart from those before."""

    parent: Integers  # (positions,) tokens
    wanted: int
    distance: int  # at how many positions two of them differ, at least
    met: list[Met] = field(default_factory=list)
    looks: int = 0  # states that were looked at
    _rows: Integers = field(init=False)

    def __post_init__(self) -> None:
        self._rows = np.empty((self.wanted, len(self.parent)), np.int64)

    @property
    def full(self) -> bool:
        return len(self.met) >= self.wanted

    def look(self, rows: Integers, step: int, temperature: float) -> None:
        """Takes what is new among the chains' states (chains, positions), chain by chain."""
        for chain, row in enumerate(rows):
            if self.full:
                return
            self.looks += 1
            others = self._rows[: len(self.met)]
            near = len(others) and int((others != row).sum(axis=1).min()) < self.distance
            if not near and bool((row != self.parent).any()):
                self._rows[len(self.met)] = row
                self.met.append(Met(row.copy(), chain, step, temperature))


def pairwise(rows: Integers) -> Iterator[Integers]:
    """The distances of each row to all rows, (rows,) each."""
    for row in rows:
        yield (rows != row).sum(axis=1)


def nearest(rows: Integers) -> list[int | None]:
    """The distance of each row to the nearest other one; None where there is no other."""
    found: list[int | None] = []
    for number, distances in enumerate(pairwise(rows)):
        others = np.delete(distances, number)
        found.append(int(others.min()) if len(others) else None)
    return found


def distance_counts(rows: Integers) -> list[int]:
    """How many pairs of rows differ at 0, 1, 2, … positions."""
    found = np.zeros(rows.shape[1] + 1, np.int64)
    for number, distances in enumerate(pairwise(rows)):
        found += np.bincount(distances[number + 1 :], minlength=len(found))
    return [int(one) for one in found]


def frequencies(rows: Iterable[Sequence[str]], alphabet: Sequence[str]) -> NDArray[np.float64]:
    """The share of each letter at each position, (positions, letters)."""
    place = {letter: number for number, letter in enumerate(alphabet)}
    numbers = np.array([[place[letter] for letter in row] for row in rows])
    each = [np.bincount(column, minlength=len(alphabet)) for column in numbers.T]
    return np.stack(each) / len(numbers)
