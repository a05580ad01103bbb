"""Which sites does a step redraw?

A scan turns the random bits of a step into sites (chains, k). It sees the conditionals, because
a scan may depend on the state.
"""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals
from glauber.dynamics.adaptive import (
    Adaptive,
    Chances,
    Measure,
    Redraw,
    adaptive_named,
    pick,
)
from glauber.dynamics.kernel import State
from glauber.dynamics.noise import uniform as as_uniform
from glauber.errors import GlauberError, GlauberWarning

# What `sample --scan` takes, in one line.
SCANS = (
    "uniform, sweep, block:K, everywhere; or the state chooses the site, by confidence or entropy: "
    "adaptive:entropy (Metropolis) and conditioned:entropy (up to 64 tokens) keep a joint law, "
    "naive:entropy does not; :2 behind it sharpens the choice."
)


class Scan(NamedTuple):
    """choose(conditionals, state, order) -> sites (chains, k)."""

    name: str
    choose: Callable[[Conditionals, State, Tensor], Tensor]
    n_numbers: Callable[[int], int] = lambda length: 1  # random numbers for a chain of that length
    size: int | None = 1  # sites of a step; None: every free one
    adaptive: Adaptive | None = None  # how the state decides, where it does
    tied: bool = False  # whether sites that are tied to the chosen one are redrawn with it

    @property
    def asks_conditionals(self) -> bool:
        """Whether the choice depends on what the model says."""
        return self.adaptive is not None

    @property
    def rejects(self) -> bool:
        """Whether tokens are only proposed."""
        return self.adaptive is not None and self.adaptive.redraw == "adaptive"

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
        return self.size is not None and not self.asks_conditionals and not self.tied

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


def by_state(redraw: Redraw, measure: Measure, sharpness: float = 1.0) -> Scan:
    """One free site, chosen by how unsure the model is there; `adaptive` says how, and the law."""
    adaptive = Adaptive(redraw, measure, sharpness)

    def choose(conditionals: Conditionals, state: State, order: Tensor) -> Tensor:
        return pick(Chances(conditionals, adaptive)(state), as_uniform(order[:, 0]))

    # The second number decides whether a proposal is accepted.
    count = 2 if redraw == "adaptive" else 1
    return Scan(adaptive.name, choose, lambda length: count, adaptive=adaptive)


def scan_named(name: str) -> Scan:
    """The scan that a run's spec names, such as `uniform`, `block:3` or `adaptive:entropy:2`.

    `least-confident`, as older runs have it, is `naive:confidence`.
    """
    kind, _, rest = str(name).partition(":")
    try:
        if kind == "block":
            return block(int(rest))
        if kind == "least-confident":
            return _renamed(by_state(*adaptive_named("naive", f"confidence:{rest or 1}")), name)
        if kind in ("naive", "adaptive", "conditioned"):
            return by_state(*adaptive_named(kind, rest))  # type: ignore[arg-type]
        return {"uniform": uniform, "sweep": sweep, "everywhere": everywhere}[str(name)]()
    except (KeyError, ValueError):
        known = (
            "uniform, sweep, block:K, everywhere, adaptive:confidence, adaptive:entropy, "
            "conditioned:…, naive:…"
        )
        raise GlauberError(f"the scan is {name}, but it must be one of {known}.") from None


def _renamed(scan: Scan, old: str) -> Scan:
    warnings.warn(
        f"the scan {old} is {scan.name} now, which keeps no joint law; "
        f"{scan.name.replace('naive', 'adaptive')} does.",
        GlauberWarning,
        stacklevel=3,
    )
    return scan


def _ranked(free: Tensor, rank: Tensor) -> Tensor:
    """The free site of that rank (0 is the first) in each chain, (chains,)."""
    return (free.cumsum(dim=1) == rank[:, None] + 1).int().argmax(dim=1)
