"""What is a chain's state, what is random in a step, and what does a step report?"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, check_temperature
from glauber.errors import GlauberError


class State(NamedTuple):
    """Many chains at once; each has its own step, length, temperature and free sites."""

    tokens: Tensor  # (chains, length) int64, PAD behind shorter chains
    step: Tensor  # (chains,) int64: steps made so far
    chain: Tensor  # (chains,) int64: the chain's number, part of its noise's key
    free: Tensor  # (chains, length) bool: sites that may be redrawn
    temperature: Tensor  # (chains,) float64

    def rows(self, chosen: Tensor | slice) -> "State":
        """The chosen chains."""
        return State(*(part[chosen] for part in self))


class Noise(NamedTuple):
    """All randomness of a step: 64 bits a slot, which scan and fill turn into what they need."""

    order: Tensor  # (chains, slots) int64: which sites
    fill: Tensor  # (chains, slots) int64: which tokens


class Info(NamedTuple):
    """What a step did, slot by slot: (chains, slots) each; an empty slot has site PAD."""

    sites: Tensor  # int64
    tokens: Tensor  # int64: the new tokens
    changed: Tensor  # bool
    log_prob_old: Tensor  # float64: of the old token in the conditional drawn from
    log_prob_new: Tensor  # float64
    entropy: Tensor  # float64: of that conditional, in nats


class Kernel(NamedTuple):
    """A Markov kernel: draw makes the noise of given steps, step is a plain function of it."""

    draw: Callable[[Tensor, State], Noise]
    step: Callable[[State, Noise], tuple[State, Info]]


def start(
    tokens: Tensor,
    free: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    chain: Tensor | None = None,
    step: int = 0,
    device: torch.device | str | None = None,
) -> State:
    """The state in which chains begin, or go on from `step`; tokens and free (chains, length)."""
    n_chains = len(tokens)
    temperatures = torch.as_tensor(temperature, dtype=torch.float64).expand(n_chains).clone()
    for value in temperatures.unique().tolist():
        check_temperature(value)
    if bool((free & (tokens == PAD)).any()):
        raise GlauberError("a site behind the end of its text is marked as free.")
    if not bool(free.any(dim=1).all()):
        raise GlauberError("every site of a text is frozen, so there is nothing to redraw.")
    chains = torch.arange(n_chains) if chain is None else chain
    steps = torch.full((n_chains,), step)
    state = State(tokens.long(), steps, chains, free, temperatures)
    return State(*(part.to(device) for part in state))
