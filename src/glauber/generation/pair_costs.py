"""Which two hidden sites must not be filled at once?

With all sites of a set hidden, filling i and j at once draws from p_i p_j; filling i first draws
from p_i p_{j | i}. Both have the same law at i, so
    total variation = E_{a ~ p_i} TV(p_j, p_{j | i = a}),
    divergence      = E_{a ~ p_i} KL(p_{j | i = a} || p_j), in nats.
For conditionals of one joint law both orders give the same number. Those of a masked LM belong to
no joint law, so the order matters: both are kept.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals, check_temperature, log_probs
from glauber.conditionals.batching import in_parts
from glauber.errors import GlauberError
from glauber.progress import Advance

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PairCosts:
    """Cost [first, second] (n, n) of filling two of n hidden sites at once; 0 at first = second.

    The `top` likeliest tokens of the first site are tried. What they leave out has the mass
    rest (n,), and costs between nothing and what `spread` says: so every number here is a lower
    bound, and at_most its upper bound. Where rest is 0 both are exact.
    """

    sites: tuple[int, ...]
    total_variation: Floats
    divergence: Floats
    rest: Floats  # (n,) mass of the first site's tokens that were not tried
    divergence_at_most: Floats  # (n, n)
    top: int

    @property
    def at_most(self) -> Floats:
        """Upper bounds (n, n) on the total variation."""
        bound = self.total_variation + self.rest[:, None]
        return np.where(np.eye(len(bound), dtype=bool), 0.0, np.minimum(bound, 1.0))

    @property
    def mean(self) -> Floats:
        """The mean (n, n) of the two orders, symmetric: of the lower bounds."""
        return (self.total_variation + self.total_variation.T) / 2

    @property
    def mean_at_most(self) -> Floats:
        """The mean (n, n) of the two orders, symmetric: of the upper bounds."""
        return (self.at_most + self.at_most.T) / 2

    @property
    def order_gap(self) -> float:
        """The largest difference between the two orders of a pair, over the tokens tried."""
        return float(np.abs(self.total_variation - self.total_variation.T).max())

    @property
    def order_gap_at_least(self) -> float:
        """What that difference is at least, whatever the other tokens do; above 0, no joint law."""
        return max(float((self.total_variation - self.at_most.T).max()), 0.0)

    def by_distance(self) -> dict[int, tuple[float, int]]:
        """The mean cost of the pairs at each distance |i - j| in the text, and how many."""
        found: dict[int, list[float]] = {}
        for a, first in enumerate(self.sites):
            for b in range(a + 1, len(self.sites)):
                found.setdefault(abs(self.sites[b] - first), []).append(float(self.mean[a, b]))
        return {far: (float(np.mean(each)), len(each)) for far, each in sorted(found.items())}


def pair_costs(
    conditionals: Conditionals,
    tokens: Tensor,
    sites: Tensor,
    *,
    top: int = 32,
    temperature: float = 1.0,
    advance: Advance | None = None,
) -> PairCosts:
    """The cost of every ordered pair of sites (n,), all n hidden, in tokens (length,)."""
    check_sites(tokens, sites)
    check_temperature(temperature)
    if top < 1:
        raise GlauberError(f"{top} tokens were to be tried at a site, but at least 1 is needed.")
    n = len(sites)
    apart = log_probs(conditionals, tokens[None], sites[None], temperature=temperature)[0]
    if bool(apart.isnan().any()):
        raise GlauberError(f"the scores are not finite at temperature {temperature:g}.")
    variation, divergence, limit = (np.zeros((n, n)) for _ in range(3))
    rest = np.zeros(n)
    for first in range(n):
        others = torch.arange(n, device=sites.device) != first
        chances, tried = apart[first].exp().topk(min(top, conditionals.vocab_size))
        tried, chances = tried[chances > 0], chances[chances > 0]
        rest[first] = max(float(apart[first].exp().sum() - chances.sum()), 0.0)
        if len(tried) == int((apart[first] > -torch.inf).sum()):
            rest[first] = 0.0  # all of them; what is left is rounding
        columns = others.cpu().numpy()
        for part in in_parts(torch.arange(len(tried)), n * conditionals.vocab_size):
            after = _after(conditionals, tokens, sites, first, tried[part], temperature)
            far, kl = _distances(after, apart[others])
            weights = chances[part][:, None]
            variation[first, columns] += (weights * far).sum(0).cpu().numpy()
            divergence[first, columns] += (weights * kl).sum(0).cpu().numpy()
            if advance is not None:
                advance(len(part))
        limit[first, columns] = _largest_divergence(apart[others])
    at_most = divergence + np.where(rest[:, None] > 0, rest[:, None] * limit, 0.0)
    return PairCosts(tuple(sites.tolist()), variation, divergence, rest, at_most, top)


def _after(
    conditionals: Conditionals,
    tokens: Tensor,
    sites: Tensor,
    first: int,
    tried: Tensor,
    temperature: float,
) -> Tensor:
    """log_probs (tried, n - 1, vocab) at the other sites once the first holds each token."""
    rows = tokens.repeat(len(tried), 1)
    rows[:, sites[first]] = tried
    others = sites[torch.arange(len(sites), device=sites.device) != first]
    return log_probs(conditionals, rows, others.repeat(len(tried), 1), temperature=temperature)


def _distances(after: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """TV and KL(after || before), each (rows, n), of log_probs (rows, n, vocab) and (n, vocab)."""
    probs = after.exp()
    far = (probs - before.exp()).abs().sum(-1) / 2
    return far, divergences(after, before)


def divergences(after: Tensor, before: Tensor) -> Tensor:
    """KL(after || before) over the last axis of log_probs, in nats."""
    probs = after.exp()
    terms = probs * (after - before)
    return torch.where(probs > 0, terms, 0.0).sum(-1).clamp(min=0)


def _largest_divergence(before: Tensor) -> Floats:
    """What no KL from log_probs (n, vocab) on the same tokens exceeds: -log of the least."""
    allowed = torch.where(before == -torch.inf, torch.inf, before)
    return np.asarray((-allowed.amin(-1)).cpu().numpy())


def check_sites(tokens: Tensor, sites: Tensor) -> None:
    """Refuses fewer than two sites, the same site twice, and sites outside the text."""
    listed = sites.tolist()
    if len(listed) < 2 or len(set(listed)) < len(listed):
        raise GlauberError(f"{len(set(listed))} sites are hidden, but at least two are needed.")
    if min(listed) < 0 or max(listed) >= len(tokens):
        raise GlauberError(f"a hidden site lies outside 0 to {len(tokens) - 1}.")
