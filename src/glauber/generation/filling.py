"""What does it cost to fill hidden sites at once, and which may be filled together?

The sequential law q draws the sites in an order, each given those before it; the law r of one pass
draws each from its conditional with the whole group hidden. From draws of q,
    TV(q, r) = E_q (1 - r/q)_+,   KL(q || r) = E_q sum_t KL(law_t given the past || law_t before).
The orders are drawn at random, and what is estimated is the mean over orders: the conditionals of
a masked LM agree on no joint law, so each order has its own q.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals, check_temperature, log_probs
from glauber.conditionals.batching import in_parts
from glauber.dynamics.draws import first_above
from glauber.errors import GlauberError
from glauber.generation.pair_costs import Floats, PairCosts, check_sites, divergences
from glauber.progress import Advance
from glauber.statistics import Estimate, mean_over_chains

NOTHING = Estimate(0.0, (0.0, 0.0), "exact", standard_error=0.0)
HALVINGS = 8  # of the threshold for pairs, before every site gets a group of its own


@dataclass(frozen=True)
class FillCost:
    """The cost of filling some sites at once; divergence in nats."""

    n_sites: int
    total_variation: Estimate
    divergence: Estimate


@dataclass(frozen=True, eq=False)
class Walk:
    """Samples of the sequential fill, step by step: each (samples, steps).

    log_in_turn: log chance of the drawn token given the past; log_at_once: given only what was
    there when its group began; divergence: KL between these two distributions.
    """

    log_in_turn: Floats
    log_at_once: Floats
    divergence: Floats

    def cost(self, steps: slice) -> FillCost:
        """The cost of the sites drawn in these steps, were they drawn at once."""
        log_ratio = (self.log_at_once - self.log_in_turn)[:, steps].sum(axis=1)
        missed = -np.expm1(np.minimum(log_ratio, 0.0))
        spent = self.divergence[:, steps]
        if spent.shape[1] == 1:  # one site alone: nothing is lost
            return FillCost(1, NOTHING, NOTHING)
        far = mean_over_chains(missed, bounds=(0.0, 1.0))
        return FillCost(
            spent.shape[1], far, mean_over_chains(spent.sum(axis=1), bounds=(0.0, np.inf))
        )


def cost_by_count(
    conditionals: Conditionals,
    tokens: Tensor,
    sites: Tensor,
    *,
    samples: int = 64,
    temperature: float = 1.0,
    seed: int = 0,
    advance: Advance | None = None,
) -> list[FillCost]:
    """The cost of filling k = 1 to n of the n hidden sites (n,) at once, means over random k.

    One walk through a random order of all sites serves every k: its first k sites are a random
    set in a random order.
    """
    sites = _checked(tokens, sites, samples, temperature)
    orders = _shuffled([sites.tolist()], samples, seed)
    walk = _walk(conditionals, tokens, orders, (len(sites),), temperature, seed, advance)
    return [walk.cost(slice(0, k)) for k in range(1, len(sites) + 1)]


def cost_of_groups(
    conditionals: Conditionals,
    tokens: Tensor,
    groups: Sequence[Sequence[int]],
    *,
    samples: int = 64,
    temperature: float = 1.0,
    seed: int = 0,
    advance: Advance | None = None,
) -> tuple[list[FillCost], FillCost]:
    """The cost of filling groups one after the other, each at once; and that of the whole plan.

    A group's cost is a mean over what the groups before it hold, drawn from the sequential fill.
    All sites of all groups are hidden at first.
    """
    flat = torch.tensor([site for group in groups for site in group], device=tokens.device)
    _checked(tokens, flat, samples, temperature)
    orders = _shuffled(groups, samples, seed)
    sizes = tuple(len(group) for group in groups)
    walk = _walk(conditionals, tokens, orders, sizes, temperature, seed, advance)
    ends = np.cumsum(sizes).tolist()
    parts = [walk.cost(slice(e - size, e)) for size, e in zip(sizes, ends, strict=True)]
    return parts, walk.cost(slice(0, len(flat)))


@dataclass(frozen=True)
class FillingPlan:
    """Groups of sites to fill one after the other, each group at once, and what that costs.

    Each measured cost is an estimate; a group of one site costs nothing. threshold is what the
    sum of a group's pair costs had to stay below for the measured costs to stay below error.
    """

    groups: tuple[tuple[int, ...], ...]
    costs: tuple[FillCost, ...]
    whole: FillCost  # of the plan, against filling all sites one by one
    error: float
    threshold: float

    @property
    def passes(self) -> int:
        """Evaluations of the model, one a group."""
        return len(self.groups)


def filling_plan(
    conditionals: Conditionals,
    tokens: Tensor,
    pairs: PairCosts,
    *,
    error: float = 0.1,
    samples: int = 64,
    temperature: float = 1.0,
    seed: int = 0,
    advance: Advance | None = None,
) -> FillingPlan:
    """Groups by pair costs, then measured; the threshold is halved until each stays within error.

    The measured cost that is compared with the error is the estimate itself, not its upper end.
    """
    check_error(error)
    threshold = error
    for attempt in range(HALVINGS + 1):
        allowed = threshold if attempt < HALVINGS else -1.0
        groups = greedy_groups(pairs.mean, pairs.sites, allowed)
        costs, whole = cost_of_groups(
            conditionals, tokens, groups, samples=samples, temperature=temperature, seed=seed,
            advance=advance,
        )  # fmt: skip
        if all(cost.total_variation.value <= error for cost in costs):
            break
        threshold /= 2
    return FillingPlan(tuple(groups), tuple(costs), whole, error, allowed)


def check_error(error: float) -> None:
    """Refuses what is no total variation."""
    if not 0 <= error <= 1:
        raise GlauberError(f"the error is {error}, but it must lie between 0 and 1.")


def greedy_groups(costs: Floats, sites: tuple[int, ...], threshold: float) -> list[tuple[int, ...]]:
    """Groups whose pair costs (n, n, symmetric) add up to at most the threshold.

    Sites come in the order of least cost to all others, each into the first group that bears it.
    Large groups come first.
    """
    groups: list[list[int]] = []
    spent: list[float] = []
    for site in np.argsort(costs.sum(axis=0), kind="stable").tolist():
        for slot, group in enumerate(groups):
            more = float(costs[site, group].sum())
            if spent[slot] + more <= threshold:
                group.append(site)
                spent[slot] += more
                break
        else:
            groups.append([site])
            spent.append(0.0)
    largest = sorted(groups, key=len, reverse=True)
    return [tuple(sorted(sites[site] for site in group)) for group in largest]


def _walk(
    conditionals: Conditionals,
    tokens: Tensor,
    orders: Tensor,
    sizes: tuple[int, ...],
    temperature: float,
    seed: int,
    advance: Advance | None,
) -> Walk:
    """Fills every sample in its order (samples, n), the steps cut into groups of the sizes."""
    orders = orders.to(tokens.device)
    generator = torch.Generator().manual_seed(seed)
    uniforms = torch.rand(orders.shape, generator=generator, dtype=torch.float64)
    held = orders.shape[1] * conditionals.vocab_size * 2
    parts = [
        _filled(conditionals, tokens, orders[rows], uniforms[rows], sizes, temperature, advance)
        for rows in in_parts(torch.arange(len(orders)), held)
    ]
    return Walk(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _filled(
    conditionals: Conditionals,
    tokens: Tensor,
    orders: Tensor,
    uniforms: Tensor,
    sizes: tuple[int, ...],
    temperature: float,
    advance: Advance | None,
) -> tuple[Floats, Floats, Floats]:
    """The three tables of a Walk (samples, n), for some of its samples."""
    state = tokens.repeat(len(orders), 1)
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    done = 0
    for size in sizes:
        for slot in range(size):
            each = log_probs(conditionals, state, orders[:, done:], temperature=temperature)
            if slot == 0:
                before = each[:, :size].clone()
            own, at_once = each[:, 0], before[:, slot]
            drawn = first_above(own.exp(), uniforms[:, done].to(own.device))[:, None]
            state = state.scatter(1, orders[:, done, None], drawn)
            ratio = divergences(own, at_once)
            found.append((own.gather(1, drawn)[:, 0], at_once.gather(1, drawn)[:, 0], ratio))
            done += 1
            if advance is not None:
                advance(len(orders))
    columns = (torch.stack(column, dim=1).cpu().numpy() for column in zip(*found, strict=True))
    in_turn, once, spent = columns
    return in_turn, once, spent


def _shuffled(groups: Sequence[Sequence[int]], samples: int, seed: int) -> Tensor:
    """Sites (samples, n): the groups in their order, each shuffled anew in every sample."""
    random = np.random.default_rng(seed)
    rows = [np.concatenate([random.permutation(list(g)) for g in groups]) for _ in range(samples)]
    return torch.from_numpy(np.stack(rows))


def _checked(tokens: Tensor, sites: Tensor, samples: int, temperature: float) -> Tensor:
    check_sites(tokens, sites)
    check_temperature(temperature)
    if samples < 2:
        raise GlauberError(f"{samples} samples were asked for, but at least 2 are needed.")
    return sites
