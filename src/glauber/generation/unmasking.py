"""How is a text filled that begins with hidden sites?

A pass asks the model once, with all hidden sites hidden, draws a candidate for each, and fills
some of them: in which order, how many, and which are hidden again are parts of `Unmasking`. A pass
is a step of a `Kernel`, so a generation is a run like any other. Slot s of its noise and its events
belongs to site s.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals
from glauber.conditionals.truncated import Truncation
from glauber.dynamics.kernel import Info, Kernel, Noise, State
from glauber.dynamics.noise import random_bits
from glauber.generation.candidates import Candidates, candidates
from glauber.generation.counts import Count, count_named
from glauber.generation.orders import check_order, ranks
from glauber.generation.remasking import Remask, check_remask, remask_named
from glauber.generation.timetable import Timetable, blocks_of
from glauber.progress import check_count


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

    def check(self) -> None:
        """Refuses what is no value of a part, and parts that do not go together."""
        check_order(self.order)
        count = count_named(self.count)
        for name, value in (("number of passes", self.passes), ("size of a block", self.block)):
            if value is not None:
                check_count(name, value)
        check_remask(self.remask, count)
        self.truncation.check()

    @cached_property
    def truncation(self) -> Truncation:
        return Truncation(self.top_k, self.top_p)

    @cached_property
    def counted(self) -> Count:
        return count_named(self.count)

    @cached_property
    def remasked(self) -> Remask:
        return remask_named(self.remask)


def unmasking(
    conditionals: Conditionals, how: Unmasking, *, hidden_token: int, begin: Tensor
) -> Kernel:
    """The kernel of one pass; state.step is the number of passes made so far.

    begin (chains, length) bool says which sites were hidden at the start, row by row as in the
    states: only they are filled and hidden again. A hidden site holds hidden_token.
    """
    how.check()
    count, remask = how.counted, how.remasked
    blocks = blocks_of(begin, how.block)
    table = Timetable(blocks, count, remask, how.passes) if count.planned else None

    def step(state: State, noise: Noise) -> tuple[State, Info]:
        hidden = begin & (state.tokens == hidden_token)
        now = None if table is None else table.now(state.step)
        block = _first_block(blocks, hidden) if now is None else now.block
        inside = begin & (blocks == block)
        eligible, filled = hidden & inside, inside & ~hidden
        found = candidates(
            conditionals, state, hidden, wanted=eligible, bits=noise.fill, truncation=how.truncation
        )
        placed = state.placed if state.placed.shape[1] else torch.zeros_like(found.largest).float()
        if now is not None and remask.kind == "planned":
            held = remask.held(found, eligible, filled, placed, now.n - now.left)
            fill, again = held & eligible, filled & ~held
        else:
            place = ranks(how.order, found, eligible, noise.order)
            again = torch.zeros_like(filled)
            if now is None:
                fill = count.chosen(found, eligible, place)
            else:
                again = remask.again(filled, placed, now.sigma, noise.order)
                fill = eligible & (place < (eligible | again).sum(1, keepdim=True) - now.left)
        return _after(state, found, placed, fill, again, hidden_token)

    return Kernel(draw, step)


def draw(seed: Tensor, state: State) -> Noise:
    """The noise of the next pass of each chain: two numbers a site."""
    site = torch.arange(state.tokens.shape[1], device=state.step.device)
    bits = random_bits(seed.reshape(-1, 1), state.chain[:, None], state.step[:, None], site)
    return Noise(*bits)


def unmask(
    conditionals: Conditionals, state: State, how: Unmasking, *, hidden_token: int, seed: int
) -> Iterator[tuple[State, Info]]:
    """Each pass until nothing is hidden, and with remasking until the plan ends.

    What is hidden and free in the state is filled; a state from which a generation is resumed
    goes through `unmasking` with what was hidden at its start.
    """
    begin = state.free & (state.tokens == hidden_token)
    kernel = unmasking(conditionals, how, hidden_token=hidden_token, begin=begin)
    seeds = torch.as_tensor(seed, device=state.step.device)
    while not finished(state, how, hidden_token=hidden_token, begin=begin):
        state, info = kernel.step(state, kernel.draw(seeds, state))
        yield state, info


def finished(state: State, how: Unmasking, *, hidden_token: int, begin: Tensor) -> bool:
    """Whether no chain has a pass to make."""
    if bool((begin & (state.tokens == hidden_token)).any()):
        return False
    if how.remasked.kind == "none":
        return True
    blocks = blocks_of(begin, how.block)
    table = Timetable(blocks, how.counted, how.remasked, how.passes)
    return bool((state.step >= table.passes).all())


def _first_block(blocks: Tensor, hidden: Tensor) -> Tensor:
    """The first block (chains, 1) that has a hidden site."""
    beyond = blocks.shape[1]
    return torch.where(hidden, blocks, beyond).amin(dim=1, keepdim=True)


def _after(
    state: State,
    found: Candidates,
    placed: Tensor,
    fill: Tensor,
    again: Tensor,
    hidden_token: int,
) -> tuple[State, Info]:
    """The state with some sites filled and others hidden again, and the events of it.

    log_prob_old is the log-probability of the token in the law that was read, for a token that
    is hidden again the one with which it had been placed.
    """
    acted = fill | again
    site = torch.arange(fill.shape[1], device=fill.device).expand_as(fill)
    new = torch.where(fill, found.tokens, hidden_token)
    tokens = torch.where(acted, new, state.tokens)
    held = torch.where(fill, found.log_prob_read.float(), placed)
    info = Info(
        sites=torch.where(acted, site, PAD),
        tokens=torch.where(acted, new, PAD),
        changed=acted,
        log_prob_old=torch.where(acted, held.double(), torch.nan),
        log_prob_new=_where(fill, again, found.log_prob),
        entropy=_where(fill, again, found.entropy),
        accepted=acted,
    )
    return state._replace(tokens=tokens, step=state.step + 1, placed=held), info


def _where(fill: Tensor, again: Tensor, figure: Tensor) -> Tensor:
    """The figure where a site was filled, 0 where one was hidden again, else nothing."""
    return torch.where(fill, figure, torch.where(again, 0.0, torch.nan))
