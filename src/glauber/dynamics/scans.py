"""Scans, which say what sites a step redraws; every scan is declared here, once.

A scan turns the random bits of a step into sites (chains, k). It sees the conditionals, because a
scan may depend on the state. The rest of a `Scan` is what other code needs to know about it: which
engine can make its steps, which studies know its chain, and how it is described. To add a scan,
write a function that returns it and give it a line in `SCANS`.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

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
from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD, Conditionals

Within = Literal["sequential", "product", "parallel"]  # `glauber.dynamics.glauber` explains them


class Scan(NamedTuple):
    """choose(conditionals, state, order) -> sites (chains, k)."""

    name: str
    choose: Callable[[Conditionals, State, Tensor], Tensor]
    sentence: str  # for a section on methods: "one site a step, chosen uniformly"
    words: str  # for readers, as the object of "a step hides": "one token, picked at random,"
    # random numbers of a step for a chain of that length: at least one for each site of the step
    n_numbers: Callable[[int], int] = lambda length: 1
    size: int | None = 1  # sites of a step; None: every free one
    within: Within = "sequential"  # how the sites of a step relate, unless the user says
    is_random_scan: bool = False  # every step redraws one free site, each equally likely
    irreversible: str = "undoing a step has another probability there"  # unless it is random scan
    may_skip: bool = False  # whether a step may redraw no site: site PAD
    adaptive: Adaptive | None = None  # how the state decides, where it does
    tied: int = 0  # sites of the largest group that is redrawn with its first site

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
    def is_single_and_blind(self) -> bool:
        """Whether a step redraws one site at most, known before the model is asked."""
        return self.size == 1 and not self.asks_conditionals

    @property
    def can_be_recorded(self) -> bool:
        """Whether a CUDA graph can contain a step: the host is never asked, no slot is empty."""
        blind = not self.asks_conditionals and not self.tied and not self.may_skip
        return self.size is not None and blind

    def sites_per_step(self, free: Tensor) -> int:
        """Sites redrawn in one step at most, for free sites (chains, length)."""
        return int(free.sum(dim=1).max()) if self.size is None else max(self.size, self.tied)


def uniform() -> Scan:
    """One free site, each equally likely."""

    def choose(conditionals: Conditionals, state: State, order: Tensor) -> Tensor:
        n_free = state.free.sum(dim=1)
        rank = (as_uniform(order[:, 0]) * n_free).long()
        return _site_of_rank(state.free, rank)[:, None]

    return Scan(
        "uniform",
        choose,
        "one site a step, chosen uniformly",
        "one token, picked at random,",
        is_random_scan=True,
    )


def lazy() -> Scan:
    """With probability 1/2 no site, else one free site, each equally likely."""

    def choose(conditionals: Conditionals, state: State, order: Tensor) -> Tensor:
        u = 2.0 * as_uniform(order[:, 0])  # below 1: no site; else u - 1 is uniform
        rank = ((u - 1.0).clamp(min=0.0) * state.free.sum(dim=1)).long()
        return torch.where(u < 1.0, PAD, _site_of_rank(state.free, rank))[:, None]

    return Scan(
        "lazy",
        choose,
        "with probability 1/2 no site, else one chosen uniformly",
        "nothing, or as often one token, picked at random,",
        irreversible="half of its steps redraw no site, and times and rates of the random scan do "
        "not apply",
        may_skip=True,
    )


def sweep() -> Scan:
    """The free sites in order, one each step: step t redraws free site t mod n."""

    def choose(conditionals: Conditionals, state: State, order: Tensor) -> Tensor:
        return _site_of_rank(state.free, state.step % state.free.sum(dim=1))[:, None]

    return Scan(
        "sweep",
        choose,
        "one site a step, in order",
        "one token, each in turn,",
        irreversible="undoing a step would need the sites in reverse order, so the figure would "
        "measure incompatibility but not this chain's entropy production",
    )


def block(size: int) -> Scan:
    """A uniformly random set of `size` free sites in uniformly random order."""
    if size < 1:
        raise GlauberError(f"a block has {size} sites, but it needs at least one.")

    def choose(conditionals: Conditionals, state: State, order: Tensor) -> Tensor:
        keys = as_uniform(order).masked_fill(~state.free, 2.0)
        return keys.argsort(dim=1, stable=True)[:, :size]

    return Scan(
        f"block:{size}",
        choose,
        f"{size} sites a step, chosen uniformly",
        f"{size} tokens, picked at random,",
        n_numbers=lambda length: length,
        size=size,
        is_random_scan=size == 1,  # every `within` is the same kernel then, that of `uniform`
        irreversible="the chance of undoing the move of a whole block is not recorded",
    )


def everywhere() -> Scan:
    """All free sites, in order."""

    def choose(conditionals: Conditionals, state: State, order: Tensor) -> Tensor:
        length = state.free.shape[1]
        site = torch.arange(length, device=state.free.device)
        sites = torch.where(state.free, site, length).sort(dim=1).values
        sites = sites[:, : int(state.free.sum(dim=1).max())]
        return sites.masked_fill(sites == length, PAD)

    return Scan(
        "everywhere",
        choose,
        "all sites in every step",
        "every token",
        n_numbers=lambda length: length,
        size=None,
        within="parallel",
        irreversible="all sites move at once, and the chance of undoing that is not recorded",
    )


def by_state(redraw: Redraw, measure: Measure, sharpness: float = 1.0) -> Scan:
    """One free site, chosen by how unsure the model is there; see `adaptive`."""
    adaptive = Adaptive(redraw, measure, sharpness)

    def choose(conditionals: Conditionals, state: State, order: Tensor) -> Tensor:
        return pick(Chances(conditionals, adaptive)(state), as_uniform(order[:, 0]))

    # The second number decides whether a proposal is accepted.
    count = 2 if redraw == "adaptive" else 1
    return Scan(
        adaptive.name,
        choose,
        f"sites chosen by the state, {adaptive.name}",
        "one token, picked from those that the model doubts,",
        n_numbers=lambda length: count,
        irreversible="the choice of the site depends on the state, so its chance does not cancel "
        "between a step and its undoing",
        adaptive=adaptive,
    )


class Kind(NamedTuple):
    """A kind of scan, as people ask for it."""

    scan: Callable[[str | None], Scan]  # of what comes after the colon; ValueError if it is wrong
    usage: str  # how it is written
    help: str  # what it does
    offered: tuple[str, ...] = ()  # names that the explorer lists


def _without_argument(scan: Callable[[], Scan], argument: str | None) -> Scan:
    if argument is not None:
        raise ValueError(argument)
    return scan()


def _block(argument: str | None) -> Scan:
    return block(int(argument or ""))


def _by_state(redraw: Redraw, argument: str | None) -> Scan:
    return by_state(*adaptive_named(redraw, argument or ""))


SCANS: dict[str, Kind] = {
    "uniform": Kind(partial(_without_argument, uniform), "uniform", "a random site", ("uniform",)),
    "lazy": Kind(partial(_without_argument, lazy), "lazy", "no site or a random one, as often"),
    "sweep": Kind(partial(_without_argument, sweep), "sweep", "the sites in order", ("sweep",)),
    "block": Kind(_block, "block:K", "K random sites", ("block:2", "block:4")),
    "everywhere": Kind(
        partial(_without_argument, everywhere), "everywhere", "all sites", ("everywhere",)
    ),
    "adaptive": Kind(
        partial(_by_state, "adaptive"),
        "adaptive:confidence or adaptive:entropy",
        "a site by the model's uncertainty (:2 after it sharpens the choice), with "
        "a Metropolis step that keeps a joint distribution",
        ("adaptive:entropy",),
    ),
    "conditioned": Kind(
        partial(_by_state, "conditioned"),
        "conditioned:entropy",
        "the same with an exact redraw, for up to 64 tokens",
    ),
    "naive": Kind(
        partial(_by_state, "naive"),
        "naive:entropy",
        "the same without a correction, which keeps none",
    ),
}
# What `sample --scan` takes, and what the explorer offers.
SCAN_HELP = "; ".join(f"{kind.usage}: {kind.help}" for kind in SCANS.values()) + "."
OFFERED = tuple(name for kind in SCANS.values() for name in kind.offered)


def scan_named(name: str) -> Scan:
    """The scan that a run's spec names, such as `uniform`, `block:3` or `adaptive:entropy:2`."""
    kind, colon, argument = str(name).partition(":")
    try:
        return SCANS[kind].scan(argument if colon else None)
    except (KeyError, ValueError):
        known = ", ".join(kind.usage for kind in SCANS.values())
        raise GlauberError(f"the scan is {name}, but it must be one of {known}.") from None


def _site_of_rank(free: Tensor, rank: Tensor) -> Tensor:
    """The free site of that rank (0 is the first) in each chain, (chains,)."""
    return (free.cumsum(dim=1) == rank[:, None] + 1).int().argmax(dim=1)
