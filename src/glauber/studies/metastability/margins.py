"""Margins: the gap of each token of a text, the bound on its escape, and its holding time.

The gap g_i(x) = s_i(x_i) - max over v != x_i of s_i(v) says by how much each token's score exceeds
the best other one. Where every gap is positive, each site has its most probable token: a perfect
trap. The theorem bounds the probability of leaving in one step by the smallest gap; for a single
state that probability is known too. Both are kept as logarithms: at low temperatures float64 has no
number for them.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import ModelOrName, Temperature, Where, WhereAndDtype
from glauber.foundation.study import Result, internal, needed, reported, study
from glauber.models.base import Conditionals, Model, check_temperature, scores_alone
from glauber.models.load import load
from glauber.texts.starts import starts

Floats = NDArray[np.float64]
LN10 = math.log(10)
LARGEST = 700.0  # logarithm, about, of the largest number that float64 has
PRECISE = ("float32", "float64")  # dtypes that float64 answers for; coarser ones are shown too


@study
def margins(
    model: ModelOrName = "bundled:english",
    text: Annotated[str | None, "The text, taken as a state of the chain."] = None,
    *,
    temperature: Temperature = 1.0,
    **where: Unpack[WhereAndDtype],
) -> "MarginStudy":
    """Measure the gap of each token of a text, the bound on its escape and its holding time.

    The gap g_i is the score of token i less that of the best other one. Where all gaps are positive
    the theorem bounds the probability of leaving in one step by (|V| - 1) exp(-min gap /
    temperature) (paper A, Theorem 8); for a single state the probability itself is known
    too. All is computed in float64 and in logarithms; with bfloat16, the same for a chain drawn in
    it is shown next to it.
    """
    text = needed("text", text)
    coarse = _coarse(model, where)
    opened = load(model, exact=True, **(where | {"dtype": "float64"}))
    tokens, free = (part[0].to(opened.state_device) for part in starts(opened, [text]))
    exact = margins_of(opened.conditionals(), tokens, free, temperature=temperature)
    rounded = None
    if coarse is not None:
        device = coarse.state_device
        rounded = margins_of(
            coarse.conditionals(), tokens.to(device), free.to(device), temperature=temperature
        )
    return MarginStudy(
        model=opened.name,
        text=text,
        tokens=[opened.vocabulary.spell(int(tokens[site])) for site in exact.sites],
        margins=exact,
        rounded=None if rounded is None else RoundedMargins(rounded, exact),
    )


def _coarse(model: str | Conditionals, where: Where) -> Model | None:
    """The model in a dtype coarser than float32, if the user chose one."""
    if isinstance(model, str) and where.get("dtype", "float32") in PRECISE:
        return None
    opened = load(model, exact=True, **where)
    return None if opened.dtype in PRECISE else opened


@dataclass(frozen=True, eq=False)
class Margins:
    """The gaps of one state, and its probability of leaving, in logarithms.

    exact where the scores are in float64, up to its rounding; an estimate in any other dtype.
    """

    gaps: Floats  # (n,): g_i, in units of score, before the temperature
    log_leaving: Floats  # (n,): of the probability that a redraw of the site changes its token
    sites: tuple[int, ...]  # the n free sites, numbered in the row of tokens
    n_tokens: int  # tokens that may be proposed
    temperature: float
    dtype: str  # of the scores

    @property
    def kind(self) -> str:
        """Whether gaps, probabilities and the holding time are exact or estimates."""
        return "exact" if self.dtype == "float64" else "estimate"

    @property
    def bound_kind(self) -> str:
        """Whether the theorem's bound is one, or an estimate of it."""
        return "upper bound" if self.kind == "exact" else "estimate"

    @property
    def perfect(self) -> bool:
        """Whether every gap is positive; a metastable state without this is an approximate trap."""
        return bool((self.gaps > 0).all())

    @property
    def margin(self) -> float:
        """The smallest gap."""
        return float(self.gaps.min())

    @property
    def mean_gap(self) -> float:
        """Over the sites where another token can come; infinite where there is none."""
        open_sites = self.gaps[np.isfinite(self.gaps)]
        return float(open_sites.mean()) if len(open_sites) else math.inf

    @property
    def leaving(self) -> Floats:
        """Chance (n,) that a redraw of the site changes its token; 0 below 1e-308."""
        return np.asarray(np.exp(self.log_leaving))

    @property
    def log_escape_bound(self) -> float | None:
        """Of the theorem's bound on the chance to leave; None where a gap is not positive."""
        if not self.perfect:
            return None
        return log_escape_bound(self.margin, n_tokens=self.n_tokens, temperature=self.temperature)

    @property
    def escape_bound(self) -> float | None:
        """Upper bound on the chance to leave in one step; None where a gap is not positive."""
        return exp_upper(self.log_escape_bound)

    @property
    def vacuous(self) -> bool:
        """Whether the theorem's bound says nothing: a chance of one or more."""
        return self.log_escape_bound is not None and self.log_escape_bound >= 0

    @property
    def log_escape_rate(self) -> float:
        """Of the chance to leave in one step, 1/n sum_i (1 - pi_i(x_i | x_-i))."""
        return float(np.logaddexp.reduce(self.log_leaving) - math.log(len(self.log_leaving)))

    @property
    def escape_rate(self) -> float:
        """Chance to leave in one step; 0 below 1e-308, where its logarithm still is known."""
        return math.exp(self.log_escape_rate)

    @property
    def holding_time(self) -> float:
        """Mean number of steps until the state is first left; infinite above 1e308."""
        return math.exp(-self.log_escape_rate) if -self.log_escape_rate < LARGEST else math.inf


def margins_of(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, *, temperature: float = 1.0
) -> Margins:
    """Gaps and escape rate of the state tokens (length,), over its free sites (length,) bool."""
    check_temperature(temperature)
    sites = free.nonzero()[:, 0]
    if len(sites) == 0:
        raise GlauberError("every site of a text is frozen, so there is nothing to redraw.")
    scores = conditionals.scores(tokens.repeat(len(sites), 1), sites[:, None])[:, 0]
    return margins_from(scores, tokens, sites, temperature=temperature)


def margins_from(
    site_scores: Tensor, tokens: Tensor, sites: Tensor, *, temperature: float = 1.0
) -> Margins:
    """The same from the scores (n, vocab) of the sites (n,), each hidden alone."""
    scores = site_scores.double()
    present = tokens[sites, None]
    own = scores.gather(1, present)
    if bool((own == -torch.inf).any()):
        site = int(sites[int((own[:, 0] == -torch.inf).nonzero()[0, 0])])
        raise GlauberError(f"the token at site {site} may never be drawn, so it has no gap.")
    # The odds of leaving, as a sum over the other tokens: 1 - pi(x_i) would lose every digit.
    others = scores.scatter(1, present, -torch.inf) - own
    log_odds = torch.logsumexp(others / temperature, dim=1)
    return Margins(
        gaps=np.asarray(-others.amax(1).cpu().numpy()),
        log_leaving=np.asarray(torch.nn.functional.logsigmoid(log_odds).cpu().numpy()),
        sites=tuple(sites.tolist()),
        n_tokens=int((scores > -torch.inf).any(0).sum()),
        temperature=temperature,
        dtype=str(site_scores.dtype).removeprefix("torch."),
    )


def log_escape_bound(margin: float, *, n_tokens: int, temperature: float) -> float:
    """Logarithm of (|V| - 1) exp(-margin / temperature), the theorem's bound on P(x, outside)."""
    return (math.log(n_tokens - 1) if n_tokens > 1 else -math.inf) - margin / temperature


def exp_upper(log: float | None) -> float | None:
    """exp(log) as an upper bound: no smaller than the smallest number, but for a true zero."""
    if log is None or log == -math.inf:
        return None if log is None else 0.0
    return math.exp(min(max(log, -LARGEST), LARGEST)) if log < LARGEST else math.inf


def format_log(log: float) -> str:
    """exp(log) in four digits, or as a power of ten where float64 has no such number."""
    if log == -math.inf:
        return "0"
    return f"{math.exp(log):,.4g}" if abs(log) < LARGEST else f"10^{log / LN10:,.1f}"


def log_to_json(log: ArrayLike | None, kind: str) -> dict[str, object]:
    """exp(log) for JSON, with its kind: null where float64 has no such number; log10 always."""
    if log is None:
        return {"value": None, "log10": None, "kind": kind}
    logs = np.asarray(log, np.float64)
    known = (np.abs(logs) < LARGEST) | (logs == -np.inf)
    values = np.where(known, np.exp(np.where(known, logs, 0.0)), np.nan)
    return {"value": values, "log10": logs / LN10, "kind": kind}


@dataclass(frozen=True, eq=False)
class RoundedMargins:
    """The margins that a chain drawn in a coarser dtype follows: estimates of the exact ones."""

    margins: Margins = internal()
    exact: Margins = internal()

    @reported
    def dtype(self) -> str:
        return self.margins.dtype

    @reported
    def gaps(self) -> Floats:
        return self.margins.gaps

    @reported
    def holding_time(self) -> dict[str, object]:
        return log_to_json(-self.margins.log_escape_rate, "estimate")

    @reported
    def log10_error(self) -> float:
        """Of the holding time: the logarithm of its ratio to the exact one."""
        return (self.exact.log_escape_rate - self.margins.log_escape_rate) / LN10


@dataclass(frozen=True, eq=False)
class MarginStudy(Result):
    """How firmly each token of a text is held, and how long the text is."""

    model: str
    text: str
    tokens: list[str]  # at the free sites, as the vocabulary spells them
    rounded: RoundedMargins | None  # the same in a coarser dtype, if that was chosen
    margins: Margins = internal()

    FIGURES = {"gaps": "glauber.interfaces.plots.metastability:plot_margins"}

    @reported
    def temperature(self) -> float:
        """The temperature of the chain."""
        return self.margins.temperature

    @reported
    def dtype(self) -> str:
        """The dtype of the scores."""
        return self.margins.dtype

    @reported
    def perfect(self) -> bool:
        """Whether every gap is positive: a perfect trap."""
        return self.margins.perfect

    @reported
    def gaps(self) -> dict[str, object]:
        """The gap of each token."""
        return {"value": self.margins.gaps, "kind": self.margins.kind}

    @reported
    def leaving(self) -> dict[str, object]:
        """Probability that a redraw of a site changes its token."""
        return log_to_json(self.margins.log_leaving, self.margins.kind)

    @reported
    def mean_gap(self) -> dict[str, object]:
        """Mean of the gaps."""
        return {"value": self.margins.mean_gap, "kind": self.margins.kind}

    @reported
    def smallest_gap(self) -> dict[str, object]:
        """The smallest gap, which the theorem uses."""
        return {"value": self.margins.margin, "kind": self.margins.kind}

    @reported
    def escape_rate(self) -> dict[str, object]:
        """Probability of leaving the text in one step."""
        return log_to_json(self.margins.log_escape_rate, self.margins.kind)

    @reported
    def holding_time(self) -> dict[str, object]:
        """Mean number of steps until the text is left."""
        return log_to_json(-self.margins.log_escape_rate, self.margins.kind)

    @reported
    def escape_bound(self) -> dict[str, object]:
        """The theorem's bound on the probability of leaving."""
        return log_to_json(self.margins.log_escape_bound, self.margins.bound_kind)

    @reported
    def vacuous(self) -> bool:
        """Whether that bound is 1 or more."""
        return self.margins.vacuous

    @property
    def holding_text(self) -> str:
        """The mean holding time in words."""
        log = -self.margins.log_escape_rate
        if not math.isfinite(log):
            return "infinite: no other token is possible"
        return f"{format_log(log)} steps"

    def lines(self) -> Iterable[str]:
        margins, kind = self.margins, self.margins.kind
        width = max(5, *(len(token) for token in self.tokens))
        yield (
            f"{'token':>{width}}      gap  probability that a redraw changes it (both {kind}, in "
            f"{self.dtype}, at temperature {self.temperature:g})"
        )
        for token, gap, leaving in zip(self.tokens, margins.gaps, margins.log_leaving, strict=True):
            yield f"{token:>{width}}  {gap:7.3f}  {format_log(leaving)}"
        below = int((margins.gaps <= 0).sum())
        trap = (
            "a perfect trap: every token is the most probable one at its site"
            if self.perfect
            else f"an approximate trap at most: {below} of {len(self.tokens)} tokens are not the "
            "most probable"
        )
        yield f"{trap}; smallest gap {margins.margin:.4g}, mean {margins.mean_gap:.4g} ({kind})"
        yield self._bound_line()
        yield f"probability of leaving in one step: {format_log(margins.log_escape_rate)} ({kind})"
        yield f"mean holding time: {self.holding_text} ({kind})"
        if self.rounded is not None:
            coarse = self.rounded.margins
            ratio = format_log(margins.log_escape_rate - coarse.log_escape_rate)
            yield (
                f"in {coarse.dtype}, for a chain drawn in it: "
                f"{format_log(-coarse.log_escape_rate)} steps, {ratio} times the exact holding "
                "time (estimate)"
            )

    def _bound_line(self) -> str:
        log = self.margins.log_escape_bound
        if log is None:
            return "the theorem's bound on that probability: none, because a gap is not positive"
        meaning = ", vacuous" if self.vacuous else f": at least {format_log(-log)} steps"
        return (
            f"the theorem's bound on the probability of leaving: {format_log(log)} "
            f"({self.margins.bound_kind}{meaning})"
        )

    def table(self) -> Mapping[str, object]:
        """One row per token."""
        return {
            "site": range(len(self.tokens)),
            "token": self.tokens,
            "gap": self.margins.gaps,
            "leaving": self.margins.leaving,
            "log10_leaving": self.margins.log_leaving / LN10,
        }


@dataclass(frozen=True, eq=False)
class BasinMargin:
    """The margin of a basin and the bounds that follow, with the exact probabilities of leaving.

    "Exact" means up to the rounding of the scores' own dtype: give conditionals in float64.
    """

    margin: float  # smallest s_i(x_i) - s_i(v) over all ways out; inf if there is none. Exact
    argmax: bool  # whether x_i is the argmax wherever a change can leave
    log_escape_rates: Floats  # (rows,): log P(x, outside A). Exact
    n_tokens: int
    temperature: float

    @property
    def escape_rates(self) -> Floats:
        """P(x, outside A) (rows,); 0 below 1e-308, where its logarithm still is known."""
        return np.asarray(np.exp(self.log_escape_rates))

    @property
    def log10_escape_rates(self) -> Floats:
        """The decimal logarithms (rows,) of the rates."""
        return np.asarray(self.log_escape_rates / LN10)

    @property
    def holds(self) -> bool:
        """Whether the theorem applies."""
        return self.argmax and self.margin > 0

    @property
    def escape_bound(self) -> float | None:
        """Upper bound on every P(x, outside A); None where the theorem does not apply."""
        return exp_upper(self.log_escape_bound)

    @property
    def log_escape_bound(self) -> float | None:
        """The logarithm of the bound, which float64 always has."""
        if not self.holds:
            return None
        return log_escape_bound(self.margin, n_tokens=self.n_tokens, temperature=self.temperature)

    @property
    def mixing_time_bound(self) -> float | None:
        """Lower bound on t_mix where A has stationary probability at most 1/2: 1 / (4 bound).

        At most the largest number of float64, which a lower bound may be cut at.
        """
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
    log_probs = torch.log_softmax(scores / temperature, dim=-1).masked_fill(~outside, -torch.inf)
    log_rates = log_probs.flatten(1).logsumexp(1) - math.log(states.shape[1])
    return BasinMargin(
        margin=float((own - scores).masked_fill(~outside, torch.inf).amin()),
        argmax=bool((own[:, :, 0] >= scores.amax(-1))[leaves].all()),
        log_escape_rates=np.asarray(log_rates.numpy()),
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
