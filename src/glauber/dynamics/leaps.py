"""How does a GPU with room make several steps of few chains in one pass?

The sites of the next steps are known in advance. One pass evaluates the next m steps of a chain,
all from its present state, and keeps them up to the first that changes a token: what follows it
was asked about a state that is gone. The steps kept are those of `run`, exactly; on a GPU with
few chains the further rows cost next to nothing.

Nothing of a leap asks the host, so it can be recorded as a CUDA graph. The host only looks now and
then whether the slowest chain has reached the end of a window of steps.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.dynamics.kernel import Info, Kernel, State

WINDOW = 256  # steps kept on the device before they are handed out
ROOM = 16  # rows that a pass takes at about the price of one


class Window(NamedTuple):
    """The steps of a window as they are made, (chains, steps + 1); the last column is waste."""

    first: Tensor  # (chains,) int64: the step with which the window begins
    last: Tensor  # (): int64: how many of its steps are wanted
    events: Info


def lookahead_for(n_chains: int) -> int:
    """Steps that one pass looks at, so that all rows find room."""
    return max(1, ROOM // n_chains)


def leaps(
    kernel: Kernel,
    state: State,
    steps: int,
    *,
    seed: int | Tensor,
    lookahead: int,
    window: int = WINDOW,
) -> Iterator[tuple[State, Info]]:
    """Each of the next steps, as `run(kernel, state, steps, seed=seed)` gives them.

    Only for kernels with one site a step whose scan does not ask the conditionals.
    """
    seeds = torch.as_tensor(seed, device=state.step.device)
    own = State(*(part.clone() for part in state))  # written over by every leap
    kept = _empty(own, window)
    leap = _recorded(own, kept, lambda: _leap(kernel, seeds, own, kept, lookahead))
    for first in range(0, steps, window):
        wanted = min(window, steps - first)
        kept.first.copy_(own.step)
        kept.last.fill_(wanted)
        left = wanted
        while left:
            # A leap makes at most `lookahead` steps, so none of these is in vain.
            for _ in range(max(1, left // lookahead)):
                leap()
            left = wanted - int((own.step - kept.first).min())
        events = Info(*(part[:, :wanted].clone() for part in kept.events))
        for column in range(wanted):
            info = Info(*(part[:, column : column + 1] for part in events))
            state = state._replace(
                tokens=state.tokens.scatter(1, info.sites, info.tokens), step=state.step + 1
            )
            yield state, info


def _leap(kernel: Kernel, seeds: Tensor, own: State, kept: Window, lookahead: int) -> None:
    """Up to `lookahead` steps of each chain, in place."""
    n_chains, length = own.tokens.shape
    row = torch.arange(n_chains, device=own.step.device)
    later = torch.arange(lookahead, device=own.step.device)
    wide = own.rows(row.repeat_interleave(lookahead))
    wide = wide._replace(step=wide.step + later.repeat(n_chains))
    every = seeds if seeds.ndim == 0 else seeds.repeat_interleave(lookahead)
    after, info = kernel.step(wide, kernel.draw(every, wide))
    changed = info.changed.view(n_chains, lookahead).long()
    column = (own.step - kept.first)[:, None] + later  # (chains, lookahead)
    # Steps behind a change are void, and so are those behind the window.
    fine = (changed.cumsum(1) - changed == 0) & (column < kept.last)
    count = fine.sum(1)
    where = torch.where(fine, column, kept.events.sites.shape[1] - 1)
    for buffer, part in zip(kept.events, info, strict=True):
        buffer.scatter_(1, where, part.view(n_chains, lookahead))
    reached = after.tokens.view(n_chains, lookahead, length)[row, (count - 1).clamp(min=0)]
    own.tokens.copy_(torch.where(count[:, None] > 0, reached, own.tokens))
    own.step.add_(count)


def _empty(state: State, window: int) -> Window:
    shape, device = (len(state.step), window + 1), state.step.device
    whole = torch.zeros(shape, dtype=torch.int64, device=device)
    real = torch.zeros(shape, dtype=torch.float64, device=device)
    return Window(
        state.step.clone(),
        torch.zeros((), dtype=torch.int64, device=device),
        Info(whole, whole.clone(), whole.bool(), real, real.clone(), real.clone()),
    )


def _recorded(own: State, kept: Window, leap: Callable[[], None]) -> Callable[[], object]:
    """The leap as a CUDA graph; itself on a CPU."""
    if not own.tokens.is_cuda:
        return leap
    before = State(*(part.clone() for part in own))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # kernels are compiled and workspaces made before recording
        for _ in range(3):
            leap()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        leap()
    for part, value in zip(own, before, strict=True):
        part.copy_(value)
    return graph.replay
