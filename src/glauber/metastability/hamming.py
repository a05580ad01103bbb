"""When did a chain stay within a few tokens of one state?

An exact search for traps that needs no embedding. Which state is the centre:

1. The longest stay that is in no stretch yet gives the centre (of equal ones, the first).
2. The stretch reaches from there to both sides as long as the chain is within the radius of the
   centre, and stops before stays that are in a stretch already.
3. So on, until every stay is in a stretch. Those shorter than `shortest` are dropped.

With radius 0 a stretch is a stay, and its mean duration is the holding time of its state. The
centre of a larger ball is chosen with the whole path in view, so a catalogue favours long
stretches; `visits_to_ball` takes the centre as given, and its durations have the exact exit times
as their means.
"""

from collections.abc import Iterator

import numpy as np

from glauber.errors import GlauberError
from glauber.metastability.stays import Ints, Stays, Stretch, stays
from glauber.runs.run import Run


def hamming_stretches(run: Run, *, radius: int = 1, shortest: int = 150) -> list[Stretch]:
    """The stretches of all chains, in order of chain and step."""
    check_ball(radius, shortest)
    return [
        found
        for chain, path in enumerate(stays(run))
        for found in stretches_of_chain(path, chain, radius=radius)
        if found.duration >= shortest
    ]


def stretches_of_chain(path: Stays, chain: int = 0, *, radius: int) -> list[Stretch]:
    """The stretches into which one chain's path falls, each stay in exactly one, in order."""
    owner = np.full(len(path.first), -1)
    by_length = np.argsort(path.first - path.last, kind="stable")  # the longest first
    for longest in by_length.tolist():
        if owner[longest] < 0:
            low, high = _reach(path.states, owner, longest, radius)
            owner[low : high + 1] = longest
    begins = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    ends = np.append(begins[1:] - 1, len(owner) - 1)
    pairs = zip(begins.tolist(), ends.tolist(), strict=True)
    return [_stretch(path, chain, pair, path.states[owner[pair[0]]]) for pair in pairs]


def visits_to_ball(path: Stays, centre: Ints, radius: int, chain: int = 0) -> list[Stretch]:
    """The stretches of a chain within the radius of a given centre (length,)."""
    near = ((path.states != centre).sum(axis=1) <= radius).astype(np.int8)
    edges = np.diff(near, prepend=0, append=0)
    pairs = zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1), strict=True)
    return [_stretch(path, chain, (low, int(behind) - 1), centre) for low, behind in pairs]


def _reach(states: Ints, owner: Ints, middle: int, radius: int) -> tuple[int, int]:
    """The first and the last stay around the middle one that are near it and nobody's yet."""

    def last_of(places: Iterator[int]) -> int:
        reached = middle
        for k in places:
            if owner[k] >= 0 or (states[k] != states[middle]).sum() > radius:
                break
            reached = k
        return reached

    return last_of(iter(range(middle, -1, -1))), last_of(iter(range(middle, len(owner))))


def _stretch(path: Stays, chain: int, pair: tuple[int, int], centre: Ints) -> Stretch:
    low, high = pair
    return Stretch(
        chain=chain,
        first=int(path.first[low]),
        last=int(path.last[high]),
        ended=high < len(path.first) - 1,
        centre=centre,
    )


def check_ball(radius: int, shortest: int) -> None:
    """Refuses a radius or a shortest duration that means nothing."""
    if radius < 0:
        raise GlauberError(f"the radius is {radius}, but a number of tokens cannot be negative.")
    if shortest < 1:
        raise GlauberError(f"the shortest trap is {shortest} steps, but it must be at least 1.")
