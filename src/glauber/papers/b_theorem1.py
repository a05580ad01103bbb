"""Paper B, Theorem 1: the covariance of the k-site estimate does not grow with k."""

from typing import Any

from glauber.exact.learning.covariance import (
    Asymptotics,
    asymptotics_by_size,
    smallest_difference,
)
from glauber.papers.ising_errors import COUPLINGS, SITES, clique
from glauber.papers.reproduction import Reproduction, Scale
from glauber.plots.efficiency import plot_by_size

HOW = (
    f"Ising clique of {SITES} sites without fields, exact covariances for every k (the same at "
    "both scales); the order is compared as Hessians, H of k + 1 less H of k. With all masks "
    "averaged it is another estimator, and the theorem does not speak of it"
)


def make(scale: Scale, *, seed: int) -> Reproduction:
    """The traces for both couplings, with one mask per sample and with all averaged."""
    found = {coupling: asymptotics_by_size(*clique(coupling)) for coupling in COUPLINGS}
    rows = [_row(coupling, k, each) for coupling, each in found.items() for k in range(SITES)]
    pictures = {
        f"J-{coupling:g}": plot_by_size(
            range(1, SITES + 1),
            {
                "one mask per sample": [one.trace() for one in each],
                "all masks averaged": [one.trace(None) for one in each],
            },
            title="Larger masks learn more from a sample",
            subtitle=f"trace of the exact covariance, Ising clique of {SITES} sites, J = "
            f"{coupling:g}",
        )
        for coupling, each in found.items()
    }
    return Reproduction("B-theorem1", scale, HOW, rows, seed, pictures)


def _row(coupling: float, slot: int, found: list[Asymptotics]) -> dict[str, Any]:
    one, last = found[slot], slot + 1 == len(found)
    return {
        "J": coupling,
        "k": slot + 1,
        "trace, one mask": one.trace(),
        "trace, all masks": one.trace(None),
        "kind": "exact",
        "Hessian less score covariance": one.equality_gap,
        "smallest eigenvalue of the next Hessian less this": None
        if last
        else smallest_difference(found[slot + 1].hessian, one.hessian),
        "published": "not negative",
    }
