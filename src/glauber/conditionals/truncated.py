"""Which tokens are left when the unlikely ones are cut off?

Top-k and top-p (nucleus) cut a law that is at its temperature already: what top-p keeps depends on
the temperature, so this is a function of log-probabilities and not a wrapper of scores.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from glauber.errors import GlauberError
from glauber.progress import check_count


@dataclass(frozen=True)
class Truncation:
    """The k likeliest tokens, then the smallest head of them with at least the mass top_p."""

    top_k: int | None = None
    top_p: float | None = None

    def check(self) -> None:
        """Refuses what keeps no token, or is no mass."""
        if self.top_k is not None:
            check_count("number of tokens kept (top-k)", self.top_k)
        mass = self.top_p
        if mass is not None and not (_is_number(mass) and 0 < mass <= 1):
            raise GlauberError(f"the mass kept (top-p) is {mass}, but it must lie in (0, 1].")

    @property
    def cuts(self) -> bool:
        """Whether anything may be cut off."""
        return self.top_k is not None or (self.top_p is not None and self.top_p < 1)

    def __call__(self, log_probs: Tensor) -> Tensor:
        """log_probs (rows, vocab) renormalised over what is kept, -inf elsewhere.

        Tokens are taken in falling order of probability, equal ones by their number. Top-p is
        measured in the law that top-k leaves, renormalised.
        """
        if not self.cuts:
            return log_probs
        falling, order = log_probs.sort(dim=-1, descending=True, stable=True)
        if self.top_k is not None:
            falling[:, self.top_k :] = -torch.inf
            falling = torch.log_softmax(falling, dim=-1)
        if self.top_p is not None and self.top_p < 1:
            mass = falling.exp().cumsum(dim=-1)
            full = torch.zeros_like(mass, dtype=torch.bool)
            full[:, 1:] = mass[:, :-1] >= self.top_p  # those before have the mass already
            falling = torch.log_softmax(falling.masked_fill(full, -torch.inf), dim=-1)
        return torch.empty_like(log_probs).scatter_(-1, order, falling)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
