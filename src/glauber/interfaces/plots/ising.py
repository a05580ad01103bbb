"""Charts of Ising models: estimates and their errors, gaps, and steps between two modes."""

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

import numpy as np
from numpy.typing import NDArray
from plotly.colors import sample_colorscale

from glauber.interfaces.plots.chart import (
    AMBER,
    BLUE,
    COLOURS,
    GREEN,
    INK,
    ORANGE,
    QUIET,
    Chart,
    bars,
    ends,
)
from glauber.studies.ising.block_gaps import Dependency
from glauber.studies.ising.error_amplification import Amplified
from glauber.studies.ising.error_curves import ErrorCurves
from glauber.studies.ising.mode_race import Race, Runner
from glauber.studies.ising.sampler_separation import Separation

SIZES = (AMBER, COLOURS[5], GREEN, BLUE, COLOURS[3], ORANGE)  # of k = 1, 2, …
LINES = ((BLUE, "solid", "circle"), (ORANGE, "dash", "square"), (QUIET, "dot", "diamond"))
BOUNDS = (
    (BLUE, "solid"),
    (GREEN, "dash"),
    (AMBER, "dashdot"),
    (ORANGE, "dot"),
    (QUIET, "longdash"),
)
ROUNDING = 1e-12
MOST_NAMED = 60  # parameters with names on the axis
LOG = dict(type="log", tickformat="~g", dtick=1)
POWERS = dict(type="log", exponentformat="power", tickfont_size=11)


def plot_estimates(
    names: Sequence[str], estimate: NDArray[Any], error: NDArray[Any], *, truth: NDArray[Any] | None
) -> Chart:
    """Estimates (d,) with two standard errors (d,), and the truth where it is known.

    Many parameters are drawn in order of size, without their names on the axis.
    """
    few, bars = len(names) <= MOST_NAMED, "bars: two standard errors of the sandwich"
    order = np.arange(len(names)) if few else np.argsort(estimate)
    ordered_names = [names[slot] for slot in order]
    chart = Chart(
        "Estimated fields and couplings"
        if few
        else f"{len(names):,} estimated fields and couplings",
        bars if few else f"in order of size; {bars}",
        x=dict(type="category") if few else dict(title="parameter", tickformat=",d"),
        y=dict(tickformat="~g"),
        showlegend=True,
    )
    x = ordered_names if few else np.arange(len(order))
    chart.dots(
        x,
        estimate[order],
        "estimate",
        "%{text}: %{y:.4f}",
        text=ordered_names,
        size=8 if few else 4,
        error=dict(array=2 * error[order], thickness=1.5 if few else 0.7, width=3 * few),
    )
    if truth is not None:
        cross: dict[str, Any] = (
            dict(symbol="x-thin", line=dict(color=ORANGE, width=2)) if few else {}
        )
        chart.dots(
            x,
            truth[order],
            "truth",
            "%{text}: truth %{y:.4f}",
            text=ordered_names,
            color=ORANGE,
            size=9 if few else 4,
            **cross,
        )
    return chart


def plot_by_size(
    ks: Sequence[int], lines: Mapping[str, Sequence[float]], *, title: str, subtitle: str
) -> Chart:
    """Up to three named lines over k = 1, …, N, on a logarithmic axis."""
    chart = Chart(
        title,
        subtitle,
        x=dict(title="hidden sites k", tickvals=list(ks)),
        y=dict(title="trace, n times the error", type="log", tickformat="~g"),
        showlegend=True,
    )
    for (name, values), (color, dash, symbol) in zip(lines.items(), LINES, strict=False):
        chart.line(
            list(ks),
            list(values),
            name,
            f"{name}, k = %{{x}}: %{{y:.4g}}",
            dots=True,
            color=color,
            dash=dash,
            marker=dict(symbol=symbol, size=8),
        )
    return chart


def plot_error_curves(curves: ErrorCurves) -> Chart:
    """Mean squared error against samples, bars of half a standard deviation; dotted: trace/n."""
    count, masks = curves.squared_errors.shape[2], curves.per_sample
    how = "all masks averaged" if masks is None else f"{masks} random mask{'s'[: masks > 1]} each"
    chart = Chart(
        "Squared error of the estimate, k sites hidden",
        f"{count} repetitions, {how}; bars: half a standard deviation; "
        "dotted: trace of the exact covariance / n",
        x=dict(title="samples n", type="log", tickformat=",d", tickvals=curves.sizes),
        y=dict(title="squared error") | LOG,
        height=400,
    )
    for row, k in enumerate(curves.ks):
        color = SIZES[row % len(SIZES)]
        shift = 1.03 ** (row - (len(curves.ks) - 1) / 2)
        chart.dots(
            [n * shift for n in curves.sizes],
            curves.mean[row],
            f"k = {k}",
            f"k = {k}, n = %{{customdata:,}}: %{{y:.3g}}",
            color=color,
            size=8,
            error=dict(array=curves.spread[row] / 2, thickness=1.5, width=3),
            trace=dict(customdata=curves.sizes),
        )
        chart.line(curves.sizes, curves.prediction[row], color=color, width=1.5, dash="dot")
    return chart


def plot_bounds(sizes: Sequence[int], lines: Mapping[str, Sequence[float | None]]) -> Chart:
    """The true total variation and up to four bounds against the sequences; 1 is no promise."""
    chart = Chart(
        "Total variation of the estimate, and its bounds",
        "against the number of sequences; a bound above 1 is vacuous; "
        "optimistic: lower than the theorem's bound",
        x=dict(title="sequences n", type="log", tickformat=",d", tickvals=list(sizes)),
        y=dict(title="total variation") | LOG,
        height=420,
        legend="below",
    )
    for (name, values), (color, dash) in zip(lines.items(), BOUNDS, strict=False):
        hover = f"{name}, n = %{{x:,}}: %{{y:.3g}}"
        chart.line(list(sizes), list(values), name, hover, dots=True, color=color, dash=dash)
    chart.rule(y=1, width=1.5)
    return chart


def plot_dependency(rows: Sequence[Dependency]) -> Chart:
    """The gap of each block size and the total variation of the parallel sampler, against J."""
    chart = Chart(
        "Mixing and the error of filling at once, by dependency",
        "lines: spectral gap of k-block dynamics; dashed: total variation from p of the parallel "
        "sampler's stationary distribution (exact) and of the product of p's marginals",
        x=dict(title="coupling J", tickformat="~g", rangemode="tozero"),
        y=POWERS,
        height=400,
        legend="below",
    )
    strengths = [row.coupling for row in rows]
    for slot, k in enumerate(rows[0].gaps):
        gaps = [row.gaps[k] for row in rows]
        chart.line(
            strengths,
            [gap.value if gap.value > gap.error else None for gap in gaps],
            f"gap, k = {k}",
            f"k = {k}, J = %{{x:g}}: gap %{{y:.3g}}",
            dots=True,
            color=SIZES[(3, 2, 0, 4, 1, 5)[slot % 6]],
        )
    errors = {
        "parallel sampler": [row.parallel.total_variation for row in rows],
        "one pass": [row.one_pass.at_most for row in rows],
    }
    for (name, values), dash in zip(errors.items(), ("dash", "dot"), strict=True):
        chart.line(
            strengths,
            [value if value > ROUNDING else None for value in values],
            name,
            f"{name}, J = %{{x:g}}: total variation %{{y:.3g}}",
            dots=True,
            color=ORANGE,
            dash=dash,
        )
    return chart


def plot_amplification(rows: Sequence[Amplified]) -> Chart:
    """Distance of the stationary distribution over the error of a conditional, against J."""
    chart = Chart(
        "Errors of conditionals grow in the stationary distribution",
        "total variation from p over the mean error of a conditional; bars: 95% intervals; free: "
        "independent errors, joint: errors of a joint distribution; dotted: bounds",
        x=dict(title="coupling J", tickformat="~g"),
        y=dict(title="ratio") | LOG,
        height=380,
        showlegend=True,
    )
    for kind, color in (("free", ORANGE), ("joint", BLUE)):
        own = [row for row in rows if row.errors == kind]
        x, values = [row.coupling for row in own], [row.amplification for row in own]
        chart.line(x, [row.bound.value for row in own], color=color, width=1.5, dash="dot")
        chart.dots(
            x,
            [value.value for value in values],
            kind,
            f"{kind}, J = %{{x:g}}: %{{y:.3g}}",
            color=color,
            size=8,
            error=bars(values),
        )
    return chart


def plot_race(races: Sequence[Race], *, up_to: float | None = None) -> Chart:
    """Exact mean steps of each k as lines, simulated means as dots, on a logarithmic axis.

    As in the paper's figure, bars are half a standard deviation and a chain that has not arrived
    counts with the budget. `up_to` cuts the axis there, to tell the fast samplers apart.
    """
    first = races[0]
    cut = {} if up_to is None else dict(range=[-0.1, float(np.log10(up_to))], dtick=1)
    chart = Chart(
        "Steps from all -1 to all 1 in the clique" + (", the fast ones" if cut else ""),
        f"N = {first.model.n_sites}, |C| = {first.model.size}, h = {first.model.field:g}; lines: "
        f"exact means; dots: simulated, bars of half a standard deviation; open: some chains did "
        f"not arrive and count with the budget of {first.budget:,} steps (dotted)",
        x=dict(title="coupling J", tickformat="~g"),
        y=dict(title="steps", nticks=12) | POWERS | cut,
        height=500,
        legend="below",
    )
    couplings, n = [race.model.coupling for race in races], len(first.gibbs)
    colors = sample_colorscale("Viridis", list(np.linspace(0.05, 0.9, max(n, 2))))
    for slot in range(n):
        runners = [race.gibbs[slot] for race in races]
        _add_runners(chart, couplings, runners, f"k = {first.gibbs[slot].k}", colors[slot])
    parallel = [race.parallel for race in races]
    _add_runners(chart, couplings, parallel, "parallel", ORANGE, dash="dash")
    chart.rule(y=first.budget, dash="dot", width=1)
    return chart


def _add_runners(
    chart: Chart,
    couplings: list[float],
    runners: list[Runner],
    name: str,
    color: str,
    dash: str = "solid",
) -> None:
    """The exact means of one sampler as a line, the simulated ones as dots."""
    hover, means = f"{name}, J = %{{x:g}}: ", [runner.mean for runner in runners]
    chart.line(couplings, means, name, f"{hover}mean %{{y:.3g}} steps", color=color, dash=dash)
    for symbol, complete in (("circle", True), ("circle-open", False)):
        simulated = [
            (coupling, runner.simulated)
            for coupling, runner in zip(couplings, runners, strict=True)
            if runner.simulated is not None and runner.simulated.arrived.all() == complete
        ]
        if not simulated:
            continue
        spreads = [(arrivals.mean, arrivals.deviation / 2) for _, arrivals in simulated]
        chart.dots(
            [coupling for coupling, _ in simulated],
            [mean for mean, _ in spreads],
            "",
            f"{hover}simulated %{{y:.3g}}, %{{customdata}} arrived",
            color=color,
            size=6,
            symbol=symbol,
            line=dict(color=INK, width=0.5) if complete else dict(width=1.5),
            error=dict(width=3)
            | ends(
                [mean for mean, _ in spreads],
                [max(mean - half, mean / 10) for mean, half in spreads],
                [mean + half for mean, half in spreads],
            ),
            trace=dict(customdata=[int(arrivals.arrived.sum()) for _, arrivals in simulated]),
        )


def plot_separation(rows: Sequence[Separation]) -> Chart:
    """Both probabilities of failure against |C|, as powers of ten, and the corollary's promise."""
    first = rows[0]
    steps = "one step" if first.n_steps == 1 else f"{first.n_steps:,} steps"
    chart = Chart(
        "One step of N-Gibbs against the parallel sampler",
        f"exact probabilities, as powers of ten; dotted: delta = {first.delta:g}, which corollary 3"
        f" promises from {rows[-1].model.size} sites on; the parallel sampler has {steps}, from "
        "a sum of -2 (even |C|) or -3",
        x=dict(title="sites of the clique |C|", tickformat=",d"),
        y=dict(title="log10 of the probability"),
        height=380,
    )
    sizes = [row.model.size for row in rows]
    for name, color, values in (
        ("N-Gibbs is not in R1", BLUE, [log10(row.gibbs_misses) for row in rows]),
        ("the parallel sampler is in R1", ORANGE, [row.log10_parallel() for row in rows]),
    ):
        hover = f"{name}, |C| = %{{x}}: 10^%{{y:.1f}}"
        chart.line(sizes, values, name, hover, dots=True, color=color, marker=dict(size=5))
    chart.rule(y=log10(first.delta), dash="dot", width=1)
    return chart
