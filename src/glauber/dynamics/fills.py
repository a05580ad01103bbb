"""How is a hidden site redrawn from its conditional?

A fill turns scores and one random word a row into tokens. Draws are made in float64. Every row is
worked out by itself, so its draw does not depend on its neighbours.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.dynamics.noise import gumbel as gumbel_noise
from glauber.dynamics.noise import uniform
from glauber.errors import GlauberError
from glauber.threads import side_by_side


class Drawn(NamedTuple):
    """New tokens and what their conditional says, (rows,) each."""

    tokens: Tensor  # int64
    log_prob_old: Tensor  # float64
    log_prob_new: Tensor  # float64
    entropy: Tensor  # float64, nats


# scores (rows, vocab), temperature (rows,), words (rows,), old tokens (rows,) -> Drawn
Draw = Callable[[Tensor, Tensor, Tensor, Tensor], Drawn]
# scores (rows, vocab), log_probs (rows, vocab), words (rows,) -> tokens (rows,)
Choice = Callable[[Tensor, Tensor, Tensor], Tensor]


class Fill(NamedTuple):
    """draw(scores, temperature, words, old) -> Drawn."""

    name: str
    draw: Draw


TOGETHER = 2**18  # scores that one thread works on at a time
HEADS = (
    64,
    1024,
)  # the most probable tokens are looked at first; further ones if the draw is there


def inverse_cdf() -> Fill:
    """Inverse CDF over the tokens in order of decreasing score, equal scores by token id.

    With u uniform, the token is the first whose cumulative probability exceeds u. Almost every
    draw is settled among the few most probable tokens.
    """

    def draw(scores: Tensor, temperature: Tensor, words: Tensor, old: Tensor) -> Drawn:
        if scores.is_cuda:
            from glauber.dynamics import fills_cuda

            return fills_cuda.inverse_cdf(scores, temperature, uniform(words), old)
        return _draw_by(_by_inverse_cdf)(scores, temperature, words, old)

    return Fill("inverse-cdf", draw)


def gumbel_max() -> Fill:
    """The token with the largest log-probability plus its own Gumbel variable."""

    def choice(scores: Tensor, laws: Tensor, words: Tensor) -> Tensor:
        return (laws + gumbel_noise(words, laws.shape[-1])).argmax(dim=-1)

    return Fill("gumbel-max", _draw_by(choice))


def greedy() -> Fill:
    """The most probable token (the smallest id among equals): the limit of temperature zero."""

    def choice(scores: Tensor, laws: Tensor, words: Tensor) -> Tensor:
        return scores.argmax(dim=-1)

    return Fill("greedy", _draw_by(choice))


def fill_named(name: str) -> Fill:
    """The fill that a run's spec names."""
    fills = {"inverse-cdf": inverse_cdf, "gumbel-max": gumbel_max, "greedy": greedy}
    if name not in fills:
        raise GlauberError(f"the fill is {name}, but it must be one of {', '.join(fills)}.")
    return fills[name]()


def _draw_by(choice: Choice) -> Draw:
    """A draw that normalises in float64, chooses, and reports on what was chosen."""

    def some(scores: Tensor, temperature: Tensor, words: Tensor, old: Tensor) -> Drawn:
        laws = torch.log_softmax(scores.double() / temperature[:, None], dim=-1)
        tokens = choice(scores, laws, words)
        surprise = torch.where(laws > -torch.inf, laws.exp() * laws, 0.0)
        return Drawn(
            tokens,
            laws.gather(1, old[:, None])[:, 0],
            laws.gather(1, tokens[:, None])[:, 0],
            -surprise.sum(dim=-1),
        )

    def draw(scores: Tensor, temperature: Tensor, words: Tensor, old: Tensor) -> Drawn:
        if scores.is_cuda:
            return some(scores, temperature, words, old)
        rows = max(1, TOGETHER // scores.shape[1])
        parts = side_by_side(
            lambda part: some(*part),
            list(zip(*(x.split(rows) for x in (scores, temperature, words, old)), strict=True)),
        )
        return Drawn(*(torch.cat(column) for column in zip(*parts, strict=True)))

    return draw


def _by_inverse_cdf(scores: Tensor, laws: Tensor, words: Tensor) -> Tensor:
    u = uniform(words)
    tokens = torch.empty(len(scores), dtype=torch.int64)
    left = torch.arange(len(scores))
    for size in (*HEADS, scores.shape[1]):
        if not len(left) or size > scores.shape[1]:
            continue
        found, settled = _among(scores[left], laws[left], u[left], size)
        tokens[left[settled]] = found[settled]
        left = left[~settled]
    return tokens


def _among(scores: Tensor, laws: Tensor, u: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The draw among the `size` most probable tokens, and whether it is settled there.

    Tokens tied with the first one beyond the head are left out: their order is not known yet.
    """
    whole = size == scores.shape[1]
    if whole:
        values, order = scores.sort(dim=1, descending=True, stable=True)
        sure = values > -torch.inf
    else:
        values, order = scores.topk(size + 1, dim=1)
        order, by_id = order.sort(dim=1)
        values, ranks = values.gather(1, by_id).sort(dim=1, descending=True, stable=True)
        order = order.gather(1, ranks)
        sure = values > values[:, -1:]
    mass = torch.where(sure, laws.gather(1, order).exp(), 0.0).cumsum(dim=1)
    beyond = mass > u[:, None]
    first = beyond.int().argmax(dim=1)
    settled = beyond.any(dim=1)
    if whole:  # rounding may leave the total a hair below u: then it is the last possible token
        first = torch.where(settled, first, sure.sum(dim=1) - 1)
        settled = torch.ones_like(settled)
    return order.gather(1, first[:, None])[:, 0], settled
