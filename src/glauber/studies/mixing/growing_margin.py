"""An exact family whose margin grows with the length, and whose mixing time is exponential in it.

At each site the token that all other sites share scores n * depth above every other token; where
the others disagree all tokens score alike. These are the conditionals of the joint distribution
with the weight exp(n * depth) at each constant text and 1 elsewhere. A constant text is a basin of
one state with the margin n * depth and at most half of the probability, so that paper A's Theorem 8
gives t_mix >= exp(n * depth / temperature) / (4 (|V| - 1)).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import torch
from torch import Tensor

from glauber.exact.mixing_time import mixing_time
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.models.base import scores_alone


@dataclass(frozen=True)
class Unison:
    """Conditionals that favour the token which all other sites share, by depth for each site."""

    depth: float
    vocab_size: int = 2

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """(rows, k, vocab) float64."""
        n = tokens.shape[1]
        hidden = torch.zeros_like(tokens, dtype=torch.bool).scatter(1, sites, True)
        counts = torch.zeros(len(tokens), self.vocab_size, dtype=torch.float64)
        counts.scatter_add_(1, tokens.masked_fill(hidden, 0), (~hidden).double())
        shared = counts == (~hidden).sum(dim=1, keepdim=True)
        scores = (n * self.depth * shared.double())[:, None].expand(-1, sites.shape[1], -1)
        return scores if candidates is None else scores.gather(-1, candidates)


@dataclass(frozen=True)
class MarginAndTime:
    """One length of the family; exact, and Theorem 8's lower bound on the mixing time."""

    length: int
    margin: float  # of a constant text
    probability: float  # of a constant text
    mixing_time: int  # t_mix(1/4)
    bound: float  # on it, from below
    kind: str = "exact"

    @property
    def log_excess(self) -> float:
        """Logarithm of the mixing time over the bound."""
        return log(self.mixing_time / self.bound)


def margin_and_time(
    lengths: Sequence[int], *, depth: float = 1.0, temperature: float = 1.0, vocab_size: int = 2
) -> list[MarginAndTime]:
    """Margin, exact mixing time and its bound for each length, by enumeration of all texts."""
    rows = []
    for n in lengths:
        model, space = Unison(depth, vocab_size), Space(vocab_size, n)
        scores = scores_alone(model, torch.zeros(1, n, dtype=torch.int64), torch.arange(n))[0]
        margin = float((scores[:, 0] - scores[:, 1:].amax(dim=1)).min())
        matrix = transition_matrix(model, space, temperature=temperature)
        weights = torch.ones(space.size, dtype=torch.float64)
        weights[space.index(torch.arange(vocab_size)[:, None].expand(-1, n))] = torch.tensor(
            n * depth / temperature, dtype=torch.float64
        ).exp()
        stationary = (weights / weights.sum()).numpy()
        time = mixing_time(matrix, epsilon=0.25, distribution=stationary)
        rows.append(
            MarginAndTime(
                length=n,
                margin=margin,
                probability=float(stationary[0]),
                mixing_time=time.steps,
                bound=exp(margin / temperature) / (4 * (vocab_size - 1)),
                kind=time.kind,
            )
        )
    return rows
