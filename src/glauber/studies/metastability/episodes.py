"""Episodes in which a chain stayed near one text, by two detectors.

A path is stored as its sojourns: one for each time that a state was entered.

Rolling, the paper's: the text is embedded every `stride` steps. Its drift at a snapshot is the mean
of 1 - cos to the snapshots within the next `window` steps; a maximal row of snapshots with a drift
below the threshold is an episode.

Hamming, exact and without an embedding. Which state is the centre:

1. The longest sojourn that is in no episode yet gives the centre (of equal ones, the first).
2. The episode reaches from there to both sides as long as the chain is within the radius of the
   centre, and stops before sojourns that are in an episode already.
3. So on, until every sojourn is in an episode.

With radius 0 an episode is a sojourn, and its mean duration is the holding time of its state. The
centre of a larger ball is chosen with the whole path in view, so a list of traps favours long
episodes; `visits_to_ball` takes the centre as given, and its durations have the exact exit times as
their means.

The observed holding time of a state of an episode needs a correction: the state was chosen because
the chain stayed in it long. Given everything else in the path, the choice asks that the clock of
the steps spent in it reaches some number, and what the clock shows beyond that number is fresh (a
chain does not remember how long it has stayed). So only the steps beyond it count, and the
departures among them; a stay that the run's end cut off counts its steps and no departure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError
from glauber.foundation.study import internal, reported
from glauber.runs.run import Run

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sojourns:
    """One chain's path: in state k after each of the steps first[k] … first[k + 1] - 1."""

    states: Ints  # (sojourns, length); neighbours differ
    first: Ints  # (sojourns,), from 0
    n_steps: int  # of the chain; the last sojourn was still going on then

    @property
    def last(self) -> Ints:
        """The last step (sojourns,) of each."""
        return np.append(self.first[1:] - 1, self.n_steps)

    def between(self, first: int, last: int) -> tuple[Ints, Ints]:
        """The sojourns (k,) that touch the steps first … last, and how many of those each has."""
        touched = np.flatnonzero((self.last >= first) & (self.first <= last))
        ends = np.minimum(self.last[touched], last)
        return touched, ends - np.maximum(self.first[touched], first) + 1


def sojourns_of_path(path: Ints) -> Sojourns:
    """The sojourns of a path (1 + steps, length)."""
    entered = np.append(True, (path[1:] != path[:-1]).any(axis=1))
    return Sojourns(path[entered], np.flatnonzero(entered), len(path) - 1)


def sojourns(run: Run) -> Iterator[Sojourns]:
    """The sojourns of each chain of a stored run, chain by chain."""
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
        yield Sojourns(np.stack(states), np.array(first), run.steps)


@dataclass(frozen=True, eq=False)
class Episode:
    """Steps in which a chain stayed near one text."""

    chain: int
    first: int  # after this step it was there …
    last: int  # … and after each one up to this
    ended: bool  # not if it was still there when the run ended: its duration is a lower bound
    # (length,): the middle of its ball; none for the rolling detector
    centre: Ints | None = internal(default=None)

    @reported
    def duration(self) -> int:
        """In steps: from being there to being elsewhere."""
        return self.last - self.first + 1

    @property
    def at_least(self) -> str:
        """What stands before its duration in a sentence."""
        return "" if self.ended else "at least "

    @reported
    def duration_kind(self) -> str:
        """What its duration is: snapshots some steps apart do not say when exactly it ended."""
        if not self.ended:
            return "lower bound"
        return "estimate" if self.centre is None else "exact"


def rolling_episodes(
    vectors: NDArray[np.float32], *, window: int, stride: int, threshold: float
) -> list[Episode]:
    """The episodes of all chains, from embeddings (chains, snapshots, d) one stride apart.

    k snapshots in a row count as k strides, as the paper counts durations (multiples of 50). A
    snapshot with less than a whole window behind it has no drift; an episode that reaches the last
    snapshot that has one is taken as still going on.
    """
    drifts = rolling_drift(vectors, window // stride)
    return [
        episode
        for chain, row in enumerate(drifts < threshold)
        for episode in flagged_episodes(row, stride, chain)
    ]


def rolling_drift(vectors: NDArray[np.float32], window: int) -> Floats:
    """Mean of 1 - cos to the next `window` snapshots: (chains, n, d) -> (chains, n - window)."""
    n = vectors.shape[1] - window
    total = np.zeros((len(vectors), n))
    for later in range(1, window + 1):
        total += 1 - np.einsum("cld,cld->cl", vectors[:, :n], vectors[:, later : later + n])
    # Rounding may put the drift of equal texts a little below zero.
    return np.asarray((total / window).clip(min=0))


def flagged_episodes(flags: NDArray[np.bool_], stride: int, chain: int = 0) -> list[Episode]:
    """The maximal rows of flagged snapshots of one chain; flags (snapshots,)."""
    return [
        Episode(chain, first * stride, end * stride - 1, ended=end < len(flags))
        for first, end in runs_of(flags)
    ]


def runs_of(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The start and the exclusive end of each maximal run of flags."""
    edges = np.diff(flags.astype(np.int8), prepend=0, append=0)
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def hamming_episodes(paths: Sequence[Sojourns], *, radius: int = 1) -> list[Episode]:
    """The episodes of all chains, in order of chain and step."""
    return [
        episode
        for chain, path in enumerate(paths)
        for episode in episodes_of_chain(path, chain, radius=radius)
    ]


def episodes_of_chain(path: Sojourns, chain: int = 0, *, radius: int) -> list[Episode]:
    """The episodes into which one chain's path falls, each sojourn in exactly one, in order."""
    owner = np.full(len(path.first), -1)
    by_length = np.argsort(path.first - path.last, kind="stable")  # the longest first
    for longest in by_length.tolist():
        if owner[longest] < 0:
            low, high = _reach(path.states, owner, longest, radius)
            owner[low : high + 1] = longest
    begins = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    ends = np.append(begins[1:] - 1, len(owner) - 1)
    pairs = zip(begins.tolist(), ends.tolist(), strict=True)
    return [_episode(path, chain, pair, path.states[owner[pair[0]]]) for pair in pairs]


def visits_to_ball(path: Sojourns, centre: Ints, radius: int, chain: int = 0) -> list[Episode]:
    """The episodes of a chain within the radius of a given centre (length,)."""
    near = (path.states != centre).sum(axis=1) <= radius
    return [_episode(path, chain, (low, end - 1), centre) for low, end in runs_of(near)]


def _reach(states: Ints, owner: Ints, middle: int, radius: int) -> tuple[int, int]:
    """The first and the last sojourn around the middle one that are near it and not taken yet."""

    def last_of(places: Iterator[int]) -> int:
        reached = middle
        for k in places:
            if owner[k] >= 0 or (states[k] != states[middle]).sum() > radius:
                break
            reached = k
        return reached

    return last_of(iter(range(middle, -1, -1))), last_of(iter(range(middle, len(owner))))


def _episode(path: Sojourns, chain: int, pair: tuple[int, int], centre: Ints) -> Episode:
    low, high = pair
    return Episode(
        chain=chain,
        first=int(path.first[low]),
        last=int(path.last[high]),
        ended=high < len(path.first) - 1,
        centre=centre,
    )


@dataclass(frozen=True)
class HoldingObservation:
    """Time observed in a representative after its selection, and the departures in that time."""

    steps: int
    departures: int

    @reported
    def holding_time(self) -> float | None:
        """The mean, in steps per departure: an estimate. None without a departure."""
        return self.steps / self.departures if self.departures else None


def holding_after_selection(
    path: Sojourns, episode: Episode, tokens: Ints, shortest: int, window: int
) -> HoldingObservation:
    """Steps and departures in a representative (length,) beyond what its choice asked of it.

    What was asked, on the clock of the steps spent in it: with the other states' steps, enough for
    the shortest trap (and for the window behind it); more than in any other state; and in one
    sojourn as many as in any other's, where that made it the centre of a ball. Later is always
    right, so what cannot be known exactly is taken late.
    """
    touched, counts = path.between(episode.first, episode.last + window)
    own = (path.states[touched] == tokens).all(axis=1)
    if not own.any():
        return HoldingObservation(0, 0)
    lengths = (path.last - path.first + 1)[touched]
    clock = np.cumsum(lengths[own])  # at the end of each of its sojourns
    early = max(0, episode.first - int(path.first[touched[own][0]]))  # before the episode
    others = [steps for _, steps in states_by_occupancy(path.states[touched[~own]], counts[~own])]
    rival = int(lengths[~own].max(initial=0))
    firm = np.flatnonzero(lengths[own] >= rival)
    is_centre = episode.centre is not None and len(firm) > 0
    as_centre = int((clock - lengths[own])[firm[0]]) + rival if is_centre else 1
    asked = max(
        1,
        early + shortest + window - sum(others),
        early + max(others, default=0),
        as_centre,
    )
    ended = touched[own] < len(path.first) - 1
    return HoldingObservation(
        max(0, int(clock[-1]) - asked + 1), int((ended & (clock >= asked)).sum())
    )


def states_by_occupancy(states: Ints, counts: Ints) -> list[tuple[Ints, int]]:
    """The different states (k, length) with the steps spent in each, the longest-held first."""
    spent: dict[bytes, int] = {}
    for state, count in zip(states, counts, strict=True):
        spent[state.tobytes()] = spent.get(state.tobytes(), 0) + int(count)
    order = sorted(spent, key=lambda state: -spent[state])
    return [(np.frombuffer(state, np.int64).copy(), spent[state]) for state in order]


def check_steps(run: Run) -> None:
    """Refuses a run that has not moved yet."""
    if run.steps == 0:
        raise GlauberError(f"the run {run.name} has no steps yet, so it cannot show a trap.")


def check_window(run: Run, window: int, stride: int) -> None:
    """Refuses windows without a stride, and runs that are too short for them."""
    check_steps(run)
    if window < stride:
        raise GlauberError(
            f"the window is {window} steps, but it must contain at least one stride of {stride}."
        )
    if run.steps < window:
        raise GlauberError(
            f"the run {run.name} has {run.steps} steps, but the window is {window}: make it "
            "longer, or the window shorter."
        )
