"""How many hidden sites can be filled at once within a given error, and which together?"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.mixing.pair_costs import Floats, PairCosts
from glauber.mixing.parallel_cost import FillCost, cost_of_groups

HALVINGS = 8  # of the threshold for pairs, before every site gets a group of its own


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
) -> FillingPlan:
    """Groups by pair costs, then measured; the threshold is halved until each stays within error.

    The measured cost that is compared with the error is the estimate itself, not its upper end.
    """
    if not 0 <= error <= 1:
        raise GlauberError(f"the error is {error}, but it must lie between 0 and 1.")
    threshold = error
    for attempt in range(HALVINGS + 1):
        allowed = threshold if attempt < HALVINGS else -1.0
        groups = greedy_groups(pairs.mean, pairs.sites, allowed)
        costs, whole = cost_of_groups(
            conditionals, tokens, groups, samples=samples, temperature=temperature, seed=seed
        )
        if all(cost.total_variation.value <= error for cost in costs):
            break
        threshold /= 2
    return FillingPlan(tuple(groups), tuple(costs), whole, error, allowed)


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
