"""How many hidden sites does a pass fill?

4                   so many a pass
linear, cosine      as a plan over T passes says, which lists how many stay hidden after each
threshold:0.9       all sites at which the likeliest token has at least that probability
entropy-bound:0.1   the longest head of the order whose entropies, without the largest of them, sum
                    to at most that many nats: sum - max bounds the total correlation, so for the
                    conditionals of a joint law that is what the pass can cost in KL
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from glauber.errors import GlauberError
from glauber.generation.candidates import Candidates

COUNTS = "a number a pass, linear, cosine, threshold:0.9, entropy-bound:0.1"  # in one line
PLANS = ("linear", "cosine")
ROUNDING = 1e-9  # of a share times a count, before it is cut to a whole number


@dataclass(frozen=True)
class Count:
    """kind is number, linear, cosine, threshold or entropy-bound; value its number, if any."""

    kind: str
    value: float = 0.0

    @property
    def planned(self) -> bool:
        """Whether the number is a plan over T passes."""
        return self.kind in PLANS

    def chosen(self, found: Candidates, eligible: Tensor, ranks: Tensor) -> Tensor:
        """The sites filled (chains, length) bool, of the eligible ones; not for plans.

        ranks (chains, length) is the place of each eligible site in the order, from 0.
        """
        if self.kind == "threshold":
            return eligible & ((found.largest >= self.value) | (ranks == 0))
        if self.kind == "entropy-bound":
            return eligible & (ranks < _within(found.entropy, eligible, ranks, self.value))
        return eligible & (ranks < int(self.value))


def count_named(name: str | int) -> Count:
    """The count that a name such as `4`, `linear` or `threshold:0.9` means."""
    kind, _, rest = str(name).partition(":")
    if kind in PLANS and not rest:
        return Count(kind)
    try:
        if kind == "threshold":
            return _threshold(float(rest))
        if kind == "entropy-bound":
            return _entropy_bound(float(rest))
        if not rest and not isinstance(name, bool):
            return _number(int(kind))
    except ValueError:
        pass
    raise GlauberError(f"the count is {name}, but it must be one of {COUNTS}.")


def _number(k: int) -> Count:
    if k < 1:
        raise GlauberError(f"{k} tokens are filled a pass, but it must be at least 1.")
    return Count("number", k)


def _threshold(value: float) -> Count:
    if not 0 < value <= 1:
        raise GlauberError(f"the threshold is {value:g}, but it must lie in (0, 1].")
    return Count("threshold", value)


def _entropy_bound(value: float) -> Count:
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
    wanted = [_planned(kind, n, j, total) for j in range(total)] + [0]
    if pauses:
        return wanted[: wanted.index(0) + 1]
    left = [n]
    while left[-1] > 0:
        left.append(max(0, min(wanted[min(len(left), total)], left[-1] - 1)))
    return left


def _planned(kind: str, n: int, j: int, total: int) -> int:
    """How many of n sites the schedule wants hidden after pass j of so many."""
    if kind == "linear" and total > n:  # one at once, the last with the last pass
        return n if j == 0 else n - 1 - (j - 1) * (n - 1) // (total - 1)
    if kind == "linear":
        return n - j * (n // total) - min(j, n % total)
    return math.floor(n * math.cos(math.pi * j / (2 * total)) + ROUNDING)


def _within(entropy: Tensor, eligible: Tensor, ranks: Tensor, bound: float) -> Tensor:
    """How many sites (chains, 1) are the longest head of the order within the bound, at least 1."""
    length = entropy.shape[1]
    place = torch.where(eligible, ranks, length)
    in_order = entropy.new_zeros(len(entropy), length + 1).scatter(1, place, entropy)[:, :length]
    spread = in_order.cumsum(dim=1) - in_order.cummax(dim=1).values
    return (spread <= bound).int().cumprod(dim=1).sum(dim=1, keepdim=True).clamp(min=1)
