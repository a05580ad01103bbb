"""Which rectangles does the paper's protocol look at? Random ones that the model finds plausible.

A random passage, a random pair of its free sites, and at each site a replacement from the model's
own first choices there, the site hidden and the rest of the passage as it is.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError

TOP = 50  # first choices that a replacement is drawn from, in the paper
AT_ONCE = 256  # rectangles drawn together: bounds the memory of (2 * rectangles, vocab) scores
ROUNDS = 64  # of drawing again where the current token is one that the conditionals rule out


class Drawn(NamedTuple):
    """Rectangles to look at: what `rectangles` takes, and the passage that each came from."""

    tokens: Tensor  # (count, length)
    sites: Tensor  # (count, 2)
    values: Tensor  # (count, 2)
    passages: Tensor  # (count,)


def draw(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    *,
    count: int,
    seed: int = 0,
    top: int = TOP,
) -> Drawn:
    """`count` random rectangles over the passages tokens (passages, length) and their free sites.

    Passage, ordered pair of sites and replacements are uniform: a replacement is one of the `top`
    tokens of highest score (ties by id), the current token left out. Where the current token has
    probability 0 (it is outside the allowed vocabulary) the whole rectangle is drawn again. The
    draws are keyed by (seed, round, rectangle): a larger count keeps the first rectangles.
    """
    check_numbers(count, seed, top)
    _check_texts(free)
    found: list[Drawn] = []
    missing = torch.arange(count)
    order: list[Tensor] = []
    for again in range(ROUNDS):
        chance = _uniforms(seed, again, count)[missing]
        rounds = [_round(conditionals, tokens, free, part, top) for part in chance.split(AT_ONCE)]
        found += [part for part, _ in rounds]
        possible = torch.cat([kept for _, kept in rounds])
        order.append(missing[possible])
        missing = missing[~possible]
        if len(missing) == 0:
            back = torch.cat(order).argsort()
            return Drawn(*(torch.cat(column)[back] for column in zip(*found, strict=True)))
    raise GlauberError(
        "too few free sites hold a token of the allowed vocabulary to draw two of them in a text."
    )


def _uniforms(seed: int, again: int, count: int) -> Tensor:
    """Five numbers (count, 5) in [0, 1) for each rectangle, from Philox keyed by seed and round."""
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, again], dtype=np.uint64)))
    return torch.from_numpy(generator.random((count, 5)))


def _round(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, chance: Tensor, top: int
) -> tuple[Drawn, Tensor]:
    """One draw each, without those whose current token is impossible, and which (count,) stay."""
    passages = (chance[:, 0] * len(tokens)).long()
    rows = tokens[passages]
    sites = _pairs(free[passages], chance[:, 1:3])
    old = rows.gather(1, sites).reshape(-1)
    scores = conditionals.scores(rows.repeat_interleave(2, dim=0), sites.reshape(-1, 1))[:, 0]
    values = _replacements(scores, old, chance[:, 3:].reshape(-1), top)
    possible = torch.isfinite(scores.gather(1, old[:, None])).view(-1, 2).all(dim=1)
    drawn = Drawn(rows, sites, values.view(-1, 2), passages)
    return Drawn(*(column[possible] for column in drawn)), possible


def _pairs(free: Tensor, chance: Tensor) -> Tensor:
    """Two different free sites (count, 2) of each row, each ordered pair equally likely."""
    n_free = free.sum(dim=1)
    first = (chance[:, 0] * n_free).long()
    second = (chance[:, 1] * (n_free - 1)).long()
    second += second >= first
    free_first = (~free).byte().argsort(dim=1, stable=True)
    return free_first.gather(1, torch.stack([first, second], dim=1))


def _replacements(scores: Tensor, old: Tensor, chance: Tensor, top: int) -> Tensor:
    """One of the `top` tokens of each row of scores (rows, vocab), but not the old one: (rows,)."""
    fewest = int(torch.isfinite(scores).sum(dim=1).min())
    if fewest < top:
        raise GlauberError(
            f"replacements come from the {top} likeliest tokens, "
            f"but the vocabulary allows only {fewest}: take a smaller top."
        )
    best = scores.sort(dim=1, descending=True, stable=True).indices[:, :top]
    is_old = best == old[:, None]
    rank = torch.where(is_old.any(dim=1), is_old.byte().argmax(dim=1), top)
    choice = (chance * (top - is_old.any(dim=1).long())).long()
    choice += choice >= rank
    return best.gather(1, choice[:, None])[:, 0]


def check_numbers(count: int, seed: int, top: int) -> None:
    """Refuses numbers that no rectangles can be drawn with."""
    if count < 1:
        raise GlauberError(f"the number of rectangles is {count}, but it must be at least 1.")
    if top < 2:
        raise GlauberError(f"top is {top}, but a replacement needs a choice of at least 2 tokens.")
    if not 0 <= seed < 2**63:
        raise GlauberError(f"the seed is {seed}, but it must be between 0 and 2^63 - 1.")


def _check_texts(free: Tensor) -> None:
    if len(free) == 0:
        raise GlauberError("there is no text to draw rectangles from.")
    n_free = free.sum(dim=1)
    if int(n_free.min()) < 2:
        raise GlauberError(
            f"text {int(n_free.argmin()) + 1} has fewer than two tokens that may be redrawn, "
            "but a rectangle needs two sites."
        )
