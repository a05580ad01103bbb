"""Paper B, corollary 3: N-Gibbs is in R1 after one step, the parallel sampler not within M.

The corollary asks for large cliques (25 sites and more), so the chains are lumped by the number of
ones in the clique. Beside the promise stand the exact chances, and the smallest clique for which
the separation holds with the same h_G and J_0 = |C| ln 2 / 2.
"""

from typing import Any

from glauber.exact.samplers.bounds import (
    Separation,
    corollary_size,
    parallel_horizon,
    separation,
    smallest_separation,
)
from glauber.papers.reproduction import Reproduction, Scale
from glauber.plots.separation import plot_separation

SMALL = ((1, 0.5), (10, 0.1))
PAPER = ((1, 0.5), (10, 0.1), (100, 0.1), (1000, 0.1), (1000, 0.01))
HOW = (
    "the weakest model that the corollary allows (N = |C|, no site outside), from the best start "
    "with sum <= -2; exact chances by lumping"
)


def make(scale: Scale, *, seed: int) -> Reproduction:
    """What is promised and what happens, for some M and delta."""
    chosen = SMALL if scale == "small" else PAPER
    rows = [_row(*each) for each in chosen]
    n_steps, delta = chosen[0]
    sizes = range(2, corollary_size(n_steps, delta) + 1)
    picture = plot_separation([separation(n_steps, delta, size) for size in sizes])
    return Reproduction("B-corollary3", scale, HOW, rows, seed, {"separation": picture})


def _row(n_steps: int, delta: float) -> dict[str, Any]:
    found = separation(n_steps, delta)
    least = smallest_separation(n_steps, delta)
    return {
        "M": n_steps,
        "delta": delta,
        "|C| of the corollary": found.model.size,
        "promised chance of failure": delta,
        **_chances(found),
        "horizon of proposition 5": parallel_horizon(found.model, delta / 2),
        "smallest |C| that separates": least.model.size,
        **{f"there: {what}": chance for what, chance in _chances(least).items()},
        "kind": "exact",
    }


def _chances(found: Separation) -> dict[str, float]:
    return {
        "N-Gibbs not there after one step": found.gibbs_misses,
        "log10 of the chance that parallel is there within M": found.log10_parallel(),
    }
