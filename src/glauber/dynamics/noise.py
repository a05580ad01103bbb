"""The randomness of a step: a counter-based generator.

Philox-4x32 with ten rounds (Salmon and others, 2011): a fixed
function of (seed, chain, step, slot). There is no hidden generator, so a trajectory does not
depend on batch size, workers or restarts, and integer arithmetic gives the same bits everywhere.
"""

import torch
from torch import Tensor

LOW = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the two key words each round


def philox(counter: tuple[Tensor, ...], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Four random 32-bit words (held in int64) for four counter words and two key words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        # The product of two 32-bit words wraps in int64, but all its 64 bits are right.
        left, right = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((right >> 32) & LOW) ^ c1 ^ k0,
            right & LOW,
            ((left >> 32) & LOW) ^ c3 ^ k1,
            left & LOW,
        )
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0, c1, c2, c3


def random_bits(seed: Tensor, chain: Tensor, step: Tensor, slot: Tensor) -> tuple[Tensor, Tensor]:
    """Two independent random 64-bit numbers (int64) for each entry of the broadcast arguments."""
    key = (seed & LOW, (seed >> 32) & LOW)
    counter = torch.broadcast_tensors(step & LOW, (step >> 32) & LOW, chain & LOW, slot & LOW)
    a, b, c, d = philox(tuple(counter), key)
    return (a << 32) | b, (c << 32) | d


def uniform(bits: Tensor) -> Tensor:
    """A float64 in [0, 1) from the upper 53 bits of each number."""
    return ((bits >> 11) & ((1 << 53) - 1)).double() * 2.0**-53


def gumbel(bits: Tensor, count: int) -> Tensor:
    """Standard Gumbel variables (…, count), keyed by a number each: -log(-log u)."""
    index = torch.arange(count, device=bits.device)
    zero = torch.zeros_like(index)
    a, _ = random_bits(bits.unsqueeze(-1), zero, index, zero)
    # Half a unit keeps u off zero; u < 1 always holds.
    return -(-(uniform(a) + 2.0**-54).log()).log()
