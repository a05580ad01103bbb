"""How does a GPU make steps of few chains fast? There, launches are the cost.

`graph_kernel` records one step as a CUDA graph. `multi_step` makes several steps in one pass: the
sites of the next steps are known in advance, so one pass evaluates the next m steps of a chain,
all from its present state, and keeps them up to the first that changes a token (what follows it
was asked about a state that is gone). The steps kept are those of `kernel.run`, exactly, and the
further rows cost next to nothing. Nothing of a pass asks the host, so it can be recorded too; the
host only looks now and then whether the slowest chain has reached the end of a window of steps.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from glauber.dynamics.kernel import Info, Kernel, Noise, State
from glauber.foundation.errors import GlauberWarning
from glauber.models.base import PAD
from glauber.models.forward.layout import Recording

WINDOW = 256  # steps kept on the device before they are handed out
Answer = TypeVar("Answer")
ROOM = 16  # rows that a pass takes at about the price of one


class Graph(NamedTuple):
    """A recorded step, with what it reads beside its arguments."""

    cuda: torch.cuda.CUDAGraph
    recording: Recording

    def replay(self) -> None:
        self.cuda.replay()


class _Recorded(NamedTuple):
    graph: Graph
    state: State  # read by the graph and overwritten with the state after the step
    noise: Noise  # read by the graph
    info: Info  # written by the graph


def graph_kernel(kernel: Kernel) -> Kernel:
    """A kernel with the same law and noise whose steps are replayed from a recording.

    Only for kernels whose step never asks the host: single-site or block scans on a CUDA device.
    """
    recorded: _Recorded | None = None
    last: State | None = None
    refused = False  # a step of this kernel cannot be recorded

    def step(state: State, noise: Noise) -> tuple[State, Info]:
        nonlocal recorded, last, refused
        if refused:
            return kernel.step(state, noise)
        going_on = last is not None and state.tokens is last.tokens and state.step is last.step
        if recorded is None or not (going_on or _same_lengths(recorded.state, state)):
            recorded, last = _record(kernel.step, state, noise), None
        if recorded is None:
            refused = True
            return kernel.step(state, noise)
        if not going_on:
            _copy(recorded.state, state)
        _copy(recorded.noise, noise)
        recorded.graph.replay()
        after = recorded.state
        last = state._replace(tokens=after.tokens.clone(), step=after.step.clone())
        return last, Info(*(part.clone() for part in recorded.info))

    return Kernel(kernel.draw, step)


def laid_out(kernel: Kernel) -> Kernel:
    """A kernel with the same steps that asks for the lengths of its chains only once.

    For the same kernels as `graph_kernel`, with so many chains that a recording gains nothing.
    """
    recording = Recording()
    last: State | None = None

    def step(state: State, noise: Noise) -> tuple[State, Info]:
        nonlocal last
        with recording:
            recording.repeat(reading=last is not None and state.tokens is last.tokens)
            last, info = kernel.step(state, noise)
        return last, info

    return Kernel(kernel.draw, step)


def _record(
    step: Callable[[State, Noise], tuple[State, Info]], state: State, noise: Noise
) -> _Recorded | None:
    """A step recorded for that shape; None, and a note, where it cannot be recorded."""
    own = State(*(part.clone() for part in state))
    bits = Noise(*(part.clone() for part in noise))

    def once() -> Info:
        after, info = step(own, bits)
        own.tokens.copy_(after.tokens)
        own.step.copy_(after.step)
        return info

    graph, info = _capture(once)
    return None if graph is None or info is None else _Recorded(graph, own, bits, info)


def _same_lengths(first: State, second: State) -> bool:
    """Whether a recording for the chains of one fits those of the other."""
    if first.tokens.shape != second.tokens.shape:
        return False
    return torch.equal(first.tokens == PAD, second.tokens == PAD)


def _capture(once: Callable[[], Answer]) -> tuple[Graph | None, Answer | None]:
    """What `once` does as a CUDA graph, and its answer; none, and a note, where that fails.

    A model whose step copies between the host and the device, or asks it, cannot be recorded.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with Recording() as recording:
        with torch.cuda.stream(side):  # kernels are compiled and workspaces made before recording
            for _ in range(3):
                recording.repeat(reading=False)
                once()
        torch.cuda.current_stream().wait_stream(side)
        recording.repeat(reading=True)
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        try:
            # The outer one comes back to this stream whatever happens.
            with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, pool=pool):
                answer = once()
        except Exception as error:  # whatever it is, it did not happen before recording
            _clean_up(pool)
            _say_why(error)
            return None, None
    return Graph(graph, recording), answer


def _clean_up(pool: Any) -> None:
    """Leaves nothing of a recording that failed.

    The allocator may still serve the recording's pool, and the random generator may still believe
    in the recording: an empty one that succeeds ends that.
    """
    torch.cuda.synchronize()
    with suppress(RuntimeError, AttributeError):
        torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
    with suppress(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")
    torch.cuda.synchronize()


def _say_why(error: Exception) -> None:
    first = error
    while isinstance(first.__context__, Exception):  # ending a broken recording fails as well
        first = first.__context__
    why = (str(first).strip() or repr(first)).splitlines()[0]
    warnings.warn(
        f"steps of this model cannot be recorded as a CUDA graph, so they are made one by one "
        f"({why}).",
        GlauberWarning,
        stacklevel=4,
    )


def _copy(into: State | Noise, values: State | Noise) -> None:
    for target, value in zip(into, values, strict=True):
        target.copy_(value)


class Window(NamedTuple):
    """The steps of a window as they are made, (chains, steps + 1); the last column is waste."""

    first: Tensor  # (chains,) int64: the step with which the window begins
    last: Tensor  # (): int64: how many of its steps are wanted
    events: Info


def steps_per_pass(n_chains: int) -> int:
    """Steps that one pass evaluates, so that all rows find room."""
    return max(1, ROOM // n_chains)


def multi_step(
    kernel: Kernel,
    state: State,
    steps: int,
    *,
    seed: int | Tensor,
    per_pass: int,
    window: int = WINDOW,
) -> Iterator[tuple[State, Info]]:
    """Each of the next steps, as `run(kernel, state, steps, seed=seed)` gives them.

    Only for kernels with one site a step whose scan does not ask the conditionals.
    """
    seeds = torch.as_tensor(seed, device=state.step.device)
    own = State(*(part.clone() for part in state))  # written over by every pass
    record = _empty(own, window)
    one_pass = _capture_pass(own, record, lambda: _pass(kernel, seeds, own, record, per_pass))
    for first in range(0, steps, window):
        wanted = min(window, steps - first)
        record.first.copy_(own.step)
        record.last.fill_(wanted)
        left = wanted
        while left:
            # A pass makes at most `per_pass` steps, so none of these is in vain.
            for _ in range(max(1, left // per_pass)):
                one_pass()
            left = wanted - int((own.step - record.first).min())
        events = Info(*(part[:, :wanted].clone() for part in record.events))
        for column in range(wanted):
            info = Info(*(part[:, column : column + 1] for part in events))
            state = state._replace(
                tokens=state.tokens.scatter(1, info.sites, info.tokens), step=state.step + 1
            )
            yield state, info


def _pass(kernel: Kernel, seeds: Tensor, own: State, record: Window, per_pass: int) -> None:
    """Up to `per_pass` steps of each chain, in place."""
    n_chains, length = own.tokens.shape
    row = torch.arange(n_chains, device=own.step.device)
    later = torch.arange(per_pass, device=own.step.device)
    wide = own.rows(row.repeat_interleave(per_pass))
    wide = wide._replace(step=wide.step + later.repeat(n_chains))
    every = seeds if seeds.ndim == 0 else seeds.repeat_interleave(per_pass)
    after, info = kernel.step(wide, kernel.draw(every, wide))
    changed = info.changed.view(n_chains, per_pass).long()
    column = (own.step - record.first)[:, None] + later  # (chains, per_pass)
    # Steps behind a change are void, and so are those behind the window.
    fine = (changed.cumsum(1) - changed == 0) & (column < record.last)
    count = fine.sum(1)
    where = torch.where(fine, column, record.events.sites.shape[1] - 1)
    for buffer, part in zip(record.events, info, strict=True):
        buffer.scatter_(1, where, part.view(n_chains, per_pass))
    reached = after.tokens.view(n_chains, per_pass, length)[row, (count - 1).clamp(min=0)]
    own.tokens.copy_(torch.where(count[:, None] > 0, reached, own.tokens))
    own.step.add_(count)


def _empty(state: State, window: int) -> Window:
    shape, device = (len(state.step), window + 1), state.step.device
    zeros = torch.zeros(shape, dtype=torch.int64, device=device)
    real = torch.zeros(shape, dtype=torch.float64, device=device)
    return Window(
        state.step.clone(),
        torch.zeros((), dtype=torch.int64, device=device),
        Info(zeros, zeros.clone(), zeros.bool(), real, real.clone(), real.clone(), zeros.bool()),
    )


def _capture_pass(own: State, record: Window, one_pass: Callable[[], None]) -> Callable[[], object]:
    """The pass as a CUDA graph; itself on a CPU."""
    if not own.tokens.is_cuda:
        return one_pass
    before = State(*(part.clone() for part in own))
    graph, _ = _capture(one_pass)
    for part, value in zip(own, before, strict=True):
        part.copy_(value)
    return one_pass if graph is None else graph.replay
