"""Which filled sites are hidden again, so that what was placed too early can be revised?

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

import torch
from torch import Tensor

from glauber.dynamics.noise import uniform
from glauber.errors import GlauberError
from glauber.generation.candidates import Candidates
from glauber.generation.counts import ROUNDING, Count, plan
from glauber.generation.orders import places

# In one line.
REMASKS = "none, cap:0.1, rescale:0.5, conf, loop:0.02,0.55,0.05, planned:1"
NUMBERS = {"none": 0, "cap": 1, "rescale": 1, "conf": 0, "loop": 3, "planned": 1}
LOOP_ALPHA = 0.9  # share of tokens that are filled while ReMDM's loop lasts


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
        times = [self._warped(1 - j / total, count) for j in range(total + 1)]
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
        most = [min(1.0, left[j] / filled[j - 1]) if filled[j - 1] else 0.0
                for j in range(1, total + 1)]  # fmt: skip
        if self.kind == "cap":
            return [min(self.eta, sigma) for sigma in most]
        return [self.eta * sigma for sigma in most] if self.kind == "rescale" else most

    def again(self, filled: Tensor, placed: Tensor, sigma: Tensor, bits: Tensor) -> Tensor:
        """The sites (chains, length) bool that are hidden again, of the filled ones.

        sigma (chains, 1) is that of the pass; placed holds log-probabilities at placement.
        """
        if self.kind == "conf":
            doubt = (-placed.double().exp()).masked_fill(~filled, -torch.inf)
            # A chain with nothing filled has no softmax, and nothing to hide.
            sigma = sigma * torch.softmax(doubt.masked_fill(~filled.any(1, True), 0.0), dim=1)
        return filled & (uniform(bits) < sigma)

    def held(
        self, found: Candidates, hidden: Tensor, filled: Tensor, placed: Tensor, n: Tensor
    ) -> Tensor:
        """The n (chains, 1) sites (chains, length) bool that are held after a planned pass."""
        # Both in float32, in which what was placed is stored.
        kept = self.eta * placed if self.eta else torch.full_like(placed, torch.inf)
        values = torch.where(hidden, found.log_prob.float(), kept)
        values = values.masked_fill(~(hidden | filled), -torch.inf)
        return (hidden | filled) & (places(values) < n)

    def _loops(self, time: float) -> bool:
        return self.off - ROUNDING <= time < self.on - ROUNDING

    def _warped(self, time: float, count: Count) -> float:
        """Where on the plan's own time the loop's plan stands."""
        pause = _time_of(count, 1 - LOOP_ALPHA)
        if time >= self.on - ROUNDING:
            return 1 - (1 - pause) * ((1 - time) / (1 - self.on) if self.on < 1 else 0.0)
        return pause if self._loops(time) else pause * time / self.off


def remask_named(name: str) -> Remask:
    """The remasking that a name such as `cap:0.1` means."""
    kind, _, rest = str(name).partition(":")
    try:
        numbers = [float(number) for number in rest.split(",")] if rest else []
    except ValueError:
        numbers = [math.nan] * 9
    if NUMBERS.get(kind) != len(numbers):
        raise GlauberError(f"the remasking is {name}, but it must be one of {REMASKS}.")
    found = Remask(kind, *numbers)
    _check(found, numbers)
    return found


def check_remask(name: str, count: Count) -> None:
    """Refuses an unknown remasking, and one that needs a plan beside a count without one."""
    found = remask_named(name)
    if found.kind != "none" and not count.planned:
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
