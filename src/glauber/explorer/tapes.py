"""What did living chains do so far? Their steps, on tapes.

A tape holds the steps of a trail from one edit to the next, in chunks: the state before each chunk,
and what its steps did. Trails that agree up to some edit share the tapes up to there, so going on,
going back, branching and editing cost only the new steps. What was not used for long is forgotten,
and made again from the state before it, to the bit on a CPU: noise is keyed by (seed, chain, step).
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glauber.conditionals.base import PAD
from glauber.dynamics.scans import scan_named
from glauber.explorer.beginnings import Begun
from glauber.explorer.conditional import Shown
from glauber.explorer.models import Models
from glauber.explorer.streams import Row, Streams
from glauber.explorer.trail import STEPS, Edit, Segment, Trail

CHUNK = 128  # steps between two states that are kept
TAPES = 4096  # tapes that are kept
EVENTS = 64 * 2**20  # bytes of what steps did that are kept

Tokens = NDArray[np.int64]
Sites = NDArray[np.bool_]
Floats = NDArray[np.float32]


class Moment(NamedTuple):
    """A chain's state: tokens (length,), and how sure the model was of each when it was drawn."""

    tokens: Tokens
    log_prob: Floats  # NaN where it never was


class Events(NamedTuple):
    """What steps did: (steps, slots) each; an empty slot has site PAD."""

    site: NDArray[np.int32]  # by position
    token: NDArray[np.int32]
    changed: NDArray[np.bool_]
    log_prob: Floats
    entropy: Floats

    @classmethod
    def none(cls, slots: int) -> "Events":
        """Room for the steps of a chunk."""
        number, unknown = np.full((CHUNK, slots), PAD, np.int32), np.full((CHUNK, slots), np.nan)
        return cls(
            number,
            number.copy(),
            np.zeros(number.shape, np.bool_),
            unknown.astype(np.float32),
            unknown.astype(np.float32),
        )


@dataclass(eq=False)
class Chunk:
    """Up to CHUNK steps behind a state."""

    begin: Moment
    made: int = 0
    events: Events | None = None

    def moment(self, steps: int) -> Moment:
        """The state after so many of the chunk's steps."""
        tokens, log_prob = self.begin.tokens.copy(), self.begin.log_prob.copy()
        if steps and self.events is not None:
            there = self.events.site[:steps] != PAD
            sites = self.events.site[:steps][there]
            tokens[sites] = self.events.token[:steps][there]  # the last of several events counts
            log_prob[sites] = self.events.log_prob[:steps][there]
        return Moment(tokens, log_prob)

    @property
    def nbytes(self) -> int:
        """Of the steps."""
        return 0 if self.events is None else sum(part.nbytes for part in self.events)

    def add(self, did: Sequence[NDArray[Any]], slots: int) -> None:
        """Enters one more step, as the columns of events (slots or more,)."""
        if self.events is None:
            self.events = Events.none(slots)
        for part, values in zip(self.events, did, strict=True):
            part[self.made] = values[:slots]
        self.made += 1

    def forget(self) -> None:
        """Keeps the state before the steps only."""
        self.made, self.events = 0, None


@dataclass(eq=False)
class Tape:
    """The steps of a chain with one temperature, one set of free sites and one noise."""

    first: int
    shown: Shown
    free: Sites  # (length,)
    temperature: float
    chain: int
    size: int | None  # sites of a step; None: every free one
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """Events of a step, at most."""
        return int(self.free.sum()) if self.size is None else self.size

    def known(self, step: int) -> int:
        """The last step up to that one whose state is there."""
        place = min((step - self.first) // CHUNK, len(self.chunks) - 1)
        return min(step, self.first + place * CHUNK + self.chunks[place].made)

    def onward(self, step: int) -> int:
        """The last step in the chunk of a known one that is there too."""
        place = (step - self.first) // CHUNK
        if place == len(self.chunks):
            return step
        return max(step, self.first + place * CHUNK + self.chunks[place].made)

    def moment(self, step: int) -> Moment:
        """The state after a known step."""
        place, behind = divmod(step - self.first, CHUNK)
        if place == len(self.chunks):
            place, behind = place - 1, CHUNK
        return self.chunks[place].moment(behind)

    def chunk(self, step: int) -> Chunk:
        """Where the step behind a known one is entered."""
        place = (step - self.first) // CHUNK
        if place == len(self.chunks):
            self.chunks.append(Chunk(self.chunks[-1].moment(CHUNK)))
        return self.chunks[place]


@dataclass(eq=False)
class Cursor:
    """A place on a trail whose state is known."""

    trail: Trail
    index: int  # of the segment
    tape: Tape
    step: int

    @property
    def end(self) -> int:
        """The step at which the next edit comes."""
        return self.trail.ends[self.index]

    @property
    def moment(self) -> Moment:
        return self.tape.moment(self.step)


class Tapes:
    """The tapes of recent trails. For one thread at a time: the models' lock is held."""

    def __init__(
        self, models: Models, begin: Callable[[Trail], Begun], *, events: int = EVENTS
    ) -> None:
        self.models, self._begin, self._most = models, begin, events
        self.made = 0  # steps that were made here
        self._tapes: OrderedDict[bytes, Tape] = OrderedDict()
        self._used: OrderedDict[Chunk, None] = OrderedDict()  # chunks with events
        self._held = 0  # bytes of them
        self._streams = Streams(models)

    def trim(self) -> None:
        """Forgets what was not used for longest, where there is too much; not between two uses."""
        while len(self._tapes) > TAPES:
            for chunk in self._tapes.popitem(last=False)[1].chunks:
                self._drop(chunk)
        while self._held > self._most:
            self._drop(next(iter(self._used)))

    def _drop(self, chunk: Chunk) -> None:
        if chunk in self._used:
            del self._used[chunk]
            self._held -= chunk.nbytes
            chunk.forget()

    def seek(self, trail: Trail, step: int) -> Cursor:
        """The last known place up to a step."""
        segments = trail.segments
        top = index = bisect_right([one.first for one in segments], step) - 1
        while index and segments[index].key not in self._tapes:
            index -= 1
        place = Cursor(trail, index, self._tape(trail, index), 0)
        while True:
            place.step = place.tape.known(min(step, place.end))
            if place.index == top or place.step < place.end:
                return place
            self._turn(place)

    def forward(self, place: Cursor, last: int) -> None:
        """Moves on through the steps that are there, up to a step."""
        while place.step < last:
            step = min(place.tape.onward(place.step), place.end, last)
            if step == place.step:
                return
            place.step = step
            if step == place.end < STEPS:
                self._turn(place)

    def grow(self, places: Sequence[Cursor]) -> None:
        """One more step at these places, those of one model and scan together."""
        alike: dict[tuple[str, str], dict[tuple[int, int], Cursor]] = {}
        for one in places:
            group = alike.setdefault((one.trail.model, one.trail.scan), {})
            group[id(one.tape), one.step] = one  # trails on one tape share its steps
        for (model, scan), group in alike.items():
            self._step(model, scan, list(group.values()))

    def _step(self, model: str, scan: str, places: list[Cursor]) -> None:
        rows = [
            Row(one.tape, one.step, one.trail.seed, one.step + one.trail.offset) for one in places
        ]
        columns = self._streams.step(model, scan, rows)
        for row, one in enumerate(places):
            chunk = one.tape.chunk(one.step)
            self._held -= chunk.nbytes
            chunk.add([column[row] for column in columns], one.tape.slots)
            self._held += chunk.nbytes
            self._use(chunk)
        self.made += len(places)

    def events(self, trail: Trail, first: int, last: int) -> dict[str, NDArray[Any]]:
        """What happened in the steps first < step <= last, which are there: one entry an event.

        A token that an edit puts is an event too, with made False and no probability.
        """
        parts = [_none()]
        for segment, end in zip(trail.segments, trail.ends, strict=True):
            if first < segment.first <= last:
                parts.append(_put(segment))
            low, high = max(first, segment.first), min(last, end)
            if low < high:
                parts += self._read(self._tapes[segment.key], low, high)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _read(self, tape: Tape, low: int, high: int) -> Iterator[dict[str, NDArray[Any]]]:
        for place in range((low - tape.first) // CHUNK, -(-(high - tape.first) // CHUNK)):
            chunk, before = tape.chunks[place], tape.first + place * CHUNK
            assert chunk.events is not None and before + chunk.made >= min(high, before + CHUNK)
            self._use(chunk)
            rows = slice(max(0, low - before), high - before)
            part = {name: values[rows] for name, values in chunk.events._asdict().items()}
            step, slot = np.nonzero(part["site"] != PAD)
            found = {name: values[step, slot] for name, values in part.items()}
            found["site"] = found["site"] - tape.shown.first
            step = step + before + rows.start + 1
            yield {"step": step, **found, "made": np.ones(len(step), np.bool_)}

    def kept_from(self, trail: Trail, last: int) -> int:
        """The step behind which everything up to the last known one is there."""
        kept = last
        for segment, end in zip(trail.segments[::-1], trail.ends[::-1], strict=True):
            if segment.first >= last:
                continue
            tape = self._tapes.get(segment.key)
            if tape is None:
                return kept
            for place in range(-(-(min(end, last) - tape.first) // CHUNK) - 1, -1, -1):
                before = tape.first + place * CHUNK
                if before + tape.chunks[place].made < kept:
                    return kept
                kept = before
        return kept

    def _use(self, chunk: Chunk) -> None:
        self._used[chunk] = None
        self._used.move_to_end(chunk)

    def _turn(self, place: Cursor) -> None:
        """Applies the edits at the end of a segment."""
        key = place.trail.segments[place.index + 1].key
        if key not in self._tapes:
            edits = place.trail.segments[place.index + 1].edits
            self._tapes[key] = edited(place.tape, place.step, place.moment, edits)
        place.index, place.tape = place.index + 1, self._tapes[key]
        self._tapes.move_to_end(key)

    def _tape(self, trail: Trail, index: int) -> Tape:
        """A tape that is there, or the first one."""
        segment = trail.segments[index]
        if segment.key not in self._tapes:
            begun = self._begin(trail)
            unknown = np.full(len(begun.tokens), np.nan, np.float32)
            size = scan_named(trail.scan).size
            tape = Tape(0, begun.shown, begun.free, trail.temperature, trail.chain, size)
            moment = Moment(begun.tokens, unknown)
            self._tapes[segment.key] = edited(tape, 0, moment, segment.edits)
        self._tapes.move_to_end(segment.key)
        return self._tapes[segment.key]


def edited(tape: Tape, step: int, moment: Moment, edits: Sequence[Edit]) -> Tape:
    """The tape behind edits of the state after a step."""
    free, tokens, log_prob = tape.free.copy(), moment.tokens.copy(), moment.log_prob.copy()
    after = replace(tape, first=step, free=free, chunks=[Chunk(Moment(tokens, log_prob))])
    for edit in edits:
        match edit.kind:
            case "temperature":
                after.temperature = edit.value
            case "chain":
                after.chain = int(edit.value)
            case "token":
                position = tape.shown.position(edit.site)
                tokens[position], log_prob[position] = edit.value, np.nan
            case _:
                free[tape.shown.position(int(edit.value))] = edit.kind == "free"
    return after


def _none() -> dict[str, NDArray[Any]]:
    """No events."""
    kinds = {"step": np.int64, "site": np.int32, "token": np.int32, "changed": np.bool_}
    kinds |= {"log_prob": np.float32, "entropy": np.float32, "made": np.bool_}
    return {name: np.empty(0, kind) for name, kind in kinds.items()}


def _put(segment: Segment) -> dict[str, NDArray[Any]]:
    """The tokens that edits put, as events."""
    put = [edit for edit in segment.edits if edit.kind == "token"]
    found = {name: np.zeros(len(put), values.dtype) for name, values in _none().items()}
    found["step"][:] = segment.first
    found["site"][:] = [edit.site for edit in put]
    found["token"][:] = [edit.value for edit in put]
    found["log_prob"][:] = found["entropy"][:] = np.nan
    return found
