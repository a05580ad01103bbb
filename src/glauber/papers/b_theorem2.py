"""Paper B, Theorems 2 and 3: the covariance is at most C times that of maximum likelihood.

C is the Poincare constant of the block dynamics, for fixed and for adaptive masks.
"""

from typing import Any

from glauber.exact.inequalities.efficiency import Efficiency, efficiency
from glauber.exact.learning.masks import Masks, doubting_masks, uniform_masks
from glauber.exact.learning.pseudolikelihood import Pseudolikelihood
from glauber.papers.ising_errors import COUPLINGS, SITES, clique
from glauber.papers.reproduction import Reproduction, Scale
from glauber.plots.efficiency import plot_by_size

SIZES = range(1, SITES + 1)
HOW = (
    f"Ising clique of {SITES} sites without fields, exact (the same at both scales): covariance "
    "Gamma, Poincare constant C and Fisher information I; compared as Hessians, H - I/C. Adaptive "
    "masks hide a block with a chance proportional to 1 - p(x_K | the rest)"
)


def make(scale: Scale, *, seed: int) -> Reproduction:
    """Covariance and bound for every k, fixed and adaptive, at both couplings."""
    rows, pictures = [], {}
    for coupling in COUPLINGS:
        family, theta = clique(coupling)
        law = family.law(theta)
        fixed = [_measure(family, theta, uniform_masks(family.space, k)) for k in SIZES]
        asked = [_measure(family, theta, doubting_masks(family.space, law, k)) for k in SIZES]
        rows += [_row(coupling, k, "uniform", one) for k, one in zip(SIZES, fixed, strict=True)]
        rows += [_row(coupling, k, "adaptive", one) for k, one in zip(SIZES, asked, strict=True)]
        pictures[f"J-{coupling:g}"] = plot_by_size(
            SIZES,
            {
                "uniform masks": [one.asymptotics.trace() for one in fixed],
                "adaptive masks": [one.asymptotics.trace() for one in asked],
                "bound, uniform masks": [one.bound_trace for one in fixed],
            },
            title="The speed of the chain bounds the error of the learner",
            subtitle=f"trace of the exact covariance and its bound, J = {coupling:g}",
        )
    return Reproduction("B-theorem2", scale, HOW, rows, seed, pictures)


def _measure(family: Any, theta: Any, masks: Masks) -> Efficiency:
    return efficiency(Pseudolikelihood(family, masks), theta)


def _row(coupling: float, k: int, masks: str, found: Efficiency) -> dict[str, Any]:
    return {
        "J": coupling,
        "k": k,
        "masks": masks,
        "Poincare constant": found.poincare.constant,
        "trace of the covariance": found.asymptotics.trace(),
        "kind": "exact",
        "bound on the trace": found.bound_trace,
        "bound is": "upper bound",
        "smallest eigenvalue of H - I/C": found.slack,
        "published": "not negative",
    }
