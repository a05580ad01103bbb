"""Do masks that look at the state mix faster? A search over p_K(K | x).

With q(x, K) = p(x) p_K(K | x), the block is redrawn from q(x'_K | x_{-K}, K). The chain of x alone,
P(x, x') = sum_K p_K(K | x) q(x'_K | x_{-K}, K), is reversible with respect to p; on the scale of
sqrt(p) its matrix is sum over K and contexts c of u u', u(x) = q(x, K) / sqrt(p(x) q(c, K)).
Its gap need not be concave, so what is found is a lower bound on the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.samplers.masks import Block, Masks
from glauber.exact.space import Space

LARGEST = 2**7  # states


@dataclass(frozen=True, eq=False)
class AdaptiveMasks:
    """Chances (size, blocks) of each block at each state, and the gap of their chain."""

    blocks: tuple[Block, ...]
    chances: Floats
    gap: float  # a lower bound on the best adaptive gap
    start: float  # the gap of the fixed masks that the search began from


def adaptive_masks(
    law: Floats, space: Space, masks: Masks, *, rounds: int = 200, rate: float = 0.05
) -> AdaptiveMasks:
    """Ascent of the gap from fixed masks, by Adam on the logits of p_K(K | x)."""
    if space.size > LARGEST:
        raise GlauberError(
            f"the search over adaptive masks takes at most {LARGEST} states, but there are "
            f"{space.size:,}: take fewer sites."
        )
    probabilities = torch.from_numpy(law)
    labels = [_contexts(space, block) for block in masks.blocks]
    begun = torch.from_numpy(np.log(np.maximum(masks.weights, 1e-6)))
    logits = begun.repeat(space.size, 1).requires_grad_()
    ascent = torch.optim.Adam([logits], lr=rate)
    best, kept, start = -1.0, logits.detach(), None
    for _ in range(rounds):
        chances = torch.softmax(logits, dim=1)
        second = _second(_scaled(probabilities, chances, labels), probabilities.sqrt())
        gap = 1 - float(second.detach())
        start = gap if start is None else start
        if gap > best:
            best, kept = gap, chances.detach()
        ascent.zero_grad()
        second.backward()
        ascent.step()
    return AdaptiveMasks(masks.blocks, kept.numpy(), best, start or best)


def adaptive_matrix(law: Floats, space: Space, blocks: Sequence[Block], chances: Floats) -> Floats:
    """The matrix P (size, size) of the adaptive chain; reversible with respect to law."""
    labels = [_contexts(space, block) for block in blocks]
    root = torch.from_numpy(law).sqrt()
    scaled = _scaled(torch.from_numpy(law), torch.from_numpy(chances), labels)
    return np.asarray((scaled * root[None, :] / root[:, None]).numpy())


def _scaled(law: Tensor, chances: Tensor, labels: list[Tensor]) -> Tensor:
    """sum over K and c of u u' (size, size); chances (size, blocks)."""
    total = torch.zeros(len(law), len(law), dtype=torch.float64)
    for slot, label in enumerate(labels):
        joint = law * chances[:, slot]
        context = torch.zeros_like(law).index_add(0, label, joint)[label]  # q(c, K) at each state
        u = joint / (law * context).sqrt()
        total = total + torch.outer(u, u) * (label[:, None] == label)
    return total


def _second(scaled: Tensor, root: Tensor) -> Tensor:
    """The second eigenvalue, with the gradient v' dS v of a simple one."""
    with torch.no_grad():
        _, vectors = torch.linalg.eigh(scaled - 2 * torch.outer(root, root))
        vector = vectors[:, -1]
    return vector @ scaled @ vector


def _contexts(space: Space, block: Block) -> Tensor:
    """A number (size,) for what stands outside the block."""
    inside = (space.states()[:, list(block)] * space.strides[list(block)]).sum(1)
    return torch.arange(space.size) - inside
