"""A candidate token for each hidden site, how sure the model is of it, and the order of filling.

The model is evaluated once with all hidden sites hidden; of its scores, which may be many sites
times a whole vocabulary, only a few numbers per site are kept. By them sites are ordered:

random          each order alike
left-to-right   as one reads
confidence      largest probability of the likeliest token
margin          largest distance between the two likeliest
entropy         lowest entropy
drawn           largest probability of the token drawn, as public samplers do: the choice depends
                on the draw, so that even one at a time it does not give the joint distribution
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.dynamics.draws import Truncation, by_parts, first_above
from glauber.dynamics.kernel import State
from glauber.dynamics.noise import uniform
from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD, Conditionals
from glauber.models.batching import lengths_of, rows_at_once

TOGETHER = 2**17  # scores that one thread works on at a time: 1 MiB in float64
LEAST = -1e300  # log of no probability
ORDERS = ("random", "left-to-right", "confidence", "margin", "entropy", "drawn")


class Candidates(NamedTuple):
    """A token for each hidden site and figures of its conditional: (chains, length) each, else 0.

    The token is drawn from the conditional at the chain's temperature, truncated, and the figures
    are of that distribution. At temperature 0 the token is the one with the largest score, and the
    figures are of the model's own conditional, uncut: with all mass on one token nothing could be
    compared.
    """

    tokens: Tensor  # int64
    log_prob: Tensor  # float64: of the token
    log_prob_present: Tensor  # float64: of the token that is at the site now
    largest: Tensor  # float64: probability of the likeliest token
    margin: Tensor  # float64: by which it exceeds the second
    entropy: Tensor  # float64, in nats


def candidates(
    conditionals: Conditionals,
    state: State,
    hidden: Tensor,
    *,
    wanted: Tensor,
    bits: Tensor,
    truncation: Truncation,
) -> Candidates:
    """Candidates at the wanted sites; all of hidden (chains, length) is hidden, wanted among it.

    bits (chains, length) are the random bits of each site.
    """
    zeros = torch.zeros(hidden.shape, dtype=torch.float64, device=hidden.device)
    columns = Candidates(torch.zeros_like(state.tokens), *(zeros.clone() for _ in range(5)))
    visible = state.tokens.masked_fill(hidden, 0)
    for rows, sites in questions(conditionals, visible, hidden):
        scores = conditionals.scores(visible[rows], sites)
        used_slots = (sites != PAD) & wanted[rows].gather(1, sites.clamp(min=0))
        row, slot = used_slots.nonzero(as_tuple=True)
        chain, site = rows[row], sites[row, slot]
        u = uniform(bits[chain, site])
        temperature = state.temperature[chain]
        present = state.tokens[chain, site].clamp(max=conditionals.vocab_size - 1)
        chosen_rows = row * sites.shape[1] + slot
        figures = _figures_of(
            scores.flatten(0, 1), (chosen_rows, temperature, u, present), truncation
        )
        for into, figure in zip(columns, figures, strict=True):
            into[chain, site] = figure
    return columns


def questions(
    conditionals: Conditionals, tokens: Tensor, hidden: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Chains (rows,) and their hidden sites (rows, k), PAD after them, as memory allows.

    On a CPU the bits of an answer depend on k, so k is a function of the chain alone.
    """
    length, device = hidden.shape[1], hidden.device
    site = torch.arange(length, device=device)
    ordered = torch.where(hidden, site, length).sort(dim=1).values
    ordered = ordered.masked_fill(ordered == length, PAD)
    counts = hidden.sum(dim=1)
    if device.type == "cuda":
        widths = counts.amax().expand(len(counts))
    else:
        widths = torch.minimum(_rounded_up(counts), lengths_of(tokens))
    for width in widths[counts > 0].unique().tolist():
        rows = ((widths == width) & (counts > 0)).nonzero()[:, 0]
        size = rows_at_once(4 * width * conditionals.vocab_size, device)
        for part in rows.split(size):
            yield part, ordered[part, :width]


def log_probs_at(
    conditionals: Conditionals,
    tokens: Tensor,
    hidden: Tensor,
    site: Tensor,
    *,
    temperature: float = 1.0,
) -> Tensor:
    """Log-probabilities (rows, vocab), float64, at one site of each row, all of hidden hidden."""
    shape = len(tokens), conditionals.vocab_size
    log_probs = torch.empty(shape, dtype=torch.float64, device=tokens.device)
    visible = tokens.masked_fill(hidden, 0)
    for rows, sites in questions(conditionals, visible, hidden):
        scores = conditionals.scores(visible[rows], sites)
        slot = (sites == site[rows, None]).int().argmax(dim=1)
        own = scores[torch.arange(len(rows), device=rows.device), slot].double()
        log_probs[rows] = torch.log_softmax(own / temperature, dim=-1)
    return log_probs


def _rounded_up(counts: Tensor) -> Tensor:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, …: each shape that a model is asked has a price."""
    steps = sorted({2**p for p in range(31)} | {3 * 2**p for p in range(30)})
    ladder = torch.tensor(steps, device=counts.device)
    return ladder[torch.searchsorted(ladder, counts)]


def _figures_of(
    scores: Tensor, columns: tuple[Tensor, ...], truncation: Truncation
) -> list[Tensor]:
    """The figures of Candidates of some rows of scores; the first column is their numbers."""

    def some(part: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        rows, temperature, u, present = part
        return _figures(scores[rows], temperature, u, present, truncation)

    return by_parts(some, columns, vocab_size=scores.shape[1], together=TOGETHER)


def _figures(
    scores: Tensor, temperature: Tensor, u: Tensor, present: Tensor, truncation: Truncation
) -> tuple[Tensor, ...]:
    """The figures of Candidates of scores (rows, vocab), as columns (rows,)."""
    cold = temperature == 0
    divisor = torch.where(cold, 1.0, temperature)[:, None]
    # A forbidden token gets a finite score, so that 0 log 0 below is 0.
    log_probs = torch.log_softmax((scores.double() / divisor).clamp_(min=LEAST), dim=-1)
    if truncation.cuts:
        cut = truncation(log_probs).clamp_(min=LEAST)
        log_probs = torch.where(cold[:, None], log_probs, cut)
    probs = log_probs.exp()
    tokens = torch.where(cold, scores.argmax(dim=-1), first_above(probs, u))
    log_prob, log_prob_present = (log_probs.gather(1, x[:, None])[:, 0] for x in (tokens, present))
    first, second = _two_largest(probs)
    entropy = -torch.mul(probs, log_probs).sum(dim=-1)
    log_prob_present = torch.where(log_prob_present > LEAST / 2, log_prob_present, -torch.inf)
    return tokens, log_prob, log_prob_present, first, first - second, entropy


def _two_largest(probs: Tensor) -> tuple[Tensor, Tensor]:
    if probs.shape[1] == 1:
        return probs[:, 0], torch.zeros_like(probs[:, 0])
    first, second = probs.topk(2, dim=-1).values.unbind(dim=-1)
    return first, second


# ---- orders


def check_order(name: str) -> None:
    """Refuses an order that is not known."""
    if name not in ORDERS:
        raise GlauberError(f"the order is {name}, but it must be one of {', '.join(ORDERS)}.")


def ranks(order: str, proposals: Candidates, eligible: Tensor, bits: Tensor) -> Tensor:
    """The place (chains, length) of each eligible site in the order, from 0; others come after.

    Equal keys go by site. bits (chains, length) are the random bits of each site.
    """
    return places(_keys(order, proposals, bits).masked_fill(~eligible, -torch.inf))


def places(keys: Tensor) -> Tensor:
    """The place of each column (chains, length) in falling order of keys, equal ones by column."""
    falling = keys.argsort(dim=1, descending=True, stable=True)
    column = torch.arange(keys.shape[1], device=keys.device).expand_as(falling)
    return torch.empty_like(falling).scatter_(1, falling, column)


def _keys(order: str, proposals: Candidates, bits: Tensor) -> Tensor:
    if order == "random":
        return uniform(bits)
    if order == "left-to-right":
        site = torch.arange(bits.shape[1], device=bits.device)
        return -site.double().expand(bits.shape)
    if order == "drawn":
        return proposals.log_prob.exp()
    return {
        "confidence": proposals.largest,
        "margin": proposals.margin,
        "entropy": -proposals.entropy,
    }[order]
