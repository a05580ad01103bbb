"""How firmly does a state hold itself, and for how long?

The gap g_i(x) = s_i(x_i) - max over v != x_i of s_i(v) says by how much each token beats the best
other one. Where every gap is positive, each site's likeliest token is the one it has: a perfect
trap. The theorem bounds the chance of leaving in one step by the smallest gap; for a single state
the chance itself is known, so it stands beside the bound. Both are kept as logarithms: at low
temperatures float64 has no number for them.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals, check_temperature, scores_alone
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.result import plain

Floats = NDArray[np.float64]
LN10 = math.log(10)
LARGEST = 700.0  # logarithm, about, of the largest number that float64 has


@dataclass(frozen=True, eq=False)
class Margins:
    """The gaps of one state, and its chance of leaving, in logarithms.

    exact where the scores are in float64, up to its rounding; an estimate in any other dtype.
    """

    gaps: Floats  # (n,): g_i, in units of score, before the temperature
    log_leaving: Floats  # (n,): of the chance that a redraw of the site changes its token
    sites: tuple[int, ...]  # the n free sites, numbered in the row of tokens
    n_tokens: int  # tokens that may be proposed
    temperature: float
    dtype: str  # of the scores

    @property
    def kind(self) -> str:
        """What gaps, chances and holding time are."""
        return "exact" if self.dtype == "float64" else "estimate"

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
        return bounding(self.log_escape_bound)

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
    asked = conditionals.scores(tokens.repeat(len(sites), 1), sites[:, None])[:, 0]
    return margins_from(asked, tokens, sites, temperature=temperature)


def margins_from(
    asked: Tensor, tokens: Tensor, sites: Tensor, *, temperature: float = 1.0
) -> Margins:
    """The same from the scores asked (n, vocab) of the sites (n,), each hidden alone."""
    scores = asked.double()
    present = tokens[sites, None]
    own = scores.gather(1, present)
    if bool((own == -torch.inf).any()):
        site = int(sites[int((own[:, 0] == -torch.inf).nonzero()[0, 0])])
        raise GlauberError(f"the token at site {site} may never be drawn, so it has no gap.")
    # The odds of leaving, as a sum over the other tokens: 1 - pi(x_i) would lose every digit.
    rest = scores.scatter(1, present, -torch.inf) - own
    log_odds = torch.logsumexp(rest / temperature, dim=1)
    return Margins(
        gaps=np.asarray(-rest.amax(1).cpu().numpy()),
        log_leaving=np.asarray(torch.nn.functional.logsigmoid(log_odds).cpu().numpy()),
        sites=tuple(sites.tolist()),
        n_tokens=int((scores > -torch.inf).any(0).sum()),
        temperature=temperature,
        dtype=str(asked.dtype).removeprefix("torch."),
    )


def log_escape_bound(margin: float, *, n_tokens: int, temperature: float) -> float:
    """Logarithm of (|V| - 1) exp(-margin / temperature), the theorem's bound on P(x, outside)."""
    return (math.log(n_tokens - 1) if n_tokens > 1 else -math.inf) - margin / temperature


def bounding(log: float | None) -> float | None:
    """exp(log) as an upper bound: no smaller than the smallest number, but for a true zero."""
    if log is None or log == -math.inf:
        return None if log is None else 0.0
    return math.exp(min(max(log, -LARGEST), LARGEST)) if log < LARGEST else math.inf


def written(log: float) -> str:
    """exp(log) in four digits, or as a power of ten where float64 has no such number."""
    if log == -math.inf:
        return "0"
    return f"{math.exp(log):,.4g}" if abs(log) < LARGEST else f"10^{log / LN10:,.1f}"


def as_numbers(log: Any) -> Record:
    """exp(log) as JSON holds it: none where float64 has no such number; log10 says it always."""
    if log is None:
        return {"value": None, "log10": None}
    logs = np.asarray(log, np.float64)
    there = (np.abs(logs) < LARGEST) | (logs == -np.inf)
    values = np.where(there, np.exp(np.where(there, logs, 0.0)), np.nan)
    return {"value": plain(values), "log10": plain((logs / LN10).tolist())}


@dataclass(frozen=True, eq=False)
class BasinMargin:
    """The margin of a basin and what it promises, with the exact chances of leaving.

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
        return bounding(self.log_escape_bound)

    @property
    def log_escape_bound(self) -> float | None:
        """The logarithm of the bound, which float64 always has."""
        if not self.holds:
            return None
        return log_escape_bound(self.margin, n_tokens=self.n_tokens, temperature=self.temperature)

    @property
    def mixing_time_bound(self) -> float | None:
        """Lower bound on t_mix where the stationary law gives A at most 1/2: 1 / (4 bound).

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
