"""What do random orders say of texts? The bound on -log p, and the spread over orders."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from glauber.compatibility.pseudo_likelihood import figure_of
from glauber.json_text import Record
from glauber.result import Result, counted, plain
from glauber.statistics import (
    Estimate,
    Floats,
    clustered_mean,
    jackknife,
    mean_over_chains,
    ratio_over_chains,
)

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

TENTHS = 10  # of the hidden share
PRINTED = 20  # texts of a bound that are printed and drawn


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
    number: int = 1  # of the text among those given, from 1
    id: str = ""  # that its source gives it

    @property
    def bound(self) -> Estimate:
        """-log p(x) of the mixture over orders is at most this."""
        return self._mean(self.bounds, (0.0, np.inf))

    @property
    def log_likelihood(self) -> Estimate | None:
        """The mean over orders of log p_o(x); None where no order was followed."""
        return self._mean(self.log_probs, (-np.inf, 0.0)) if len(self.log_probs) else None

    @property
    def order_sd(self) -> Estimate | None:
        """The standard deviation of log p_o(x) over orders: 0 for a joint law."""
        if self.exact:
            return Estimate(float(self.log_probs.std()), None, "exact")
        if len(self.log_probs) < 2:
            return None
        return jackknife(self._sd, len(self.log_probs), scale="log").item()

    @property
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

    def to_dict(self) -> Record:
        per_token = self.log_likelihood and scaled(self.log_likelihood, 1 / self.tokens)
        return {
            "number": self.number,
            "id": self.id,
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

    def to_row(self) -> Record:
        """A row of a table."""
        low, high = self.bound.interval or (None, None)
        mean, sd = self.log_likelihood, self.order_sd
        return {
            "number": self.number,
            "id": self.id,
            "text": self.text,
            "tokens": self.tokens,
            "kind": "exact" if self.exact else "estimate",
            "bound": self.bound.value,
            "bound_low": low,
            "bound_high": high,
            "bound_per_token": self.bound.value / self.tokens,
            "log_likelihood": None if mean is None else mean.value,
            "order_sd": None if sd is None else sd.value,
            "log_mean": self.log_mean,
        }


def scaled(found: Estimate, by: float) -> Estimate:
    """A figure in another unit."""
    ends = found.interval and (by * found.interval[0], by * found.interval[1])
    error = None if found.standard_error is None else by * found.standard_error
    return replace(found, value=by * found.value, interval=ends, standard_error=error)


def per_token(totals: list[Estimate], tokens: list[int]) -> Estimate:
    """Nats a token over all texts, with the interval over texts; of one text, its own interval."""
    if len(totals) == 1:
        return scaled(totals[0], 1 / tokens[0])
    return ratio_over_chains([one.value for one in totals], tokens)


def per_text(totals: list[Estimate]) -> Estimate:
    """Nats a text, with the interval over texts; of one text, its own interval."""
    return totals[0] if len(totals) == 1 else mean_over_chains([one.value for one in totals])


def by_hidden_share(texts: list[Likelihood]) -> list[tuple[float, Estimate]]:
    """Mean nll of a hidden token by tenths of the hidden share: (middle, nats), over texts."""
    share = np.concatenate([one.shares for one in texts])
    nll = np.concatenate([one.nll for one in texts])
    text = np.repeat(np.arange(len(texts)), [len(one.nll) for one in texts])
    tenth = np.ceil(np.round(share * TENTHS, 9)).astype(int) - 1
    here = [(number, tenth == number) for number in range(TENTHS) if (tenth == number).any()]
    return [((i + 0.5) / TENTHS, clustered_mean(nll[at], text[at])) for i, at in here]


@dataclass(frozen=True, eq=False)
class Likelihoods(Result):
    """Texts with the bound on -log p and their log-likelihood along random orders."""

    texts: list[Likelihood]
    name: str  # of the model
    weights: str  # fingerprint of the model
    dtype: str
    samples: int
    orders: int
    seed: int
    signature: str

    @property
    def bound(self) -> Estimate:
        """Nats a text that -log p is at most, mean over texts."""
        return per_text([one.bound for one in self.texts])

    @property
    def bound_per_token(self) -> Estimate:
        """Nats a token that -log p is at most."""
        return per_token([one.bound for one in self.texts], self.tokens)

    @property
    def log_likelihood(self) -> Estimate | None:
        """Nats a text, the mean over orders and texts; None where no order was followed."""
        return per_text(self._along) if self._along else None

    @property
    def log_likelihood_per_token(self) -> Estimate | None:
        """Nats a token, the mean over orders; None where no order was followed."""
        return per_token(self._along, self.tokens) if self._along else None

    @property
    def tokens(self) -> list[int]:
        """How many tokens of each text are scored."""
        return [one.tokens for one in self.texts]

    @property
    def _along(self) -> list[Estimate]:
        """The log-likelihood of each text; nothing unless every text has one."""
        found = [one.log_likelihood for one in self.texts]
        known = [one for one in found if one is not None]
        return known if len(known) == len(found) else []

    @property
    def order_sd(self) -> Estimate | None:
        """The mean over texts of the standard deviation over orders, in nats a text."""
        found = [one.order_sd for one in self.texts if one.order_sd is not None]
        if len(found) < 2:
            return found[0] if found and len(self.texts) == 1 else None
        return mean_over_chains([one.value for one in found], bounds=(0, float("inf")))

    def to_dict(self) -> Record:
        curve = by_hidden_share(self.texts)
        return {
            "model": self.name,
            "weights": self.weights,
            "dtype": self.dtype,
            "unit": "nats",
            "samples": self.samples,
            "orders": self.orders,
            "seed": self.seed,
            "tokens": sum(self.tokens),
            "bound": plain(self.bound),
            "bound_per_token": plain(self.bound_per_token),
            "log_likelihood": plain(self.log_likelihood),
            "log_likelihood_per_token": plain(self.log_likelihood_per_token),
            "order_sd": plain(self.order_sd),
            "by_hidden_share": [{"share": share, "nll": plain(nll)} for share, nll in curve],
            "texts": [one.to_dict() for one in self.texts],
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        yield "     bound        (95%)       log-likelihood  sd (orders)  log of mean  tokens  text"
        for one in self.texts[:PRINTED]:
            mean, sd, mixture = map(figure_of, (one.log_likelihood, one.order_sd, one.log_mean))
            ends = "exact" if one.exact else "-"
            if one.bound.interval is not None:
                ends = "{:.3f} to {:.3f}".format(*one.bound.interval)
            figures = f"{one.bound.value:10.3f}  {ends:^17}  {mean:>14}  {sd:>11}  {mixture:>11}"
            yield f"{figures}  {one.tokens:6}  {one.text}"
        if len(self.texts) > PRINTED:
            yield f"and {counted(len(self.texts) - PRINTED, 'text')} more"
        yield "all in nats; the bound is one on -log p, where p writes a text in a random order"
        over = "" if len(self.texts) == 1 else f", over {len(self.texts):,} texts"
        yield f"-log p a token is at most {self.bound_per_token.text()}{over}"
        yield f"-log p a text is at most {self.bound.text()}"
        if (along := self.log_likelihood_per_token) is not None:
            yield f"log-likelihood a token along random orders: {along.text()}"
        if (spread := self.order_sd) is not None:
            yield f"standard deviation over orders, a text: {spread.text()}; 0 for a joint law"
        curve = [f"{share:.0%}: {nll.value:.2f}" for share, nll in by_hidden_share(self.texts)]
        yield f"nats a hidden token by hidden share: {', '.join(curve)}"

    def frame(self) -> "pandas.DataFrame":
        """One row per text."""
        import pandas

        return pandas.DataFrame([text.to_row() for text in self.texts])

    def figures(self) -> "dict[str, go.Figure]":
        """nll by hidden share; the log-likelihood along each order, text by text."""
        from glauber.figures.compatibility import plot_hidden_share, plot_orders

        found = {"hidden-share": plot_hidden_share(by_hidden_share(self.texts))}
        shown = [one for one in self.texts[:PRINTED] if len(one.log_probs)]
        if shown:
            along = [one.log_probs / one.tokens for one in shown]
            found["orders"] = plot_orders([one.text for one in shown], along)
        return found
