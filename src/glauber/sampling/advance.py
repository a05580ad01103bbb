"""The loop that makes steps and records them, in parts of a few seconds, and its engines.

plain       one step of all chains after the other; several devices share the chains
memoised    chains that advance on their own and never ask twice (a CPU, single sites)
prefetched  the same with nothing remembered: very few chains, whose next steps share a call
graph       a step recorded as a CUDA graph (few chains)
multi-step  several steps of very few chains in one pass, recorded too

All of them make the same steps: to the bit on a CPU, up to the rounding of a batch on CUDA.
"""

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glauber.dynamics.kernel import Annealing, Info, State, run, start
from glauber.dynamics.remembered import Memo, run_memoised
from glauber.foundation.errors import GlauberWarning
from glauber.foundation.progress import check_count
from glauber.runs.log import FIELDS, Events, Log, empty_events, resize_events
from glauber.sampling.plan import Plan

COMMIT_SECONDS = 5.0  # at most about this much work is lost by a kill
GROWTH = 8.0  # of a part compared with the one before, at most
REPORT_SECONDS = 0.25
FEW = 256  # up to this many chains a CUDA step is bound by launches, and is replayed as a graph
VERY_FEW = 4  # up to this many chains leave a CPU's cores idle unless steps share a call
MEMO = 256  # MiB of remembered conditionals, on a CPU

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
    started_at: float = field(default_factory=time.perf_counter)
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
        spent = time.perf_counter() - self.started_at
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


# ---- engines

Engine = Literal["plain", "memoised", "prefetched", "graph", "multi-step"]


def new_memo(planned: Plan, size: int | None) -> Memo | None:
    """An empty memo of so many MiB (default: MEMO on a CPU), if the run has a use for it."""
    if size is None:
        size = 0 if planned.on_cuda else MEMO
    if planned.others:
        return None  # each device would need its own
    if not size or planned.kernel.lookup is None:
        return None
    return Memo(planned.conditionals.vocab_size, planned.tokens.shape[1], budget=size * 2**20)


def choose(planned: Plan, n_chains: int, n_devices: int, memo: Memo | None) -> Engine:
    """The engine for so many chains of a batch.

    Steps are recorded for one device only: nothing else may run next to a recording.
    """
    if n_devices > 1:
        return "plain"
    if memo is not None:
        return "memoised"
    single = planned.kernel.lookup is not None
    if not planned.on_cuda:
        return "prefetched" if single and n_chains <= VERY_FEW else "plain"
    from glauber.dynamics.cuda import steps_per_pass

    if steps_per_pass(n_chains) > 1 and single and planned.can_be_recorded:
        return "multi-step"
    few = planned.spec.chains <= FEW and planned.can_be_recorded
    return "graph" if few else "plain"


def advance_chains(
    planned: Plan,
    log: Log,
    *,
    batch_size: int | None = None,
    memo: int | None = None,
    session: Session | None = None,
    until: int | None = None,
) -> None:
    """Make the steps that a log of chains lacks, up to `until` (default: the planned number).

    memo is the room for remembered conditionals in MiB, 0 for none (default: some on a CPU).
    """
    session = session or Session()
    session.memo = new_memo(planned, memo)
    session.decode = planned.model.vocabulary.decode
    until = planned.spec.steps if until is None else until
    batches = chain_batches(planned, log, until, batch_size, session.memo)
    advance(batches, log, until=until, session=session)


def chain_batches(
    planned: Plan, log: Log, until: int, batch_size: int | None, memo: Memo | None
) -> list[Batch]:
    """The chains of a log in batches; several devices take them in turn."""
    devices = planned.per_device
    tokens = torch.from_numpy(log.tokens()).long()
    memory = placed_log_probs(log) if planned.unmasking is not None and log.steps else None
    size = batch_size or -(-len(tokens) // len(devices))
    batches = []
    for number, rows in enumerate(torch.arange(len(tokens)).split(size)):
        device = devices[number % len(devices)]
        state = begin_at(device, tokens[rows], rows, log.steps)
        steps = until - log.steps
        if memory is not None:
            state = state._replace(memory=memory[rows].to(state.memory.device))
        stream = step_stream(device, state, steps, n_devices=len(devices), memo=memo)
        batches.append(Batch(len(rows), stream, device.model.device))
    return batches


def step_stream(
    planned: Plan, state: State, steps: int, *, n_devices: int = 1, memo: Memo | None = None
) -> Stream:
    """The next steps of the chains of a state, at the temperatures of the plan's annealing."""
    if planned.annealing is None:
        return _steps(planned, state, steps, n_devices=n_devices, memo=memo)
    return _annealed_steps(planned, planned.annealing, state, steps, n_devices, memo)


def _annealed_steps(
    planned: Plan,
    annealing: Annealing,
    state: State,
    steps: int,
    n_devices: int,
    memo: Memo | None,
) -> Stream:
    first = int(state.step[0])
    for temperature, count in annealing.stages(first, first + steps):
        state = state._replace(temperature=torch.full_like(state.temperature, temperature))
        stage = _steps(planned, state, count, n_devices=n_devices, memo=memo)
        for state, info in stage:
            yield state, info


def _steps(planned: Plan, state: State, steps: int, *, n_devices: int, memo: Memo | None) -> Stream:
    """The next steps of the chains of a state, at its own temperatures."""
    seed, n_chains, kernel = planned.spec.seed, len(state.step), planned.kernel_of(state.free)
    engine = choose(planned, n_chains, n_devices, memo)
    if engine in ("memoised", "prefetched"):
        if memo is None:
            memo = Memo(planned.conditionals.vocab_size, state.tokens.shape[1], budget=0)
        return run_memoised(kernel, state, steps, seed=seed, memo=memo)
    if planned.on_cuda:
        from glauber.dynamics.cuda import graph_kernel, laid_out, multi_step, steps_per_pass

        if engine == "multi-step":
            per_pass = steps_per_pass(n_chains)
            return multi_step(kernel, state, steps, seed=seed, per_pass=per_pass)
        if engine == "graph":
            kernel = graph_kernel(kernel)
        elif planned.can_be_recorded:
            kernel = laid_out(kernel)
    return run(kernel, state, steps, seed=seed)


def begin_at(planned: Plan, tokens: Tensor, rows: Tensor, step: int = 0) -> State:
    """The state of the chains `rows` after so many steps."""
    temperatures = torch.tensor(planned.spec.temperatures, dtype=torch.float64)
    return start(
        tokens,
        planned.free[rows],
        temperature=temperatures[rows],
        chain=rows,
        step=step,
        device=planned.model.state_device,
        greedy=planned.unmasking is not None,
    )


def placed_log_probs(log: Log) -> Tensor:
    """The log-probability (chains, length) with which each token of a generation was placed."""
    placed = np.zeros(log.free.shape, np.float32)
    for segment in log.segments():
        segment.replay(placed, segment.first, segment.last, field="log_prob_new")
    return torch.from_numpy(placed)


def rate(planned: Plan, *, batch_size: int | None = None) -> float:
    """Measured chain steps per second, from two steps that are not kept.

    Several devices: what the first does with its share of the chains, times their number.
    """
    devices = planned.per_device
    share = -(-len(planned.tokens) // len(devices))
    rows = torch.arange(min(batch_size or share, share))
    with current_device(devices[0].model.device), warnings.catch_warnings():
        warnings.simplefilter("ignore", GlauberWarning)  # the run itself says it
        state = begin_at(devices[0], planned.tokens[rows], rows)
        graph = choose(devices[0], len(rows), len(devices), None) in ("graph", "multi-step")
        kernel = planned.kernel
        if graph:
            from glauber.dynamics.cuda import graph_kernel

            kernel = graph_kernel(kernel)
        steps = run(kernel, state, 3, seed=planned.spec.seed)
        next(steps)  # compilation, recording and caches are not counted
        before = time.perf_counter()
        for _, info in steps:
            info.changed.cpu()  # waits for the device
        return len(devices) * 2 * len(rows) / (time.perf_counter() - before)
