"""Which tokens are left when the unlikely ones are cut off?

Top-k and top-p (nucleus) cut a law that is at its temperature already: what top-p keeps depends on
the temperature, so this is a function of log-probabilities and not a wrapper of scores.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from glauber.errors import GlauberError
from glauber.progress import check_count

HEAD = 64  # of the likeliest tokens are looked at first: top-p seldom keeps more


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
        last, count = self._edge(log_probs)
        above, edge = log_probs > last, log_probs == last
        room = count - above.sum(dim=-1, keepdim=True)
        kept = above | (edge & (edge.cumsum(dim=-1) <= room))
        return torch.log_softmax(log_probs.masked_fill(~kept, -torch.inf), dim=-1)

    def _edge(self, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        """The log-probability of the last token kept, and how many are kept: (rows, 1) each."""
        vocab = log_probs.shape[1]
        head = log_probs.topk(min(vocab, self.top_k or HEAD), dim=-1).values
        if self.top_p is None or self.top_p >= 1:
            return head[:, -1:], torch.full_like(head[:, -1:], head.shape[1])
        law = head if self.top_k is None else torch.log_softmax(head, dim=-1)
        mass = law.exp().cumsum(dim=-1)
        count = 1 + (mass[:, :-1] < self.top_p).sum(dim=-1, keepdim=True)
        last = head.gather(1, count - 1)
        beyond = (mass[:, -1] < self.top_p).nonzero()[:, 0]
        if self.top_k is None and len(beyond) and head.shape[1] < vocab:
            falling = log_probs[beyond].sort(dim=-1, descending=True).values
            mass = falling.exp().cumsum(dim=-1)
            count[beyond] = 1 + (mass[:, :-1] < self.top_p).sum(dim=-1, keepdim=True)
            last[beyond] = falling.gather(1, count[beyond] - 1)
        return last, count


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
