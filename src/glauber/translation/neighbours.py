"""How alike are two neighbouring positions, in groups that stutter and that do not?

Every measure is taken for each pair of adjacent positions i, i + 1 of a draft. The two heads of a
table, self- and cross-attention, are those of tables 4 and 5 of paper B:

- `self`: the attention of i to i + 1 and of i + 1 to i, two scores a pair; each the least, mean and
  greatest over the heads. `self_top_k`: the share of heads and directions in which the other
  position is among the k most attended to.
- `variation` and `cosine`: distances of the two cross-attention distributions, half the sum of the
  absolute differences and one minus the cosine; the least, mean and greatest over the heads.
  `cross_top_k`: the share of heads in which the k source positions most attended to have one in
  common.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.errors import GlauberError
from glauber.translation.model import PAD

OVER_HEADS = ("min", "avg", "max")
SELF = tuple(f"self_{name}" for name in OVER_HEADS)
CROSS = tuple(f"{kind}_{name}" for kind in ("variation", "cosine") for name in OVER_HEADS)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a measure over pairs; the error counts sentences.

    Pairs of one sentence are not independent: the standard error adds up their deviations by
    sentence before it squares them.
    """

    mean: float
    deviation: float
    standard_error: float


@dataclass(frozen=True)
class Group:
    """The measures of the pairs that stutter, or of those that do not."""

    n_pairs: int
    n_sentences: int
    measures: dict[str, Spread]


@dataclass(frozen=True)
class Neighbours:
    """Attention of neighbouring positions in one pass, by whether they say the same word."""

    stuttering: Group
    others: Group
    n_steps: int
    kind: str = "estimate"

    def difference(self, measure: str) -> tuple[float, float]:
        """Stuttering less others, and its standard error as if the groups were independent."""
        left, right = self.stuttering.measures[measure], self.others.measures[measure]
        error = (left.standard_error**2 + right.standard_error**2) ** 0.5
        return left.mean - right.mean, error


class Pairs(NamedTuple):
    """stutters and sentence (pairs,), and every measure (pairs, values): self has two values."""

    stutters: Tensor
    sentence: Tensor
    measures: dict[str, Tensor]

    @classmethod
    def of(cls, said: Tensor, own: Tensor, cross: Tensor, first: int = 0) -> "Pairs":
        """The neighbours of drafts (rows, length), PAD behind, with their attention."""
        row, left = (said[:, 1:] != PAD).nonzero(as_tuple=True)
        right = left + 1
        measures = _self_measures(own, row, left, right)
        measures |= _cross_measures(cross[row, :, left], cross[row, :, right])
        return cls(said[row, left] == said[row, right], row + first, measures)

    @classmethod
    def joined(cls, parts: list["Pairs"]) -> "Pairs":
        """The pairs of several batches as one."""
        names = parts[0].measures
        return cls(
            torch.cat([part.stutters for part in parts]),
            torch.cat([part.sentence for part in parts]),
            {name: torch.cat([part.measures[name] for part in parts]) for name in names},
        )


def neighbours(pairs: Pairs, n_steps: int) -> Neighbours:
    """Both groups' means, deviations and errors."""
    if not bool(pairs.stutters.any()) or bool(pairs.stutters.all()):
        which = "no" if not bool(pairs.stutters.any()) else "every"
        raise GlauberError(f"{which} pair of neighbours stutters: there is nothing to compare.")
    return Neighbours(_group(pairs, pairs.stutters), _group(pairs, ~pairs.stutters), n_steps)


def _group(pairs: Pairs, chosen: Tensor) -> Group:
    sentence = pairs.sentence[chosen]
    measures = {name: _spread(values[chosen], sentence) for name, values in pairs.measures.items()}
    return Group(int(chosen.sum()), len(sentence.unique()), measures)


def _spread(values: Tensor, sentence: Tensor) -> Spread:
    values = values.double()
    mean = values.mean()
    by_sentence = torch.zeros(int(sentence.max()) + 1, dtype=values.dtype, device=values.device)
    by_sentence.index_add_(0, sentence, (values - mean).sum(1))
    error = by_sentence.square().sum().sqrt() / values.numel()
    return Spread(float(mean), float(values.std(correction=0)), float(error))


def _self_measures(own: Tensor, row: Tensor, left: Tensor, right: Tensor) -> dict[str, Tensor]:
    """Attention between the two, in both directions."""
    there, back = own[row, :, left, right], own[row, :, right, left]  # (pairs, heads)
    both = torch.stack([there, back], 1)
    measures = dict(zip(SELF, _over_heads(both), strict=True))
    for k in (1, 2):
        hits = [
            (own[row, :, at] > score[..., None]).sum(-1) < k
            for at, score in ((left, there), (right, back))
        ]
        measures[f"self_top_{k}"] = torch.stack([hit.double().mean(1) for hit in hits], 1)
    return measures


def _cross_measures(left: Tensor, right: Tensor) -> dict[str, Tensor]:
    """Distances of two distributions over the source: both (pairs, heads, source)."""
    variation = (left - right).abs().sum(-1) / 2
    cosine = 1 - torch.cosine_similarity(left, right, dim=-1)
    found = _over_heads(variation[:, None]) + _over_heads(cosine[:, None])
    measures = dict(zip(CROSS, found, strict=True))
    for k in (1, 2):
        top = [side.topk(min(k, side.shape[-1]), -1).indices for side in (left, right)]
        shared = (top[0][..., :, None] == top[1][..., None, :]).flatten(-2).any(-1)
        measures[f"cross_top_{k}"] = shared.double().mean(1, keepdim=True)
    return measures


def _over_heads(values: Tensor) -> list[Tensor]:
    """The least, mean and greatest over the heads: (pairs, k, heads) -> three (pairs, k)."""
    return [values.amin(-1), values.mean(-1), values.amax(-1)]
