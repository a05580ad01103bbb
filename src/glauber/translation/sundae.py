"""How does a draft move when tokens are drawn, and only the doubtful ones are settled at the end?

A decoder in the manner of SUNDAE (Savinov and others, 2022), the stochastic one of table 2. It
begins with random tokens. The first half of the passes draws: every position that a coin chooses
gets a word from the model's law at a low temperature, so that hypotheses of one length part ways.
The second half settles: the positions whose present word the model doubts most get its most likely
word, all others stay. The first pass writes every position, whatever the half it is in. A
hypothesis scores the mean log-probability of its words as the last pass saw them, and the caller
keeps the best one.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from glauber.translation.model import FIRST_WORD, PAD


class Sundae(NamedTuple):
    """Draws at `temperature`, at a share `moved` of the positions; settles a share `settled`."""

    temperature: float = 0.3
    moved: float = 0.7
    settled: float = 0.5


def write(
    scores: Tensor, draft: Tensor, *, fill: Tensor, coin: Tensor, first: bool, draws: bool
) -> tuple[Tensor, Tensor]:
    """One pass: the new draft (rows, length) and the log-probability of each of its words.

    scores (rows, length, vocab); fill and coin (rows, length) in [0, 1).
    """
    how, inside = Sundae(), draft != PAD
    words = scores[..., FIRST_WORD:].float()
    log_probs = words.log_softmax(-1)
    if draws:
        said = inverse_cdf(words / how.temperature, fill)
        chosen = coin < how.moved
    else:
        said = log_probs.argmax(-1)
        chosen = _doubted(_of(log_probs, draft - FIRST_WORD), inside, how.settled)
    after = torch.where(inside & (chosen | first), said + FIRST_WORD, draft)
    return after, _of(log_probs, after - FIRST_WORD)


def inverse_cdf(scores: Tensor, fill: Tensor) -> Tensor:
    """The entry (rows, length) at which the cumulated law of scores first exceeds fill."""
    cumulated = scores.softmax(-1).cumsum(-1)
    level = fill.to(cumulated.dtype)[..., None] * cumulated[..., -1:]
    found = torch.searchsorted(cumulated, level, right=True)[..., 0]
    return found.clamp(max=scores.shape[-1] - 1)


def _of(log_probs: Tensor, words: Tensor) -> Tensor:
    """The log-probability of the given words; what is no word counts as the first one."""
    return log_probs.gather(-1, words.clamp(min=0)[..., None])[..., 0]


def _doubted(certainty: Tensor, inside: Tensor, share: float) -> Tensor:
    """The least certain positions of each row, a share of its length, at least one."""
    count = (inside.sum(1) * share).ceil()
    order = certainty.masked_fill(~inside, torch.inf).argsort(dim=1, stable=True)
    return order.argsort(dim=1) < count[:, None]
