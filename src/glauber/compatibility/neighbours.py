"""Which texts lie one step from the given ones? What a potential is tested on around a chain.

The states of a trajectory alone close few walks. With their likely neighbours, two visited states
that differ at one site share squares: the same token put at another site of both.
"""

import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError

SCORES = 2**24  # scores held at once


def with_neighbours(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, *, top: int
) -> Tensor:
    """The states tokens (rows, length) and those with one free site refilled: (states, length).

    At each free site (rows, length) the `top` most probable tokens are put in, one at a time.
    Each state is listed once.
    """
    if not 1 <= top <= conditionals.vocab_size:
        raise GlauberError(
            f"the {top} most probable tokens were asked for, but the vocabulary has "
            f"{conditionals.vocab_size}."
        )
    rows, sites = free.nonzero(as_tuple=True)
    found = [tokens]
    for part in torch.arange(len(rows)).split(max(1, SCORES // conditionals.vocab_size)):
        here, site = tokens[rows[part]], sites[part, None]
        scores = conditionals.scores(here, site)[:, 0]
        best = scores.topk(top, dim=1)
        filled = here.repeat_interleave(top, dim=0).scatter(
            1, site.repeat_interleave(top, dim=0), best.indices.reshape(-1, 1)
        )
        found.append(filled[best.values.flatten() > -torch.inf])
    return torch.unique(torch.cat(found), dim=0)
