"""How is a hidden site redrawn from its conditional?

A fill turns scores and one random word a row into tokens. Draws are made in float64. Every row is
worked out by itself, so its draw does not depend on its neighbours.
"""

from collections.abc import Callable, Sequence
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


class Head(NamedTuple):
    """The most probable tokens of conditionals, in the order of the draw: (rows, size) each."""

    tokens: Tensor  # int64
    log_probs: Tensor  # float64
    mass: Tensor  # float64: cumulative; a token whose place is not known yet adds nothing


TOGETHER = 2**18  # scores that one thread works on at a time
TOGETHER_CUDA = 2**26  # and a GPU: 0.5 GiB in float64
# The most probable tokens are looked at first; further ones if the draw is there.
HEADS = (64, 1024)


def inverse_cdf() -> Fill:
    """Inverse CDF over the tokens in order of decreasing score, equal scores by token id.

    With u uniform, the token is the first whose cumulative probability exceeds u. Almost every
    draw is settled among the few most probable tokens.
    """

    def draw(scores: Tensor, temperature: Tensor, words: Tensor, old: Tensor) -> Drawn:
        if scores.is_cuda:
            from glauber.dynamics import fills_cuda

            return fills_cuda.inverse_cdf(scores, temperature, uniform(words), old)
        return draw_with_head(scores, temperature, uniform(words), old)[0]

    return Fill("inverse-cdf", draw)


def draw_with_head(
    scores: Tensor, temperature: Tensor, u: Tensor, old: Tensor
) -> tuple[Drawn, Head]:
    """The draw by inverse CDF with u (rows,), and the head that it looked at first."""

    def some(part: Sequence[Tensor]) -> tuple[Tensor, ...]:
        scores, temperature, u, old = part
        laws = _normalised(scores, temperature)
        tokens, order, mass = _by_inverse_cdf(scores, laws, u)
        return *_drawn(laws, tokens, old), order, laws.gather(1, order), mass

    whole = _by_parts(some, scores, temperature, u, old)
    return Drawn(*whole[:4]), Head(*whole[4:])


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

    def some(part: Sequence[Tensor]) -> tuple[Tensor, ...]:
        scores, temperature, words, old = part
        laws = _normalised(scores, temperature)
        return _drawn(laws, choice(scores, laws, words), old)

    def draw(scores: Tensor, temperature: Tensor, words: Tensor, old: Tensor) -> Drawn:
        return Drawn(*_by_parts(some, scores, temperature, words, old))

    return draw


def _by_parts(
    some: Callable[[Sequence[Tensor]], tuple[Tensor, ...]], scores: Tensor, *others: Tensor
) -> list[Tensor]:
    """some(rows) over all rows, a few at a time, on a CPU on every core."""
    rows = max(1, (TOGETHER_CUDA if scores.is_cuda else TOGETHER) // scores.shape[1])
    parts = list(zip(*(x.split(rows) for x in (scores, *others)), strict=True))
    done = [some(part) for part in parts] if scores.is_cuda else side_by_side(some, parts)
    return [torch.cat(column) for column in zip(*done, strict=True)]


def _normalised(scores: Tensor, temperature: Tensor) -> Tensor:
    return torch.log_softmax(scores.double() / temperature[:, None], dim=-1)


def _drawn(laws: Tensor, tokens: Tensor, old: Tensor) -> Drawn:
    surprise = torch.where(laws > -torch.inf, laws.exp() * laws, 0.0)
    return Drawn(
        tokens,
        laws.gather(1, old[:, None])[:, 0],
        laws.gather(1, tokens[:, None])[:, 0],
        -surprise.sum(dim=-1),
    )


def _by_inverse_cdf(scores: Tensor, laws: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (rows,), and the first head's tokens and cumulative masses (rows, size)."""
    vocab = scores.shape[1]
    sizes = [*(size for size in HEADS if size < vocab), vocab]
    tokens, settled, order, mass = _among(scores, laws, u, sizes[0])
    for size in sizes[1:]:
        left = (~settled).nonzero()[:, 0]
        if len(left):
            found = _among(scores[left], laws[left], u[left], size)
            tokens[left], settled[left] = found[:2]
    return tokens, order, mass


def _among(
    scores: Tensor, laws: Tensor, u: Tensor, size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The draw among the `size` most probable tokens, and whether it is settled there.

    Tokens tied with the first one beyond the head are left out: their order is not known yet.
    Then the tokens in that order and their cumulative masses, (rows, size) each.
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
    tokens = order.gather(1, first[:, None])[:, 0]
    return tokens, settled, order[:, :size], mass[:, :size]
