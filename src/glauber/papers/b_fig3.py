"""Paper B, figure 3: steps that k-Gibbs needs from R-1 to R1, and the parallel sampler's failure.

N = 10, a clique of 4, h = 5 everywhere, budget 1,000, 10 repetitions. The couplings are missing
from the text of the paper that we have, so they are ours. With h = 5 at all ten sites h_G = 20 is
below 30, so the model is not strongly ferromagnetic, and the propositions beside the figure apply
only as far as each row says.
"""

from typing import Any

import numpy as np

from glauber.exact.samplers.clique import Clique
from glauber.exact.samplers.race import Race, Runner, race
from glauber.papers.reproduction import Reproduction, Scale
from glauber.plots.race import plot_race

SITES, SIZE, FIELD, BUDGET = 10, 4, 5.0, 1000
COUPLINGS = {
    "small": (0.5, 1.0, 2.0, 5.0, 8.0),
    "paper": (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0),
}
REPETITIONS = 10
PUBLISHED = "larger k faster, larger J slower; the parallel sampler never arrives"
HOW = (
    f"N = {SITES}, |C| = {SIZE}, h = {FIELD:g}, from all -1 to R1: exact means, "
    f"{REPETITIONS} simulated chains with a budget of {BUDGET:,} steps; the couplings "
    "are ours, and h_G = 20 < 30 breaks the strongly ferromagnetic condition"
)


def make(scale: Scale, *, seed: int) -> Reproduction:
    """Exact and simulated steps by coupling and block size, and the picture."""
    races = [
        race(Clique(SITES, SIZE, j, FIELD), budget=BUDGET, n_chains=REPETITIONS, seed=seed + slot)
        for slot, j in enumerate(COUPLINGS[scale])
    ]
    rows = [_row(one, runner) for one in races for runner in (*one.gibbs, one.parallel)]
    shown = sorted([*races, *_between(races)], key=lambda one: one.model.coupling)
    pictures = {"race": plot_race(shown), "budget": plot_race(shown, up_to=2 * BUDGET)}
    return Reproduction("B-fig3", scale, HOW, rows, seed, pictures)


def _between(races: list[Race]) -> list[Race]:
    """Exact figures at further couplings, for smooth lines."""
    there = {one.model.coupling for one in races}
    grid = [float(j) for j in np.arange(0.25, 8.0, 0.25) if j not in there]
    return [race(Clique(SITES, SIZE, j, FIELD), budget=BUDGET, n_chains=0) for j in grid]


def _row(one: Race, runner: Runner) -> dict[str, Any]:
    seen = runner.simulated
    assert seen is not None
    return {
        "J": one.model.coupling,
        "sampler": "parallel" if runner.k is None else f"{runner.k}-Gibbs",
        "log10 of the mean steps": runner.log10_mean,
        "arrives within the budget": runner.within_budget,
        "kind": "exact",
        "simulated mean up to the budget": seen.mean,
        "standard error": seen.standard_error,
        "exact mean up to the budget": runner.budget_mean,
        "simulated arrivals": f"{int(seen.arrived.sum())} of {len(seen.steps)}",
        "horizon of the proposition": runner.horizon,
        "condition": one.constants.broken or "strongly ferromagnetic",
        "published": PUBLISHED,
    }
