"""How likely is a text that is written token by token, in a random order?

An order o of the n free sites makes a law of its own out of the conditionals,

    log p_o(x) = sum over j of log pi(x_{o_j} | x_{o_1}, ..., x_{o_{j-1}} and the frozen tokens),

o_j and all sites behind it hidden. For conditionals of a joint law p every order gives log p(x)
exactly (the chain rule). Those of a masked LM fit no joint law: each order is a law of its own,
and what is bounded is the log-likelihood of their mixture, p(x) = mean over o of p_o(x):

    -log p(x) <= mean over o of -log p_o(x)                                           (Jensen)
               = E_k [ n * mean over the k hidden sites i of -log pi(x_i | visible) ],

k uniform in 1..n and the set of k hidden sites uniformly random: the bound (ELBO) of masked
diffusion. How much log p_o(x) depends on o is incompatibility (paper A), summed along a text.
"""

from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glauber.compatibility.pseudo_likelihood import hidden_log_probs
from glauber.conditionals.base import PAD, Conditionals
from glauber.conditionals.batching import rows_at_once
from glauber.dynamics.noise import random_bits, uniform
from glauber.progress import Advance
from glauber.result import plain
from glauber.statistics import (
    Floats,
    Measured,
    mean_by_chain,
    mean_over_chains,
    over_chains,
    ratio_over_chains,
)

EXACT = 5  # free tokens up to which all hidden sets, and so all orders, are enumerated
ASKED = 16  # hidden sites of a row that are asked about: a random choice where more are hidden
TENTHS = 10  # of the hidden share
FOLLOWED = 1 << 32  # the step of the first order that is followed; the samples' steps begin at 0


@dataclass(frozen=True, eq=False)
class Likelihood:
    """What random orders say of the free tokens of a text, in nats."""

    tokens: int  # that are scored
    exact: bool  # everything enumerated
    bounds: Floats  # (samples,) independent estimates of the bound; one, the bound itself, if exact
    shares: Floats  # (rows,) hidden share of the free tokens
    nll: Floats  # (rows,) mean over the hidden sites of -log pi
    log_probs: Floats  # (orders,) log p_o(x); of all orders if exact
    text: str = ""

    @property
    def bound(self) -> Measured:
        """-log p(x) of the mixture over orders is at most this."""
        return self._mean(self.bounds, (0.0, np.inf))

    @property
    def log_likelihood(self) -> Measured | None:
        """The mean over orders of log p_o(x); None where no order was followed."""
        return self._mean(self.log_probs, (-np.inf, 0.0)) if len(self.log_probs) else None

    @property
    def order_sd(self) -> Measured | None:
        """The standard deviation of log p_o(x) over orders: 0 for a joint law."""
        if self.exact:
            return Measured(float(self.log_probs.std()), None, "exact")
        if len(self.log_probs) < 2:
            return None
        return over_chains(self._sd, len(self.log_probs), scale="log").one()

    @property
    def log_mean(self) -> float | None:
        """log of the mean of p_o(x): exact, or an estimate from below that rises with orders."""
        if not len(self.log_probs):
            return None
        return float(np.logaddexp.reduce(self.log_probs) - np.log(len(self.log_probs)))

    def _mean(self, values: Floats, bounds: tuple[float, float]) -> Measured:
        if self.exact:
            return Measured(float(values.mean()), None, "exact")
        return mean_over_chains(values, bounds=bounds)

    def _sd(self, weights: Floats) -> Floats:
        """Over the orders of weight 1."""
        return np.asarray(self.log_probs[weights > 0].std(ddof=1))

    def to_dict(self) -> dict[str, Any]:
        per_token = self.log_likelihood and scaled(self.log_likelihood, 1 / self.tokens)
        return {
            "text": self.text,
            "tokens": self.tokens,
            "kind": "exact" if self.exact else "estimate",
            "bound": plain(self.bound),
            "bound_per_token": plain(scaled(self.bound, 1 / self.tokens)),
            "log_likelihood": plain(self.log_likelihood),
            "log_likelihood_per_token": plain(per_token),
            "order_sd": plain(self.order_sd),
            "log_mean": plain(self.log_mean),
            "log_probs": plain(self.log_probs),
        }

    def to_row(self) -> dict[str, Any]:
        """A row of a table."""
        low, high = self.bound.interval or (None, None)
        mean, sd = self.log_likelihood, self.order_sd
        return {
            "tokens": self.tokens,
            "kind": "exact" if self.exact else "estimate",
            "bound": self.bound.value,
            "bound_low": low,
            "bound_high": high,
            "bound_per_token": self.bound.value / self.tokens,
            "log_likelihood": None if mean is None else mean.value,
            "order_sd": None if sd is None else sd.value,
            "log_mean": self.log_mean,
            "words": self.text,
        }


def scaled(found: Measured, by: float) -> Measured:
    """A figure in another unit."""
    ends = found.interval and (by * found.interval[0], by * found.interval[1])
    error = None if found.standard_error is None else by * found.standard_error
    return replace(found, value=by * found.value, interval=ends, standard_error=error)


def per_token(totals: list[Measured], tokens: list[int]) -> Measured:
    """Nats a token over all texts, with the interval over texts; of one text, its own interval."""
    if len(totals) == 1:
        return scaled(totals[0], 1 / tokens[0])
    return ratio_over_chains([one.value for one in totals], tokens)


def per_text(totals: list[Measured]) -> Measured:
    """Nats a text, with the interval over texts; of one text, its own interval."""
    return totals[0] if len(totals) == 1 else mean_over_chains([one.value for one in totals])


def by_hidden_share(texts: list[Likelihood]) -> list[tuple[float, Measured]]:
    """Mean nll of a hidden token by tenths of the hidden share: (middle, nats), over texts."""
    share = np.concatenate([one.shares for one in texts])
    nll = np.concatenate([one.nll for one in texts])
    text = np.repeat(np.arange(len(texts)), [len(one.nll) for one in texts])
    tenth = np.ceil(np.round(share * TENTHS, 9)).astype(int) - 1
    here = [(number, tenth == number) for number in range(TENTHS) if (tenth == number).any()]
    return [((i + 0.5) / TENTHS, mean_by_chain(nll[at], text[at])) for i, at in here]


def row_count(free: Tensor, *, samples: int, orders: int) -> int:
    """Rows through the model that `random_order_likelihoods` asks for."""
    n = free.sum(dim=1)
    rows = torch.where(n <= EXACT, 2**n - 1, 2 * samples + orders * n)
    return int(rows.sum())


def random_order_likelihoods(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    *,
    samples: int,
    orders: int,
    seed: int = 0,
    advance: Advance | None = None,
) -> list[Likelihood]:
    """The bound and the log-likelihood along random orders, of each row of tokens (rows, length).

    free (rows, length) says which sites are scored; the others are context. A sample is a pair of
    hidden sets, an order is followed to its end. Noise is keyed by (seed, row, sample, site).
    """
    found: dict[int, Likelihood] = {}
    few = free.sum(dim=1) <= EXACT
    for row in few.nonzero()[:, 0].tolist():
        found[row] = enumerated(conditionals, tokens[row], free[row], advance)
    at_once = rows_at_once(8 * max(1, orders) * tokens.shape[1] ** 2)
    many = (~few).nonzero()[:, 0]
    for rows in many.split(at_once) if len(many) else ():
        chosen = tokens[rows], free[rows], rows
        nll, hidden = hidden_sets(conditionals, *chosen, samples, seed, advance)
        paths = followed(conditionals, *chosen, orders, seed, advance)
        for place, row in enumerate(rows.tolist()):
            found[row] = _of_row(int(free[row].sum()), nll[place], hidden[place], paths[place])
    return [found[row] for row in range(len(tokens))]


def _of_row(n: int, nll: Tensor, hidden: Tensor, paths: Tensor) -> Likelihood:
    """nll and hidden (samples, 2), paths (orders, length): the answer of one text."""
    each, counts = nll.numpy(), hidden.numpy()
    along = paths[:, :n].numpy().sum(axis=1)
    return Likelihood(n, False, n * each.mean(axis=1), counts.ravel() / n, each.ravel(), along)


def hidden_sets(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    numbers: Tensor,
    samples: int,
    seed: int,
    advance: Advance | None = None,
) -> tuple[Tensor, Tensor]:
    """Mean -log pi over the hidden sites, and how many are hidden: (rows, samples, 2) each.

    The two sets of a sample are antithetic: the last k sites of an order, and its first n + 1 - k,
    so that a small set goes with a large one and every token is hidden in one of the two. Each
    number in 1..n is as likely as any other in both.
    """
    n = free.sum(dim=1)[:, None]
    steps = torch.arange(samples)
    order, bits = random_orders(free, numbers, steps, seed)
    k = 1 + (uniform(bits) * n).long()
    begin = torch.stack([n - k, torch.zeros_like(k)], dim=2)
    end = torch.stack([n.expand_as(k), n + 1 - k], dim=2)
    sites = between(order[:, :, None].expand(-1, -1, 2, -1), begin, end)
    row = torch.arange(len(tokens))[:, None, None].expand_as(begin)
    asked = row.flatten(), sites.flatten(0, 2)
    log_probs = hidden_log_probs(conditionals, tokens, *asked, asked=ASKED, advance=advance)
    return -log_probs.nanmean(dim=1).view(begin.shape), end - begin


def followed(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    numbers: Tensor,
    orders: int,
    seed: int,
    advance: Advance | None = None,
) -> Tensor:
    """log pi of the j-th token of each random order given those before it: (rows, orders, length).

    NaN where a row has fewer free tokens.
    """
    n = free.sum(dim=1)
    order, _ = random_orders(free, numbers, FOLLOWED + torch.arange(orders), seed)
    found = torch.full(order.shape, torch.nan, dtype=torch.float64)
    row, draw, place = (order != PAD).nonzero(as_tuple=True)
    if len(row):
        sites = between(order[row, draw], place, n[row])
        asked = hidden_log_probs(conditionals, tokens, row, sites, advance=advance)
        found[row, draw, place] = asked[:, 0]
    return found


def random_orders(free: Tensor, numbers: Tensor, steps: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """The free sites (rows, steps, length) in random order, PAD behind; and spare random bits.

    numbers (rows,) and steps (steps,) are keys of the noise; the spare bits are (rows, steps).
    """
    site = torch.arange(free.shape[1])
    keys = torch.tensor(seed), numbers[:, None, None], steps[None, :, None], site
    bits, spare = random_bits(*keys)
    order = uniform(bits).masked_fill(~free[:, None], torch.inf).argsort(dim=2, stable=True)
    return order.masked_fill(site >= free.sum(dim=1)[:, None, None], PAD), spare[..., 0]


def between(order: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    """The sites from place begin (...) to before end (...) of orders (..., length), PAD behind."""
    place = begin[..., None] + torch.arange(order.shape[-1])
    inside = order.gather(-1, place.clamp(max=order.shape[-1] - 1))
    return torch.where(place < end[..., None], inside, PAD)


def enumerated(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, advance: Advance | None = None
) -> Likelihood:
    """The same of one text (length,) with few free tokens, from every set of hidden ones."""
    free_sites = free.nonzero()[:, 0].tolist()
    n = len(free_sites)
    sets = [chosen for k in range(1, n + 1) for chosen in combinations(free_sites, k)]
    sites = torch.tensor([[*chosen, *[PAD] * (n - len(chosen))] for chosen in sets])
    row = torch.zeros(len(sets), dtype=torch.int64)
    asked = hidden_log_probs(conditionals, tokens[None], row, sites, asked=ASKED, advance=advance)
    said = {
        frozenset(chosen): dict(zip(chosen, found, strict=False))
        for chosen, found in zip(sets, asked.tolist(), strict=True)
    }
    means = [-np.mean(list(found.values())) for found in said.values()]
    sizes = np.array([len(chosen) for chosen in sets])
    nll = np.array([np.mean(means, where=sizes == k) for k in range(1, n + 1)])
    along = [
        sum(said[frozenset(order[j:])][site] for j, site in enumerate(order))
        for order in permutations(free_sites)
    ]
    shares = np.arange(1, n + 1) / n
    return Likelihood(n, True, nll.sum(keepdims=True), shares, nll, np.array(along))
