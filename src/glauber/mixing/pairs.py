"""What is a pair of chains, and how does it move?

Both chains redraw the same site, each from its own conditional, the two tokens drawn together.
Where the two agree everywhere else, the two conditionals are one: the model is asked once and
both get the same token. So a pair that has met stays together.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals
from glauber.dynamics.kernel import State, start
from glauber.dynamics.noise import random_bits
from glauber.dynamics.scans import uniform
from glauber.errors import GlauberError
from glauber.mixing.joint_draws import JointDraw, Question


class Pairs(NamedTuple):
    """Many pairs at once; each has its own step, length, temperature, seed and free sites."""

    left: Tensor  # (pairs, length) int64, PAD behind shorter pairs
    right: Tensor  # (pairs, length) int64
    step: Tensor  # (pairs,) int64: steps made so far; with seed and pair it keys the noise
    pair: Tensor  # (pairs,) int64: the pair's number
    free: Tensor  # (pairs, length) bool
    temperature: Tensor  # (pairs,) float64
    seed: Tensor  # (pairs,) int64

    def rows(self, chosen: Tensor | slice) -> "Pairs":
        """The chosen pairs."""
        return Pairs(*(part[chosen] for part in self))

    @property
    def distance(self) -> Tensor:
        """The number of sites at which the two differ (pairs,)."""
        return (self.left != self.right).sum(dim=1)


def begin(
    left: Tensor,
    right: Tensor,
    free: Tensor,
    *,
    temperature: float | Tensor,
    seed: int | Tensor,
    pair: Tensor | None = None,
    step: int = 0,
) -> Pairs:
    """The pairs at their start, checked; left, right and free (pairs, length)."""
    if left.shape != right.shape or bool(((left == PAD) != (right == PAD)).any()):
        raise GlauberError(
            "the two texts of a pair have unequal lengths, so they could never become one text."
        )
    if bool((~free & (left != right)).any()):
        raise GlauberError("the two texts of a pair differ at a site that is never redrawn.")
    chains = start(left, free, temperature=temperature, chain=pair, step=step, device=left.device)
    seeds = torch.as_tensor(seed, dtype=torch.int64, device=left.device).expand(len(left)).clone()
    return Pairs(
        chains.tokens, right.long(), chains.step, chains.chain, chains.free,
        chains.temperature, seeds,
    )  # fmt: skip


def step_together(conditionals: Conditionals, joint: JointDraw, pairs: Pairs) -> Pairs:
    """Each pair one step later: one uniformly chosen free site redrawn in both texts."""
    order, fill = random_bits(pairs.seed, pairs.pair, pairs.step, torch.zeros_like(pairs.step))
    site = _sites(conditionals, pairs, order)
    differ = (pairs.left != pairs.right).scatter(1, site, False)
    same = ~differ.any(dim=1)
    apart = (~same).nonzero()[:, 0]
    scores = conditionals.scores(
        torch.cat([pairs.left, pairs.right[apart]]), torch.cat([site, site[apart]])
    )[:, 0]
    tokens = torch.empty_like(site).repeat(1, 2)
    if len(apart):
        question = Question(
            scores[apart], scores[len(site) :], pairs.temperature[apart],
            _noise(pairs.rows(apart), fill[apart]),
        )  # fmt: skip
        tokens[apart] = joint.together(question)
    one = same.nonzero()[:, 0]
    if len(one):
        old = pairs.left[one].gather(1, site[one])[:, 0]
        drawn = joint.alone.draw(scores[one], pairs.temperature[one], fill[one], old)
        tokens[one] = drawn.tokens[:, None]
    return pairs._replace(
        left=pairs.left.scatter(1, site, tokens[:, :1]),
        right=pairs.right.scatter(1, site, tokens[:, 1:]),
        step=pairs.step + 1,
    )


def _sites(conditionals: Conditionals, pairs: Pairs, order: Tensor) -> Tensor:
    """The site (pairs, 1) of the next step, as a single chain of that number would choose it."""
    state = State(pairs.left, pairs.step, pairs.pair, pairs.free, pairs.temperature)
    return uniform().choose(conditionals, state, order[:, None])


def _noise(pairs: Pairs, fill: Tensor) -> Tensor:
    """The words (pairs, 3) of a joint draw: the one of a single chain, and two of the next slot."""
    spare = random_bits(pairs.seed, pairs.pair, pairs.step, torch.ones_like(pairs.step))
    return torch.stack([fill, *spare], dim=1)
