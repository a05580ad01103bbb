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
from typing import Annotated, Literal, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import ModelOrName, Temperature, Where, WhereAndDtype
from glauber.foundation.study import Result, internal, needed, reported, study
from glauber.models.base import Conditionals, Model, check_temperature, scores_alone
from glauber.models.batching import in_parts
from glauber.models.load import load
from glauber.texts.starts import starts

Floats = NDArray[np.float64]
LN10 = math.log(10)
LARGEST = 700.0  # logarithm, about, of the largest number that float64 has
PRECISE = ("float32", "float64")  # dtypes that float64 answers for; coarser ones are shown too

Neighbours = Annotated[
    int, "Most probable texts one token away, for the exit time (0: not measured).", Whole(0, 10**6)
]


@study
def margins(
    model: ModelOrName = "bundled:english",
    text: Annotated[str | None, "The text, taken as a state of the chain."] = None,
    *,
    temperature: Temperature = 1.0,
    neighbours: Neighbours = 0,
    **where: Unpack[WhereAndDtype],
) -> "MarginStudy":
    """Measure the gap of each token of a text, the bound on its escape and its holding time.

    The gap g_i is the score of token i less that of the best other one. Where all gaps are positive
    the theorem bounds the probability of leaving in one step by (|V| - 1) exp(-min gap /
    temperature) (paper A, Theorem 8); for a single state the probability itself is known
    too. All is computed in float64 and in logarithms; with bfloat16, the same for a chain drawn in
    it is shown next to it. With neighbours, the mean time until two tokens differ at once is
    bounded from below: an approximate trap may hold for much longer than its text.
    """
    text = needed("text", text)
    coarse = _coarse(model, where)
    opened = load(model, exact=True, **(where | {"dtype": "float64"}))
    tokens, free = (part[0].to(opened.state_device) for part in starts(opened, [text]))
    conditionals = opened.conditionals()
    exact = margins_of(conditionals, tokens, free, temperature=temperature)
    around = None
    if neighbours:
        around = neighbourhood_of(
            conditionals, tokens, free, temperature=temperature, neighbours=neighbours
        )
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
        neighbourhood=around,
    )


def _coarse(model: str | Conditionals, where: Where) -> Model | None:
    """The model in a dtype coarser than float32, if the user chose one."""
    if isinstance(model, str) and where.get("dtype", "float32") in PRECISE:
        return None
    opened = load(model, exact=True, **where)
    return None if opened.dtype in PRECISE else opened


PERFECT, APPROXIMATE = "perfect", "approximate"  # types of traps


@dataclass(frozen=True, eq=False)
class Margins:
    """The gaps of one state, and its probability of leaving, in logarithms.

    exact where the scores are in float64, up to its rounding; an estimate in any other dtype.
    """

    gaps: Floats  # (n,): g_i, in units of score, before the temperature
    log_leaving: Floats  # (n,): of the probability that a redraw of the site changes its token
    log_likelihood: Floats  # (n,): log pi_i(x_i | x_-i) at temperature 1
    log_moves: float  # of the effective number of moves by which the state is left
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
    def coherence(self) -> float:
        """Pseudo-log-likelihood per token at temperature 1, in nats."""
        return float(self.log_likelihood.mean())

    @property
    def escape_moves(self) -> float:
        """exp(entropy) of the site and token that end the state; 0 where no other is possible."""
        return math.exp(self.log_moves)

    @property
    def log_looseness(self) -> tuple[float, float] | None:
        """Logarithm of bound / probability of leaving, in two parts that are never negative.

        By the prefactor, which counts every other token as likely as the best one, and by the
        smallest gap, which is used for every site. None without a bound.
        """
        if not self.perfect or math.isinf(self.margin):
            return None
        own_gaps = float(np.logaddexp.reduce(-self.gaps / self.temperature))
        own_gaps -= math.log(len(self.gaps))
        by_prefactor = math.log(self.n_tokens - 1) + own_gaps - self.log_escape_rate
        return by_prefactor, -self.margin / self.temperature - own_gaps

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
    present = tokens[sites]
    own = scores.gather(1, present[:, None])
    if bool((own == -torch.inf).any()):
        site = int(sites[int((own[:, 0] == -torch.inf).nonzero()[0, 0])])
        raise GlauberError(f"the token at site {site} may never be drawn, so it has no gap.")
    others, log_odds = _odds_of_leaving(scores, present, temperature)
    log_leaving = torch.nn.functional.logsigmoid(log_odds)
    _, log_odds_at_1 = _odds_of_leaving(scores, present, 1.0)
    # Of each site and token among the departures: the site is as likely as any.
    log_moves = others / temperature - torch.nn.functional.softplus(log_odds)[:, None]
    log_moves = log_moves - torch.logsumexp(log_leaving, 0)
    possible = others > -torch.inf
    entropy = -(log_moves.exp() * log_moves)[possible].sum()
    return Margins(
        gaps=np.asarray(-others.amax(1).cpu().numpy()),
        log_leaving=np.asarray(log_leaving.cpu().numpy()),
        log_likelihood=np.asarray(-torch.nn.functional.softplus(log_odds_at_1).cpu().numpy()),
        log_moves=float(entropy) if bool(possible.any()) else -math.inf,
        sites=tuple(sites.tolist()),
        n_tokens=int((scores > -torch.inf).any(0).sum()),
        temperature=temperature,
        dtype=str(site_scores.dtype).removeprefix("torch."),
    )


def _odds_of_leaving(scores: Tensor, present: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Scores (..., vocab) of the other tokens less the present one's, and log odds (...) of one.

    A sum over the other tokens: 1 - pi(x_i) would lose every digit.
    """
    own = scores.gather(-1, present[..., None])
    others = scores.scatter(-1, present[..., None], -torch.inf) - own
    return others, torch.logsumexp(others / temperature, dim=-1)


class Firmness:
    """How firmly a text keeps its tokens, for objects that have its `margins`."""

    margins: Margins

    @reported
    def mean_gap(self) -> float:
        return self.margins.mean_gap

    @reported
    def min_gap(self) -> float:
        return self.margins.margin

    @reported
    def type(self) -> str:
        """perfect, or approximate."""
        return PERFECT if self.margins.perfect else APPROXIMATE

    @reported
    def coherence(self) -> float:
        """Pseudo-log-likelihood per token of the text, at temperature 1."""
        return self.margins.coherence

    @reported
    def escape_moves(self) -> float:
        """The effective number of moves by which the text is left."""
        return self.margins.escape_moves


@dataclass(frozen=True)
class Neighbourhood:
    """How long the texts within one token of a state hold together, where its text alone does not.

    Some texts that differ in one token are followed; a move to any other one counts as an exit, so
    the mean exit time is a lower bound unless all of them are.
    """

    n_neighbours: int
    covered: float  # share of the departures from the state that lead to one of them
    reinforcement: float  # nats of log pi, at the temperature, that a departure costs another token
    kind: Literal["exact", "lower bound"]  # of the exit time
    log_exit_time: float = internal()  # from the state until two tokens differ at once

    @reported
    def exit_time(self) -> dict[str, object]:
        """Mean steps until two tokens differ at once."""
        return log_to_json(self.log_exit_time, self.kind)


def neighbourhood_of(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    *,
    temperature: float = 1.0,
    neighbours: int,
) -> Neighbourhood:
    """The exit time from the state tokens (length,) and its most probable neighbours.

    With pi_i of the state, K_i the neighbours at site i, and L_u the sum over the other sites of
    the probability that a redraw changes their token in neighbour u, the mean exit time h solves
    h = 1 + (1 - sum_i (1 - pi_i(x_i)) / n) h + sum_i sum_{u in K_i} pi_i(u) h_u / n and
    h_u = (n + pi_i(x_i) h + sum_{v in K_i} pi_i(v) h_v) / (1 + L_u).
    """
    check_temperature(temperature)
    sites = free.nonzero()[:, 0]
    n, present = len(sites), tokens[sites]
    scores = scores_alone(conditionals, tokens[None], sites)[0]
    others, log_odds = _odds_of_leaving(scores, present, temperature)
    log_own = -torch.nn.functional.softplus(log_odds)
    log_probs = others / temperature + log_own[:, None]
    kept = log_probs.flatten().topk(min(neighbours, int((others > -torch.inf).sum())))
    site, token = kept.indices // others.shape[1], kept.indices % others.shape[1]
    log_stay, log_leave = (
        part.cpu()
        for part in _after_a_departure(conditionals, tokens, sites, site, token, temperature)
    )
    site, log_p, log_own = site.cpu(), kept.values.cpu(), log_own.cpu()
    elsewhere = torch.arange(n) != site[:, None]  # (kept, n)
    log_sum = log_leave.masked_fill(~elsewhere, -torch.inf).logsumexp(1)  # log L_u
    log_rest = log_probs.flatten().scatter(0, kept.indices, -torch.inf).view_as(others).logsumexp(1)
    same_site = torch.arange(n)[:, None] == site  # (n, kept)

    def by_site(values: Tensor) -> Tensor:
        """log of the sum of exp(values) (kept,) over the neighbours at each site, (n,)."""
        return values.expand(n, -1).masked_fill(~same_site, -torch.inf).logsumexp(1)

    inside = log_p - torch.nn.functional.softplus(log_sum)  # pi_i(u) / (1 + L_u)
    log_a, log_b = by_site(inside), torch.logaddexp(log_rest.cpu(), by_site(inside + log_sum))
    log_d = torch.logaddexp(log_own, log_b)
    log_time = torch.logaddexp(torch.zeros(()).double(), (log_a - log_d).logsumexp(0))
    log_time = math.log(n) + log_time - (log_b - log_d).logsumexp(0)
    weight = torch.softmax(log_p, 0)
    lowered = (log_own - log_stay).masked_fill(~elsewhere, 0).sum(1) / max(1, n - 1)
    log_left = torch.nn.functional.logsigmoid(log_odds).logsumexp(0).cpu()
    return Neighbourhood(
        log_exit_time=float(log_time),
        n_neighbours=len(log_p),
        covered=float((log_p.logsumexp(0) - log_left).exp().clamp(max=1)),
        reinforcement=float((weight * lowered).sum()),
        kind="exact" if bool((log_rest == -torch.inf).all()) else "lower bound",
    )


def _after_a_departure(
    conditionals: Conditionals,
    tokens: Tensor,
    sites: Tensor,
    site: Tensor,
    token: Tensor,
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities (kept, n) that a redraw leaves each site alone, and that it changes it.

    In the texts with another token (kept,) at one of the sites, numbered by site (kept,).
    """
    texts = tokens.repeat(len(site), 1)
    texts[torch.arange(len(site), device=texts.device), sites[site]] = token
    stay, leave = [], []
    for rows in in_parts(torch.arange(len(texts)), len(sites) * conditionals.vocab_size):
        scores = scores_alone(conditionals, texts[rows], sites)
        _, log_odds = _odds_of_leaving(scores, texts[rows][:, sites], temperature)
        stay.append(-torch.nn.functional.softplus(log_odds))
        leave.append(torch.nn.functional.logsigmoid(log_odds))
    return torch.cat(stay), torch.cat(leave)


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
    neighbourhood: Neighbourhood | None = None  # the texts one token away, if asked for
    margins: Margins = internal(kw_only=True)

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

    @reported
    def looseness(self) -> dict[str, object] | None:
        """Decimal logarithm of bound / probability, by its prefactor and by its smallest gap."""
        parts = self.margins.log_looseness
        if parts is None:
            return None
        names = "log10_by_prefactor", "log10_by_smallest_gap"
        both = {name: part / LN10 for name, part in zip(names, parts, strict=True)}
        return both | {"kind": self.margins.kind}

    @reported
    def escape_moves(self) -> dict[str, object]:
        """The effective number of moves by which the text is left: exp(entropy)."""
        return {"value": self.margins.escape_moves, "kind": self.margins.kind}

    @reported
    def coherence(self) -> dict[str, object]:
        """Pseudo-log-likelihood per token at temperature 1."""
        return {"value": self.margins.coherence, "kind": self.margins.kind}

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
        yield (
            f"pseudo-log-likelihood per token at temperature 1: {margins.coherence:.4g}; effective "
            f"number of moves that leave the text: {margins.escape_moves:,.4g} ({kind})"
        )
        yield self._bound_line()
        if self.neighbourhood is not None:
            yield self._exit_line(self.neighbourhood)
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
        parts = self.margins.log_looseness
        loose = ""
        if parts is not None:
            prefactor, smallest = map(format_log, parts)
            loose = f"; too large by {prefactor} (prefactor) x {smallest} (smallest gap)"
        return (
            f"the theorem's bound on the probability of leaving: {format_log(log)} "
            f"({self.margins.bound_kind}{meaning}{loose})"
        )

    def _exit_line(self, around: Neighbourhood) -> str:
        return (
            f"mean time until two tokens differ at once: {format_log(around.log_exit_time)} steps "
            f"({around.kind}, from {around.n_neighbours:,} texts one token away, "
            f"{around.covered:.0%} of the departures); a departure lowers the log-probability of "
            f"another token by {around.reinforcement:.3g} on average"
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
