"""Does our forward pass say what transformers says? Asked of every model when it is loaded.

The root mean square difference of the scores at random hidden sites, over their spread, is
compared with a tolerance of the precision: far above what rounding does and far below what a
wrong part does (a missing rotation or a norm in the wrong place moves scores by their spread).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glauber.threads import one_thread_each

TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 0.05,
    torch.bfloat16: 0.15,
}
SHORT = 11  # tokens of two rows
BEYOND = 9  # tokens of one row beyond what the narrowest layer sees
HIDDEN = 3  # sites of each row

Scores = Callable[[Tensor, Tensor], Tensor]  # tokens (rows, length), sites (rows, k)


def difference(
    ours: Scores, theirs: Scores, *, usual: Tensor, hidden_token: int, lengths: list[int]
) -> float:
    """The largest difference over texts of these lengths, in spreads of the scores.

    usual holds the tokens of texts: special ones may change how places are counted.
    """
    found = 0.0
    with one_thread_each(), torch.no_grad():
        for length in lengths:
            tokens, sites = _some(length, usual, hidden_token)
            one, two = (scores(tokens, sites).double() for scores in (ours, theirs))
            apart = (one - two).square().mean().sqrt() / two.std().clamp(min=1e-30)
            # What is not a number is as wrong as can be.
            found = max(found, float(apart.nan_to_num(float("inf"))))
    return found


def lengths_to_try(described: Any) -> list[int]:
    """A short text, and one that a local layer does not see whole."""
    windows = [layer.window for layer in described.layers if layer.window is not None]
    wanted = [SHORT, *(min(windows) + BEYOND for _ in windows[:1])]
    return [min(length, described.places) for length in wanted]


def _some(length: int, usual: Tensor, hidden_token: int) -> tuple[Tensor, Tensor]:
    """Two rows of random tokens with a few hidden sites."""
    generator = torch.Generator().manual_seed(length)
    tokens = usual[torch.randint(len(usual), (2, length), generator=generator)]
    sites = torch.rand(2, length, generator=generator).argsort(dim=1)[:, : min(HIDDEN, length)]
    return tokens.scatter(1, sites, hidden_token), sites
