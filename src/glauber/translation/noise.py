"""Where does the randomness of a decoder come from?

From the counter-based generator of the chains, a fixed function of (seed, row, pass, position). A
row is known by what it translates, not by its place in a batch: its key is a checksum of the
source's tokens, of the draft's length and of the number of the hypothesis. So a sentence draws the
same numbers alone, in any batch and in any order of the texts.
"""

import zlib
from array import array
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.dynamics import noise as counter
from glauber.translation.model import FIRST_WORD


class Noise(NamedTuple):
    """All the randomness of decoding rows with these keys (rows,)."""

    seed: int
    keys: Tensor
    vocab_size: int

    def rows(self, chosen: Tensor) -> "Noise":
        """The noise of the chosen rows."""
        return self._replace(keys=self.keys[chosen])

    def uniform(self, step: int, length: int) -> tuple[Tensor, Tensor]:
        """Two independent numbers in [0, 1) for each position of a pass: (rows, length) each."""
        device = self.keys.device
        seed, passed = (torch.tensor(x, device=device) for x in (self.seed, step))
        slots = torch.arange(length, device=device)
        left, right = counter.random_bits(seed, self.keys[:, None], passed, slots)
        return counter.uniform(left), counter.uniform(right)

    def tokens(self, length: int) -> Tensor:
        """Uniformly random words (rows, length), those of pass 0."""
        share, _ = self.uniform(0, length)
        return FIRST_WORD + (share * (self.vocab_size - FIRST_WORD)).long()


def key(source: Iterable[int], length: int, hypothesis: int) -> int:
    """The key of one row: a checksum of 32 bits; rows that share one share their numbers."""
    return zlib.crc32(array("q", [*source, -1, length, hypothesis]).tobytes())
