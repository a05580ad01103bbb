"""The same step, replayed as one CUDA graph, for few chains: there, launches are the cost."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from glauber.dynamics.kernel import Info, Kernel, Noise, State


class _Recorded(NamedTuple):
    graph: torch.cuda.CUDAGraph
    state: State  # read by the graph and overwritten with the state after the step
    noise: Noise  # read by the graph
    info: Info  # written by the graph


def replayed(kernel: Kernel) -> Kernel:
    """A kernel with the same law and noise whose steps are replayed from a recording.

    Only for kernels whose step never asks the host: single-site or block scans on a CUDA device.
    """
    recorded: _Recorded | None = None
    last: State | None = None

    def step(state: State, noise: Noise) -> tuple[State, Info]:
        nonlocal recorded, last
        if recorded is None or recorded.state.tokens.shape != state.tokens.shape:
            recorded, last = _record(kernel.step, state, noise), None
        if last is None or state.tokens is not last.tokens or state.step is not last.step:
            _copy(recorded.state, state)
        _copy(recorded.noise, noise)
        recorded.graph.replay()
        after = recorded.state
        last = state._replace(tokens=after.tokens.clone(), step=after.step.clone())
        return last, Info(*(part.clone() for part in recorded.info))

    return Kernel(kernel.draw, step)


def _record(
    step: Callable[[State, Noise], tuple[State, Info]], state: State, noise: Noise
) -> _Recorded:
    own = State(*(part.clone() for part in state))
    words = Noise(*(part.clone() for part in noise))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # kernels are compiled and workspaces made before recording
        for _ in range(3):
            step(own, words)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        after, info = step(own, words)
        own.tokens.copy_(after.tokens)
        own.step.copy_(after.step)
    return _Recorded(graph, own, words, info)


def _copy(into: State | Noise, values: State | Noise) -> None:
    for target, value in zip(into, values, strict=True):
        target.copy_(value)
