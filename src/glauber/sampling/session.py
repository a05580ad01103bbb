"""How does a run advance? In parts of a few seconds, each committed."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.dynamics.kernel import Info, State
from glauber.dynamics.memo import Memo
from glauber.progress import check_count
from glauber.runs.run import Run
from glauber.runs.store import ACCEPTED, FIELDS, Events, check_new, create, make_folder, seal
from glauber.runs.writer import Writer
from glauber.sampling.engine import Stream, check_memo, new_memo, on_its_device, stream
from glauber.sampling.plan import Plan

COMMIT_SECONDS = 5.0  # at most about this much work is lost by a kill
GROWTH = 8.0  # of a part against the one before, at most
REPORT_SECONDS = 0.25


class Progress(NamedTuple):
    """How far a run is, as it is reported."""

    step: int  # steps that the chains at work have made
    steps: int  # steps planned
    updates: int  # chain steps made in this session
    seconds: float  # of this session
    changed: float  # share of this session's chain steps that changed a token
    remembered: float | None  # share of its steps that needed no pass; None without a memo
    text: str  # of the first chain at work, now


@dataclass
class Session:
    """One sitting of a run: counts what is done, reports it, and can be asked to stop."""

    report: Callable[[Progress], None] | None = None
    decode: Callable[[list[int]], str] = str  # the run's own, once it advances
    stopping: bool = False
    updates: int = 0
    memo: Memo | None = None
    begun: float = field(default_factory=time.perf_counter)
    _changed: dict[torch.device, Tensor] = field(default_factory=dict)  # steps, by device
    _reported: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, state: State, info: Info, steps: int) -> None:
        """Takes note of one step of a batch of chains."""
        changed, device = info.changed.any(dim=1).sum(), state.step.device
        with self._lock:
            self.updates += len(state.step)
            self._changed[device] = self._changed.get(device, 0) + changed
            now = time.perf_counter()
            if self.report is not None and now - self._reported > REPORT_SECONDS:
                self._reported = now
                self.report(self.progress(state, steps))

    def progress(self, state: State, steps: int) -> Progress:
        """Where the session stands."""
        share = sum(map(float, self._changed.values())) / self.updates
        spent = time.perf_counter() - self.begun
        text = self.decode(state.tokens[0].tolist())
        remembered = None if self.memo is None else self.memo.rate
        step = int(state.step[0])
        return Progress(step, steps, self.updates, spent, share, remembered, text)


@contextmanager
def stopped_by_interrupt(session: Session) -> Iterator[None]:
    """Ctrl-C asks the session to stop after its step; a second one stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python hands interrupts to the main thread only
        return

    def stop(*_: object) -> None:
        if session.stopping:
            raise KeyboardInterrupt
        session.stopping = True

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def begin(planned: Plan, folder: Path) -> None:
    """Makes the run's folder, with no steps yet; nothing is left behind if that fails."""
    check_new(folder)

    def fill(draft: Path) -> None:
        rejects = planned.scan.rejects
        create(draft, planned.tokens.numpy(), planned.free.numpy(), planned.slots, rejects=rejects)
        planned.model.vocabulary.save(draft / "tokenizer")
        seal(draft, planned.spec)

    make_folder(folder, fill)


def check_batch_size(batch_size: int | None) -> None:
    """Refuses a batch of no chains."""
    if batch_size is not None:
        check_count("batch size", batch_size, most=10**12)


def advance(
    planned: Plan,
    folder: Path,
    *,
    batch_size: int | None = None,
    memo: int | None = None,
    session: Session | None = None,
) -> None:
    """Makes the steps that are still missing, committing every few seconds.

    memo is the room for remembered conditionals in MiB, 0 for none (default: some on a CPU).
    """
    check_batch_size(batch_size)
    check_memo(memo)
    session = session or Session()
    session.memo = new_memo(planned, memo)
    session.decode = planned.model.vocabulary.decode
    with Writer(folder) as writer:
        if writer.steps < planned.spec.steps:
            writer.reopen()
        writer.describe(planned.spec)
        tokens = torch.from_numpy(Run(folder).tokens())
        for events, marks in _parts(planned, tokens, writer, batch_size, session):
            writer.append(events, marks)
        if writer.steps == planned.spec.steps:
            writer.finish()


def _parts(
    planned: Plan, tokens: Tensor, writer: Writer, batch_size: int | None, session: Session
) -> Iterator[tuple[Events, dict[int, NDArray[Any]]]]:
    """Parts of all chains' steps, each about COMMIT_SECONDS long, with the marks in them."""
    devices = planned.per_device
    batches = torch.arange(len(tokens)).split(batch_size or -(-len(tokens) // len(devices)))
    streams = _streams(devices, tokens, batches, writer.steps, session)
    size = 1

    def work(first: int) -> dict[int, Events]:
        """The part of every batch of one device, by the batch's number."""
        device, done = devices[first], {}
        with on_its_device(device):
            for number in range(first, len(batches), len(devices)):
                after, done[number] = _part(streams[number], device, size, session)
                tokens[batches[number]] = after
        return done

    while writer.steps < planned.spec.steps and not session.stopping:
        room = writer.every - writer.steps % writer.every  # a part ends at a mark
        size = min(size, room, planned.spec.steps - writer.steps)
        before = time.perf_counter()
        found: dict[int, Events] = {}
        for one in _each(work, len(devices)):
            found |= one
        parts = [found[number] for number in range(len(batches))]
        done = min(part["site"].shape[1] for part in parts)  # a stop may come between batches
        if done == 0:
            return
        last = writer.steps + done
        marks = {last: tokens.numpy().copy()} if last % writer.every == 0 else {}
        yield (
            {name: np.concatenate([part[name][:, :done] for part in parts]) for name in parts[0]},
            marks,
        )
        size = max(1, int(size * min(GROWTH, COMMIT_SECONDS / (time.perf_counter() - before))))


def _streams(
    devices: list[Plan], tokens: Tensor, batches: tuple[Tensor, ...], step: int, session: Session
) -> list[Stream]:
    """The steps still missing of each batch; the devices take the batches in turn."""
    n = len(devices)
    return [
        stream(devices[number % n], tokens[rows], rows, step, n_devices=n, memo=session.memo)
        for number, rows in enumerate(batches)
    ]


def _each(work: Callable[[int], dict[int, Events]], n_devices: int) -> list[dict[int, Events]]:
    """The work of every device, side by side."""
    if n_devices == 1:
        return [work(0)]
    with ThreadPoolExecutor(n_devices, "glauber-device") as pool:
        return list(pool.map(work, range(n_devices)))


def _part(steps: Stream, planned: Plan, size: int, session: Session) -> tuple[Tensor, Events]:
    """The next `size` steps of some chains, or fewer: their tokens after it, and their events."""
    infos: list[Info] = []
    for state, info in islice(steps, size):
        infos.append(info)
        session.count(state, info, planned.spec.steps)
        if session.stopping:
            break
    return state.tokens.cpu(), as_events(infos, planned.slots)


def as_events(infos: list[Info], n_slots: int) -> Events:
    """Infos of successive steps as arrays (chains, steps, slots) in the store's types."""
    events = {}
    for (name, (dtype, nothing)), column in zip(
        (FIELDS | ACCEPTED).items(), zip(*infos, strict=True), strict=True
    ):
        values = torch.stack(column, dim=1).cpu().numpy().astype(dtype)
        empty = [(0, 0), (0, 0), (0, n_slots - values.shape[2])]  # short texts use fewer slots
        events[name] = np.pad(values, empty, constant_values=nothing)
    return events
