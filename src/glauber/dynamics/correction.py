"""How is a filled text revised? By Glauber dynamics on its filled sites.

A sweep redraws every filled free site once, in random order, each from its conditional with it and
what is still hidden hidden. With blocks the sites are cut into groups in that order, each group
hidden together and redrawn at once (block dynamics with product draws). For the conditionals of a
joint law a sweep of single sites keeps that law.
"""

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals
from glauber.dynamics.candidates import Candidates, candidates, places
from glauber.dynamics.draws import Truncation
from glauber.dynamics.kernel import Info, Kernel, Noise, State, no_events
from glauber.dynamics.noise import random_bits, uniform
from glauber.progress import check_count

APART = 2**31  # slots from here on are those of sweeps, so that a sweep shares no noise with a pass


def correction(
    conditionals: Conditionals,
    *,
    block: int | None = None,
    hidden_token: int,
    truncation: Truncation | None = None,
) -> Kernel:
    """The kernel of one sweep; state.step is the number of sweeps made so far.

    Sites that hold hidden_token stay hidden, so a sweep may come between two passes.
    """
    size = 1 if block is None else block
    check_count("size of a block", size)
    cut = truncation or Truncation()
    cut.check()

    def step(state: State, noise: Noise) -> tuple[State, Info]:
        hidden = state.free & (state.tokens == hidden_token)
        filled = state.free & ~hidden
        group = _groups(filled, noise.order, size)
        events = no_events(state.tokens)
        for number in range(-(-int(filled.sum(dim=1).max()) // size)):
            now = group == number
            found = candidates(
                conditionals, state, hidden | now, wanted=now, bits=noise.fill, truncation=cut
            )
            events = Info(
                *(
                    torch.where(now, new, old)
                    for new, old in zip(_redrawn(state, found), events, strict=True)
                )
            )
            state = _after(state, found, now)
        return state._replace(step=state.step + 1), events

    return Kernel(_draw, step)


def corrected(passes: Kernel, sweep: Kernel, sweeps: int, *, between: bool) -> Kernel:
    """A pass with so many sweeps after it: after every pass, or only after a chain's last one.

    Both are one step, so that a generation can go on from the state after any step. Its noise and
    events have `length` slots for the pass and as many for each sweep.
    """

    ended = passes.ended
    assert ended is not None

    def draw(seed: Tensor, state: State) -> Noise:
        parts = [passes.draw(seed, state)]
        parts += [sweep.draw(seed, _at(state, sweeps, number)) for number in range(sweeps)]
        return Noise(*(torch.cat(column, dim=1) for column in zip(*parts, strict=True)))

    def step(state: State, noise: Noise) -> tuple[State, Info]:
        length = state.tokens.shape[1]
        parts = [
            Noise(*part) for part in zip(*(x.split(length, dim=1) for x in noise), strict=True)
        ]
        active = ~ended(state)
        after, first = passes.step(state, parts[0])
        rows = (active if between else active & ended(after)).nonzero()[:, 0]
        events, some = [first], after.rows(rows)
        for part in parts[1:]:
            info = no_events(after.tokens)
            if len(rows):
                some, done = sweep.step(some, Noise(*(x[rows] for x in part)))
                info = Info(*(x.index_copy(0, rows, y) for x, y in zip(info, done, strict=True)))
            events.append(info)
        tokens = after.tokens.index_copy(0, rows, some.tokens)
        memory = after.memory.index_copy(0, rows, some.memory)
        whole = Info(*(torch.cat(column, dim=1) for column in zip(*events, strict=True)))
        return after._replace(tokens=tokens, memory=memory), whole

    return Kernel(draw, step, ended)


def _at(state: State, sweeps: int, number: int) -> State:
    """The state with the number of the sweep as its step."""
    return state._replace(step=state.step * sweeps + number)


def _draw(seed: Tensor, state: State) -> Noise:
    """The noise of the next sweep of each chain: two numbers a site."""
    slot = torch.arange(state.tokens.shape[1], device=state.step.device) + APART
    bits = random_bits(seed.reshape(-1, 1), state.chain[:, None], state.step[:, None], slot)
    return Noise(*bits)


def _groups(filled: Tensor, bits: Tensor, size: int) -> Tensor:
    """The group (chains, length) with which each filled site is redrawn; PAD elsewhere."""
    place = places(uniform(bits).masked_fill(~filled, -1.0))
    return torch.where(filled, place // size, PAD)


def _after(state: State, found: Candidates, now: Tensor) -> State:
    memory = state.memory
    if memory.shape[1]:
        memory = torch.where(now, found.log_prob.float(), memory)
    return state._replace(tokens=torch.where(now, found.tokens, state.tokens), memory=memory)


def _redrawn(state: State, found: Candidates) -> Info:
    """The events if every site took its candidate."""
    site = torch.arange(state.tokens.shape[1], device=state.step.device)
    return Info(
        sites=site.expand_as(state.tokens),
        tokens=found.tokens,
        changed=found.tokens != state.tokens,
        log_prob_old=found.log_prob_held,
        log_prob_new=found.log_prob,
        entropy=found.entropy,
        accepted=torch.ones_like(state.free),
    )
