"""How firmly does a text hold itself, token by token?"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from glauber.conditionals.base import Conditionals, Model, check_temperature
from glauber.conditionals.load import load
from glauber.conditionals.starts import starts
from glauber.json_text import Record
from glauber.metastability.holding import LN10, Margins, as_numbers, margins_of, written
from glauber.parameters import Device, Dtype, ModelOrName, Temperature, Trust
from glauber.result import Result, model_parts, needed, plain, signature, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

PRECISE = ("float32", "float64")  # dtypes that float64 answers for; coarser ones are shown too


@study
def margins(
    model: ModelOrName = "bundled:english",
    text: Annotated[str | None, "The text, taken as a state of the chain."] = None,
    *,
    temperature: Temperature = 1.0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "MarginStudy":
    """Measure the gap of each token of a text, the bound on its escape and its holding time.

    The gap g_i is how much token i's score beats the best other one's. Where all gaps are positive
    the theorem bounds the chance to leave in one step by (|V| - 1) exp(-min gap / temperature)
    (paper A, the margin theorem); for a single state the chance itself is known too. All is worked
    out in float64 and in logarithms; with bfloat16, what a chain in it would follow stands beside.
    """
    text = needed("text", text)
    check_temperature(temperature)
    coarse = _coarse(model, device, dtype, trust_remote_code)
    opened = load(
        model, device=device, dtype="float64", trust_remote_code=trust_remote_code, exact=True
    )
    tokens, free = (part[0].to(opened.state_device) for part in starts(opened, [text]))
    found = margins_of(opened.conditionals(), tokens, free, temperature=temperature)
    rounded = None
    if coarse is not None:
        place = coarse.state_device
        rounded = margins_of(
            coarse.conditionals(), tokens.to(place), free.to(place), temperature=temperature
        )
    spelled = [opened.vocabulary.spell(int(tokens[site])) for site in found.sites]
    made = signature(**model_parts(opened), temperature=float(temperature), tokens=len(spelled))
    return MarginStudy(
        **vars(found), text=text, tokens=spelled, name=opened.name, signature=made, rounded=rounded
    )


def _coarse(
    model: str | Conditionals, device: str, dtype: str, trust_remote_code: bool
) -> Model | None:
    """The model in a dtype coarser than float32, if that is what was asked for."""
    if isinstance(model, str) and dtype in PRECISE:
        return None
    opened = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    return None if opened.dtype in PRECISE else opened


@dataclass(frozen=True, eq=False)
class MarginStudy(Margins, Result):
    """How firmly a text holds itself, token by token."""

    text: str
    tokens: list[str]  # at the free sites, as the vocabulary spells them
    name: str  # of the model
    signature: str
    rounded: Margins | None  # the same in a coarser dtype that was asked for

    def to_dict(self) -> Record:
        log_bound = self.log_escape_bound
        kind = {"kind": self.kind}
        return {
            "model": self.name,
            "text": self.text,
            "temperature": self.temperature,
            "dtype": self.dtype,
            "tokens": self.tokens,
            "perfect": self.perfect,
            "gaps": {"value": plain(self.gaps), **kind},
            "leaving": as_numbers(self.log_leaving) | kind,
            "mean_gap": {"value": plain(self.mean_gap), **kind},
            "smallest_gap": {"value": self.margin, **kind},
            "escape_rate": as_numbers(self.log_escape_rate) | kind,
            "holding_time": as_numbers(-self.log_escape_rate) | kind,
            "escape_bound": as_numbers(log_bound)
            | {"kind": "upper bound" if self.kind == "exact" else "estimate"},
            "vacuous": self.vacuous,
            "rounded": None if self.rounded is None else self._rounded(self.rounded),
            "signature": self.signature,
        }

    def _rounded(self, other: Margins) -> Record:
        """What the coarser dtype says, as an estimate, with how far off it is."""
        off = self.log_escape_rate - other.log_escape_rate
        return {
            "dtype": other.dtype,
            "gaps": plain(other.gaps),
            "holding_time": as_numbers(-other.log_escape_rate) | {"kind": "estimate"},
            "log10_error": plain(off / LN10),
        }

    def lines(self) -> Iterable[str]:
        width = max(5, *(len(token) for token in self.tokens))
        yield (
            f"{'token':>{width}}      gap  chance that a redraw changes it (both {self.kind}, in "
            f"{self.dtype}, at temperature {self.temperature:g})"
        )
        for token, gap, leaving in zip(self.tokens, self.gaps, self.log_leaving, strict=True):
            yield f"{token:>{width}}  {gap:7.3f}  {written(leaving)}"
        below = int((self.gaps <= 0).sum())
        trap = (
            "a perfect trap: every token is the likeliest at its site"
            if self.perfect
            else f"an approximate trap at most: {below} of {len(self.tokens)} tokens are not the "
            "likeliest"
        )
        yield (f"{trap}; smallest gap {self.margin:.4g}, mean {self.mean_gap:.4g} ({self.kind})")
        yield _bound_line(self)
        yield f"chance to leave in one step: {written(self.log_escape_rate)} ({self.kind})"
        yield f"mean holding time: {self.held} ({self.kind})"
        if self.rounded is not None:
            yield self._rounded_line(self.rounded)

    def _rounded_line(self, other: Margins) -> str:
        times = written(self.log_escape_rate - other.log_escape_rate)
        return (
            f"in {other.dtype}, what a chain drawn in it follows: {written(-other.log_escape_rate)}"
            f" steps, {times} times the exact holding time (estimate)"
        )

    @property
    def held(self) -> str:
        """The mean holding time in words."""
        log = -self.log_escape_rate
        return (
            f"{written(log)} steps" if math.isfinite(log) else "for ever: no other token can come"
        )

    def frame(self) -> "pandas.DataFrame":
        """One row per token."""
        import pandas

        columns = {"site": range(len(self.tokens)), "token": self.tokens, "gap": self.gaps}
        return pandas.DataFrame(
            columns | {"leaving": self.leaving, "log10_leaving": self.log_leaving / LN10}
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.metastability import plot_margins

        return {"gaps": plot_margins(self)}


def _bound_line(found: Margins) -> str:
    log = found.log_escape_bound
    if log is None:
        return "the theorem's bound on that chance: none, because a gap is not positive"
    says = ", vacuous" if found.vacuous else f": held at least {written(-log)} steps"
    kind = "upper bound" if found.kind == "exact" else "estimate"
    return f"the theorem's bound on the chance to leave: {written(log)} ({kind}{says})"
