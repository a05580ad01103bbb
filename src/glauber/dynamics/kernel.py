"""The state of a chain, the noise of a step, what a step reports, and the plain loop.

`remembered` makes the same steps with fewer passes through the model.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD, Conditionals, check_temperature

DRAWN_AT_ONCE = 2**18  # numbers of noise drawn at once
HIDDEN = -2  # at the hidden site of a key: no token, and not PAD


class State(NamedTuple):
    """Many chains at once; each has its own step, length, temperature and free sites."""

    tokens: Tensor  # (chains, length) int64, PAD after shorter chains
    step: Tensor  # (chains,) int64: steps made so far
    chain: Tensor  # (chains,) int64: the chain's number, part of its noise's key
    free: Tensor  # (chains, length) bool: sites that may be redrawn
    temperature: Tensor  # (chains,) float64
    memory: Tensor  # (chains, numbers) float32: the kernel's own; of unmasking, the log-probability
    # with which each site's token was placed; no columns where a kernel has none

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
    accepted: Tensor  # bool: False where a proposal was rejected, and in an empty slot


def no_events(sites: Tensor) -> Info:
    """The events (chains, slots) of a step that does nothing, in the shape of sites."""
    empty, no = torch.full_like(sites, PAD), torch.zeros_like(sites, dtype=torch.bool)
    unknown = torch.full_like(sites, torch.nan, dtype=torch.float64)
    return Info(empty, empty, no, unknown, unknown, unknown, no)


class Lookup(NamedTuple):
    """Why steps can be made from memory: each draws at most one site by inverse CDF.

    Then a step depends on nothing but the row with that site hidden, temperature and noise.
    """

    conditionals: Conditionals
    sites: Callable[[State, Noise], Tensor]  # (chains, 1), known without the model; PAD: no site
    # of a state: whether a chain keeps its token at the hidden site of a row, given as its key
    is_forced: Callable[[State], Callable[[int, bytes], bool]]


class Kernel(NamedTuple):
    """A Markov kernel: draw makes the noise of given steps, step is a plain function of it."""

    draw: Callable[[Tensor, State], Noise]
    step: Callable[[State, Noise], tuple[State, Info]]
    ended: Callable[[State], Tensor] | None = None  # chains (chains,) that have no step to make
    lookup: Lookup | None = None  # for `remembered.memoised`


class Annealing(NamedTuple):
    """A temperature that depends on the step: each one for a stage, and from the first again."""

    temperatures: Sequence[float]
    stage: int  # steps at each temperature

    def temperature(self, step: int) -> float:
        """The temperature of the step that begins after so many steps."""
        return self.temperatures[step // self.stage % len(self.temperatures)]

    def stages(self, first: int, last: int) -> Iterator[tuple[float, int]]:
        """The temperatures of the steps first <= step < last, and how many steps each has."""
        alone = len(self.temperatures) == 1
        while first < last:
            count = last - first if alone else min(self.stage - first % self.stage, last - first)
            yield self.temperature(first), count
            first += count


def start(
    tokens: Tensor,
    free: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    chain: Tensor | None = None,
    step: int = 0,
    device: torch.device | str | None = None,
    greedy: bool = False,
) -> State:
    """The state in which chains begin, or go on from `step`; tokens and free (chains, length).

    greedy allows the temperature 0, which only an unmasking can do.
    """
    n_chains = len(tokens)
    temperatures = torch.as_tensor(temperature, dtype=torch.float64).expand(n_chains).clone()
    for value in temperatures.unique().tolist():
        if not (greedy and value == 0):
            check_temperature(value)
    if bool((free & (tokens == PAD)).any()):
        raise GlauberError("a site after the end of its text is marked as free.")
    if not bool(free.any(dim=1).all()):
        raise GlauberError("every site of a text is frozen, so there is nothing to redraw.")
    chains = torch.arange(n_chains) if chain is None else chain
    steps = torch.full((n_chains,), step)
    nothing = torch.zeros((n_chains, 0), dtype=torch.float32)
    state = State(tokens.long(), steps, chains, free, temperatures, nothing)
    return State(*(part.to(device) for part in state))


def run(
    kernel: Kernel, state: State, steps: int, *, seed: int | Tensor
) -> Iterator[tuple[State, Info]]:
    """Each of the next steps: the state after it, and what it did.

    Ends early when all chains have ended.
    """
    seeds = torch.as_tensor(seed, device=state.step.device)
    at_once = max(1, DRAWN_AT_ONCE // state.tokens.numel())
    for first in range(0, steps, at_once):
        for noise in _noise(kernel, seeds, state, min(at_once, steps - first)):
            if kernel.ended is not None and bool(kernel.ended(state).all()):
                return
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


def row_keys(state: State, sites: Tensor | None = None) -> list[bytes]:
    """Tokens and temperature of each chain as bytes, with the site of sites (chains, 1) hidden.

    Without sites, the free sites are part of the key.
    """
    rows = state.tokens if sites is None else state.tokens.scatter(1, sites, HIDDEN)
    arrays = [rows.int(), state.temperature, *([state.free] if sites is None else [])]
    columns = zip(*(part.cpu().numpy() for part in arrays), strict=True)
    return [b"".join(value.tobytes() for value in row) for row in columns]
