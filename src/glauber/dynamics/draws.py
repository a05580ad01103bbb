"""Draws from a conditional, and truncations that cut off unlikely tokens before.

A fill turns scores and 64 random bits a row into tokens. Draws are made in float64. Every row is
worked out by itself, so its draw does not depend on its neighbours.

Top-k and top-p (nucleus) cut a distribution that is at its temperature already: what top-p keeps
depends on the temperature, so a truncation is a function of log-probabilities and not a wrapper of
scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.dynamics.noise import gumbel as gumbel_noise
from glauber.dynamics.noise import uniform
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import check_count
from glauber.foundation.threads import side_by_side

try:
    from glauber.dynamics import draws_triton as kernels
except ImportError:  # PyTorch for CPU or Windows brings no Triton
    kernels = None  # type: ignore[assignment]


class Drawn(NamedTuple):
    """New tokens and what their conditional says, (rows,) each."""

    tokens: Tensor  # int64
    log_prob_old: Tensor  # float64
    log_prob_new: Tensor  # float64
    entropy: Tensor  # float64, nats


# scores (rows, vocab), temperature (rows,), bits (rows,), old tokens (rows,) -> Drawn
Draw = Callable[[Tensor, Tensor, Tensor, Tensor], Drawn]
# scores (rows, vocab), log_probs (rows, vocab), bits (rows,) -> tokens (rows,)
Choice = Callable[[Tensor, Tensor, Tensor], Tensor]


class Fill(NamedTuple):
    """draw(scores, temperature, bits, old) -> Drawn."""

    name: str
    draw: Draw


class Head(NamedTuple):
    """The most probable tokens of conditionals, in the order of the draw: (rows, size) each."""

    tokens: Tensor  # int64
    log_probs: Tensor  # float64
    mass: Tensor  # float64: cumulative; a token whose place is not known yet adds nothing


TOGETHER = 2**18  # scores that one thread works on at a time
BLOCK, WARPS = 1024, 4  # scores that one CUDA program holds at a time, and its warps
TOGETHER_CUDA = 2**26  # and a GPU: 0.5 GiB in float64
# The most probable tokens are looked at first; further ones if the draw is there.
HEADS = (64, 1024)
TRUNCATION_HEAD = 64  # likeliest tokens that are looked at first: top-p seldom keeps more


def inverse_cdf() -> Fill:
    """Inverse CDF over the tokens in order of decreasing score, equal scores by token id.

    With u uniform, the token is the first whose cumulative probability exceeds u. Almost every
    draw is settled among the few most probable tokens.
    """

    def draw(scores: Tensor, temperature: Tensor, bits: Tensor, old: Tensor) -> Drawn:
        if scores.is_cuda:
            return inverse_cdf_cuda(scores, temperature, uniform(bits), old)
        return draw_with_head(scores, temperature, uniform(bits), old)[0]

    return Fill("inverse-cdf", draw)


def draw_with_head(
    scores: Tensor, temperature: Tensor, u: Tensor, old: Tensor
) -> tuple[Drawn, Head]:
    """The draw by inverse CDF with u (rows,), and the head that it looked at first."""

    def some(part: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        scores, temperature, u, old = part
        log_probs = _log_softmax(scores, temperature)
        tokens, order, mass = _by_inverse_cdf(scores, log_probs, u)
        return *_with_figures(log_probs, tokens, old), order, log_probs.gather(1, order), mass

    values = by_parts(some, (scores, temperature, u, old), vocab_size=scores.shape[1])
    return Drawn(*values[:4]), Head(*values[4:])


def gumbel_max() -> Fill:
    """The token with the largest log-probability plus its own Gumbel variable."""

    def choice(scores: Tensor, log_probs: Tensor, bits: Tensor) -> Tensor:
        return (log_probs + gumbel_noise(bits, log_probs.shape[-1])).argmax(dim=-1)

    return Fill("gumbel-max", _draw_by(choice))


def greedy() -> Fill:
    """The most probable token (the smallest id among equals): the limit of temperature zero."""

    def choice(scores: Tensor, log_probs: Tensor, bits: Tensor) -> Tensor:
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

    def some(part: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        scores, temperature, bits, old = part
        log_probs = _log_softmax(scores, temperature)
        return _with_figures(log_probs, choice(scores, log_probs, bits), old)

    def draw(scores: Tensor, temperature: Tensor, bits: Tensor, old: Tensor) -> Drawn:
        return Drawn(*by_parts(some, (scores, temperature, bits, old), vocab_size=scores.shape[1]))

    return draw


def by_parts(
    function: Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]],
    columns: Sequence[Tensor],
    *,
    vocab_size: int,
    together: int = TOGETHER,
) -> list[Tensor]:
    """function(rows of every column) over all rows, a few at a time, on a CPU on every core."""
    cuda = columns[0].is_cuda
    rows = max(1, (TOGETHER_CUDA if cuda else together) // vocab_size)
    batches = list(zip(*(column.split(rows) for column in columns), strict=True))
    results = [function(part) for part in batches] if cuda else side_by_side(function, batches)
    return [torch.cat(column) for column in zip(*results, strict=True)]


def first_above(probs: Tensor, u: Tensor) -> Tensor:
    """The draw of each row of probs (rows, n) by inverse CDF in the order of the columns.

    The first column at which the cumulative probability exceeds u (rows,), times the total.
    """
    mass = probs.cumsum(dim=-1)
    total = mass[:, -1:]
    # Rounding may lift the point to the total, at which no column is left.
    point = torch.minimum(u[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    return first_beyond(mass, point[:, 0])


def first_beyond(mass: Tensor, point: Tensor) -> Tensor:
    """The first token (...,) at which the cumulative mass (..., vocab) exceeds the point (...,).

    The last token where rounding has lifted the point to the total.
    """
    beyond = torch.searchsorted(mass, point[..., None], right=True)[..., 0]
    return beyond.clamp(max=mass.shape[-1] - 1)


def _log_softmax(scores: Tensor, temperature: Tensor) -> Tensor:
    return torch.log_softmax(scores.double() / temperature[:, None], dim=-1)


def _with_figures(log_probs: Tensor, tokens: Tensor, old: Tensor) -> Drawn:
    surprise = torch.where(log_probs > -torch.inf, log_probs.exp() * log_probs, 0.0)
    return Drawn(
        tokens,
        log_probs.gather(1, old[:, None])[:, 0],
        log_probs.gather(1, tokens[:, None])[:, 0],
        -surprise.sum(dim=-1),
    )


def _by_inverse_cdf(scores: Tensor, log_probs: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (rows,), and the first head's tokens and cumulative masses (rows, size)."""
    vocab = scores.shape[1]
    sizes = [*(size for size in HEADS if size < vocab), vocab]
    tokens, settled, order, mass = _among(scores, log_probs, u, sizes[0])
    for size in sizes[1:]:
        left = (~settled).nonzero()[:, 0]
        if len(left):
            deeper = _among(scores[left], log_probs[left], u[left], size)
            tokens[left], settled[left] = deeper[:2]
    return tokens, order, mass


def _among(
    scores: Tensor, log_probs: Tensor, u: Tensor, size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The draw among the `size` most probable tokens, and whether it is settled there.

    Tokens tied with the first one beyond the head are left out: their order is not known yet.
    Then the tokens in that order and their cumulative masses, (rows, size) each.
    """
    is_full = size == scores.shape[1]
    if is_full:
        values, order = scores.sort(dim=1, descending=True, stable=True)
        sure = values > -torch.inf
    else:
        values, order = scores.topk(size + 1, dim=1)
        order, by_id = order.sort(dim=1)
        values, ranks = values.gather(1, by_id).sort(dim=1, descending=True, stable=True)
        order = order.gather(1, ranks)
        sure = values > values[:, -1:]
    mass = torch.where(sure, log_probs.gather(1, order).exp(), 0.0).cumsum(dim=1)
    beyond = mass > u[:, None]
    first = beyond.int().argmax(dim=1)
    settled = beyond.any(dim=1)
    if is_full:  # rounding may leave the total a hair below u: then it is the last possible token
        first = torch.where(settled, first, sure.sum(dim=1) - 1)
        settled = torch.ones_like(settled)
    tokens = order.gather(1, first[:, None])[:, 0]
    return tokens, settled, order[:, :size], mass[:, :size]


def inverse_cdf_cuda(scores: Tensor, temperature: Tensor, u: Tensor, old: Tensor) -> Drawn:
    """The same draw on a CUDA device: one program per row, no sort, no transfer to the host.

    The wanted token's score is searched for over the scores' bit patterns: the largest t such that
    the tokens with patterns >= t weigh more than u. What decides is summed in float64.
    """
    if kernels is None or scores.dtype == torch.float64:
        return _by_sorting(scores, temperature, u, old)
    rows, vocab = scores.shape
    tokens = torch.empty(rows, dtype=torch.int64, device=scores.device)
    figures = torch.empty(3, rows, dtype=torch.float64, device=scores.device)
    kernels.draw[(rows,)](
        *(x.contiguous() for x in (scores, temperature, u, old)),
        tokens,
        *figures,
        vocab=vocab,
        SHIFT=16 if scores.dtype == torch.bfloat16 else 0,
        B=BLOCK,
        num_warps=WARPS,
    )
    return Drawn(tokens, *figures)


def _by_sorting(scores: Tensor, temperature: Tensor, u: Tensor, old: Tensor) -> Drawn:
    log_probs = _log_softmax(scores, temperature)
    order = scores.sort(dim=1, descending=True, stable=True).indices
    mass = log_probs.gather(1, order).exp().cumsum(dim=1)
    last = (log_probs > -torch.inf).sum(dim=1) - 1
    first = torch.minimum((mass <= u[:, None]).sum(dim=1), last)
    return _with_figures(log_probs, order.gather(1, first[:, None])[:, 0], old)


# ---- truncation


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
        measured in the distribution that top-k leaves, renormalised.
        """
        if not self.cuts:
            return log_probs
        last, count = self._edge(log_probs)
        above, edge = log_probs > last, log_probs == last
        room = count - above.sum(dim=-1, keepdim=True)
        inside = above | (edge & (edge.cumsum(dim=-1) <= room))
        return torch.log_softmax(log_probs.masked_fill(~inside, -torch.inf), dim=-1)

    def _edge(self, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        """The log-probability of the last token kept, and how many are kept: (rows, 1) each."""
        vocab = log_probs.shape[1]
        head = log_probs.topk(min(vocab, self.top_k or TRUNCATION_HEAD), dim=-1).values
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
