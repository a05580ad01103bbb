"""What is the stationary mean of a statistic of the text, without the bias of the start?"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from torch import Tensor

from glauber.conditionals.base import Model, check_temperature
from glauber.conditionals.load import load
from glauber.conditionals.starts import starts
from glauber.dynamics.coupled import COUPLINGS
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.mixing.couple import decode_rows
from glauber.mixing.meeting import TokenStatistic, UnbiasedMean, check_window, unbiased_mean
from glauber.parameters import Device, Dtype, Freeze, ModelOrName, Seed, Temperature, Trust, Unknown
from glauber.progress import check_count, check_memory, check_seed, say
from glauber.result import Result, model_parts, needed, one_of, plain, study
from glauber.result import signature as signed
from glauber.statistics import Estimate, mean_over_chains

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

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
    pairs: Annotated[int, "Pairs of chains."] = 16,
    temperature: Temperature = 1.0,
    steps: Annotated[int, "Steps within which a pair may meet."] = 2000,
    first: Annotated[int, "First step of the average."] = 100,
    last: Annotated[int, "Last step of the average."] = 200,
    lag: Annotated[int, "Lag: steps by which one chain is ahead of the other."] = 10,
    coupling: Annotated[str, "maximal, inverse-cdf or gumbel-max."] = "maximal",
    freeze: Freeze = (),
    seed: Seed = 0,
    unknown: Unknown = "error",
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "Unbiased":
    """Estimate the stationary mean of a statistic of the text, without bias from the start.

    From pairs of chains that meet: the average over some steps of one chain, corrected by what the
    two of a pair differ by until they meet, has the stationary mean as its expectation (Jacob,
    O'Leary and Atchade 2020). Pairs that do not meet within the steps bias it, and that is said.
    distinct is the share of different tokens among the free sites, characters the length of the
    text, token:NAME the share of free sites with that token.
    """
    text = needed("text", text)
    check_window(first, last, lag, steps)
    check_count("number of pairs", pairs)
    check_temperature(temperature)
    check_seed(seed)
    one_of("the coupling", coupling, COUPLINGS)
    opened = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    tokens, free = (
        part.to(opened.state_device)
        for part in starts(opened, [text], freeze=freeze, unknown=unknown)
    )
    check_memory(pairs * tokens.shape[1] * 40, f"{pairs:,} pairs of chains")
    name = statistic if isinstance(statistic, str) else getattr(statistic, "__name__", "function")
    token_statistic = _token_statistic(opened, statistic, free[0])
    rows = tokens.repeat(pairs, 1)
    say(f"{pairs:,} pairs of {last:,} to {max(last, lag + steps):,} steps")
    estimates = unbiased_mean(
        opened.conditionals(),
        rows,
        rows,
        free.repeat(pairs, 1),
        statistic=token_statistic,
        first=first,
        last=last,
        lag=lag,
        temperature=temperature,
        seed=seed,
        steps=steps,
        coupling=coupling,
    )
    signature = signed(
        **model_parts(opened),
        statistic=name,
        pairs=pairs,
        temperature=temperature,
        steps=steps,
        first=first,
        last=last,
        lag=lag,
        coupling=coupling,
        seed=seed,
    )
    return Unbiased(
        **vars(estimates), statistic=name, name=opened.name, text=text, signature=signature
    )


@dataclass(frozen=True, eq=False)
class Unbiased(UnbiasedMean, Result):
    """The stationary mean of a number of the text, from pairs of chains that met."""

    statistic: str
    name: str  # of the model
    text: str
    signature: str

    @property
    def estimated(self) -> Estimate:
        """The mean over pairs, with the interval that so many pairs allow."""
        return mean_over_chains(self.values[:, 0])

    def to_dict(self) -> Record:
        estimated = self.estimated
        record = {
            "model": self.name,
            "text": self.text,
            "statistic": self.statistic,
            "mean": {
                "value": estimated.value,
                "standard_error": float(self.standard_error[0]),
                "interval": estimated.interval,
                "reason": estimated.reason or None,
                "kind": self.kind,
            },
            "pairs": self.frame().to_dict(orient="records"),
            "met": int(self.meetings.met.sum()),
            "signature": self.signature,
        }
        return dict(plain(record))

    def lines(self) -> Iterable[str]:
        times, met = self.meetings.times, self.meetings.met
        yield f"stationary mean of {self.statistic}: {self.estimated.text(4)}, {self.kind}"
        yield (
            f"{int(met.sum())} of {len(met)} pairs met, after {int(np.median(times)):,} steps in "
            f"the median and {int(times.max()):,} at most"
        )

    def frame(self) -> "pandas.DataFrame":
        """One row per pair."""
        import pandas

        meetings = self.meetings
        return pandas.DataFrame(
            {"estimate": self.values[:, 0], "time": meetings.times, "met": meetings.met}
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.mixing import plot_estimates

        return {"estimates": plot_estimates(self.values[:, 0], self.statistic)}


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
