"""How likely is a variant beside its parent, and how much does the answer depend on the order?

A variant changes the letters of k sites M. Each convention sums log-ratios, new letter to old:

    wild-type fill   each site of M hidden alone in the parent
    mutant fill      each site of M hidden alone in the variant
    all hidden       all of M hidden at once, letters as if independent
    pll              pseudo-log-likelihood of the variant less that of the parent
    an order o       log p_o(new letters) - log p_o(old letters): all of M hidden, filled one after
                     the other in the order o, by the chain rule

If one joint law owned the conditionals every order would give the log-ratio of variant and parent
exactly. Masked models have none (paper A), and the spread over orders is that, summed.

An order adds g(S, i), with S the sites filled before i: the log-probability of the new letter of i
with the new letters at S, less that of the old one with the old letters at S, the rest of M hidden.
It depends on the set S alone, so that 2^k contexts hold all k! orders.
"""

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.compatibility.pseudo_likelihood import conditional_log_probs
from glauber.conditionals.base import PAD, Conditionals
from glauber.dynamics.noise import random_bits, uniform
from glauber.errors import GlauberError
from glauber.progress import Advance
from glauber.statistics import Floats

MOST_SITES = 12  # changed sites up to which all sets of them are followed, at most
LISTED = 7  # changed sites up to which every order is listed: 5,040
DRAWN = 2000  # orders that are drawn where all sets are known: they ask nothing of the model

Filled = tuple[tuple[int, int], ...]  # (site, token) pairs that differ from the parent
Integers = NDArray[np.int64]


class Changed(NamedTuple):
    """The changed sites of a variant in rising order, as columns of tokens, and their tokens."""

    sites: tuple[int, ...]
    old: tuple[int, ...]
    new: tuple[int, ...]

    def filled(self, places: Sequence[int]) -> Filled:
        """The new tokens at these of its sites."""
        return tuple((self.sites[i], self.new[i]) for i in places)


class Questions:
    """What a model says about hidden sites of the changed parent; each context is asked once.

    A score is a sum of calls (what is filled in, hidden sites, site, token). It is worked out
    twice: before `ask` the calls are noted and give 0, behind it they give log-probabilities.
    """

    def __init__(self, parent: Tensor) -> None:
        self.parent = parent  # (length,)
        self._wanted: dict[tuple[Filled, tuple[int, ...]], dict[tuple[int, int], float]] = {}
        self._asked = False

    def __call__(self, filled: Filled, hidden: tuple[int, ...], site: int, token: int) -> float:
        """log p(token at site), the hidden sites hidden together, in nats over the vocabulary."""
        if self._asked:
            return self._wanted[filled, hidden][site, token]
        self._wanted.setdefault((filled, hidden), {})[site, token] = 0.0
        return 0.0

    @property
    def rows(self) -> int:
        """Rows through the model that are needed."""
        return len(self._wanted)

    def ask(self, conditionals: Conditionals, advance: Advance | None = None) -> None:
        """Asks every context that was noted."""
        contexts, self._asked = list(self._wanted), True
        if not contexts:
            return
        tokens = self.parent.repeat(len(contexts), 1)
        most = max(len(hidden) for _, hidden in contexts)
        sites = torch.full((len(contexts), most), PAD)
        for row, (filled, hidden) in enumerate(contexts):
            for site, token in filled:
                tokens[row, site] = token
            sites[row, : len(hidden)] = torch.tensor(hidden)
        every = torch.arange(len(contexts))
        for part, laws in conditional_log_probs(conditionals, tokens, every, sites, asked=most):
            for row, law in zip(part.tolist(), laws.cpu().numpy(), strict=True):
                wanted = self._wanted[contexts[row]]
                slot = {site: place for place, site in enumerate(contexts[row][1])}
                wanted.update({(at, token): float(law[slot[at], token]) for at, token in wanted})
                check_finite(min(wanted.values()))
            if advance is not None:
                advance(len(part))


def check_finite(least: float) -> None:
    """Refuses letters that the model never puts: their log-ratio has no value."""
    if not np.isfinite(least):
        raise GlauberError(
            "the model gives a letter that is asked about no chance at all, so it has no log-ratio."
        )


# ---- the conventions, each one number


def wild_type_fill(ask: Questions, variant: Changed) -> float:
    """Each changed site hidden alone in the parent."""
    every = zip(*variant, strict=True)
    return sum(ask((), (i,), i, new) - ask((), (i,), i, old) for i, old, new in every)


def mutant_fill(ask: Questions, variant: Changed) -> float:
    """Each changed site hidden alone in the variant."""
    total = 0.0
    for place, (i, old, new) in enumerate(zip(*variant, strict=True)):
        others = variant.filled([one for one in range(len(variant.sites)) if one != place])
        total += ask(others, (i,), i, new) - ask(others, (i,), i, old)
    return total


def all_hidden(ask: Questions, variant: Changed) -> float:
    """All changed sites hidden at once, each by itself."""
    every, hidden = zip(*variant, strict=True), variant.sites
    return sum(ask((), hidden, i, new) - ask((), hidden, i, old) for i, old, new in every)


def pseudo_likelihood_ratio(ask: Questions, variant: Changed, sites: Sequence[int]) -> float:
    """The pseudo-log-likelihood over all sites, of the variant less that of the parent."""
    new = dict(zip(variant.sites, variant.new, strict=True))
    total = 0.0
    for site in sites:
        stands = int(ask.parent[site])
        others = tuple((at, token) for at, token in new.items() if at != site)
        total += ask(others, (site,), site, new.get(site, stands)) - ask((), (site,), site, stands)
    return total


# ---- orders


def gain(ask: Questions, variant: Changed, before: int, place: int) -> float:
    """g(S, i) of the changed site number `place`, S as a number whose bits are its members."""
    inside = [one for one in range(len(variant.sites)) if before >> one & 1]
    hidden = tuple(at for one, at in enumerate(variant.sites) if not before >> one & 1)
    at = variant.sites[place]
    new = ask(variant.filled(inside), hidden, at, variant.new[place])
    return new - ask((), hidden, at, variant.old[place])


def gains(ask: Questions, variant: Changed) -> Floats:
    """g(S, i) for every set S, (2^k, k); 0 where i is in S."""
    k = len(variant.sites)
    found = np.zeros((2**k, k))
    for before in range(2**k - 1):
        for place in range(k):
            if not before >> place & 1:
                found[before, place] = gain(ask, variant, before, place)
    return found


class OverOrders(NamedTuple):
    """What all k! orders give, exactly."""

    mean: float
    sd: float
    low: float
    high: float


def over_all_orders(table: Floats) -> OverOrders:
    """Mean, standard deviation and range over all k! orders, from g (2^k, k).

    Let X(S) be the sum of a uniformly random order of the set S. Its last site is each member i
    with chance 1/|S|, and those before it are in uniformly random order, so that
    E X(S) is the mean over i of m_i = E X(S - i) + g(S - i, i), and by the law of total variance
    Var X(S) = mean over i of Var X(S - i) + variance over i of m_i. The range likewise.
    """
    k = table.shape[1]
    mean, variance, low, high = np.zeros((4, 2**k))
    for filled in range(1, 2**k):
        last = np.array([one for one in range(k) if filled >> one & 1])
        before = filled ^ (1 << last)
        added = table[before, last]
        means = mean[before] + added
        mean[filled] = means.mean()
        variance[filled] = variance[before].mean() + means.var()
        low[filled], high[filled] = (low[before] + added).min(), (high[before] + added).max()
    return OverOrders(
        float(mean[-1]), float(np.sqrt(variance[-1])), float(low[-1]), float(high[-1])
    )


def sums_along(table: Floats, orders: Integers) -> Floats:
    """The score along each order (n, k) of a variant's sites, from g (2^k, k)."""
    one = 1 << orders
    return np.asarray(table[one.cumsum(axis=1) - one, orders].sum(axis=1))


def asked_along(ask: Questions, variant: Changed, orders: Integers) -> Floats:
    """The same by asking for the sets that these orders meet."""
    known: dict[tuple[int, int], float] = {}
    found = []
    for order in orders.tolist():
        before, total = 0, 0.0
        for place in order:
            if (before, place) not in known:
                known[before, place] = gain(ask, variant, before, place)
            total += known[before, place]
            before |= 1 << place
        found.append(total)
    return np.array(found)


class Rankings(NamedTuple):
    """Orders of all sites that some variant changes; each variant keeps to its own part of them."""

    sites: tuple[int, ...]
    ranks: Floats  # (orders, sites): the lower is filled earlier
    exact: bool  # these are all orders

    def of(self, variant: Changed) -> Integers:
        """The places of the variant's sites, in the order in which they are filled: (orders, k)."""
        columns = [self.sites.index(site) for site in variant.sites]
        return np.asarray(self.ranks[:, columns].argsort(axis=1, kind="stable"))


def every_ranking(sites: Sequence[int]) -> Rankings:
    """All orders of a few sites."""
    listed = list(permutations(range(len(sites))))
    return Rankings(tuple(sites), np.array(listed, dtype=np.float64), exact=True)


def drawn_rankings(sites: Sequence[int], count: int, seed: int) -> Rankings:
    """Uniformly random orders; the noise is keyed by (seed, order, site), whatever the others."""
    order = torch.arange(count)[:, None]
    bits, _ = random_bits(torch.tensor(seed), torch.tensor(0), order, torch.tensor(list(sites)))
    return Rankings(tuple(sites), uniform(bits).numpy(), exact=False)


def followed_exactly(k: int, orders: int) -> bool:
    """Whether all orders of k sites cost no more rows than so many of them, each for itself."""
    return k <= MOST_SITES and 2**k - 1 <= orders * k


# ---- what orders do to a ranking


def contrary(along: Floats, mean: Floats) -> Floats:
    """The share of orders that rank two variants unlike their means: (variants, variants).

    along (variants, orders); mean (variants,) over orders.
    """
    found = np.zeros((len(along), len(along)))
    for row in range(len(along)):
        apart = (along[row] - along[row + 1 :]) * np.sign(mean[row] - mean[row + 1 :])[:, None]
        found[row, row + 1 :] = (apart < 0).mean(axis=1)
    return found + found.T


def agreement(along: Floats) -> float:
    """Spearman's correlation of one order's ranking with another's, mean over pairs of orders.

    Ties share their rank; nan where some order ranks nothing, because all its scores are equal.
    With z_o the standardised ranks of order o, n orders: (|sum of z_o|^2 - n) / (n (n - 1)).
    """
    from scipy.stats import rankdata

    n = along.shape[1]
    if n < 2 or len(along) < 2 or (np.ptp(along, axis=0) == 0).any():
        return float("nan")
    ranks = rankdata(along, axis=0)
    apart = ranks - ranks.mean(axis=0)
    together = (apart / np.sqrt((apart**2).sum(axis=0))).sum(axis=1)
    return round(
        float((together @ together - n) / (n * (n - 1))), 12
    )  # 1 is 1 in spite of rounding


Score = Callable[[Questions, Changed], float]
CONVENTIONS: dict[str, Score] = {
    "wild_type_fill": wild_type_fill,
    "mutant_fill": mutant_fill,
    "all_hidden": all_hidden,
}
