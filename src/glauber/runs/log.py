"""The log of a run: what every step of every chain did, and the tokens after any step.

A log is a sequence of segments with the same number of steps, the last of which grows. Segments do
not depend on how the steps were divided into calls of `append`. `MemoryLog` keeps them in memory,
`FolderLog` (`glauber.runs.folder_log`) in a folder.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.call import Call
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import check_count, check_memory
from glauber.models.base import PAD
from glauber.runs.spec import Spec, spec_digest

# Per slot of a step: the site, the new token, whether it differs from the old one, the natural
# log-probability of both in the conditional drawn from, that conditional's entropy in nats and, in
# runs whose scan may reject proposals, whether the proposal was accepted. Each with its type and
# its value in an empty slot.
FIELDS: dict[str, tuple[str, Any]] = {
    "site": ("int32", PAD),
    "token": ("int32", PAD),
    "changed": ("bool", False),
    "log_prob_old": ("float32", np.nan),
    "log_prob_new": ("float32", np.nan),
    "entropy": ("float32", np.nan),
    "accepted": ("bool", False),
}
TOKENS = "tokens"
SEGMENT_EVENTS = 2**18  # of a full segment, about
MIN_SEGMENT_STEPS = 16  # so that the states of very many chains do not outweigh their events

Events = dict[str, NDArray[Any]]  # each field, (chains, steps, slots)


@dataclass(frozen=True, eq=False)
class Segment:
    """Consecutive steps of every chain, the first of which begins after step `first` of the run.

    `arrays` has the "tokens" (chains, length) before them and each field of their events (chains,
    steps, slots); those of a stored segment are read when they are first used.
    """

    first: int
    arrays: Mapping[str, NDArray[Any]]

    @property
    def last(self) -> int:
        """The step of the run after which it ends."""
        return self.first + int(self.arrays["site"].shape[1])

    def replay(self, values: NDArray[Any], first: int, last: int, *, field: str = "token") -> None:
        """Apply the events of the steps first <= step < last to tokens (chains, length) in place.

        Or to what another field of the events says about each site. Of several events at one site
        the last counts: NumPy assigns repeated indices in order.
        """
        if first == last:
            return
        steps = slice(first - self.first, last - self.first)
        sites = self.arrays["site"][:, steps]
        chain, step, slot = np.nonzero(sites >= 0)
        new_values = self.arrays[field][:, steps]
        values[chain, sites[chain, step, slot]] = new_values[chain, step, slot]

    def tokens_after(self, step: int) -> NDArray[np.int32]:
        """The tokens (chains, length) after that step of the run."""
        tokens = self.arrays[TOKENS].copy()
        self.replay(tokens, self.first, step)
        return tokens

    def replaced_tokens(self) -> NDArray[np.int32]:
        """The token that each event replaced, (chains, steps, slots); PAD in empty slots."""
        tokens, sites = self.arrays[TOKENS], self.arrays["site"]
        chain, step, slot = np.nonzero(sites >= 0)
        new_tokens = self.arrays["token"][chain, step, slot]
        keys = chain * tokens.shape[1] + sites[chain, step, slot]
        order = np.argsort(keys, kind="stable")  # events of one site in the order of their steps
        repeated = np.flatnonzero(keys[order][1:] == keys[order][:-1]) + 1
        old_tokens = tokens.ravel()[keys]
        old_tokens[order[repeated]] = new_tokens[order[repeated - 1]]
        replaced = np.full(sites.shape, PAD, np.int32)
        replaced[chain, step, slot] = old_tokens
        return replaced


class Log(ABC):
    """Events of all chains, appended in the order of steps."""

    spec: Spec
    call: Call | None  # that makes the run
    steps: int
    fields: list[str]
    n_chains: int
    n_slots: int
    segment_steps: int
    folder: Path | None = None  # none in memory

    @property
    @abstractmethod
    def free(self) -> NDArray[np.bool_]:
        """The sites that may be redrawn, (chains, length)."""

    @abstractmethod
    def append(self, events: Events) -> None:
        """Add steps."""

    @abstractmethod
    def describe(self, spec: Spec) -> None:
        """Set another number of planned steps, device or versions; the rest cannot change."""

    def close(self) -> None:  # noqa: B027 (a log in memory has nothing to close)
        """End writing; the steps can still be read."""

    def newest(self) -> Self:
        """A reader of the steps that are committed now."""
        return self

    def tokenizer(self) -> Path | None:
        """The folder of the tokenizer; none in memory."""
        return None

    def verify(self) -> None:  # noqa: B027 (a log in memory has no files)
        """Compare every file with its checksum; refuse a log that is damaged."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def segment(self, number: int) -> Segment:
        """The segment that begins at step number * segment_steps; the last may have no steps."""

    def read(self, field: str, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """One field of the events of the steps first <= step < last, (chains, steps, slots)."""
        last = self.steps if last is None else last
        if field not in self.fields:
            raise GlauberError(f"the events have no {field!r}, only {', '.join(self.fields)}.")
        if not 0 <= first <= last <= self.steps:
            raise GlauberError(
                f"steps {first} to {last} are outside the run, which has steps 0 to {self.steps}."
            )
        shape = self.n_chains, last - first, self.n_slots
        check_memory(4.0 * math.prod(shape), f"the {field} of {last - first:,} steps")
        values = np.empty(shape, FIELDS[field][0])
        step = first
        while step < last:
            segment = self.segment(step // self.segment_steps)
            end = min(last, segment.first + self.segment_steps)
            part = segment.arrays[field][:, step - segment.first : end - segment.first]
            values[:, step - first : end - first] = part
            step = end
        return values

    def tokens(self, step: int | None = None) -> NDArray[np.int32]:
        """The tokens (chains, length) after that many steps (default: all of them)."""
        step = self.steps if step is None else step
        if not 0 <= step <= self.steps:
            raise GlauberError(
                f"step {step} is outside the run, which has steps 0 to {self.steps}."
            )
        return self.segment(step // self.segment_steps).tokens_after(step)

    def segments(self) -> Iterator[Segment]:
        """The segments that have steps, in order."""
        return (self.segment(number) for number in range(-(-self.steps // self.segment_steps)))

    def states(self, every: int = 1, first: int = 0) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """(step, tokens (chains, length)) at the multiples of `every` from `first` on, in order."""
        check_count("number of steps between states", every, most=10**15)
        position = min(-(-first // every) * every, self.steps)
        segment = self.segment(position // self.segment_steps)
        tokens = segment.tokens_after(position)
        for step in range(-(-first // every) * every, self.steps + 1, every):
            if step >= segment.first + self.segment_steps:
                segment = self.segment(step // self.segment_steps)
                tokens, position = segment.tokens_after(segment.first), segment.first
            segment.replay(tokens, position, step)
            position = step
            yield step, tokens.copy()


class MemoryLog(Log):
    """A log in memory.

    tokens and free are (chains, length): the tokens before the first step, with PAD after shorter
    texts, and the sites that may be redrawn. With `rejects`, events have the field "accepted".
    """

    def __init__(
        self,
        spec: Spec,
        tokens: NDArray[Any],
        free: NDArray[np.bool_],
        n_slots: int = 1,
        *,
        rejects: bool = False,
        segment_steps: int | None = None,
        call: Call | None = None,
    ) -> None:
        self.spec, self.call, self.steps = spec, call, 0
        self._free = np.array(free, np.bool_)
        self.n_chains, self.n_slots = len(tokens), n_slots
        self.fields = event_fields(rejects)
        self.segment_steps = segment_steps or default_segment_steps(self.n_chains, n_slots)
        self._full: list[Segment] = []
        self._tokens = np.array(tokens, np.int32)  # before the last segment
        self._parts: list[Events] = []  # of the last segment, as they were appended

    @property
    def free(self) -> NDArray[np.bool_]:
        """The sites that may be redrawn, (chains, length)."""
        return self._free

    def describe(self, spec: Spec) -> None:
        """Set another number of planned steps, device or versions; the rest cannot change."""
        check_described(self.spec, spec, "the run")
        self.spec = spec

    def copy(self) -> "MemoryLog":
        """A log with the same steps, to which others can be appended."""
        log = copy.copy(self)
        log._full, log._parts = list(self._full), list(self._parts)
        return log

    def append(self, events: Events) -> None:
        """Add steps."""
        events = stored_events(events, self.fields, (self.n_chains, self.n_slots))
        for part in split_events(events, self.steps, self.segment_steps):
            self._parts.append(part)
            self.steps += part["site"].shape[1]
            if self.steps % self.segment_steps == 0:
                segment = self.segment(len(self._full))
                self._full.append(Segment(segment.first, sparse_arrays(segment.arrays)))
                self._tokens = segment.tokens_after(self.steps)
                self._parts = []

    def segment(self, number: int) -> Segment:
        """The segment that begins at step number * segment_steps; the last may have no steps."""
        if number < len(self._full):
            return self._full[number]
        if len(self._parts) != 1:
            no_events = empty_events(self.fields, (self.n_chains, 0, self.n_slots))
            self._parts = [join_events([no_events, *self._parts])]
        first = number * self.segment_steps
        return Segment(first, {TOKENS: self._tokens, **self._parts[0]})


class LazyArrays(Mapping[str, NDArray[Any]]):
    """Arrays by name, each read when it is used."""

    def __init__(self, names: Sequence[str], read: Callable[[str], NDArray[Any]]) -> None:
        self._names, self._read = names, read

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def sparse_arrays(arrays: Mapping[str, NDArray[Any]]) -> LazyArrays:
    """The arrays of a segment without its empty slots; each is filled up when it is used."""
    tokens, shape = arrays[TOKENS], arrays["site"].shape
    positions = np.flatnonzero(arrays["site"] >= 0)
    fields = {n: array.ravel()[positions] for n, array in arrays.items() if n != TOKENS}

    def read(name: str) -> NDArray[Any]:
        if name == TOKENS:
            return tokens
        return dense_events(name, fields[name], positions, shape)

    return LazyArrays((TOKENS, *fields), read)


def dense_events(
    field: str, values: NDArray[Any], positions: NDArray[np.int64], shape: tuple[int, ...]
) -> NDArray[Any]:
    """A field of events as an array of that shape; positions are indices into it, flattened."""
    dtype, empty = FIELDS[field]
    array = np.full(shape, empty, dtype)
    array.reshape(-1)[positions] = values
    return array


def check_described(now: Spec, spec: Spec, name: str) -> None:
    """Refuse to change what decides a trajectory."""
    if spec_digest(spec) != spec_digest(now):
        raise GlauberError(f"{name} was begun with other settings: choose another one.")


def event_fields(rejects: bool) -> list[str]:
    """The fields of the events of a run whose scan may reject proposals, or may not."""
    return [field for field in FIELDS if rejects or field != "accepted"]


def default_segment_steps(n_chains: int, n_slots: int) -> int:
    """The number of steps of a full segment."""
    return max(MIN_SEGMENT_STEPS, SEGMENT_EVENTS // (n_chains * n_slots))


def bytes_needed(n_chains: int, n_steps: int, n_slots: int, length: int) -> int:
    """An upper bound on the size of a log: its events and states before compression."""
    event = sum(np.dtype(dtype).itemsize for dtype, _ in FIELDS.values())
    states = 1 + n_steps // default_segment_steps(n_chains, n_slots)
    return n_chains * (n_steps * n_slots * event + states * length * 4) + 2**21


def stored_events(events: Events, fields: list[str], shape: tuple[int, int]) -> Events:
    """Events in the types of a log; empty slots and NaN have the same bits everywhere.

    shape is (chains, slots). Fields that the log does not have are left out.
    """
    n_steps = events["site"].shape[1]
    vacant = np.asarray(events["site"]) < 0
    arrays = {}
    for field in fields:
        dtype, empty = FIELDS[field]
        values = np.array(events[field], dtype)
        if values.shape != (shape[0], n_steps, shape[1]):
            raise ValueError(f"{field} has shape {values.shape}, but the log has {shape} per step")
        values[vacant] = empty
        if values.dtype.kind == "f":
            values[np.isnan(values)] = np.nan
        arrays[field] = values
    return arrays


def empty_events(fields: list[str], shape: tuple[int, int, int]) -> Events:
    """Events (chains, steps, slots) of which every slot is empty."""
    return {field: np.full(shape, FIELDS[field][1], FIELDS[field][0]) for field in fields}


def resize_events(events: Events, n_steps: int, n_slots: int) -> Events:
    """Events (chains, steps, slots) of so many steps and slots: cut off, or with empty slots."""
    n_chains, *shape = events["site"].shape
    steps, slots = min(n_steps, shape[0]), min(n_slots, shape[1])
    resized = empty_events(list(events), (n_chains, n_steps, n_slots))
    for field, values in events.items():
        resized[field][:, :steps, :slots] = values[:, :steps, :slots]
    return resized


def split_events(events: Events, position: int, segment_steps: int) -> Iterator[Events]:
    """The events after step `position` in parts, each of which belongs to one segment."""
    n_steps, first = events["site"].shape[1], 0
    while first < n_steps:
        last = min(n_steps, first + segment_steps - (position + first) % segment_steps)
        yield {field: values[:, first:last] for field, values in events.items()}
        first = last


def join_events(events: list[Events]) -> Events:
    """Consecutive events as one."""
    return {field: np.concatenate([part[field] for part in events], axis=1) for field in events[0]}
