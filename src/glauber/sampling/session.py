"""How does a run advance? In stretches of a few seconds, each committed."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.dynamics.cuda import multi_step, steps_per_pass
from glauber.dynamics.fills import fill_named
from glauber.dynamics.kernel import Info, State, start
from glauber.dynamics.loop import run as run_kernel
from glauber.dynamics.memo import Memo
from glauber.dynamics.scans import scan_named
from glauber.dynamics.scheduler import can_be_memoised, memoised
from glauber.errors import GlauberError
from glauber.runs.run import Run
from glauber.runs.spec import write_spec
from glauber.runs.store import FIELDS, Events, Writer, create
from glauber.sampling.plan import Plan

COMMIT_SECONDS = 5.0  # at most about this much work is lost by a kill
REPORT_SECONDS = 0.25
MEMO = 256  # MiB of remembered conditionals, on a CPU


class Progress(NamedTuple):
    """How far a run is, as its listener hears it."""

    step: int  # steps that the chains at work have made
    steps: int  # steps planned
    updates: int  # chain steps made in this session
    seconds: float  # of this session
    changed: float  # share of this session's chain steps that changed a token
    remembered: float | None  # share of its steps that needed no pass; None without a memo
    tokens: Tensor  # of the first chain at work, now


Listener = Callable[[Progress], None]
Stream = Iterator[tuple[State, Info]]


@dataclass
class Session:
    """One sitting of a run: counts what is done, tells a listener, and can be asked to stop."""

    listener: Listener | None = None
    stopping: bool = False
    updates: int = 0
    memo: Memo | None = None
    begun: float = field(default_factory=time.perf_counter)
    _changed: dict[torch.device, Tensor] = field(default_factory=dict)  # steps, by device
    _heard: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, state: State, info: Info, steps: int) -> None:
        """Takes note of one step of a batch of chains."""
        changed, device = info.changed.any(dim=1).sum(), state.step.device
        with self._lock:
            self.updates += len(state.step)
            self._changed[device] = self._changed.get(device, 0) + changed
            now = time.perf_counter()
            if self.listener is not None and now - self._heard > REPORT_SECONDS:
                self._heard = now
                self.listener(self.progress(state, steps))

    def progress(self, state: State, steps: int) -> Progress:
        """Where the session stands."""
        share = sum(map(float, self._changed.values())) / self.updates
        spent = time.perf_counter() - self.begun
        tokens = state.tokens[0].cpu()
        remembered = None if self.memo is None else self.memo.rate
        step = int(state.step[0])
        return Progress(step, steps, self.updates, spent, share, remembered, tokens)


def begin(planned: Plan, folder: Path) -> None:
    """Makes the run's folder, with no steps yet; nothing is left behind if that fails."""
    if folder.exists():
        raise GlauberError(f"the folder {folder} exists already; give another one, or resume it.")
    draft = folder.with_name(f".{folder.name}.draft")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        create(draft, planned.tokens.numpy(), planned.free.numpy(), planned.slots)
        planned.model.vocabulary.save(draft / "tokenizer")
        write_spec(draft, planned.spec)
        draft.rename(folder)
    except OSError as error:
        raise GlauberError(f"{folder} cannot be made: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_batch_size(batch_size: int | None) -> None:
    """Refuses a batch of no chains."""
    if batch_size is not None and batch_size < 1:
        raise GlauberError(f"the batch size is {batch_size}, but it must be at least 1.")


def check_memo(memo: int | None) -> None:
    """Refuses a memo of less than nothing."""
    if memo is not None and memo < 0:
        raise GlauberError(f"the memo has {memo} MiB, but it cannot have less than 0.")


def advance(
    planned: Plan,
    folder: Path,
    *,
    batch_size: int | None = None,
    memo: int | None = None,
    session: Session | None = None,
) -> None:
    """Makes the steps that are still missing, committing every few seconds.

    memo is the room for remembered conditionals in MiB, 0 for none (default: MEMO on a CPU).
    """
    check_batch_size(batch_size)
    check_memo(memo)
    session = session or Session()
    session.memo = _memo(planned, memo)
    with Writer(folder) as writer:
        if writer.steps < planned.spec.steps:
            writer.reopen()
        write_spec(folder, planned.spec)
        tokens = torch.from_numpy(Run(folder).tokens())
        for events, marks in _stretches(planned, tokens, writer, batch_size, session):
            writer.append(events, marks)
        if writer.steps == planned.spec.steps:
            writer.finish()


def _memo(planned: Plan, size: int | None) -> Memo | None:
    """An empty memo of so many MiB, if the run's kernel has a use for it."""
    if size is None:
        size = MEMO if planned.model.device.type == "cpu" else 0
    if planned.others:
        return None  # each device would need its own
    if not size or not can_be_memoised(
        scan_named(planned.spec.scan), fill_named(planned.spec.fill)
    ):
        return None
    return Memo(planned.laws.vocab_size, planned.tokens.shape[1], budget=size * 2**20)


def _stretches(
    planned: Plan, tokens: Tensor, writer: Writer, batch_size: int | None, session: Session
) -> Iterator[tuple[Events, dict[int, NDArray[Any]]]]:
    """Stretches of all chains' steps, each about COMMIT_SECONDS long, with the marks in them."""
    crews = planned.crews
    share = -(-len(tokens) // len(crews))
    batches = torch.arange(len(tokens)).split(batch_size or share)
    streams = [
        _stream(crews[number % len(crews)], tokens[rows], rows, writer.steps, session, len(crews))
        for number, rows in enumerate(batches)
    ]
    size = 1

    def work(first: int) -> dict[int, Events]:
        """The stretch of every batch of one device, by the batch's number."""
        crew, done = crews[first], {}
        with torch.cuda.device(crew.model.device) if crew.on_cuda else nullcontext():
            for number in range(first, len(batches), len(crews)):
                after, done[number] = _stretch(streams[number], crew, size, session)
                tokens[batches[number]] = after
        return done

    while writer.steps < planned.spec.steps and not session.stopping:
        room = writer.every - writer.steps % writer.every  # a stretch ends at a mark
        size = min(size, room, planned.spec.steps - writer.steps)
        before = time.perf_counter()
        found: dict[int, Events] = {}
        for one in _each(work, len(crews)):
            found |= one
        parts = [found[number] for number in range(len(batches))]
        done = min(part["site"].shape[1] for part in parts)  # a stop may come between batches
        if done == 0:
            return
        last = writer.steps + done
        marks = {last: tokens.numpy().copy()} if last % writer.every == 0 else {}
        yield (
            {name: np.concatenate([part[name][:, :done] for part in parts]) for name in FIELDS},
            marks,
        )
        size = max(1, int(size * min(2.0, COMMIT_SECONDS / (time.perf_counter() - before))))


def _each(work: Callable[[int], dict[int, Events]], n_crews: int) -> list[dict[int, Events]]:
    """The work of every device, side by side."""
    if n_crews == 1:
        return [work(0)]
    with ThreadPoolExecutor(n_crews, "glauber-device") as pool:
        return list(pool.map(work, range(n_crews)))


def _stream(
    planned: Plan, tokens: Tensor, rows: Tensor, step: int, session: Session, n_crews: int
) -> Stream:
    """All the steps still missing of some chains, from `step` on.

    Steps are recorded for one device only: a recording suffers nothing else beside it.
    """
    spec = planned.spec
    begun = start(
        tokens,
        planned.free[rows],
        temperature=spec.temperature,
        chain=rows,
        step=step,
        device=planned.model.state_device,
    )
    missing = spec.steps - step
    scan, fill = scan_named(spec.scan), fill_named(spec.fill)
    if n_crews > 1:
        return run_kernel(planned.plain_kernel, begun, missing, seed=spec.seed)
    if session.memo is None:
        further = steps_per_pass(len(rows)) if begun.tokens.is_cuda else 1
        if further > 1 and can_be_memoised(scan, fill):
            kernel = planned.plain_kernel
            return multi_step(kernel, begun, missing, seed=spec.seed, n_ahead=further)
        return run_kernel(planned.kernel, begun, missing, seed=spec.seed)
    return memoised(
        planned.laws, begun, missing, seed=spec.seed, memo=session.memo, scan=scan, fill=fill
    )


def _stretch(stream: Stream, planned: Plan, size: int, session: Session) -> tuple[Tensor, Events]:
    """The next `size` steps of some chains, or fewer: their tokens after it, and their events."""
    infos: list[Info] = []
    for state, info in islice(stream, size):
        infos.append(info)
        session.count(state, info, planned.spec.steps)
        if session.stopping:
            break
    return state.tokens.cpu(), _events(infos, planned.slots)


def _events(infos: list[Info], n_slots: int) -> Events:
    """Infos of successive steps as arrays (chains, steps, slots) in the store's types."""
    events = {}
    for (name, (dtype, nothing)), column in zip(
        FIELDS.items(), zip(*infos, strict=True), strict=True
    ):
        values = torch.stack(column, dim=1).cpu().numpy().astype(dtype)
        empty = [(0, 0), (0, 0), (0, n_slots - values.shape[2])]  # short texts use fewer slots
        events[name] = np.pad(values, empty, constant_values=nothing)
    return events


def rate(planned: Plan, *, batch_size: int | None = None) -> float:
    """Measured chain steps per second, from two steps that are not kept.

    Several devices: what the first does with its share of the chains, times their number.
    """
    n_crews = len(planned.crews)
    share = -(-len(planned.tokens) // n_crews)
    rows = torch.arange(min(batch_size or share, share))
    begun = start(
        planned.tokens[rows],
        planned.free[rows],
        temperature=planned.spec.temperature,
        chain=rows,
        device=planned.model.state_device,
    )
    stream = run_kernel(planned.kernel, begun, 3, seed=planned.spec.seed)
    next(stream)  # compilation, recording and caches are not counted
    session = Session()
    _stretch(stream, planned, 2, session)
    return n_crews * session.updates / (time.perf_counter() - session.begun)
