"""Which sites does a step redraw?

A scan turns the random bits of a step into sites (chains, k). It sees the conditionals, because
a scan may depend on the state.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals, log_probs
from glauber.dynamics.kernel import State
from glauber.dynamics.noise import uniform as as_uniform
from glauber.errors import GlauberError


class Scan(NamedTuple):
    """choose(conditionals, state, order) -> sites (chains, k)."""

    name: str
    choose: Callable[[Conditionals, State, Tensor], Tensor]
    n_numbers: Callable[[int], int] = lambda length: 1  # random numbers for a chain of that length
    size: int | None = 1  # sites of a step; None: every free one
    asks_conditionals: bool = False  # whether the choice depends on what the model says

    @property
    def fewest(self) -> int:
        """Free sites that a chain must have."""
        return self.size or 1

    @property
    def can_be_memoised(self) -> bool:
        """Whether the sites of later steps are known in advance, one a step."""
        return self.size == 1 and not self.asks_conditionals

    @property
    def can_be_recorded(self) -> bool:
        """Whether a step never asks the host, so that a CUDA graph can hold it."""
        return self.size is not None and not self.asks_conditionals

    def sites_per_step(self, free: Tensor) -> int:
        """Sites redrawn in one step at most, for free sites (chains, length)."""
        return int(free.sum(dim=1).max()) if self.size is None else self.size


def uniform() -> Scan:
    """One free site, each equally likely."""

    def choose(conditionals: Conditionals, state: State, order: Tensor) -> Tensor:
        n_free = state.free.sum(dim=1)
        rank = (as_uniform(order[:, 0]) * n_free).long()
        return _ranked(state.free, rank)[:, None]

    return Scan("uniform", choose)


def sweep() -> Scan:
    """The free sites in order, one each step: step t redraws free site t mod n."""

    def choose(conditionals: Conditionals, state: State, order: Tensor) -> Tensor:
        return _ranked(state.free, state.step % state.free.sum(dim=1))[:, None]

    return Scan("sweep", choose)


def block(size: int) -> Scan:
    """A uniformly random set of `size` free sites in uniformly random order."""
    if size < 1:
        raise GlauberError(f"a block has {size} sites, but it needs at least one.")

    def choose(conditionals: Conditionals, state: State, order: Tensor) -> Tensor:
        keys = as_uniform(order).masked_fill(~state.free, 2.0)
        return keys.argsort(dim=1, stable=True)[:, :size]

    return Scan(f"block:{size}", choose, lambda length: length, size)


def everywhere() -> Scan:
    """All free sites, in order."""

    def choose(conditionals: Conditionals, state: State, order: Tensor) -> Tensor:
        length = state.free.shape[1]
        site = torch.arange(length, device=state.free.device)
        sites = torch.where(state.free, site, length).sort(dim=1).values
        sites = sites[:, : int(state.free.sum(dim=1).max())]
        return sites.masked_fill(sites == length, PAD)

    return Scan("everywhere", choose, lambda length: length, None)


def least_confident(sharpness: float = 1.0) -> Scan:
    """One free site, chosen in favour of those whose token the model finds least likely.

    Site i has probability proportional to (1 - pi_i(x_i | x_-i)) ** sharpness, at the chain's
    temperature; with sharpness infinite it is the most uncertain site (the first of equals). The
    site is then redrawn without regard to how it was chosen, so this is not the adaptive dynamics
    of paper B, Definition 8, and a joint law is not stationary under it.
    """

    def choose(conditionals: Conditionals, state: State, order: Tensor) -> Tensor:
        uncertainty = _uncertainty(conditionals, state)
        if math.isinf(sharpness):
            return uncertainty.argmax(dim=1, keepdim=True)
        weights = torch.where(state.free, uncertainty**sharpness, 0.0)
        certain = weights.sum(dim=1, keepdim=True) == 0
        weights = torch.where(certain, state.free.double(), weights)
        total = weights.cumsum(dim=1)
        point = as_uniform(order[:, :1]) * total[:, -1:]
        return (total > point).int().argmax(dim=1, keepdim=True)

    name = "least-confident" if sharpness == 1 else f"least-confident:{sharpness:g}"
    return Scan(name, choose, asks_conditionals=True)


def scan_named(name: str) -> Scan:
    """The scan that a run's spec names, such as `uniform`, `block:3` or `least-confident:2`."""
    kind, _, number = str(name).partition(":")
    try:
        if kind == "block":
            return block(int(number))
        if kind == "least-confident":
            sharpness = float(number or 1)
            if not sharpness >= 0:
                raise ValueError(number)
            return least_confident(sharpness)
        return {"uniform": uniform, "sweep": sweep, "everywhere": everywhere}[str(name)]()
    except (KeyError, ValueError):
        known = "uniform, sweep, block:K, everywhere, least-confident"
        raise GlauberError(f"the scan is {name}, but it must be one of {known}.") from None


def _ranked(free: Tensor, rank: Tensor) -> Tensor:
    """The free site of that rank (0 is the first) in each chain, (chains,)."""
    return (free.cumsum(dim=1) == rank[:, None] + 1).int().argmax(dim=1)


def _uncertainty(conditionals: Conditionals, state: State) -> Tensor:
    """1 - pi_i(x_i | x_-i) at every free site, -1 elsewhere: (chains, length)."""
    uncertainty = torch.full_like(state.free, -1.0, dtype=torch.float64)
    for site in range(state.free.shape[1]):
        chains = state.free[:, site].nonzero()[:, 0]
        if len(chains):
            tokens = state.tokens[chains]
            sites = torch.full((len(chains), 1), site, device=tokens.device)
            found = log_probs(conditionals, tokens, sites, temperature=state.temperature[chains])
            held = found[:, 0].gather(1, tokens[:, site : site + 1])[:, 0]
            uncertainty[chains, site] = -torch.expm1(held)
    return uncertainty
