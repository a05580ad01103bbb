"""Which states are there? All sequences of a given length, in lexicographic order."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glauber.errors import GlauberError


@dataclass(frozen=True)
class Space:
    """All sequences of `length` tokens out of `vocab_size`, numbered with site 0 slowest."""

    vocab_size: int
    length: int
    limit: int = 2**20

    def __post_init__(self) -> None:
        if self.vocab_size < 1 or self.length < 1:
            raise GlauberError(
                f"a space needs at least one token and one site, but it was given "
                f"{self.vocab_size} tokens and {self.length} sites."
            )
        if self.size > self.limit:
            raise GlauberError(
                f"{self.vocab_size} tokens at {self.length} sites make {self.size:,} states, "
                f"more than the limit of {self.limit:,}; {self._fits()} sites would fit."
            )

    def _fits(self) -> int:
        return max(n for n in range(self.length) if self.vocab_size**n <= self.limit)

    @property
    def size(self) -> int:
        """How many states there are."""
        return int(self.vocab_size**self.length)

    @property
    def strides(self) -> Tensor:
        """By how much the number of a state grows per token at each site: (length,) int64."""
        places = reversed(range(self.length))
        return torch.tensor([self.vocab_size**place for place in places])

    def states(self) -> Tensor:
        """All states (size, length) int64, in the order of their numbers."""
        return torch.arange(self.size)[:, None] // self.strides % self.vocab_size

    def index(self, tokens: Tensor) -> Tensor:
        """The numbers (rows,) int64 of the states tokens (rows, length)."""
        if tokens.dim() != 2 or tokens.shape[1] != self.length:
            raise GlauberError(
                f"the tokens have shape {tuple(tokens.shape)}, "
                f"but the states of this space have {self.length} sites."
            )
        if bool(((tokens < 0) | (tokens >= self.vocab_size)).any()):
            raise GlauberError(f"a token lies outside 0 to {self.vocab_size - 1}.")
        return (tokens * self.strides.to(tokens.device)).sum(1)
