"""The loop that makes steps and records them, in parts of a few seconds."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glauber.dynamics.kernel import Info, State
from glauber.dynamics.remembered import Memo
from glauber.progress import check_count
from glauber.runs.log import FIELDS, Events, Log, empty_events, resize_events

COMMIT_SECONDS = 5.0  # at most about this much work is lost by a kill
GROWTH = 8.0  # of a part compared with the one before, at most
REPORT_SECONDS = 0.25

Stream = Iterator[tuple[State, Info]]  # the state after each step, and what the step did


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
    """Counts the steps of a call, reports them, and can be asked to stop."""

    report: Callable[[Progress], None] | None = None
    decode: Callable[[list[int]], str] = str  # the run's own, once it advances
    stop: Callable[[], bool] | None = None  # asked after each step of a batch
    stopping: bool = False
    updates: int = 0
    memo: Memo | None = None
    begun: float = field(default_factory=time.perf_counter)
    _changed: dict[torch.device, Tensor] = field(default_factory=dict)  # steps, by device
    _reported: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, state: State, info: Info, steps: int) -> None:
        """Take note of one step of a batch of chains."""
        changed, device = info.changed.any(dim=1).sum(), state.step.device
        with self._lock:
            self.updates += len(state.step)
            self._changed[device] = self._changed.get(device, 0) + changed
            now = time.perf_counter()
            if self.report is not None and now - self._reported > REPORT_SECONDS:
                self._reported = now
                self.report(self.progress(state, steps))
        self.stopping = self.stopping or (self.stop is not None and self.stop())

    def progress(self, state: State, steps: int) -> Progress:
        """How far the session is."""
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


def check_batch_size(batch_size: int | None) -> None:
    """Refuse a batch of no chains."""
    if batch_size is not None:
        check_count("batch size", batch_size, most=10**12)


class Batch(NamedTuple):
    """Some chains of a run and their steps from now on."""

    n_chains: int
    stream: Stream  # ends where its chains have no step to make
    device: torch.device


def advance(
    batches: Sequence[Batch],
    log: Log,
    *,
    until: int,
    session: Session | None = None,
    seconds: float | None = None,
) -> None:
    """Make steps and append them to the log, in parts that take about `seconds` (default: 5).

    The batches are the chains of the log, in order. Ends when the log has `until` steps, when all
    streams have ended, or when the session is asked to stop. This is the only code that makes and
    records steps.
    """
    session = session or Session()
    seconds = COMMIT_SECONDS if seconds is None else seconds
    size = 1
    while log.steps < until and not session.stopping:
        size = min(size, until - log.steps)
        before = time.perf_counter()
        events = _next_part(batches, size, log, until, session)
        if events["site"].shape[1] == 0:
            return
        log.append(events)
        spent = time.perf_counter() - before
        size = max(1, int(size * min(GROWTH, seconds / spent)))


def _next_part(
    batches: Sequence[Batch], size: int, log: Log, planned: int, session: Session
) -> Events:
    """The events of the next `size` steps of all chains, or fewer."""
    infos: list[list[Info]] = [[] for _ in batches]
    ended = [False] * len(batches)

    def work(device: torch.device) -> None:
        with current_device(device):
            for number, batch in enumerate(batches):
                if batch.device == device:
                    ended[number] = _take_steps(batch, infos[number], size, planned, session)

    devices = list(dict.fromkeys(batch.device for batch in batches))
    if len(devices) == 1:
        work(devices[0])
    else:
        with ThreadPoolExecutor(len(devices), "glauber-device") as pool:
            list(pool.map(work, devices))
    # A stop may come between two batches; a stream that has ended makes no more steps.
    lengths = [len(steps) for steps in infos]
    unended = [n for n, end in zip(lengths, ended, strict=True) if not end]
    n_steps = min(unended, default=max(lengths))
    events = [
        resize_events(as_events(steps, log.fields), n_steps, log.n_slots)
        if steps
        else empty_events(log.fields, (batch.n_chains, n_steps, log.n_slots))
        for batch, steps in zip(batches, infos, strict=True)
    ]
    return {field: np.concatenate([part[field] for part in events]) for field in log.fields}


def _take_steps(batch: Batch, infos: list[Info], size: int, planned: int, session: Session) -> bool:
    """Take the next steps of a batch until the session stops; whether its stream has ended."""
    for state, info in islice(batch.stream, size):
        infos.append(info)
        session.count(state, info, planned)
        if session.stopping:
            return False
    return len(infos) < size


def as_events(infos: Sequence[Info], fields: Sequence[str]) -> Events:
    """What successive steps did, as arrays (chains, steps, slots)."""
    columns = dict(zip(FIELDS, zip(*infos, strict=True), strict=True))
    return {field: torch.stack(columns[field], dim=1).cpu().numpy() for field in fields}


def current_device(device: torch.device) -> AbstractContextManager[object]:
    """Make a CUDA device the current one; nothing on a CPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
