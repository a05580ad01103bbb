"""How firmly does a state hold itself, and for how long?

The gap g_i(x) = s_i(x_i) - max over v != x_i of s_i(v) says by how much each token beats the best
other one. Where every gap is positive, each site's likeliest token is the one it has: a perfect
trap. The theorem bounds the chance of leaving in one step by the smallest gap; for a single state
the chance itself is known, so it stands beside the bound.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals, check_temperature, scores_alone
from glauber.conditionals.load import load, refuse_int8
from glauber.conditionals.starts import starts
from glauber.errors import GlauberError
from glauber.parameters import Device, Dtype, Model, Temperature, Trust
from glauber.result import Result, model_parts, needed, plain, signature, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

Floats = NDArray[np.float64]


@study
def margins(
    model: Model = "bundled:english",
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
    (paper A, the margin theorem); for a single state the chance itself is known too.
    """
    text = needed("text", text)
    check_temperature(temperature)
    refuse_int8(dtype)
    opened = load(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    refuse_int8(opened)
    tokens, free = (part[0].to(opened.state_device) for part in starts(opened, [text]))
    found = margins_of(opened.conditionals(), tokens, free, temperature=temperature)
    spelled = [opened.vocabulary.spell(int(tokens[site])) for site in found.sites]
    made = signature(**model_parts(opened), temperature=float(temperature), tokens=len(spelled))
    return MarginStudy(**vars(found), text=text, tokens=spelled, name=opened.name, signature=made)


@dataclass(frozen=True, eq=False)
class Margins:
    """The gaps of one state, and its chance of leaving; exact up to the rounding of the scores."""

    gaps: Floats  # (n,): g_i, in units of score, before the temperature
    leaving: Floats  # (n,): chance that a redraw of the site changes its token
    sites: tuple[int, ...]  # the n free sites, numbered in the row of tokens
    n_tokens: int  # tokens that may be proposed
    temperature: float

    @property
    def perfect(self) -> bool:
        """Whether every gap is positive; a metastable state without this is an approximate trap."""
        return bool((self.gaps > 0).all())

    @property
    def margin(self) -> float:
        """The smallest gap."""
        return float(self.gaps.min())

    @property
    def escape_bound(self) -> float | None:
        """Upper bound on the chance to leave in one step; None where a gap is not positive."""
        if not self.perfect:
            return None
        return escape_bound(self.margin, n_tokens=self.n_tokens, temperature=self.temperature)

    @property
    def escape_rate(self) -> float:
        """Chance to leave in one step: 1/n sum_i (1 - pi_i(x_i | x_-i)). Exact."""
        return float(self.leaving.mean())

    @property
    def holding_time(self) -> float:
        """Mean number of steps until the state is first left, 1 / escape_rate. Exact."""
        return math.inf if self.escape_rate == 0 else 1 / self.escape_rate


@dataclass(frozen=True, eq=False)
class MarginStudy(Margins, Result):
    """How firmly a text holds itself, token by token."""

    text: str
    tokens: list[str]  # at the free sites, as the vocabulary spells them
    name: str
    signature: str

    def to_dict(self) -> dict[str, Any]:
        exact = {
            "gaps": self.gaps,
            "leaving": self.leaving,
            "mean_gap": float(self.gaps.mean()),
            "smallest_gap": self.margin,
            "escape_rate": self.escape_rate,
            "holding_time": self.holding_time,
        }
        found = {name: {"value": plain(value), "kind": "exact"} for name, value in exact.items()}
        return {
            "model": self.name,
            "text": self.text,
            "temperature": self.temperature,
            "tokens": self.tokens,
            "perfect": self.perfect,
            **found,
            "escape_bound": {"value": plain(self.escape_bound), "kind": "upper bound"},
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        width = max(5, *(len(token) for token in self.tokens))
        yield (
            f"{'token':>{width}}      gap  chance that a redraw changes it (both exact, at "
            f"temperature {self.temperature:g})"
        )
        for token, gap, leaving in zip(self.tokens, self.gaps, self.leaving, strict=True):
            yield f"{token:>{width}}  {gap:7.3f}  {leaving:.4g}"
        below = int((self.gaps <= 0).sum())
        trap = (
            "a perfect trap: every token is the likeliest at its site"
            if self.perfect
            else f"an approximate trap at most: {below} of {len(self.tokens)} tokens are not the "
            "likeliest"
        )
        yield (
            f"{trap}; smallest gap {self.margin:.4g}, mean {float(self.gaps.mean()):.4g} (exact)"
        )
        yield _bound_line(self.escape_bound)
        yield f"chance to leave in one step: {self.escape_rate:.4g} (exact)"
        yield f"mean holding time: {self.held} (exact)"

    @property
    def held(self) -> str:
        """The mean holding time in words."""
        held = self.holding_time
        return f"{held:,.4g} steps" if math.isfinite(held) else "beyond all numbers"

    def frame(self) -> "pandas.DataFrame":
        """One row per token."""
        import pandas

        columns = {"site": range(len(self.tokens)), "token": self.tokens, "gap": self.gaps}
        return pandas.DataFrame(columns | {"leaving": self.leaving})

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.certificates import plot_margins

        return {"gaps": plot_margins(self)}


def _bound_line(bound: float | None) -> str:
    if bound is None:
        return "the theorem's bound on that chance: none, because a gap is not positive"
    if bound == 0:
        return "the theorem's bound on the chance to leave: below the smallest number (upper bound)"
    vacuous = ", which says nothing" if bound >= 1 else f": held at least {1 / bound:,.4g} steps"
    return f"the theorem's bound on the chance to leave: {bound:.4g} (upper bound{vacuous})"


def margins_of(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, *, temperature: float = 1.0
) -> Margins:
    """Gaps and escape rate of the state tokens (length,), over its free sites (length,) bool."""
    check_temperature(temperature)
    sites = free.nonzero()[:, 0]
    if len(sites) == 0:
        raise GlauberError("every site of a text is frozen, so there is nothing to redraw.")
    scores = scores_alone(conditionals, tokens[None], sites)[0]
    present = tokens[sites, None]
    own = scores.gather(1, present)[:, 0]
    if bool((own == -torch.inf).any()):
        site = int(sites[int((own == -torch.inf).nonzero()[0, 0])])
        raise GlauberError(f"the token at site {site} may never be drawn, so it has no gap.")
    rest = scores.scatter(1, present, -torch.inf)
    # As a sum over the other tokens: 1 - pi(x_i) would lose every digit at low temperature.
    probs = torch.softmax(scores / temperature, dim=1)
    leaving = probs.scatter(1, present, 0.0).sum(1)
    return Margins(
        gaps=np.asarray((own - rest.amax(1)).cpu().numpy()),
        leaving=np.asarray(leaving.cpu().numpy()),
        sites=tuple(sites.tolist()),
        n_tokens=int((scores > -torch.inf).any(0).sum()),
        temperature=temperature,
    )


def escape_bound(margin: float, *, n_tokens: int, temperature: float) -> float:
    """(|V| - 1) exp(-margin / temperature), the theorem's bound on P(x, outside)."""
    return (n_tokens - 1) * math.exp(-margin / temperature)


@dataclass(frozen=True, eq=False)
class BasinMargin:
    """The margin of a basin and what it promises, beside the exact chances of leaving."""

    margin: float  # smallest s_i(x_i) - s_i(v) over all ways out; inf if there is none. Exact
    argmax: bool  # whether x_i is the argmax wherever a change can leave
    escape_rates: NDArray[np.float64]  # (rows,): P(x, outside A). Exact
    n_tokens: int
    temperature: float

    @property
    def holds(self) -> bool:
        """Whether the theorem applies."""
        return self.argmax and self.margin > 0

    @property
    def escape_bound(self) -> float | None:
        """Upper bound on every P(x, outside A); None where the theorem does not apply."""
        if not self.holds:
            return None
        return escape_bound(self.margin, n_tokens=self.n_tokens, temperature=self.temperature)

    @property
    def mixing_time_bound(self) -> float | None:
        """Lower bound on t_mix where the stationary law gives A at most 1/2: 1 / (4 bound)."""
        bound = self.escape_bound
        if bound is None:
            return None
        return math.inf if bound == 0 else 1 / (4 * bound)


def basin_margin(
    conditionals: Conditionals, states: Tensor, *, temperature: float = 1.0
) -> BasinMargin:
    """The margin of the basin made of the states (rows, length), all of whose sites are free."""
    check_temperature(temperature)
    if states.dim() != 2 or 0 in states.shape:
        raise GlauberError("a basin needs at least one state, each a row of tokens.")
    scores = scores_alone(conditionals, states, torch.arange(states.shape[1]))
    outside = _leaves(states, conditionals.vocab_size)
    own = scores.gather(2, states[:, :, None])  # (rows, length, 1)
    leaves = outside.any(-1)
    probs = torch.softmax(scores / temperature, dim=-1)
    return BasinMargin(
        margin=float((own - scores).masked_fill(~outside, torch.inf).amin()),
        argmax=bool((own[:, :, 0] >= scores.amax(-1))[leaves].all()),
        escape_rates=np.asarray((probs * outside).sum(-1).mean(1).numpy()),
        n_tokens=conditionals.vocab_size,
        temperature=temperature,
    )


def _leaves(states: Tensor, vocab_size: int) -> Tensor:
    """Whether token v at site i leads out of the set: (rows, length, vocab) bool."""
    inside = set(map(tuple, states.tolist()))
    out = torch.zeros((*states.shape, vocab_size), dtype=torch.bool)
    for row, state in enumerate(states.tolist()):
        for site in range(len(state)):
            for token in range(vocab_size):
                out[row, site, token] = (*state[:site], token, *state[site + 1 :]) not in inside
    return out
