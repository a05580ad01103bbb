"""The plain loop. `scheduler` makes the same steps with fewer passes through the model."""

from collections.abc import Iterator

import torch
from torch import Tensor

from glauber.dynamics.kernel import Info, Kernel, Noise, State

DRAWN_AT_ONCE = 2**18  # numbers of noise drawn at once


def run(
    kernel: Kernel, state: State, steps: int, *, seed: int | Tensor
) -> Iterator[tuple[State, Info]]:
    """Each of the next steps: the state after it, and what it did."""
    seeds = torch.as_tensor(seed, device=state.step.device)
    at_once = max(1, DRAWN_AT_ONCE // state.tokens.numel())
    for first in range(0, steps, at_once):
        for noise in _noise(kernel, seeds, state, min(at_once, steps - first)):
            state, info = kernel.step(state, noise)
            yield state, info


def _noise(kernel: Kernel, seeds: Tensor, state: State, steps: int) -> Iterator[Noise]:
    """The noise of the next steps, drawn for all of them at once."""
    n_chains = len(state.step)
    noise = kernel.draw(*later(seeds, state, steps))
    for order, fill in zip(noise.order.split(n_chains), noise.fill.split(n_chains), strict=True):
        yield Noise(order, fill)


def later(seeds: Tensor, state: State, steps: int) -> tuple[Tensor, State]:
    """Seeds and chains (steps * chains) as they would stand at each of the next steps."""
    n_chains = len(state.step)
    after = torch.arange(steps, device=state.step.device).repeat_interleave(n_chains)
    wide = state.rows(torch.arange(n_chains, device=state.step.device).repeat(steps))
    every = seeds if seeds.ndim == 0 else seeds.repeat(steps)
    return every, wide._replace(step=wide.step + after)
