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

from itertools import combinations, permutations

import numpy as np
import torch
from torch import Tensor

from glauber.compatibility.likelihoods import Likelihood
from glauber.compatibility.pseudo_likelihood import hidden_log_probs
from glauber.conditionals.base import PAD, Conditionals
from glauber.conditionals.batching import rows_at_once
from glauber.dynamics.noise import random_bits, uniform
from glauber.progress import Advance

EXACT = 5  # free tokens up to which all hidden sets, and so all orders, are enumerated
ASKED = 16  # hidden sites of a row that are asked about: a random choice where more are hidden
FOLLOWED = 1 << 32  # the step of the first order that is followed; the samples' steps begin at 0


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
    keys: Tensor | None = None,
    advance: Advance | None = None,
) -> list[Likelihood]:
    """The bound and the log-likelihood along random orders, of each row of tokens (rows, length).

    free (rows, length) says which sites are scored; the others are context. A sample is a pair of
    hidden sets, an order is followed to its end. Noise is keyed by (seed, key, sample, site); keys
    (rows,) are by default the rows' numbers.
    """
    keys = torch.arange(len(tokens)) if keys is None else keys
    enough = free.sum(dim=1) > EXACT
    few, many = (~enough).nonzero()[:, 0], enough.nonzero()[:, 0]
    each = enumerated(conditionals, tokens[few], free[few], advance)
    found = dict(zip(few.tolist(), each, strict=True))
    at_once = rows_at_once(8 * max(1, orders) * tokens.shape[1] ** 2)
    for rows in many.split(at_once) if len(many) else ():
        chosen = tokens[rows], free[rows], keys[rows]
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
) -> list[Likelihood]:
    """The same of rows (rows, length) with few free tokens, from every set of hidden ones."""
    sets = [
        [chosen for k in range(1, len(sites) + 1) for chosen in combinations(sites, k)]
        for sites in (row.nonzero()[:, 0].tolist() for row in free)
    ]
    rows = torch.tensor([row for row, some in enumerate(sets) for _ in some], dtype=torch.int64)
    hidden = [[*one, *[PAD] * (EXACT - len(one))] for some in sets for one in some]
    sites = torch.tensor(hidden, dtype=torch.int64).view(-1, EXACT)
    asked = hidden_log_probs(conditionals, tokens, rows, sites, asked=ASKED, advance=advance)
    answers = iter(asked.tolist())
    return [
        _from_sets({one: dict(zip(one, next(answers), strict=False)) for one in some})
        for some in sets
    ]


def _from_sets(said: dict[tuple[int, ...], dict[int, float]]) -> Likelihood:
    """One text's, from log pi at the sites of every set of hidden ones (rising)."""
    sites = max(said, key=len)
    n = len(sites)
    means = [-np.mean(list(found.values())) for found in said.values()]
    sizes = np.array([len(chosen) for chosen in said])
    nll = np.array([np.mean(means, where=sizes == k) for k in range(1, n + 1)])
    along = [
        sum(said[tuple(sorted(order[j:]))][site] for j, site in enumerate(order))
        for order in permutations(sites)
    ]
    shares = np.arange(1, n + 1) / n
    return Likelihood(n, True, nll.sum(keepdims=True), shares, nll, np.array(along))
