"""In which states was a chain, and from when to when?

A cold chain repeats itself: most redraws give back the token that was there. So a path is kept as
its stays, one for each time that a state was entered, which is all that the search for traps needs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.runs.run import Run

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Stays:
    """One chain's path: in state k after each of the steps first[k] … first[k + 1] - 1."""

    states: Ints  # (stays, length); neighbours differ
    first: Ints  # (stays,), from 0
    n_steps: int  # of the chain; the last stay was still going on then

    @property
    def last(self) -> Ints:
        """The last step (stays,) of each stay."""
        return np.append(self.first[1:] - 1, self.n_steps)

    def between(self, first: int, last: int) -> tuple[Ints, Ints]:
        """The stays (k,) that touch the steps first … last, and how many of those each has."""
        touched = np.flatnonzero((self.last >= first) & (self.first <= last))
        ends = np.minimum(self.last[touched], last)
        return touched, ends - np.maximum(self.first[touched], first) + 1


def stays_of_path(path: Ints) -> Stays:
    """The stays of a path (1 + steps, length)."""
    entered = np.append(True, (path[1:] != path[:-1]).any(axis=1))
    return Stays(path[entered], np.flatnonzero(entered), len(path) - 1)


def stays(run: Run) -> Iterator[Stays]:
    """The stays of each chain of a stored run, chain by chain."""
    check_steps(run)
    sites, tokens, changed = (run.read(name) for name in ("site", "token", "changed"))
    for chain, now in enumerate(run.tokens(0)):
        states, first = [now.copy()], [0]
        for step in np.flatnonzero(changed[chain].any(axis=1)):
            drawn = sites[chain, step] >= 0
            now[sites[chain, step, drawn]] = tokens[chain, step, drawn]
            # Two slots may undo each other, so that nothing has changed after the step.
            if (now != states[-1]).any():
                states.append(now.copy())
                first.append(int(step) + 1)
        yield Stays(np.stack(states), np.array(first), run.steps)


def check_steps(run: Run) -> None:
    """Refuses a run that has not moved yet."""
    if run.steps == 0:
        raise GlauberError(f"the run {run.folder} has no steps yet, so it cannot show a trap.")


@dataclass(frozen=True, eq=False)
class Stretch:
    """Steps in which a chain stayed near one text."""

    chain: int
    first: int  # after this step it was there …
    last: int  # … and after each one up to this
    ended: bool  # not if it was still there when the run ended: its duration is a lower bound
    centre: Ints | None = None  # (length,): the middle of its ball; none for the rolling detector

    @property
    def duration(self) -> int:
        """In steps: from being there to being elsewhere."""
        return self.last - self.first + 1

    @property
    def kind(self) -> str:
        """What its duration is: looks some steps apart do not say when exactly it ended."""
        if not self.ended:
            return "lower bound"
        return "estimate" if self.centre is None else "exact"
