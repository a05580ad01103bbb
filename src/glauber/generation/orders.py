"""Which hidden sites are filled first?

random          each order alike
left-to-right   as one reads
confidence      largest probability of the likeliest token
margin          largest distance between the two likeliest
entropy         lowest entropy
drawn           largest probability of the token drawn, as public samplers do: the choice depends
                on the draw, so that even one at a time it does not give the joint law
"""

import torch
from torch import Tensor

from glauber.dynamics.noise import uniform
from glauber.errors import GlauberError
from glauber.generation.candidates import Candidates

ORDERS = ("random", "left-to-right", "confidence", "margin", "entropy", "drawn")


def check_order(name: str) -> None:
    """Refuses an order that is not known."""
    if name not in ORDERS:
        raise GlauberError(f"the order is {name}, but it must be one of {', '.join(ORDERS)}.")


def ranks(order: str, found: Candidates, eligible: Tensor, bits: Tensor) -> Tensor:
    """The place (chains, length) of each eligible site in the order, from 0; others come behind.

    Equal keys go by site. bits (chains, length) are the random bits of each site.
    """
    return places(_keys(order, found, bits).masked_fill(~eligible, -torch.inf))


def places(keys: Tensor) -> Tensor:
    """The place of each column (chains, length) in falling order of keys, equal ones by column."""
    falling = keys.argsort(dim=1, descending=True, stable=True)
    column = torch.arange(keys.shape[1], device=keys.device).expand_as(falling)
    return torch.empty_like(falling).scatter_(1, falling, column)


def _keys(order: str, found: Candidates, bits: Tensor) -> Tensor:
    if order == "random":
        return uniform(bits)
    if order == "left-to-right":
        site = torch.arange(bits.shape[1], device=bits.device)
        return -site.double().expand(bits.shape)
    if order == "drawn":
        return found.log_prob.exp()
    return {"confidence": found.largest, "margin": found.margin, "entropy": -found.entropy}[order]
