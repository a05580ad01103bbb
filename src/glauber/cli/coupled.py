"""What `glauber couple` says about the pairs it ran."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glauber.cli.screen import emit, say
from glauber.cli.screen import out as screen
from glauber.errors import GlauberError
from glauber.mixing.coupling import Coalescence
from glauber.mixing.lagged import Lagged
from glauber.mixing.shares import share_interval

MOMENTS = 200  # of the bound on total variation in the JSON object, about


@dataclass(frozen=True)
class Report:
    """All that is told of one set of pairs."""

    found: Coalescence
    lagged: Lagged | None
    alpha: float | None
    alpha_kind: str  # "given", or "lower bound" where it was sampled
    texts: list[tuple[str, ...]]
    n_sites: int
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
    if json:
        emit(told)
        return
    for line in lines(told):
        screen.print(line, markup=False, highlight=False, soft_wrap=True)
    if out is not None:
        say(f"the pictures are in {out}")


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
        "length": report.n_sites,
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


def lines(told: dict[str, Any]) -> list[str]:
    """The report for the terminal."""
    met = told["met"]
    low, high = met["interval"]
    rows = [
        f"{number:>5}  {one['distance']:>8}  {one['time']:>7,}  "
        + ("met" if one["met"] else "not met (censored)")
        for number, one in enumerate(told["pairs"], 1)
    ]
    distance = told["distance"]
    return [
        f"{told['how']} coupling on {told['model']} at temperature {told['temperature']:g}, "
        f"{told['length']} free tokens, at most {told['steps']:,} steps",
        " pair  distance     step",
        *rows,
        f"met: {met['count']} of {met['of']} (estimate; at 95% between {low:.0%} and {high:.0%})",
        f"mean distance: {distance['value'][0]:.2f} at the start, {distance['value'][-1]:.2f} at "
        f"step {distance['steps'][-1]:,} (estimate)",
        *_contraction_lines(told),
        *_variation_lines(told),
    ]


def _contraction_lines(told: dict[str, Any]) -> list[str]:
    bound = told["contraction"]
    if bound is None:
        return []
    head = f"contraction with alpha {bound['alpha']['value']:.4g} ({bound['alpha']['kind']})"
    if bound["value"] is None:
        return [f"{head} says {bound['says']}"]
    return [
        f"{head}: at most {bound['value'][-1]:.3g} at step {told['distance']['steps'][-1]:,} "
        f"({bound['kind']})"
    ]


def _variation_lines(told: dict[str, Any]) -> list[str]:
    found = told["total_variation"]
    if found is None:
        return []
    time = found["mixing_time"]
    when = f"at most {time['epsilon']:g} from step {time['value']:,} on"
    if not all(found["met"]):
        when = f"above {time['epsilon']:g} up to step {time['value']:,} at least"
    elif time["high"] is not None:
        when += f", at 95% from step {time['high']:,} on"
    return [
        f"bound on total variation from {found['start']}, by couplings of lag {found['lag']}: "
        f"{when} ({found['kind']})"
    ]


def _draw(report: Report, out: Path) -> None:
    from glauber.plots.coupling import plot_distance, plot_total_variation

    figures = [plot_distance(report.found, report.contraction)]
    if report.lagged is not None:
        figures.append(plot_total_variation(report.lagged, epsilon=report.epsilon))
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=first, config={"displayModeBar": False})
        for first, figure in zip([True, *[False] * len(figures)], figures, strict=False)
    ]
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>glauber couple</title>'
    head += '<meta name="viewport" content="width=device-width, initial-scale=1">'
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(head + "\n".join(parts) + "</html>\n", encoding="utf-8")
    except OSError as error:
        raise GlauberError(f"{out} cannot be written: {error.strerror or error}.") from error
