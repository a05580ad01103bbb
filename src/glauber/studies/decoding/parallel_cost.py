"""The cost of filling hidden tokens at once, and a plan of which to fill together.

With all sites of a set hidden, filling i and j at once draws from p_i p_j; filling i first draws
from p_i p_{j | i}. Both have the same distribution at i, so
    total variation = E_{a ~ p_i} TV(p_j, p_{j | i = a}),
    divergence      = E_{a ~ p_i} KL(p_{j | i = a} || p_j), in nats.

The sequential distribution q of more sites draws them in an order, each given those before it; the
distribution r of one pass draws each from its conditional with the whole group hidden. From draws
of q,
    TV(q, r) = E_q (1 - r/q)_+,   KL(q || r) = E_q sum_t KL(p_t given the past || p_t before).

For conditionals with a joint distribution every order gives the same numbers. Those of a masked LM
have none, so each order has its own q: of pairs both orders are reported, of more sites the mean
over orders drawn at random is estimated.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor

from glauber.dynamics.draws import first_above
from glauber.foundation.checks import Real, Share, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import (
    Freeze,
    HiddenSites,
    ModelOrName,
    Seed,
    Temperature,
    Unknown,
    WhereAndDtype,
)
from glauber.foundation.progress import Advance, check_memory, say, track
from glauber.foundation.statistics import Estimate, Floats, mean_over_chains
from glauber.foundation.study import Result, internal, needed, reported, study
from glauber.models.base import Conditionals, check_temperature, log_probs
from glauber.models.batching import in_parts
from glauber.models.load import load
from glauber.texts.starts import read_sites, starts

ZERO_COST = Estimate(0.0, (0.0, 0.0), "exact", standard_error=0.0)
HALVINGS = 8  # of the threshold for pairs, before every site gets a group of its own
MAX_PRINTED = 10  # pairs
ROUNDING = 1e-4  # of a total variation from scores in float32
PLOTS = "glauber.interfaces.plots.generation"


@study
def parallel_cost(
    model: ModelOrName = "bundled:english",
    text: Annotated[str | None, "The sentence."] = None,
    *,
    sites: HiddenSites = "",
    hide: Annotated[
        float,
        "Share of tokens hidden, if no sites are named.",
        Real(0.0, 1.0, above=True),
    ] = 0.4,
    freeze: Freeze = (),
    error: Annotated[float, "Total variation that a group may cost.", Share] = 0.1,
    top: Annotated[int, "Most probable tokens tried at the first of two sites.", Whole()] = 32,
    samples: Annotated[int, "Sequential fills for groups above two.", Whole(2)] = 64,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    unknown: Unknown = "error",
    **where: Unpack[WhereAndDtype],
) -> "ParallelCost":
    """Measure what filling hidden tokens at once costs, and plan which to fill together.

    The cost is the distance between the distribution of one pass, in which each hidden token is
    drawn by itself, and that of filling them one after the other (paper B: why parallel decoding
    loses dependencies). Of pairs it is bounded, of larger groups estimated from sequential fills;
    the conditionals of a masked LM agree on no joint distribution, so costs are means over orders.
    `calibrate` finds how many tokens a pass may fill in any text.
    """
    text = needed("text", text)
    check_temperature(temperature)
    chosen, frozen = read_sites(sites), read_sites(freeze)
    loaded = load(model, exact=True, **where)
    tokens, free = (
        part[0].to(loaded.state_device) for part in starts(loaded, [text], unknown=unknown)
    )
    columns = free.nonzero()[:, 0]
    numbers = _hidden_numbers(len(columns), chosen, frozen, hide, seed)
    hidden = columns[torch.tensor(numbers, device=columns.device)]
    n = len(hidden)
    check_memory(64.0 * samples * n, f"{samples:,} fills of {n} tokens")
    say(
        f"{n} hidden tokens: {n * top:,} rows through the model for pairs, {samples * n:,} for "
        f"larger groups, at most {(HALVINGS + 1) * samples * n:,} for the plan"
    )
    conditionals = loaded.conditionals()
    with track("rows", n * top + (HALVINGS + 2) * samples * n) as advance:
        sampling = Sampling(samples, temperature, seed, advance)
        pairs = pair_costs(
            conditionals, tokens, hidden, top=top, temperature=temperature, advance=advance
        )
        by_count = cost_by_count(conditionals, tokens, hidden, sampling)
        plan = filling_plan(conditionals, tokens, pairs, sampling, error=error)
    spellings = [loaded.vocabulary.spell(int(tokens[site])) for site in hidden.tolist()]
    return ParallelCost(
        model=loaded.name,
        temperature=temperature,
        samples=samples,
        seed=seed,
        sites=numbers,
        spellings=spellings,
        pairs=pairs,
        by_count=by_count,
        filling_plan=plan,
    )


def _hidden_numbers(
    n: int, chosen: list[int], frozen: list[int], share: float, seed: int
) -> list[int]:
    """The numbers of the hidden tokens of n: the chosen ones, or a random share of the others.

    All of them are as people count: from 0, without special tokens.
    """
    if any(site >= n for site in (*chosen, *frozen)):
        raise GlauberError(f"a site lies outside the text: its tokens are 0 to {n - 1}.")
    if both := sorted({*chosen} & {*frozen}):
        raise GlauberError(f"token {both[0]} cannot be hidden and frozen at once.")
    if chosen:
        return chosen
    shuffled = np.random.default_rng(seed).permutation(n).tolist()
    free = [site for site in shuffled if site not in {*frozen}]
    return sorted(free[: max(2, round(share * n))])


# ---- pairs


@dataclass(frozen=True, eq=False)
class PairCosts:
    """Cost [first, second] (n, n) of filling two of n hidden sites at once; 0 at first = second.

    The `top` most probable tokens of the first site are tried. What they leave out has the mass
    rest (n,), and costs between nothing and the upper bound: so every number here is a lower bound,
    and at_most its upper bound. Where rest is 0 both are exact.
    """

    total_variation: Floats
    divergence: Floats
    rest: Floats  # (n,) mass of the first site's tokens that were not tried
    divergence_at_most: Floats  # (n, n)
    top: int
    sites: tuple[int, ...] = internal()

    @reported
    def kind(self) -> str:
        return "exact" if not self.rest.any() else "lower bound"

    @reported
    def at_most(self) -> Floats:
        """Upper bounds (n, n) on the total variation."""
        bound = self.total_variation + self.rest[:, None]
        return np.where(np.eye(len(bound), dtype=bool), 0.0, np.minimum(bound, 1.0))

    @property
    def mean(self) -> Floats:
        """The mean (n, n) of the two orders, symmetric: of the lower bounds."""
        return (self.total_variation + self.total_variation.T) / 2

    @property
    def mean_at_most(self) -> Floats:
        """The mean (n, n) of the two orders, symmetric: of the upper bounds."""
        return (self.at_most + self.at_most.T) / 2

    @property
    def order_gap(self) -> float:
        """The largest difference between the two orders of a pair, over the tokens tried."""
        return float(np.abs(self.total_variation - self.total_variation.T).max())

    @property
    def order_gap_at_least(self) -> float:
        """A lower bound of that difference over all tokens; above 0, no joint distribution."""
        return max(float((self.total_variation - self.at_most.T).max()), 0.0)

    def by_distance(self) -> dict[int, tuple[float, int]]:
        """The mean cost of the pairs at each distance |i - j| in the text, and how many."""
        costs: dict[int, list[float]] = {}
        for a, first in enumerate(self.sites):
            for b in range(a + 1, len(self.sites)):
                costs.setdefault(abs(self.sites[b] - first), []).append(float(self.mean[a, b]))
        return {far: (float(np.mean(each)), len(each)) for far, each in sorted(costs.items())}


def pair_costs(
    conditionals: Conditionals,
    tokens: Tensor,
    sites: Tensor,
    *,
    top: int = 32,
    temperature: float = 1.0,
    advance: Advance | None = None,
) -> PairCosts:
    """The cost of every ordered pair of sites (n,), all n hidden, in tokens (length,)."""
    n = len(sites)
    if n < 2:
        raise GlauberError(f"{n} sites are hidden, but at least two are needed.")
    apart = log_probs(conditionals, tokens[None], sites[None], temperature=temperature)[0]
    if bool(apart.isnan().any()):
        raise GlauberError(f"the scores are not finite at temperature {temperature:g}.")
    variation, divergence, limit = (np.zeros((n, n)) for _ in range(3))
    untried = np.zeros(n)
    for first in range(n):
        others = torch.arange(n, device=sites.device) != first
        probs, tried = apart[first].exp().topk(min(top, conditionals.vocab_size))
        tried, probs = tried[probs > 0], probs[probs > 0]
        untried[first] = max(float(apart[first].exp().sum() - probs.sum()), 0.0)
        if len(tried) == int((apart[first] > -torch.inf).sum()):
            untried[first] = 0.0  # all of them; what is left is rounding
        columns = others.cpu().numpy()
        for part in in_parts(torch.arange(len(tried)), n * conditionals.vocab_size):
            rows = tokens.repeat(len(part), 1)
            rows[:, sites[first]] = tried[part]
            seen = sites[others].repeat(len(part), 1)
            after = log_probs(conditionals, rows, seen, temperature=temperature)
            far = (after.exp() - apart[others].exp()).abs().sum(-1) / 2
            weights = probs[part][:, None]
            variation[first, columns] += (weights * far).sum(0).cpu().numpy()
            kl = divergences(after, apart[others])
            divergence[first, columns] += (weights * kl).sum(0).cpu().numpy()
            if advance is not None:
                advance(len(part))
        # No KL from these distributions on the same tokens exceeds -log of the least probability.
        allowed = torch.where(apart[others] == -torch.inf, torch.inf, apart[others])
        limit[first, columns] = (-allowed.amin(-1)).cpu().numpy()
    at_most = divergence + np.where(untried[:, None] > 0, untried[:, None] * limit, 0.0)
    return PairCosts(variation, divergence, untried, at_most, top, tuple(sites.tolist()))


def divergences(after: Tensor, before: Tensor) -> Tensor:
    """KL(after || before) over the last axis of log_probs, in nats."""
    probs = after.exp()
    terms = probs * (after - before)
    return torch.where(probs > 0, terms, 0.0).sum(-1).clamp(min=0)


# ---- groups, from sequential fills


@dataclass(frozen=True)
class FillCost:
    """The cost of filling some sites at once; divergence in nats."""

    n_sites: int
    total_variation: Estimate
    divergence: Estimate

    def text(self) -> str:
        return f"total variation {self.total_variation.text()}, KL {self.divergence.text()}"


class Sampling(NamedTuple):
    """How sequential fills are drawn."""

    samples: int = 64
    temperature: float = 1.0
    seed: int = 0
    advance: Advance | None = None


class SequentialFills(NamedTuple):
    """Samples of the sequential fill, step by step: each (samples, steps).

    log_in_turn: log-probability of the drawn token given the past; log_at_once: given only the
    tokens before its group began; divergence: KL between these two distributions.
    """

    log_in_turn: Floats
    log_at_once: Floats
    divergence: Floats

    def cost(self, steps: slice) -> FillCost:
        """The cost of the sites drawn in these steps, were they drawn at once."""
        log_ratio = (self.log_at_once - self.log_in_turn)[:, steps].sum(axis=1)
        divergence = self.divergence[:, steps]
        n_sites = divergence.shape[1]
        if n_sites == 1:  # one site alone: nothing is lost
            return FillCost(1, ZERO_COST, ZERO_COST)
        missed = -np.expm1(np.minimum(log_ratio, 0.0))
        return FillCost(
            n_sites,
            mean_over_chains(missed, bounds=(0.0, 1.0)),
            mean_over_chains(divergence.sum(axis=1), bounds=(0.0, np.inf)),
        )


def cost_by_count(
    conditionals: Conditionals, tokens: Tensor, sites: Tensor, sampling: Sampling
) -> list[FillCost]:
    """The cost of filling k = 1 to n of the n hidden sites (n,) at once, means over random k.

    One fill in a random order of all sites serves every k: its first k sites are a random set in a
    random order.
    """
    fills = sequential_fills(conditionals, tokens, [sites.tolist()], sampling)
    return [fills.cost(slice(0, k)) for k in range(1, len(sites) + 1)]


def cost_of_groups(
    conditionals: Conditionals, tokens: Tensor, groups: Sequence[Sequence[int]], sampling: Sampling
) -> tuple[list[FillCost], FillCost]:
    """The cost of filling groups one after the other, each at once; and that of the whole plan.

    A group's cost is a mean over the tokens of the groups before it, drawn from the sequential
    fill. All sites of all groups are hidden at first.
    """
    fills = sequential_fills(conditionals, tokens, groups, sampling)
    ends = np.cumsum([len(group) for group in groups]).tolist()
    costs = [
        fills.cost(slice(end - len(group), end)) for group, end in zip(groups, ends, strict=True)
    ]
    return costs, fills.cost(slice(0, ends[-1]))


def sequential_fills(
    conditionals: Conditionals, tokens: Tensor, groups: Sequence[Sequence[int]], sampling: Sampling
) -> SequentialFills:
    """Fills of the groups in their order, each group shuffled anew in every sample."""
    random = np.random.default_rng(sampling.seed)
    orders = torch.from_numpy(
        np.stack(
            [
                np.concatenate([random.permutation(list(group)) for group in groups])
                for _ in range(sampling.samples)
            ]
        )
    ).to(tokens.device)
    generator = torch.Generator().manual_seed(sampling.seed)
    uniforms = torch.rand(orders.shape, generator=generator, dtype=torch.float64)
    batches = []
    for rows in in_parts(torch.arange(len(orders)), orders.shape[1] * conditionals.vocab_size * 2):
        steps = _fill(conditionals, tokens, orders[rows], uniforms[rows], groups, sampling)
        columns = [torch.stack(column, dim=1) for column in zip(*steps, strict=True)]
        batches.append([column.cpu().numpy() for column in columns])
    return SequentialFills(*(np.concatenate(column) for column in zip(*batches, strict=True)))


def _fill(
    conditionals: Conditionals,
    tokens: Tensor,
    orders: Tensor,
    uniforms: Tensor,
    groups: Sequence[Sequence[int]],
    sampling: Sampling,
) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
    """Of each step of some samples (samples, n): log_in_turn, log_at_once and divergence."""
    state, done = tokens.repeat(len(orders), 1), 0
    for group in groups:
        for slot in range(len(group)):
            hidden = orders[:, done:]
            each = log_probs(conditionals, state, hidden, temperature=sampling.temperature)
            if slot == 0:
                before = each[:, : len(group)].clone()
            own, at_once = each[:, 0], before[:, slot]
            drawn = first_above(own.exp(), uniforms[:, done].to(own.device))[:, None]
            state = state.scatter(1, hidden[:, :1], drawn)
            divergence = divergences(own, at_once)
            yield own.gather(1, drawn)[:, 0], at_once.gather(1, drawn)[:, 0], divergence
            done += 1
            if sampling.advance is not None:
                sampling.advance(len(orders))


# ---- a plan


@dataclass(frozen=True)
class FillingPlan:
    """Groups of sites to fill one after the other, each group at once, and what that costs.

    Each measured cost is an estimate; a group of one site costs nothing. threshold is what the
    sum of a group's pair costs had to stay below for the measured costs to stay below error.
    """

    groups: list[tuple[int, ...]]
    costs: list[FillCost]
    whole: FillCost  # of the plan, compared with filling all sites one by one
    error: float
    threshold: float

    @property
    def passes(self) -> int:
        """Evaluations of the model, one for each group."""
        return len(self.groups)


def filling_plan(
    conditionals: Conditionals,
    tokens: Tensor,
    pairs: PairCosts,
    sampling: Sampling,
    *,
    error: float = 0.1,
) -> FillingPlan:
    """Groups by pair costs, then measured; the threshold is halved until each stays within error.

    The measured cost that is compared with the error is the estimate itself, not its upper end.
    """
    for attempt in range(HALVINGS + 1):
        threshold = error / 2**attempt if attempt < HALVINGS else -1.0
        groups = greedy_groups(pairs.mean, pairs.sites, threshold)
        costs, plan_cost = cost_of_groups(conditionals, tokens, groups, sampling)
        if all(cost.total_variation.value <= error for cost in costs):
            break
    return FillingPlan(groups, costs, plan_cost, error, threshold)


def greedy_groups(costs: Floats, sites: tuple[int, ...], threshold: float) -> list[tuple[int, ...]]:
    """Groups whose pair costs (n, n, symmetric) add up to at most the threshold.

    Sites come in the order of least cost to all others, each into the first group that bears it.
    Large groups come first.
    """
    groups: list[list[int]] = []
    totals: list[float] = []
    for site in np.argsort(costs.sum(axis=0), kind="stable").tolist():
        for slot, group in enumerate(groups):
            more = float(costs[site, group].sum())
            if totals[slot] + more <= threshold:
                group.append(site)
                totals[slot] += more
                break
        else:
            groups.append([site])
            totals.append(0.0)
    largest = sorted(groups, key=len, reverse=True)
    return [tuple(sorted(sites[site] for site in group)) for group in largest]


# ---- the result


class CostlyPair(NamedTuple):
    """Two hidden tokens that cost more than the error if they are filled at once."""

    sites: list[str]
    cost: float  # total variation, mean of both orders
    at_most: float
    kind: str = "lower bound"


@dataclass(frozen=True, eq=False, kw_only=True)
class ParallelCost(Result):
    """What filling the hidden tokens of a text at once costs: pairs, groups of k, and a plan."""

    model: str
    temperature: float
    samples: int
    seed: int
    sites: list[int]  # numbers of the hidden tokens, as people count them
    spellings: list[str] = internal()  # of the hidden tokens
    pairs: PairCosts
    by_count: list[FillCost]  # of 1, 2, … random hidden tokens
    filling_plan: FillingPlan = internal()

    FIGURES = {
        "pairs": (f"{PLOTS}:plot_pairs", "pairs", "hidden", "filling_plan.error"),
        "by-count": (f"{PLOTS}:plot_cost_by_count", "by_count"),
        "by-distance": (f"{PLOTS}:plot_cost_by_distance", "pairs"),
    }

    @reported
    def hidden(self) -> list[str]:
        """The hidden tokens by number and spelling."""
        return [f"{n} {spelling}" for n, spelling in zip(self.sites, self.spellings, strict=True)]

    @reported
    def order_gap(self) -> dict[str, object]:
        """The largest difference between the two orders of a pair, and what it is at least."""
        pairs = self.pairs
        kind = "estimate" if pairs.rest.any() else pairs.kind
        return {"value": pairs.order_gap, "kind": kind, "at_least": pairs.order_gap_at_least}

    @reported
    def not_together(self) -> "list[CostlyPair]":
        """The pairs that certainly cost more than the error, worst first."""
        pairs, n = self.pairs, len(self.sites)
        costs = [(float(pairs.mean[a, b]), a, b) for a in range(n) for b in range(a + 1, n)]
        return [
            CostlyPair(
                [self.hidden[a], self.hidden[b]], cost, at_most=float(pairs.mean_at_most[a, b])
            )
            for cost, a, b in sorted(costs, reverse=True)
            if cost > self.filling_plan.error
        ]

    @reported
    def by_distance(self) -> list[dict[str, object]]:
        """The mean cost of the pairs at each distance in the text."""
        return [
            {"distance": distance, "mean": mean, "pairs": n, "kind": self.pairs.kind}
            for distance, (mean, n) in self.pairs.by_distance().items()
        ]

    @reported
    def plan(self) -> dict[str, object]:
        """Groups to fill at once, one after the other, and what they cost."""
        plan, name = self.filling_plan, dict(zip(self.pairs.sites, self.hidden, strict=True))
        return {
            "error": plan.error,
            "passes": plan.passes,
            "whole": plan.whole,
            "groups": [
                {"sites": [name[site] for site in group], **vars(cost)}
                for group, cost in zip(plan.groups, plan.costs, strict=True)
            ],
        }

    def lines(self) -> Iterable[str]:
        plan, pairs = self.filling_plan, self.not_together
        name = dict(zip(self.pairs.sites, self.hidden, strict=True))
        yield f"hidden: {', '.join(self.hidden)}"
        yield (
            f"not together, at a cost above {plan.error:g} (total variation, mean of both "
            f"orders, lower bound; at most {max(self.pairs.rest):.2g} is missing):"
        )
        for pair in pairs[:MAX_PRINTED]:
            yield f"  {pair.cost:.3f}  {' | '.join(pair.sites)}"
        if len(pairs) > MAX_PRINTED:
            yield f"  and {len(pairs) - MAX_PRINTED} more"
        if not pairs:
            yield "  no pair"
        yield self._order_line()
        yield "cost of k random hidden tokens at once (estimates):"
        for cost in self.by_count[1:]:
            yield f"  k = {cost.n_sites:>2}: {cost.text()}"
        yield f"plan: {plan.passes} passes instead of {len(self.hidden)} (estimates):"
        for group, cost in zip(plan.groups, plan.costs, strict=True):
            yield f"  {', '.join(name[site] for site in group)}: {cost.text()}"
        yield f"  the whole plan: {plan.whole.text()}"

    def _order_line(self) -> str:
        """How much the order matters, and what that proves."""
        if self.pairs.order_gap_at_least > ROUNDING:
            return (
                f"the two orders of a pair differ by at least {self.pairs.order_gap_at_least:.3f}: "
                "these conditionals have no joint distribution, so costs are means over orders"
            )
        return (
            f"the two orders of a pair differ by {self.pairs.order_gap:.3f} over the tokens tried "
            f"({self.order_gap['kind']}); costs are means over orders"
        )

    def table(self) -> Iterable[dict[str, object]]:
        """One row for each ordered pair of hidden tokens."""
        pairs, n = self.pairs, len(self.sites)
        return [
            {
                "first": self.sites[a],
                "second": self.sites[b],
                "first_token": self.spellings[a],
                "second_token": self.spellings[b],
                "total_variation": pairs.total_variation[a, b],
                "total_variation_at_most": pairs.at_most[a, b],
                "divergence": pairs.divergence[a, b],
                "divergence_at_most": pairs.divergence_at_most[a, b],
            }
            for a in range(n)
            for b in range(n)
            if a != b
        ]
