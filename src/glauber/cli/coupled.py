"""What `glauber couple` says about the pairs it ran."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glauber.cli.coupled_lines import lines
from glauber.cli.screen import answer
from glauber.mixing.coupling import Coalescence
from glauber.mixing.lagged import Lagged
from glauber.statistics import share_interval

MOMENTS = 200  # of the bound on total variation in the JSON object, about


@dataclass(frozen=True)
class Report:
    """All that is told of one set of pairs."""

    found: Coalescence
    lagged: Lagged | None
    alpha: float | None
    alpha_kind: str  # "given", or "lower bound" where it was sampled
    texts: list[tuple[str, str]]  # left and right
    n_sites: list[int]  # free tokens of each pair
    steps: int
    temperature: float
    seed: int
    model: str
    epsilon: float
    start: str  # of the lagged couplings

    @property
    def contraction(self) -> "np.ndarray[Any, np.dtype[np.float64]] | None":
        """The contraction bound (moments,): of the maximal coupling, and where alpha < 1."""
        if self.alpha is None or self.found.how != "maximal":
            return None
        return self.found.contraction(self.alpha, self.n_sites)


def show(report: Report, out: Path | None, *, json: bool) -> None:
    """Prints the report, and writes the pictures where a file is named."""
    told = plain(report)
    if out is not None:
        _draw(report, out)
    answer(told, lines(told), json=json, picture=out)


def plain(report: Report) -> dict[str, Any]:
    """The report as one JSON object."""
    found = report.found
    n = len(found.met)
    rows = zip(report.texts, found.initial.tolist(), found.times.tolist(), found.met.tolist(),
               strict=True)  # fmt: skip
    return {
        "model": report.model,
        "how": found.how,
        "temperature": report.temperature,
        "lengths": sorted(set(report.n_sites)),
        "steps": report.steps,
        "seed": report.seed,
        "pairs": [
            {"left": texts[0], "right": texts[1], "distance": far, "time": time, "met": met}
            for texts, far, time, met in rows
        ],
        "met": {
            "value": found.share_met, "count": int(found.met.sum()), "of": n,
            "interval": share_interval(int(found.met.sum()), n), "confidence": 0.95,
            "kind": "estimate",
        },
        "distance": {
            "steps": found.steps.tolist(), "value": found.mean_distance.tolist(),
            "standard_error": None if n < 2 else found.standard_error.tolist(),
            "kind": "estimate",
        },
        "contraction": _contraction(report),
        "total_variation": _total_variation(report),
    }  # fmt: skip


def _contraction(report: Report) -> dict[str, Any] | None:
    if report.alpha is None:
        return None
    bound = report.contraction
    if report.found.how != "maximal":
        says = "nothing: the bound is about the maximal coupling"
    elif bound is None:
        says = "nothing: alpha is not below 1"
    else:
        says = "the expected distance is at most this"
    sampled = report.alpha_kind == "lower bound"
    return {
        "alpha": {"value": report.alpha, "kind": report.alpha_kind},
        "value": None if bound is None else bound.tolist(),
        "kind": "estimate" if sampled else "upper bound, if alpha is one",
        "says": says,
    }


def _total_variation(report: Report) -> dict[str, Any] | None:
    found = report.lagged
    if found is None:
        return None
    last = int(found.times.max()) - found.lag
    steps = np.arange(0, last + 1, max(1, -(-last // MOMENTS)))
    low, high = found.band(steps)
    return {
        "lag": found.lag,
        "start": report.start,
        "times": found.times.tolist(),
        "met": found.met.tolist(),
        "steps": steps.tolist(),
        "value": found.bound(steps).tolist(),
        "low": low.tolist(),
        "high": None if found.n_censored else high.tolist(),
        "confidence": 0.95,
        "kind": found.kind,
        "mixing_time": {
            "value": found.mixing_time(report.epsilon),
            "high": found.mixing_time_high(report.epsilon),
            "epsilon": report.epsilon,
            "kind": found.kind,
        },
    }


def _draw(report: Report, out: Path) -> None:
    from glauber.figures.page import write_picture
    from glauber.plots.coupling import plot_distance, plot_total_variation

    figures = [plot_distance(report.found, report.contraction)]
    if report.lagged is not None:
        figures.append(plot_total_variation(report.lagged, epsilon=report.epsilon))
    write_picture(*figures, path=out)
