"""How many hidden sites a pass fills, and which filled ones are hidden again.

Counts:

4                   so many a pass
linear, cosine      as a plan over T passes says, which lists how many stay hidden after each
threshold:0.9       all sites at which the likeliest token has at least that probability
entropy-bound:0.1   the longest head of the order whose entropies, without the largest of them, sum
                    to at most that many nats: sum - max bounds the total correlation, so for the
                    conditionals of a joint distribution that is what the pass can cost in KL

A plan is a function of how many sites were hidden at the start and of the number of the pass, so
that a generation which is resumed goes on with the same plan.

Hiding again, so that what was placed too early can be revised:

ReMDM (Wang and others, 2025), over the plan of a linear or cosine count: h_j sites stay hidden
after pass j of T, alpha_j = 1 - h_j / N, and at most
    sigma_max = min(1, (1 - alpha_j) / alpha_{j-1})
of the filled ones may be hidden again; as many more are filled, so that the plan is kept.
cap:eta            each with probability min(eta, sigma_max)
rescale:eta        each with probability eta sigma_max
conf               sigma_max times a softmax over the filled sites of minus the probability that
                   their tokens had when they were placed
loop:eta,on,off    in time t = 1 - j/T the plan runs to alpha = 0.9 at t = on, stays there until
                   t = off while each is hidden again with probability min(eta, 1/9), then ends
P2 (Peng and others, 2025), planned by the probability at placement:
planned:eta        after pass j the N - h_j sites of largest value are held: log p of a candidate,
                   eta log p of a token that was placed with probability p
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.dynamics.candidates import Candidates, places
from glauber.dynamics.noise import uniform
from glauber.foundation.errors import GlauberError

COUNTS = "a number a pass, linear, cosine, threshold:0.9, entropy-bound:0.1"  # in one line
PLANS = ("linear", "cosine")
ROUNDING = 1e-9  # of a share times a count, before it is cut to a whole number
REMASKS = "none, cap:0.1, rescale:0.5, conf, loop:0.02,0.55,0.05, planned:1"  # in one line
NUMBERS = {"none": 0, "cap": 1, "rescale": 1, "conf": 0, "loop": 3, "planned": 1}
LOOP_ALPHA = 0.9  # share of tokens that are filled while ReMDM's loop lasts


@dataclass(frozen=True)
class Count:
    """kind is number, linear, cosine, threshold or entropy-bound; value its number, if any."""

    kind: str
    value: float = 0.0

    @property
    def has_plan(self) -> bool:
        """Whether the number is a plan over T passes."""
        return self.kind in PLANS

    def chosen(self, proposals: Candidates, eligible: Tensor, ranks: Tensor) -> Tensor:
        """The sites filled (chains, length) bool, of the eligible ones; not for plans.

        ranks (chains, length) is the place of each eligible site in the order, from 0.
        """
        if self.kind == "threshold":
            return eligible & ((proposals.largest >= self.value) | (ranks == 0))
        if self.kind == "entropy-bound":
            return eligible & (ranks < _within(proposals.entropy, eligible, ranks, self.value))
        return eligible & (ranks < int(self.value))


def count_named(name: str | int) -> Count:
    """The count that a name such as `4`, `linear` or `threshold:0.9` means."""
    kind, _, argument = str(name).partition(":")
    if kind in PLANS and not argument:
        return Count(kind)
    try:
        if kind == "threshold":
            return _threshold_count(float(argument))
        if kind == "entropy-bound":
            return _entropy_bound_count(float(argument))
        if not argument and not isinstance(name, bool):
            return _number_count(int(kind))
    except ValueError:
        pass
    raise GlauberError(f"the count is {name}, but it must be one of {COUNTS}.")


def _number_count(k: int) -> Count:
    if k < 1:
        raise GlauberError(f"{k} tokens are filled a pass, but it must be at least 1.")
    return Count("number", k)


def _threshold_count(value: float) -> Count:
    if not 0 < value <= 1:
        raise GlauberError(f"the threshold is {value:g}, but it must lie in (0, 1].")
    return Count("threshold", value)


def _entropy_bound_count(value: float) -> Count:
    if not 0 <= value < math.inf:
        raise GlauberError(
            f"the entropy bound (gamma) is {value:g} nats, but it must be a number from 0 on."
        )
    return Count("entropy-bound", value)


def plan(kind: str, n: int, passes: int | None, *, pauses: bool = False) -> list[int]:
    """How many of n sites stay hidden after 0, 1, 2, … passes: from n down to the first 0.

    linear fills n // T a pass, and one more in the first n mod T passes (LLaDA's schedule);
    cosine leaves floor(n cos(pi j / 2T)) after j passes. Each pass fills at least one; with pauses,
    for hiding again, one may only replace what it hides, and there may be more passes than sites.
    """
    total = passes or max(1, n)
    wanted = [_n_hidden(kind, n, j, total) for j in range(total)] + [0]
    if pauses:
        return wanted[: wanted.index(0) + 1]
    left = [n]
    while left[-1] > 0:
        left.append(max(0, min(wanted[min(len(left), total)], left[-1] - 1)))
    return left


def _n_hidden(kind: str, n: int, j: int, total: int) -> int:
    """How many of n sites the schedule wants hidden after pass j of so many."""
    if kind == "linear" and total > n:  # one at once, the last with the last pass
        return n if j == 0 else n - 1 - (j - 1) * (n - 1) // (total - 1)
    if kind == "linear":
        return n - j * (n // total) - min(j, n % total)
    return math.floor(n * math.cos(math.pi * j / (2 * total)) + ROUNDING)


def _within(entropy: Tensor, eligible: Tensor, ranks: Tensor, bound: float) -> Tensor:
    """How many sites (chains, 1) are the longest head of the order within the bound, at least 1."""
    length = entropy.shape[1]
    rank = torch.where(eligible, ranks, length)
    in_order = entropy.new_zeros(len(entropy), length + 1).scatter(1, rank, entropy)[:, :length]
    spread = in_order.cumsum(dim=1) - in_order.cummax(dim=1).values
    return (spread <= bound).int().cumprod(dim=1).sum(dim=1, keepdim=True).clamp(min=1)


# ---- hiding again


@dataclass(frozen=True)
class Remask:
    """kind is a key of NUMBERS, with its eta; on and off are times of the loop."""

    kind: str = "none"
    eta: float = 0.0
    on: float = 1.0
    off: float = 0.0

    def plan(self, count: Count, n: int, passes: int | None) -> list[int]:
        """How many of n sites are planned to be hidden after 0, 1, 2, … passes."""
        if self.kind != "loop":
            return plan(count.kind, n, passes, pauses=self.kind != "none")
        total = passes or max(1, n)
        times = [self._plan_time(1 - j / total, count) for j in range(total + 1)]
        left = [math.floor(n * _share(count, time) + ROUNDING) for time in times]
        return [n, *left[1:-1], 0]

    def sigmas(self, left: list[int]) -> list[float]:
        """The probability of passes 1, 2, … by which filled sites are hidden again."""
        total = len(left) - 1
        if self.kind in ("none", "planned"):
            return [0.0] * total
        if self.kind == "loop":
            rate = min(self.eta, (1 - LOOP_ALPHA) / LOOP_ALPHA)
            return [rate * self._loops(1 - j / total) for j in range(1, total)] + [0.0]
        filled = [left[0] - h for h in left]
        most = [
            min(1.0, left[j] / filled[j - 1]) if filled[j - 1] else 0.0 for j in range(1, total + 1)
        ]
        if self.kind == "cap":
            return [min(self.eta, sigma) for sigma in most]
        return [self.eta * sigma for sigma in most] if self.kind == "rescale" else most

    def hide_again(self, filled: Tensor, placed: Tensor, sigma: Tensor, bits: Tensor) -> Tensor:
        """The sites (chains, length) bool that are hidden again, of the filled ones.

        sigma (chains, 1) is that of the pass; placed holds log-probabilities at placement.
        """
        if self.kind == "conf":
            doubt = (-placed.double().exp()).masked_fill(~filled, -torch.inf)
            # A chain with nothing filled has no softmax, and nothing to hide.
            sigma = sigma * torch.softmax(doubt.masked_fill(~filled.any(1, True), 0.0), dim=1)
        return filled & (uniform(bits) < sigma)

    def sites_to_hold(
        self, proposals: Candidates, hidden: Tensor, filled: Tensor, placed: Tensor, n: Tensor
    ) -> Tensor:
        """The n (chains, 1) sites (chains, length) bool that are held after a planned pass."""
        # Both in float32, in which what was placed is stored.
        placed_values = self.eta * placed if self.eta else torch.full_like(placed, torch.inf)
        values = torch.where(hidden, proposals.log_prob.float(), placed_values)
        values = values.masked_fill(~(hidden | filled), -torch.inf)
        return (hidden | filled) & (places(values) < n)

    def _loops(self, time: float) -> bool:
        return self.off - ROUNDING <= time < self.on - ROUNDING

    def _plan_time(self, time: float, count: Count) -> float:
        """Where on the plan's own time the loop's plan stands."""
        pause = _time_of(count, 1 - LOOP_ALPHA)
        if time >= self.on - ROUNDING:
            return 1 - (1 - pause) * ((1 - time) / (1 - self.on) if self.on < 1 else 0.0)
        return pause if self._loops(time) else pause * time / self.off


def remask_named(name: str) -> Remask:
    """The remasking that a name such as `cap:0.1` means."""
    kind, _, argument = str(name).partition(":")
    try:
        numbers = [float(number) for number in argument.split(",")] if argument else []
    except ValueError:
        numbers = [math.nan] * 9
    if NUMBERS.get(kind) != len(numbers):
        raise GlauberError(f"the remasking is {name}, but it must be one of {REMASKS}.")
    remask = Remask(kind, *numbers)
    _check(remask, numbers)
    return remask


def check_remask(name: str, count: Count) -> None:
    """Refuses an unknown remasking, and one that needs a plan with a count without one."""
    remask = remask_named(name)
    if remask.kind != "none" and not count.has_plan:
        raise GlauberError(
            f"the remasking {name} keeps a plan over a number of passes, so the count must be "
            "linear or cosine."
        )


def _check(remask: Remask, numbers: list[float]) -> None:
    if numbers and not 0 <= remask.eta < math.inf:
        raise GlauberError(f"eta of the remasking is {remask.eta:g}, but it must be 0 or above.")
    if remask.kind in ("cap", "rescale", "loop") and remask.eta > 1:
        raise GlauberError(f"eta of the remasking is {remask.eta:g}, but it is at most 1.")
    if remask.kind == "loop" and not 0 < remask.off <= remask.on <= 1:
        raise GlauberError(
            f"the loop is on from {remask.on:g} to {remask.off:g}, but time runs from 1 down to 0: "
            "on must be at most 1, off at most on and above 0."
        )


def _share(count: Count, time: float) -> float:
    """The share hidden at time t, from 1 at t = 1 down to 0."""
    return time if count.kind == "linear" else math.sin(math.pi * time / 2)


def _time_of(count: Count, share: float) -> float:
    """The time at which that share is hidden."""
    return share if count.kind == "linear" else 2 * math.asin(share) / math.pi


# ---- passes


def blocks_of(begin: Tensor, block: int | None) -> Tensor:
    """The block (chains, length) of each site that was hidden at the start, PAD elsewhere.

    Blocks have so many of these sites each, from left to right; without a size there is one.
    """
    number = begin.cumsum(dim=1) - 1
    return torch.where(begin, number // block if block else number * 0, -1)


class Now(NamedTuple):
    """Where each chain stands in its plan, (chains, 1) each."""

    block: Tensor  # int64: the block filled in this pass; -1 after the last pass
    n: Tensor  # int64: sites of the block
    left: Tensor  # int64: those hidden after this pass
    sigma: Tensor  # float64: with which probability filled ones are hidden again


class Timetable:
    """The plan of every chain, pass by pass."""

    def __init__(self, blocks: Tensor, count: Count, remask: Remask, passes: int | None) -> None:
        """blocks (chains, length) as `blocks_of` gives them."""
        n_blocks = max(1, int(blocks.max()) + 1)
        sizes = blocks.new_zeros(len(blocks), n_blocks + 1)  # the last column counts no block
        sizes.scatter_add_(1, blocks % (n_blocks + 1), torch.ones_like(blocks))
        kinds, self._kind = sizes.unique(dim=0, return_inverse=True)
        rows = [_row(kind, count, remask, passes) for kind in kinds[:, :-1].tolist()]
        longest = max(len(row) for row in rows)
        over = (-1, 0, 0, 0.0)  # after the last pass
        plans = torch.tensor(
            [row + [over] * (longest + 1 - len(row)) for row in rows],
            dtype=torch.float64,
            device=blocks.device,
        )
        self._whole = plans
        self.passes = torch.tensor([len(row) for row in rows], device=blocks.device)[self._kind]

    def now(self, step: Tensor) -> Now:
        """Where chains stand that have made so many passes (chains,)."""
        at = self._whole[self._kind, step.clamp(max=self._whole.shape[1] - 1)]
        block, n, left, sigma = (part[:, None] for part in at.unbind(dim=1))
        return Now(block.long(), n.long(), left.long(), sigma)


def _row(
    sizes: list[int], count: Count, remask: Remask, passes: int | None
) -> list[tuple[int, int, int, float]]:
    """(block, n, left, sigma) of each pass of a chain whose blocks have these sizes."""
    row = []
    for block, n in enumerate(sizes):
        if n:
            left = remask.plan(count, n, passes)
            sigmas = remask.sigmas(left)
            row += [(block, n, h, s) for h, s in zip(left[1:], sigmas, strict=True)]
    return row
