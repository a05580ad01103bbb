"""Kernels that fill a text with hidden sites, and that revise what was filled.

A pass evaluates the model once, with all hidden sites hidden, draws a candidate for each, and fills
some of them: in which order, how many, and which are hidden again are parts of `Unmasking`. A pass
is a step of a `Kernel`, so a generation is a run like any other. Slot s of its noise and its events
belongs to site s.

Correction revises a filled text by Glauber dynamics on its filled sites. A sweep redraws every
filled free site once, in random order, each from its conditional with it and what is still hidden
hidden. With blocks the sites are cut into groups in that order, each group hidden together and
redrawn at once (block dynamics with product draws). For the conditionals of a joint distribution a
sweep of single sites keeps that distribution.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from glauber.dynamics.candidates import Candidates, candidates, check_order, places, ranks
from glauber.dynamics.draws import Truncation
from glauber.dynamics.kernel import Info, Kernel, Noise, State, no_events, run
from glauber.dynamics.noise import random_bits, uniform
from glauber.dynamics.schedules import (
    Count,
    Now,
    Remask,
    Timetable,
    blocks_of,
    check_remask,
    count_named,
    remask_named,
)
from glauber.foundation.progress import check_count
from glauber.models.base import PAD, Conditionals

APART = 2**31  # slots from here on are those of sweeps, so that a sweep shares no noise with a pass


@dataclass(frozen=True)
class Unmasking:
    """How a text is filled; each part is a small value that goes with the others.

    With blocks, the hidden sites are cut into blocks of that many, filled from left to right, and
    passes is the number of passes of a block.
    """

    order: str = "confidence"  # random, left-to-right, confidence, margin, entropy, drawn
    count: str | int = "linear"  # 4, linear, cosine, threshold:0.9, entropy-bound:0.1
    passes: int | None = None  # of linear and cosine; None: as many as hidden sites
    block: int | None = None
    remask: str = "none"  # none, cap:0.1, rescale:0.5, conf, loop:0.02,0.55,0.05, planned:1
    top_k: int | None = None
    top_p: float | None = None
    correct: int = 0  # sweeps of correction
    between: bool = False  # after every pass, not only after the last one
    correct_block: int | None = None  # sites of a sweep redrawn at once; None: one

    def check(self) -> None:
        """Refuses what is no value of a part, and parts that do not go together."""
        check_order(self.order)
        count = count_named(self.count)
        for name, value in (
            ("number of passes", self.passes),
            ("size of a block", self.block),
            ("size of a corrected block", self.correct_block),
        ):
            if value is not None:
                check_count(name, value)
        check_remask(self.remask, count)
        check_count("number of correction sweeps", self.correct, least=0)
        self.truncation.check()

    @cached_property
    def truncation(self) -> Truncation:
        return Truncation(self.top_k, self.top_p)

    @cached_property
    def count_rule(self) -> Count:
        return count_named(self.count)

    @cached_property
    def remask_rule(self) -> Remask:
        return remask_named(self.remask)

    def without_path(self, temperature: float) -> str:
        """Why the log-probability of the path is not defined; empty where it is."""
        if self.correct:
            return "correction sweeps redraw tokens"
        if self.remask_rule.kind != "none":
            return "placed tokens are hidden again"
        if self.order == "drawn" and temperature > 0:
            return "the order depends on the tokens drawn"
        return ""

    def slots(self, length: int) -> int:
        """Events of one step: a site each, for the pass and for every sweep after it."""
        return length * (1 + self.correct)


def unmasking(
    conditionals: Conditionals, how: Unmasking, *, hidden_token: int, begin: Tensor
) -> Kernel:
    """The kernel of one pass and its sweeps; state.step is the number of passes made so far.

    begin (chains, length) bool says which sites were hidden at the start, row by row as in the
    states: only they are filled and hidden again. A hidden site holds hidden_token. In a chain
    that is at its end nothing happens.
    """
    how.check()
    passes = Passes(conditionals, how, hidden_token, begin)
    if not how.correct:
        return Kernel(draw, passes.step, passes.have_ended)
    sweep = correction(
        conditionals, block=how.correct_block, hidden_token=hidden_token, truncation=how.truncation
    )
    return with_sweeps(
        Kernel(draw, passes.step, passes.have_ended), sweep, how.correct, between=how.between
    )


def unmask(
    conditionals: Conditionals,
    state: State,
    how: Unmasking,
    *,
    hidden_token: int,
    seed: int,
    begin: Tensor | None = None,
) -> Iterator[tuple[State, Info]]:
    """Each pass until nothing is hidden, and with remasking until the plan ends.

    begin (chains, length) says which sites were hidden at the start: by default those which are
    hidden and free now. A generation that is resumed must say it.
    """
    if begin is None:
        begin = state.free & (state.tokens == hidden_token)
    kernel = unmasking(conditionals, how, hidden_token=hidden_token, begin=begin)
    missing = most_passes(how, begin) - state.step
    return run(kernel, state, int(missing.max()), seed=seed)


def draw(seed: Tensor, state: State, *, first_slot: int = 0) -> Noise:
    """The noise of the next pass, or sweep, of each chain: two numbers a site."""
    site = torch.arange(state.tokens.shape[1], device=state.step.device) + first_slot
    bits = random_bits(seed.reshape(-1, 1), state.chain[:, None], state.step[:, None], site)
    return Noise(*bits)


def most_passes(how: Unmasking, begin: Tensor) -> Tensor:
    """Passes of each chain (chains,): those of its plan, or at most one for each hidden site."""
    table = timetable(how, blocks_of(begin, how.block))
    return begin.sum(dim=1) if table is None else table.passes


def timetable(how: Unmasking, blocks: Tensor) -> Timetable | None:
    """The plan of chains with these blocks, if the count is one of a plan."""
    if not how.count_rule.has_plan:
        return None
    return Timetable(blocks, how.count_rule, how.remask_rule, how.passes)


class Passes:
    """The passes of chains that began with these sites hidden."""

    def __init__(
        self, conditionals: Conditionals, how: Unmasking, hidden_token: int, begin: Tensor
    ) -> None:
        self.conditionals, self.how = conditionals, how
        self.hidden_token, self.begin = hidden_token, begin
        self.blocks = blocks_of(begin, how.block)
        self.table = timetable(how, self.blocks)

    def hidden(self, state: State) -> Tensor:
        """The sites (chains, length) that are hidden now."""
        return self.begin & (state.tokens == self.hidden_token)

    def have_ended(self, state: State) -> Tensor:
        """Which chains (chains,) have no pass to make."""
        if self.table is not None:  # a plan is kept to the pass
            return state.step >= self.table.passes
        return ~self.hidden(state).any(dim=1)

    def step(self, state: State, noise: Noise) -> tuple[State, Info]:
        """One pass; the noise has a slot for each site."""
        hidden = self.hidden(state)
        now = None if self.table is None else self.table.now(state.step)
        block = _first_block(self.blocks, hidden) if now is None else now.block
        inside = self.begin & (self.blocks == block)
        eligible, filled = hidden & inside, inside & ~hidden
        cut = self.how.truncation
        proposals = candidates(
            self.conditionals, state, hidden, wanted=eligible, bits=noise.fill, truncation=cut
        )
        placed = (
            state.memory if state.memory.shape[1] else torch.zeros_like(proposals.largest).float()
        )
        if now is None:
            rank = ranks(self.how.order, proposals, eligible, noise.order)
            fill, rehidden = (
                self.how.count_rule.chosen(proposals, eligible, rank),
                torch.zeros_like(filled),
            )
        else:
            fill, rehidden = self._keep_plan(proposals, eligible, filled, placed, now, noise)
        return _after(state, proposals, placed, fill, rehidden, self.hidden_token)

    def _keep_plan(
        self,
        proposals: Candidates,
        eligible: Tensor,
        filled: Tensor,
        placed: Tensor,
        now: Now,
        noise: Noise,
    ) -> tuple[Tensor, Tensor]:
        """Which sites (chains, length) are filled, and which hidden again, to keep the plan."""
        remask = self.how.remask_rule
        if remask.kind == "planned":
            holding = remask.sites_to_hold(proposals, eligible, filled, placed, now.n - now.left)
            return holding & eligible, filled & ~holding
        rehidden = remask.hide_again(filled, placed, now.sigma, noise.order)
        count = (eligible | rehidden).sum(dim=1, keepdim=True) - now.left
        rank = ranks(self.how.order, proposals, eligible, noise.order)
        return eligible & (rank < count), rehidden


def _first_block(blocks: Tensor, hidden: Tensor) -> Tensor:
    """The first block (chains, 1) that has a hidden site."""
    beyond = blocks.shape[1]
    return torch.where(hidden, blocks, beyond).amin(dim=1, keepdim=True)


def _after(
    state: State,
    proposals: Candidates,
    placed: Tensor,
    fill: Tensor,
    rehidden: Tensor,
    hidden_token: int,
) -> tuple[State, Info]:
    """The state with some sites filled and others hidden again, and the events of it.

    In the events a hidden site counts as certain: its log-probability is 0.
    """
    acted = fill | rehidden
    site = torch.arange(fill.shape[1], device=fill.device).expand_as(fill)
    new = torch.where(fill, proposals.tokens, hidden_token)
    nothing = torch.where(acted, 0.0, torch.nan).double()
    info = Info(
        sites=torch.where(acted, site, PAD),
        tokens=torch.where(acted, new, PAD),
        changed=acted,
        log_prob_old=torch.where(rehidden, placed.double(), nothing),
        log_prob_new=torch.where(fill, proposals.log_prob, nothing),
        entropy=torch.where(fill, proposals.entropy, nothing),
        accepted=acted,
    )
    tokens = torch.where(acted, new, state.tokens)
    placed = torch.where(fill, proposals.log_prob.float(), placed)
    return state._replace(tokens=tokens, step=state.step + 1, memory=placed), info


# ---- correction


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
            proposals = candidates(
                conditionals, state, hidden | now, wanted=now, bits=noise.fill, truncation=cut
            )
            events = Info(
                *(
                    torch.where(now, new, old)
                    for new, old in zip(_redrawn(state, proposals), events, strict=True)
                )
            )
            state = _after_sweep(state, proposals, now)
        return state._replace(step=state.step + 1), events

    return Kernel(partial(draw, first_slot=APART), step)


def with_sweeps(passes: Kernel, sweep: Kernel, sweeps: int, *, between: bool) -> Kernel:
    """A pass with so many sweeps after it: after every pass, or only after a chain's last one.

    Both are one step, so that a generation can go on from the state after any step. Its noise and
    events have `length` slots for the pass and as many for each sweep.
    """

    ended = passes.ended
    assert ended is not None

    def draw(seed: Tensor, state: State) -> Noise:
        columns = [passes.draw(seed, state)]
        columns += [sweep.draw(seed, _at(state, sweeps, number)) for number in range(sweeps)]
        return Noise(*(torch.cat(column, dim=1) for column in zip(*columns, strict=True)))

    def step(state: State, noise: Noise) -> tuple[State, Info]:
        length = state.tokens.shape[1]
        noises = [
            Noise(*part) for part in zip(*(x.split(length, dim=1) for x in noise), strict=True)
        ]
        active = ~ended(state)
        after, first = passes.step(state, noises[0])
        rows = (active if between else active & ended(after)).nonzero()[:, 0]
        events, some = [first], after.rows(rows)
        for part in noises[1:]:
            info = no_events(after.tokens)
            if len(rows):
                some, done = sweep.step(some, Noise(*(x[rows] for x in part)))
                info = Info(*(x.index_copy(0, rows, y) for x, y in zip(info, done, strict=True)))
            events.append(info)
        tokens = after.tokens.index_copy(0, rows, some.tokens)
        memory = after.memory.index_copy(0, rows, some.memory)
        joined = Info(*(torch.cat(column, dim=1) for column in zip(*events, strict=True)))
        return after._replace(tokens=tokens, memory=memory), joined

    return Kernel(draw, step, ended)


def _at(state: State, sweeps: int, number: int) -> State:
    """The state with the number of the sweep as its step."""
    return state._replace(step=state.step * sweeps + number)


def _groups(filled: Tensor, bits: Tensor, size: int) -> Tensor:
    """The group (chains, length) with which each filled site is redrawn; PAD elsewhere."""
    rank = places(uniform(bits).masked_fill(~filled, -1.0))
    return torch.where(filled, rank // size, PAD)


def _after_sweep(state: State, proposals: Candidates, now: Tensor) -> State:
    memory = state.memory
    if memory.shape[1]:
        memory = torch.where(now, proposals.log_prob.float(), memory)
    return state._replace(tokens=torch.where(now, proposals.tokens, state.tokens), memory=memory)


def _redrawn(state: State, proposals: Candidates) -> Info:
    """The events if every site took its candidate."""
    site = torch.arange(state.tokens.shape[1], device=state.step.device)
    return Info(
        sites=site.expand_as(state.tokens),
        tokens=proposals.tokens,
        changed=proposals.tokens != state.tokens,
        log_prob_old=proposals.log_prob_present,
        log_prob_new=proposals.log_prob,
        entropy=proposals.entropy,
        accepted=torch.ones_like(state.free),
    )
