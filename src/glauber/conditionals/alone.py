"""What does a rule say about many sites of a state, each hidden by itself?"""

from collections.abc import Iterator

import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals

SCORES = 2**25  # scores held at once: 0.25 GiB in float64


def scores_alone(conditionals: Conditionals, tokens: Tensor, sites: Tensor) -> Tensor:
    """Scores (rows, k, vocab) float64 of sites (k,), each hidden alone in tokens (rows, length)."""
    rows, k = len(tokens), len(sites)
    asked = sites.repeat(rows)[:, None]
    scores = conditionals.scores(tokens.repeat_interleave(k, dim=0), asked)
    return scores.double().view(rows, k, -1)


def in_parts(rows: Tensor, scores_per_row: int) -> Iterator[Tensor]:
    """The rows in parts whose scores are not more than SCORES numbers (or one row each)."""
    yield from torch.split(rows, max(1, SCORES // scores_per_row))
