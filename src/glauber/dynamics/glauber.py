"""Glauber and block dynamics: hide sites, evaluate the conditionals, redraw.

One step picks sites by the scan and redraws them. How the sites of one step relate:

sequential  hidden together, filled one after the other in the scan's order; the ones not yet
            filled stay hidden (block Gibbs when the conditionals have a joint distribution)
product     hidden together, filled independently from one evaluation
parallel    each hidden alone, all redrawn at once given the old values of the others

With one site a step the three are the same: single-site Glauber dynamics. Where the state decides
about the site, `adaptive` says how it is redrawn and whether the joint distribution is kept.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.dynamics.adaptive import Adaptive, Chances, check_tokens, conditioned_scores, pick
from glauber.dynamics.draws import Drawn, Fill, inverse_cdf
from glauber.dynamics.kernel import Info, Kernel, Lookup, Noise, State, no_events
from glauber.dynamics.noise import random_bits
from glauber.dynamics.noise import uniform as as_uniform
from glauber.dynamics.remembered import BUDGET, Memo
from glauber.dynamics.scans import Scan, Within, uniform
from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD, Conditionals
from glauber.models.batching import rows_at_once

RedrawSites = Callable[[State, Tensor, Tensor], tuple[Tensor, Info]]
ALONE = 256  # rows of a few chains whose sites are each hidden alone, evaluated together


def glauber(
    conditionals: Conditionals,
    *,
    scan: Scan | None = None,
    fill: Fill | None = None,
    within: Within = "sequential",
) -> Kernel:
    """The kernel of Glauber dynamics with that scan, fill and treatment of a step's sites."""
    scan = scan or uniform()
    fill = fill or inverse_cdf()
    redraws = Redraws(conditionals, fill)
    kinds = {
        "sequential": redraws.sequential,
        "product": redraws.product,
        "parallel": redraws.parallel,
    }
    if within not in kinds:
        raise GlauberError(f"within is {within}, but it must be one of {', '.join(kinds)}.")
    redraw = _skipping(kinds[within]) if scan.may_skip else kinds[within]
    seeing = None if scan.adaptive is None else _seeing(redraws, scan.adaptive)

    def draw(seed: Tensor, state: State) -> Noise:
        """The noise of the next step of each chain; seed is one number or one per chain."""
        numbers, length = scan.n_numbers(state.tokens.shape[1]), state.tokens.shape[1]
        if numbers < (length if scan.size is None else scan.size):
            raise GlauberError(
                f"the scan {scan.name} has {numbers} random numbers for a step, but its sites need "
                "one each: raise its n_numbers."
            )
        slots = torch.arange(numbers, device=state.step.device)
        order, fills = random_bits(
            seed.reshape(-1, 1), state.chain[:, None], state.step[:, None], slots[None, :]
        )
        return Noise(order, fills)

    def sites_of(state: State, noise: Noise) -> Tensor:
        return scan.choose(conditionals, state, noise.order)

    def step(state: State, noise: Noise) -> tuple[State, Info]:
        if seeing is not None:
            tokens, info = seeing(state, noise)
        else:
            tokens, info = redraw(state, sites_of(state, noise), noise.fill)
        return state._replace(tokens=tokens, step=state.step + 1), info

    if not scan.is_single_and_blind or fill.name != "inverse-cdf":
        return Kernel(draw, step)
    lookup = Lookup(conditionals, sites_of, lambda state: lambda chain, key: False)
    return Kernel(draw, step, lookup=lookup)


class Redraws(NamedTuple):
    """Redraws of sites from their conditionals; the last three are the values of `within`."""

    conditionals: Conditionals
    fill: Fill

    def together(
        self, state: State, tokens: Tensor, sites: Tensor, noise: Tensor, count: int
    ) -> Drawn:
        """The first `count` of the sites, hidden together, redrawn: (chains, count) each.

        Works through as many chains at a time as the memory allows.
        """
        old = tokens.gather(1, sites[:, :count].clamp(min=0))
        size = rows_at_once(4 * sites.shape[1] * self.conditionals.vocab_size, tokens.device)
        draws = []
        for rows in torch.arange(len(tokens), device=tokens.device).split(size):
            scores = self.conditionals.scores(tokens[rows], sites[rows])[:, :count].flatten(0, 1)
            temperature = state.temperature[rows].repeat_interleave(count)
            drawn = self.fill.draw(scores, temperature, noise[rows].flatten(), old[rows].flatten())
            draws.append(Drawn(*(x.view(-1, count) for x in drawn)))
        return Drawn(*(torch.cat(column) for column in zip(*draws, strict=True)))

    def sequential(self, state: State, sites: Tensor, noise: Tensor) -> tuple[Tensor, Info]:
        tokens, draws = state.tokens, []
        for slot in range(sites.shape[1]):
            # The first hidden site is the one to fill; those after it are still hidden.
            bits = noise[:, slot : slot + 1]
            draws.append(self.together(state, tokens, sites[:, slot:], bits, 1))
            tokens = place(tokens, sites[:, slot : slot + 1], draws[-1].tokens)
        return tokens, _info(state, sites, _side_by_side(draws))

    def product(self, state: State, sites: Tensor, noise: Tensor) -> tuple[Tensor, Info]:
        k = sites.shape[1]
        drawn = self.together(state, state.tokens, sites, noise[:, :k], k)
        return place(state.tokens, sites, drawn.tokens), _info(state, sites, drawn)

    def parallel(self, state: State, sites: Tensor, noise: Tensor) -> tuple[Tensor, Info]:
        draws = []
        for slots in torch.arange(sites.shape[1]).split(max(1, ALONE // len(sites))):
            k = len(slots)
            each = state.rows(torch.arange(len(sites), device=sites.device).repeat_interleave(k))
            hidden, bits = (x[:, slots[0] : slots[0] + k].reshape(-1, 1) for x in (sites, noise))
            drawn = self.together(each, each.tokens, hidden, bits, 1)
            draws.append(Drawn(*(column.view(-1, k) for column in drawn)))
        joined = _side_by_side(draws)
        return place(state.tokens, sites, joined.tokens), _info(state, sites, joined)

    def draw_conditioned(
        self, chances: Chances, state: State, sites: Tensor, bits: Tensor
    ) -> Drawn:
        """The chosen sites redrawn given that they were chosen: (chains, 1) each."""
        scores = conditioned_scores(self.conditionals, chances, state, sites)
        ones = torch.ones_like(state.temperature)  # the scores are at the temperature already
        drawn = self.fill.draw(scores, ones, bits, state.tokens.gather(1, sites)[:, 0])
        return Drawn(*(column[:, None] for column in drawn))


def _side_by_side(draws: Sequence[Drawn]) -> Drawn:
    """Draws of some slots each as the draw of all slots."""
    return Drawn(*(torch.cat(column, dim=1) for column in zip(*draws, strict=True)))


def _skipping(redraw: RedrawSites) -> RedrawSites:
    """A redraw that evaluates no chain whose sites are all PAD."""

    def skipping(state: State, sites: Tensor, noise: Tensor) -> tuple[Tensor, Info]:
        rows = (sites != PAD).any(dim=1).nonzero()[:, 0]
        info = no_events(sites)
        if not len(rows):
            return state.tokens, info
        some = redraw(state.rows(rows), sites[rows], noise[rows])
        pairs = zip((state.tokens, *info), (some[0], *some[1]), strict=True)
        tokens, *columns = (column.index_copy(0, rows, part) for column, part in pairs)
        return tokens, Info(*columns)

    return skipping


def _seeing(redraws: Redraws, adaptive: Adaptive) -> Callable[[State, Noise], tuple[Tensor, Info]]:
    """A step whose site the state decides about."""
    conditionals, fill = redraws
    check_tokens(adaptive, conditionals)
    if adaptive.redraw != "naive" and fill.name == "greedy":
        raise GlauberError(
            f"the scan {adaptive.name} keeps the distribution of tokens that are drawn, but the "
            "fill is greedy: take inverse-cdf or gumbel-max."
        )
    chances = Chances(conditionals, adaptive)
    memos: dict[int, Memo] = {}  # by the length of the rows

    def redraw(state: State, sites: Tensor, bits: Tensor) -> Drawn:
        if adaptive.redraw == "conditioned":
            return redraws.draw_conditioned(chances, state, sites, bits[:, 0])
        if fill.name == "inverse-cdf" and not state.tokens.is_cuda:
            length = state.tokens.shape[1]
            if length not in memos:
                memos[length] = Memo(conditionals.vocab_size, length, budget=BUDGET // 4)
            return memos[length].draw(conditionals, state, sites, as_uniform(bits[:, 0]))
        return redraws.together(state, state.tokens, sites, bits, 1)

    def step(state: State, noise: Noise) -> tuple[Tensor, Info]:
        before = chances(state)
        sites = pick(before, as_uniform(noise.order[:, 0]))
        drawn = redraw(state, sites, noise.fill[:, :1])
        tokens, info = place(state.tokens, sites, drawn.tokens), _info(state, sites, drawn)
        if adaptive.redraw != "adaptive":
            return tokens, info
        after = chances(state._replace(tokens=tokens))
        ratio = (after - before).gather(1, sites)
        rejected = ~(as_uniform(noise.order[:, 1:2]).log() < ratio)
        info = info._replace(
            tokens=torch.where(rejected, state.tokens.gather(1, sites), info.tokens),
            changed=info.changed & ~rejected,
            log_prob_new=torch.where(rejected, info.log_prob_old, info.log_prob_new),
            accepted=~rejected,
        )
        return torch.where(rejected, state.tokens, tokens), info

    return step


def place(tokens: Tensor, sites: Tensor, new: Tensor) -> Tensor:
    """tokens with the new ones at their sites; PAD sites change nothing."""
    used = sites != PAD
    safe = sites.clamp(min=0)
    # Where a slot is empty, the scatter would race with site 0, so it goes to a spare column.
    wide = torch.cat([tokens, tokens[:, :1]], dim=1)
    return wide.scatter(1, torch.where(used, safe, tokens.shape[1]), new)[:, :-1]


def _info(state: State, sites: Tensor, drawn: Drawn) -> Info:
    used = sites != PAD
    old = state.tokens.gather(1, sites.clamp(min=0))
    old_log_prob, new_log_prob, entropy = (torch.where(used, x, torch.nan) for x in drawn[1:])
    return Info(
        sites=sites,
        tokens=torch.where(used, drawn.tokens, PAD),
        changed=used & (drawn.tokens != old),
        log_prob_old=old_log_prob,
        log_prob_new=new_log_prob,
        entropy=entropy,
        accepted=used,
    )
