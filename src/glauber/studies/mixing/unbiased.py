"""The stationary mean of a statistic of the text, without the bias of the start.

From a coupling with a lag L (see `meeting`), for a statistic h and the steps k to m:

    H = 1/(m-k+1) [sum over t = k..m of h(X_t) + sum over t < tau of c_t (h(X_t) - h(Y_{t-L}))]

has the stationary mean as its expectation, whatever k and m (Jacob, O'Leary and Atchade 2020; with
a lag, Biswas, Jacob and Vanetti 2019). Here c_t is the number of j >= 1 with k <= t - j L <= m. A
large k makes the correction rare, a large m averages more.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.dynamics.coupled import MOST_STEPS
from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import (
    Freeze,
    ModelOrName,
    Seed,
    Temperature,
    Unknown,
    WhereAndDtype,
)
from glauber.foundation.progress import check_memory, say
from glauber.foundation.statistics import Estimate, Floats, mean_over_chains, standard_error
from glauber.foundation.study import Result, internal, needed, reported, study
from glauber.models.base import Model
from glauber.models.load import load
from glauber.studies.mixing.couple import CouplingName, decode_rows
from glauber.studies.mixing.meeting import Meetings, meet
from glauber.texts.starts import starts

TokenStatistic = Callable[[Tensor], Tensor]  # tokens (rows, length) -> (rows,) or (rows, d)
BUILT_IN = "distinct, characters or token:NAME"


@study
def unbiased(
    model: ModelOrName = "bundled:english",
    text: Annotated[str | None, "The text that the chains start from."] = None,
    *,
    statistic: Annotated[
        str | Callable[[str], float],
        "distinct, characters or token:NAME; in Python also a function of a text.",
    ] = "distinct",
    pairs: Annotated[int, "Pairs of chains.", Whole()] = 16,
    temperature: Temperature = 1.0,
    steps: Annotated[int, "Steps within which a pair may meet.", Whole(1, MOST_STEPS)] = 2000,
    first: Annotated[int, "First step of the average.", Whole(0)] = 100,
    last: Annotated[int, "Last step of the average.", Whole(0)] = 200,
    lag: Annotated[int, "Lag: steps by which one chain is ahead of the other.", Whole()] = 10,
    coupling: CouplingName = "maximal",
    freeze: Freeze = (),
    seed: Seed = 0,
    unknown: Unknown = "error",
    **where: Unpack[WhereAndDtype],
) -> "Unbiased":
    """Estimate the stationary mean of a statistic of the text, without bias from the start.

    From pairs of chains that meet: the average over some steps of one chain, corrected by what the
    two of a pair differ by until they meet, has the stationary mean as its expectation (Jacob,
    O'Leary and Atchade 2020). Pairs that do not meet within the steps bias it, and the answer says
    so. distinct is the share of different tokens among the free sites, characters the length of
    the text, token:NAME the share of free sites with that token.
    """
    text = needed("text", text)
    if first > last:
        raise GlauberError(
            f"the first step of the average is {first}, but it must not be after the last, {last}."
        )
    loaded_model = load(model, exact=True, **where)
    tokens, free = (
        part.to(loaded_model.state_device)
        for part in starts(loaded_model, [text], freeze=freeze, unknown=unknown)
    )
    check_memory(pairs * tokens.shape[1] * 40, f"{pairs:,} pairs of chains")
    sums = WindowSums(_token_statistic(loaded_model, statistic, free[0]), pairs, first, last, lag)
    rows = tokens.repeat(pairs, 1)
    say(f"{pairs:,} pairs of {last:,} to {max(last, lag + steps):,} steps")
    meetings = meet(
        loaded_model.conditionals(),
        rows,
        rows,
        free.repeat(pairs, 1),
        temperature=temperature,
        seed=seed,
        steps=max(steps, last - lag),
        coupling=coupling,
        lag=lag,
        at_least=last - lag,
        observe=sums.add,
    )
    name = statistic if isinstance(statistic, str) else getattr(statistic, "__name__", "function")
    return Unbiased(loaded_model.name, text, name, sums.estimates[:, 0], meetings)


class PairEstimate(NamedTuple):
    """The estimate of one pair."""

    estimate: float
    time: int  # the step at which the two met, or the last one
    met: bool


@dataclass(frozen=True, eq=False)
class Unbiased(Result):
    """The stationary mean of a number of the text, from pairs of chains that met."""

    model: str
    text: str
    statistic: str
    values: Floats = internal()  # (pairs,) independent estimates
    meetings: Meetings = internal()

    FIGURES = {
        "estimates": ("glauber.interfaces.plots.mixing:plot_estimates", "values", "statistic")
    }

    @reported
    def mean(self) -> Estimate:
        """The mean over pairs, with the interval that so many pairs allow."""
        return mean_over_chains(self.values)

    @reported
    def standard_error(self) -> float | None:
        """Of the mean, from the spread between pairs; None for a single one."""
        return standard_error(self.values) if len(self.values) > 1 else None

    @reported
    def kind(self) -> str:
        """An unbiased estimate, unless pairs were cut off before they met."""
        censored = self.meetings.n_censored
        if censored == 0:
            return "unbiased estimate"
        return (
            f"biased estimate: {censored} of {len(self.values)} pairs did not meet within the "
            "steps, and what they would still have added is missing"
        )

    @reported
    def n_met(self) -> int:
        """Number of pairs that met."""
        return int(self.meetings.met.sum())

    @reported
    def pairs(self) -> list[PairEstimate]:
        """Number of pairs of chains."""
        columns = self.values, self.meetings.times, self.meetings.met
        return [
            PairEstimate(*row) for row in zip(*(part.tolist() for part in columns), strict=True)
        ]

    def lines(self) -> Iterable[str]:
        times = self.meetings.times
        yield f"stationary mean of {self.statistic}: {self.mean.text(4)}, {self.kind}"
        yield (
            f"{self.n_met} of {len(times)} pairs met, after {int(np.median(times)):,} steps in "
            f"the median and {int(times.max()):,} at most"
        )

    def table(self) -> list[PairEstimate]:
        """One row per pair."""
        return self.pairs


class WindowSums:
    """The sum H of each pair over the steps from first to last, added up while the chains move."""

    def __init__(
        self, statistic: TokenStatistic, n_pairs: int, first: int, last: int, lag: int
    ) -> None:
        self.statistic, self.first, self.last, self.lag = statistic, first, last, lag
        self.n_pairs, self.sums = n_pairs, np.zeros((n_pairs, 0))

    @property
    def estimates(self) -> Floats:
        """H (pairs, d), once all pairs have met and made the steps up to the last."""
        return self.sums / (self.last - self.first + 1)

    def add(
        self,
        places: NDArray[np.int64],
        times: NDArray[np.int64],
        left: Tensor,
        right: Tensor | None,
    ) -> None:
        """Adds X_t = left where t is in the window, and h(X_t) - h(Y_{t-L}) with its weight."""
        inside = (self.first <= times) & (times <= self.last)
        nearest = np.maximum(1, -((self.last - times) // self.lag))
        weights = np.maximum(0, (times - self.first) // self.lag - nearest + 1)
        corrects = right is not None and bool(weights.any())
        if not inside.any() and not corrects:
            return
        value = self._values(left)
        change = inside[:, None] * value
        if right is not None and corrects:
            change = change + weights[:, None] * (value - self._values(right))
        if not self.sums.size:
            self.sums = np.zeros((self.n_pairs, value.shape[1]))
        self.sums[places] += change

    def _values(self, tokens: Tensor) -> Floats:
        """The statistic (rows, d) of texts."""
        return self.statistic(tokens).double().reshape(len(tokens), -1).cpu().numpy()


def _token_statistic(
    model: Model, statistic: str | Callable[[str], float], free: Tensor
) -> TokenStatistic:
    """A statistic of tokens (rows, length) from its name, or from a function of a text."""
    if not isinstance(statistic, str) or statistic == "characters":
        of_text = len if isinstance(statistic, str) else statistic
        return lambda tokens: torch.tensor(
            [float(of_text(text)) for text in decode_rows(model, tokens)], dtype=torch.float64
        )
    if statistic == "distinct":
        n = int(free.sum())
        return lambda tokens: (
            (tokens[:, free].sort(dim=1).values.diff(dim=1) != 0).sum(1).add(1) / n
        )
    head, _, name = statistic.partition(":")
    if head != "token" or not name:
        raise GlauberError(f"the statistic is {statistic}, but it must be one of {BUILT_IN}.")
    spell = model.vocabulary.spell
    numbers = [token for token in range(model.vocab_size) if spell(token) == name]
    if not numbers:
        raise GlauberError(f"{name!r} is not a token of the vocabulary of {model.name}.")
    return lambda tokens: (tokens[:, free] == numbers[0]).double().mean(dim=1)
