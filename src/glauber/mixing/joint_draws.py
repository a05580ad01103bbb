"""How are two tokens drawn together, each from its own conditional?

maximal      the same token as often as any joint law allows, with probability 1 - TV(p, q)
inverse-cdf  both from one uniform number, in the order of the fill (decreasing score)
gumbel-max   both from the same Gumbel variables

Whichever is used, the left token alone has law p and the right one alone has law q. Draws are
made in float64, each row by itself, so a pair's draw does not depend on its neighbours.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.dynamics.fills import TOGETHER, Fill, gumbel_max, inverse_cdf
from glauber.dynamics.noise import uniform
from glauber.errors import GlauberError
from glauber.threads import side_by_side


class Question(NamedTuple):
    """Two conditionals a pair, and the random 64-bit words to draw with."""

    left: Tensor  # (pairs, vocab) scores
    right: Tensor  # (pairs, vocab) scores
    temperature: Tensor  # (pairs,) float64
    words: Tensor  # (pairs, 3) int64

    def split(self, size: int) -> "list[Question]":
        """The same pairs in parts of at most `size`."""
        return [Question(*part) for part in zip(*(x.split(size) for x in self), strict=True)]


class JointDraw(NamedTuple):
    """together(question) -> tokens (pairs, 2); `alone` draws where both conditionals are one."""

    name: str
    alone: Fill
    together: Callable[[Question], Tensor]


def maximal() -> JointDraw:
    """With probability 1 - TV(p, q) one token from min(p, q) for both, else from the residuals.

    The residuals p - min(p, q) and q - min(p, q) have no token in common; they are drawn from
    independently, so 1 - TV is all the agreement there is, and no coupling has more.
    """

    def together(question: Question) -> Tensor:
        if question.left.is_cuda:
            return _maximal(question)
        rows = max(1, TOGETHER // question.left.shape[1])
        return torch.cat(side_by_side(_maximal, question.split(rows)))

    return JointDraw("maximal", inverse_cdf(), together)


def shared(fill: Fill) -> JointDraw:
    """Both tokens drawn by the fill from the same random word."""

    def together(question: Question) -> Tensor:
        ignored = torch.zeros_like(question.words[:, 0])  # the old tokens: only reported on
        sides = [
            fill.draw(scores, question.temperature, question.words[:, 0], ignored).tokens
            for scores in (question.left, question.right)
        ]
        return torch.stack(sides, dim=1)

    return JointDraw(fill.name, fill, together)


JOINT_DRAWS = ("maximal", "inverse-cdf", "gumbel-max")


def joint_draw_named(name: str) -> JointDraw:
    """The joint draw of that name."""
    if name == "maximal":
        return maximal()
    fills = {"inverse-cdf": inverse_cdf, "gumbel-max": gumbel_max}
    if name not in fills:
        raise GlauberError(
            f"the coupling is {name}, but it must be one of {', '.join(JOINT_DRAWS)}."
        )
    return shared(fills[name]())


def _maximal(question: Question) -> Tensor:
    p, q = (
        torch.softmax(scores.double() / question.temperature[:, None], dim=-1)
        for scores in (question.left, question.right)
    )
    u, left, right = uniform(question.words).unbind(dim=1)
    overlap = torch.minimum(p, q)
    heap = overlap.cumsum(dim=1)
    mass = heap[:, -1]
    # Rounding may leave the mass a hair below u where nothing is left over: then the last token.
    point = torch.minimum(u, mass.nextafter(torch.zeros_like(mass)))
    tokens = _first_beyond(heap, point)[:, None].repeat(1, 2)
    apart = (u >= mass).nonzero()[:, 0]
    if len(apart):
        tokens[apart] = _residuals(p[apart], q[apart], left[apart], right[apart], tokens[apart])
    return tokens


def _residuals(p: Tensor, q: Tensor, left: Tensor, right: Tensor, agreed: Tensor) -> Tensor:
    """Tokens (pairs, 2) from p - min(p, q) and q - min(p, q); `agreed` where one is empty."""
    overlap = torch.minimum(p, q)
    heaps = ((p - overlap).cumsum(dim=1), (q - overlap).cumsum(dim=1))
    empty = (heaps[0][:, -1] <= 0) | (heaps[1][:, -1] <= 0)
    sides = [
        _first_beyond(heap, u * heap[:, -1]).clamp(max=p.shape[1] - 1)
        for heap, u in zip(heaps, (left, right), strict=True)
    ]
    return torch.where(empty[:, None], agreed, torch.stack(sides, dim=1))


def _first_beyond(heap: Tensor, point: Tensor) -> Tensor:
    """The first token (rows,) whose cumulative mass in heap (rows, vocab) exceeds the point."""
    return torch.searchsorted(heap, point[:, None], right=True)[:, 0]
