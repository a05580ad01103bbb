"""Paper B, Theorem 4: the finite-sample bound, term by term.

As written it holds the log loss itself and is vacuous; beside it the version with the excess loss.
"""

from typing import Any

import numpy as np

from glauber.exact.inequalities.ceilings import ceiling
from glauber.exact.inequalities.finite_samples import (
    Setting,
    finite_sample_bound,
    population_bound,
)
from glauber.exact.inequalities.poincare import poincare
from glauber.exact.ising import Ising
from glauber.exact.learning.family import ising_family, ising_theta
from glauber.exact.learning.fit import fit
from glauber.exact.learning.observations import draw_counts, random_masks
from glauber.exact.learning.pseudolikelihood import Pseudolikelihood
from glauber.exact.stationary import total_variation
from glauber.papers.reproduction import Reproduction, Scale
from glauber.plots.finite_samples import plot_bounds

SITES, COUPLINGS, MASKS = 3, (0.0, 0.1), 1_000_000
SIZES = (1000, 10_000, 100_000, 1_000_000)
HOW = (
    f"Ising cliques of {SITES} sites without fields, k = 1, {MASKS:,} masks per sequence, delta "
    "= 0.05 and the most favourable cover of all (one law, eps = 0); C_AT is the proved upper "
    "bound, the same at both scales. J = 0 is three uniform bits"
)


def make(scale: Scale, *, seed: int) -> Reproduction:
    """The terms of the bound for growing numbers of sequences."""
    rows = [_row(coupling, n, seed) for coupling in COUPLINGS for n in SIZES]
    pictures = {
        f"J-{coupling:g}": plot_bounds(
            SIZES,
            {
                name: [row[key] for row in rows if row["J"] == coupling]
                for name, key in (
                    ("true distance", "true total variation"),
                    ("by the population's excess loss", "bound by the population's excess"),
                    ("theorem with the excess loss", "with_excess"),
                    ("theorem as written", "as_written"),
                )
            },
        )
        for coupling in COUPLINGS
    }
    return Reproduction("B-theorem4", scale, HOW, rows, seed, pictures)


def _row(coupling: float, n: int, seed: int) -> dict[str, Any]:
    family = ising_family(SITES)
    truth = ising_theta(Ising.clique(SITES, SITES, coupling=coupling))
    problem = Pseudolikelihood.of_size(family, 1)
    generator = np.random.default_rng(seed)
    law = family.law(truth)
    counts = draw_counts(law, n, 1, generator)[0]
    seen = random_masks(counts, problem.masks, generator, MASKS)
    found = fit(problem, seen)
    learnt = family.law(found.theta)
    above = ceiling(learnt, problem.masks, poincare(learnt, problem.masks))
    bound = finite_sample_bound(
        (float(found.loss), float(problem.loss(truth, seen))), (learnt, law), problem.masks,
        tensorisation=above.value, setting=Setting(n, MASKS),
    )  # fmt: skip
    by_excess = population_bound(learnt, law, problem.masks, tensorisation=above.value)
    return (
        {"J": coupling, "n": n, "true total variation": total_variation(learnt, law)}
        | bound.told()
        | {"bound by the population's excess": by_excess, "published": None}
    )
