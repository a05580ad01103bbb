"""Which Ising model do figures 1 and 2 and the theorems of paper B use, and how is it fitted?"""

from typing import Any

from glauber.exact.ising import Ising
from glauber.exact.learning.error_curves import ErrorCurves, error_curves
from glauber.exact.learning.family import Family, ising_family, ising_theta
from glauber.exact.learning.observations import Drawing
from glauber.papers.reproduction import Reproduction, Scale
from glauber.plots.error_curves import plot_error_curves

SITES = 4
COUPLINGS = (0.05, 0.3)
SIZES = (500, 1000, 2000, 4000, 8000, 16_000, 32_000)
REPETITIONS = 10


def clique(coupling: float) -> tuple[Family, Any]:
    """The family, and theta (d,) of the clique of four sites without fields."""
    return ising_family(SITES), ising_theta(Ising.clique(SITES, SITES, coupling=coupling))


def curves(coupling: float, *, per_sample: int | None, seed: int) -> ErrorCurves:
    """The errors for k = 1 … 4 with random masks, or with all masks averaged (None)."""
    family, theta = clique(coupling)
    return error_curves(
        family, theta, range(1, SITES + 1), sizes=SIZES, repetitions=REPETITIONS,
        drawing=Drawing(per_sample), seed=seed,
    )  # fmt: skip


def make_errors(name: str, coupling: float, *, scale: Scale, seed: int) -> Reproduction:
    """Figure 1 or 2: one random mask per sample, and beside it all masks averaged."""
    found = {way: curves(coupling, per_sample=way, seed=seed) for way in (1, None)}
    rows = [row for each in found.values() for row in _rows(each)]
    how = (
        f"Ising clique of {SITES} sites, J = {coupling:g}, h = 0; squared error of the k-site "
        f"estimate over {REPETITIONS} repetitions, bars of half a standard deviation; the sample "
        "sizes are ours, the same at both scales. The theorem's estimator has one random mask per "
        "sample; with all masks averaged the order of the k nearly vanishes"
    )
    pictures = {"one-mask": found[1], "all-masks": found[None]}
    drawn = {key: plot_error_curves(each) for key, each in pictures.items()}
    return Reproduction(name, scale, how, rows, seed, drawn)


def _rows(found: ErrorCurves) -> list[dict[str, Any]]:
    masks = "all" if found.drawing.per_sample is None else found.drawing.per_sample
    return [
        {
            "masks per sample": masks,
            "k": k,
            "n": list(found.sizes),
            "mean squared error": _plain(found.mean[row]),
            "half a standard deviation": _plain(found.spread[row] / 2),
            "kind": "estimate",
            "without an estimate": [int(count) for count in found.missing[row]],
            "trace of the covariance": float(found.traces[row]),
            "trace is": "exact",
            "published": "larger k, lower error",
        }
        for row, k in enumerate(found.ks)
    ]


def _plain(values: Any) -> list[float | None]:
    return [float(value) if value == value else None for value in values]
