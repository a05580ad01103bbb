"""How likely a text is that is written token by token, in a random order.

An order o of the n free sites makes a distribution of its own out of the conditionals,

    log p_o(x) = sum over j of log pi(x_{o_j} | x_{o_1}, ..., x_{o_{j-1}} and the frozen tokens),

o_j and all sites after it hidden. For conditionals of a joint distribution p every order gives
log p(x) exactly (the chain rule). Those of a masked LM fit no joint distribution: each order has
one of its own, and what is bounded is the log-likelihood of their mixture, p(x) = mean over o of
p_o(x):

    -log p(x) <= mean over o of -log p_o(x)                                           (Jensen)
               = E_k [ n * mean over the k hidden sites i of -log pi(x_i | visible) ],

k uniform in 1..n and the set of k hidden sites uniformly random: the bound (ELBO) of masked
diffusion. How much log p_o(x) depends on o is incompatibility (paper A), summed along a text.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Annotated, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor

from glauber.dynamics.noise import random_bits, uniform
from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import LengthOrWhole, ModelOrName, Seed, WhereAndDtype
from glauber.foundation.progress import Advance, say, track
from glauber.foundation.statistics import (
    Estimate,
    Floats,
    clustered_mean,
    jackknife,
    mean_over_chains,
    ratio_over_chains,
)
from glauber.foundation.study import Result, counted, internal, reported, study
from glauber.models.base import PAD, Conditionals
from glauber.models.batching import rows_at_once
from glauber.models.load import load
from glauber.studies.compatibility.pseudo_likelihood import hidden_log_probs
from glauber.studies.compatibility.score import (
    ContextSites,
    ContextTexts,
    ScoredTexts,
    encode_scored,
    number,
    read_scored,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

SAMPLES, ORDERS = 16, 8
EXACT = 5  # free tokens up to which all hidden sets, and so all orders, are enumerated
EVALUATED = 16  # hidden sites of a row that are evaluated: a random choice where more are hidden
FIRST_ORDER = 1 << 32  # the step of the first order that is followed; the samples' begin at 0
TENTHS = 10  # of the hidden share
PRINTED = 20  # texts of a bound that are printed and drawn


@study
def likelihood_bound(
    model: ModelOrName = "bundled:english",
    texts: ScoredTexts = None,
    *,
    samples: Annotated[int, "Pairs of random hidden sets, two rows each.", Whole()] = SAMPLES,
    orders: Annotated[
        int, "Random orders followed to their end, one row a token; 0: none.", Whole(0)
    ] = ORDERS,
    length: LengthOrWhole = None,
    freeze: ContextSites = (),
    given: ContextTexts = None,
    seed: Seed = 0,
    **where: Unpack[WhereAndDtype],
) -> "Likelihoods":
    """Bound the log-likelihood of texts that are written in a random order.

    An upper bound on -log p(x), where p writes the tokens one by one in a random order (masked
    diffusion); the mean over orders of log p_o(x), how much it depends on the order, and the log
    of the mean of p_o(x). If the conditionals had a joint distribution every order would give the
    same log p(x). Estimates, and exact for up to five free tokens. With given, a text is scored
    after a context that is always visible.
    """
    corpus, contexts = read_scored(texts, given, length, freeze)
    loaded_model = load(model, exact=True, **where)
    if not loaded_model.whole_vocabulary:
        raise GlauberError(
            f"{loaded_model.name} is autoregressive: its log-likelihood is exactly the sum of "
            "log p(x_t | x_<t) from left to right (`log_joint` in Python) and needs no bound."
        )
    scored = encode_scored(loaded_model, corpus, contexts, length=length, freeze=freeze)
    tokens, free = scored.tokens, scored.free
    count = row_count(free, samples=samples, orders=orders)
    say(f"{counted(len(scored.rows), 'text')}: {count:,} rows through {loaded_model.name}")
    with track("rows", count) as advance:
        likelihoods = random_order_likelihoods(
            loaded_model,
            tokens,
            free,
            keys=scored.keys,
            advance=advance,
            samples=samples,
            orders=orders,
            seed=seed,
        )
    numbered = [
        replace(likelihood, text=row.text, number=row.number, id=row.id)
        for likelihood, row in zip(likelihoods, scored.rows, strict=True)
    ]
    return Likelihoods(
        loaded_model.name,
        loaded_model.fingerprint,
        loaded_model.dtype,
        samples,
        orders,
        seed,
        numbered,
    )


@dataclass(frozen=True, eq=False)
class Likelihood:
    """A text's likelihood along random orders of its free tokens, in nats."""

    tokens: int  # that are scored
    exact: bool  # everything enumerated
    log_probs: Floats  # (orders,) log p_o(x); of all orders if exact
    bounds: Floats = internal()  # (samples,) estimates of the bound; one, the bound, if exact
    shares: Floats = internal()  # (rows,) hidden share of the free tokens
    nll: Floats = internal()  # (rows,) mean over the hidden sites of -log pi
    text: str = ""
    number: int = 1  # of the text among those given, from 1
    id: str = ""  # that its source gives it

    @reported
    def kind(self) -> str:
        return "exact" if self.exact else "estimate"

    @reported
    def bound(self) -> Estimate:
        """-log p(x) of the mixture over orders is at most this."""
        return self._mean(self.bounds, (0.0, np.inf))

    @reported
    def bound_per_token(self) -> Estimate:
        return rescale(self.bound, 1 / self.tokens)

    @reported
    def log_likelihood(self) -> Estimate | None:
        """The mean over orders of log p_o(x); None where no order was followed."""
        return self._mean(self.log_probs, (-np.inf, 0.0)) if len(self.log_probs) else None

    @reported
    def log_likelihood_per_token(self) -> Estimate | None:
        return self.log_likelihood and rescale(self.log_likelihood, 1 / self.tokens)

    @reported
    def order_sd(self) -> Estimate | None:
        """The standard deviation of log p_o(x) over orders: 0 for a joint distribution."""
        if self.exact:
            return Estimate(float(self.log_probs.std()), None, "exact")
        if len(self.log_probs) < 2:
            return None
        return jackknife(self._sd, len(self.log_probs), scale="log").item()

    @reported
    def log_mean(self) -> float | None:
        """log of the mean of p_o(x): exact, or an estimate from below that rises with orders."""
        if not len(self.log_probs):
            return None
        return float(np.logaddexp.reduce(self.log_probs) - np.log(len(self.log_probs)))

    def _mean(self, values: Floats, bounds: tuple[float, float]) -> Estimate:
        if self.exact:
            return Estimate(float(values.mean()), None, "exact")
        return mean_over_chains(values, bounds=bounds)

    def _sd(self, weights: Floats) -> Floats:
        """Over the orders of weight 1."""
        return np.asarray(self.log_probs[weights > 0].std(ddof=1))

    @property
    def row(self) -> dict[str, object]:
        """A row of a table."""
        return {
            "number": self.number,
            "id": self.id,
            "text": self.text,
            "tokens": self.tokens,
            "kind": self.kind,
            "bound": self.bound,
            "bound_per_token": self.bound_per_token.value,
            "log_likelihood": self.log_likelihood and self.log_likelihood.value,
            "order_sd": self.order_sd and self.order_sd.value,
            "log_mean": self.log_mean,
        }


def rescale(estimate: Estimate, factor: float) -> Estimate:
    """An estimate in another unit."""
    ends = estimate.interval and (factor * estimate.interval[0], factor * estimate.interval[1])
    error = None if estimate.standard_error is None else factor * estimate.standard_error
    return replace(estimate, value=factor * estimate.value, interval=ends, standard_error=error)


def per_token(totals: list[Estimate], tokens: list[int]) -> Estimate:
    """Nats a token over all texts, with the interval over texts; of one text, its own interval."""
    if len(totals) == 1:
        return rescale(totals[0], 1 / tokens[0])
    return ratio_over_chains([total.value for total in totals], tokens)


def per_text(totals: list[Estimate]) -> Estimate:
    """Nats a text, with the interval over texts; of one text, its own interval."""
    return totals[0] if len(totals) == 1 else mean_over_chains([total.value for total in totals])


class ShareLikelihood(NamedTuple):
    """The mean -log pi of a hidden token where about that share of a text is hidden."""

    share: float
    nll: Estimate


def by_hidden_share(texts: list[Likelihood]) -> list[ShareLikelihood]:
    """Mean nll of a hidden token by tenths of the hidden share, over texts."""
    share = np.concatenate([text.shares for text in texts])
    nll = np.concatenate([text.nll for text in texts])
    number = np.repeat(np.arange(len(texts)), [len(text.nll) for text in texts])
    tenth = np.ceil(np.round(share * TENTHS, 9)).astype(int) - 1
    return [
        ShareLikelihood((i + 0.5) / TENTHS, clustered_mean(nll[tenth == i], number[tenth == i]))
        for i in np.unique(tenth).tolist()
    ]


@dataclass(frozen=True, eq=False)
class Likelihoods(Result):
    """Texts with the bound on -log p and their log-likelihood along random orders."""

    model: str
    weights: str  # fingerprint of the model
    dtype: str  # The dtype of the model's scores
    samples: int
    orders: int
    seed: int
    texts: list[Likelihood]

    @reported
    def bound(self) -> Estimate:
        """Nats a text that -log p is at most, mean over texts."""
        return per_text([text.bound for text in self.texts])

    @reported
    def bound_per_token(self) -> Estimate:
        """Nats a token that -log p is at most."""
        return per_token([text.bound for text in self.texts], self.tokens)

    @reported
    def log_likelihood(self) -> Estimate | None:
        """Nats a text, the mean over orders and texts; None where no order was followed."""
        return per_text(self._along) if self._along else None

    @reported
    def log_likelihood_per_token(self) -> Estimate | None:
        """Nats a token, the mean over orders; None where no order was followed."""
        return per_token(self._along, self.tokens) if self._along else None

    @reported
    def n_tokens(self) -> int:
        """How many tokens are scored."""
        return sum(self.tokens)

    @property
    def tokens(self) -> list[int]:
        """How many tokens of each text are scored."""
        return [text.tokens for text in self.texts]

    @property
    def _along(self) -> list[Estimate]:
        """The log-likelihood of each text; nothing unless every text has one."""
        known = [text.log_likelihood for text in self.texts if text.log_likelihood is not None]
        return known if len(known) == len(self.texts) else []

    @reported
    def order_sd(self) -> Estimate | None:
        """The mean over texts of the standard deviation over orders, in nats a text."""
        known = [text.order_sd for text in self.texts if text.order_sd is not None]
        if len(known) < 2:
            return known[0] if known and len(self.texts) == 1 else None
        return mean_over_chains([sd.value for sd in known], bounds=(0, float("inf")))

    @reported
    def by_hidden_share(self) -> list[ShareLikelihood]:
        """How hard a token is when more is hidden, by tenths of the hidden share."""
        return by_hidden_share(self.texts)

    def lines(self) -> Iterable[str]:
        yield "     bound        (95%)       log-likelihood  sd (orders)  log of mean  tokens  text"
        for text in self.texts[:PRINTED]:
            mean, sd, mixture = map(number, (text.log_likelihood, text.order_sd, text.log_mean))
            ends = "exact" if text.exact else "-"
            if text.bound.interval is not None:
                ends = "{:.3f} to {:.3f}".format(*text.bound.interval)
            numbers = f"{text.bound.value:10.3f}  {ends:^17}  {mean:>14}  {sd:>11}  {mixture:>11}"
            yield f"{numbers}  {text.tokens:6}  {text.text}"
        if len(self.texts) > PRINTED:
            yield f"and {counted(len(self.texts) - PRINTED, 'text')} more"
        yield "all in nats; the bound is one on -log p, where p writes a text in a random order"
        over = "" if len(self.texts) == 1 else f", over {len(self.texts):,} texts"
        yield f"-log p a token is at most {self.bound_per_token.text()}{over}"
        yield f"-log p a text is at most {self.bound.text()}"
        if (along := self.log_likelihood_per_token) is not None:
            yield f"log-likelihood a token along random orders: {along.text()}"
        if (spread := self.order_sd) is not None:
            yield (
                f"standard deviation over orders, a text: {spread.text()}; 0 for a joint "
                "distribution"
            )
        curve = [f"{share:.0%}: {nll.value:.2f}" for share, nll in self.by_hidden_share]
        yield f"nats a hidden token by hidden share: {', '.join(curve)}"

    def table(self) -> list[dict[str, object]]:
        """One row per text."""
        return [text.row for text in self.texts]

    def figures(self) -> "dict[str, go.Figure]":
        """nll by hidden share; the log-likelihood along each order, text by text."""
        from glauber.interfaces.plots.compatibility import plot_hidden_share, plot_orders

        figures = {"hidden-share": plot_hidden_share(self.by_hidden_share)}
        shown = [text for text in self.texts[:PRINTED] if len(text.log_probs)]
        if shown:
            along = [text.log_probs / text.tokens for text in shown]
            figures["orders"] = plot_orders([text.text for text in shown], along)
        return figures


def row_count(free: Tensor, *, samples: int, orders: int) -> int:
    """Rows through the model that `random_order_likelihoods` takes."""
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
    exact = exact_likelihoods(conditionals, tokens[few], free[few], advance)
    likelihoods = dict(zip(few.tolist(), exact, strict=True))
    at_once = rows_at_once(8 * max(1, orders) * tokens.shape[1] ** 2)
    for rows in many.split(at_once) if len(many) else ():
        chosen = tokens[rows], free[rows], keys[rows]
        nll, hidden = hidden_sets(conditionals, *chosen, samples, seed, advance)
        paths = log_probs_along_orders(conditionals, *chosen, orders, seed, advance)
        for index, row in enumerate(rows.tolist()):
            likelihoods[row] = _of_row(
                int(free[row].sum()), nll[index], hidden[index], paths[index]
            )
    return [likelihoods[row] for row in range(len(tokens))]


def _of_row(n: int, nll: Tensor, hidden: Tensor, paths: Tensor) -> Likelihood:
    """nll and hidden (samples, 2), paths (orders, length): those of one text."""
    each, counts = nll.numpy(), hidden.numpy()
    along = paths[:, :n].numpy().sum(axis=1)
    return Likelihood(n, False, along, n * each.mean(axis=1), counts.ravel() / n, each.ravel())


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
    sites = order_slice(order[:, :, None].expand(-1, -1, 2, -1), begin, end)
    row = torch.arange(len(tokens))[:, None, None].expand_as(begin)
    questions = row.flatten(), sites.flatten(0, 2)
    log_probs = hidden_log_probs(
        conditionals, tokens, *questions, n_asked=EVALUATED, advance=advance
    )
    return -log_probs.nanmean(dim=1).view(begin.shape), end - begin


def log_probs_along_orders(
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
    order, _ = random_orders(free, numbers, FIRST_ORDER + torch.arange(orders), seed)
    result = torch.full(order.shape, torch.nan, dtype=torch.float64)
    row, draw, position = (order != PAD).nonzero(as_tuple=True)
    if len(row):
        sites = order_slice(order[row, draw], position, n[row])
        log_probs = hidden_log_probs(conditionals, tokens, row, sites, advance=advance)
        result[row, draw, position] = log_probs[:, 0]
    return result


def random_orders(free: Tensor, numbers: Tensor, steps: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """The free sites (rows, steps, length) in random order, PAD after them; and spare random bits.

    numbers (rows,) and steps (steps,) are keys of the noise; the spare bits are (rows, steps).
    """
    site = torch.arange(free.shape[1])
    keys = torch.tensor(seed), numbers[:, None, None], steps[None, :, None], site
    bits, spare = random_bits(*keys)
    order = uniform(bits).masked_fill(~free[:, None], torch.inf).argsort(dim=2, stable=True)
    return order.masked_fill(site >= free.sum(dim=1)[:, None, None], PAD), spare[..., 0]


def order_slice(order: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    """The sites from place begin (...) to before end (...) of orders (..., length), then PAD."""
    positions = begin[..., None] + torch.arange(order.shape[-1])
    inside = order.gather(-1, positions.clamp(max=order.shape[-1] - 1))
    return torch.where(positions < end[..., None], inside, PAD)


def exact_likelihoods(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, advance: Advance | None = None
) -> list[Likelihood]:
    """The same of rows (rows, length) with few free tokens, from every set of hidden ones."""
    sets = [
        [chosen for k in range(1, len(sites) + 1) for chosen in combinations(sites, k)]
        for sites in (row.nonzero()[:, 0].tolist() for row in free)
    ]
    rows = torch.tensor([row for row, some in enumerate(sets) for _ in some], dtype=torch.int64)
    hidden = [[*chosen, *[PAD] * (EXACT - len(chosen))] for some in sets for chosen in some]
    sites = torch.tensor(hidden, dtype=torch.int64).view(-1, EXACT)
    every = hidden_log_probs(conditionals, tokens, rows, sites, n_asked=EVALUATED, advance=advance)
    values = iter(every.tolist())
    return [
        _from_sets({chosen: dict(zip(chosen, next(values), strict=False)) for chosen in some})
        for some in sets
    ]


def _from_sets(log_probs: dict[tuple[int, ...], dict[int, float]]) -> Likelihood:
    """One text's, from log pi at the sites of every set of hidden ones (rising)."""
    sites = max(log_probs, key=len)
    n = len(sites)
    means = [-np.mean(list(values.values())) for values in log_probs.values()]
    sizes = np.array([len(chosen) for chosen in log_probs])
    nll = np.array([np.mean(means, where=sizes == k) for k in range(1, n + 1)])
    along = [
        sum(log_probs[tuple(sorted(order[j:]))][site] for j, site in enumerate(order))
        for order in permutations(sites)
    ]
    shares = np.arange(1, n + 1) / n
    return Likelihood(n, True, np.array(along), nll.sum(keepdims=True), shares, nll)
