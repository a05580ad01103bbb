"""Which two texts does a pair start from?"""

import torch
from torch import Tensor

from glauber.dynamics.noise import random_bits, uniform
from glauber.errors import GlauberError

SLOT = 2  # of the noise; the steps of a pair use 0 and 1


def passage_pairs(n_texts: int, n_pairs: int, *, seed: int) -> Tensor:
    """Numbers (n_pairs, 2) of two different texts a pair, in an order that the seed decides.

    Every text is used once before any is used again; then they are shuffled anew.
    """
    if n_texts < 2:
        raise GlauberError(
            f"there is {n_texts} text, but a pair needs two: give more texts, or shorter ones."
        )
    per_round = n_texts // 2
    rounds = torch.arange(-(-n_pairs // per_round))[:, None]
    key, _ = random_bits(
        torch.tensor(seed), rounds, torch.arange(n_texts)[None], torch.tensor(SLOT)
    )
    order = uniform(key).argsort(dim=1, stable=True)[:, : 2 * per_round]
    return order.reshape(-1, 2)[:n_pairs]
