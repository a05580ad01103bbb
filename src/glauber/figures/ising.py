"""What do Ising models show: estimates and their errors, gaps, and steps between two modes?"""

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.colors import sample_colorscale

from glauber.figures.style import INK, QUIET, STRONG, empty_figure
from glauber.ising.mode_race import Race, Runner
from glauber.ising.block_gaps import Dependency
from glauber.ising.error_curves import ErrorCurves
from glauber.ising.sampler_separation import Separation

ORANGE, GREEN = "#d55e00", "#009e73"
COLOURS = ("#e69f00", "#56b4e9", GREEN, STRONG, "#cc79a7", ORANGE)
LINES = ((STRONG, "solid", "circle"), (ORANGE, "dash", "square"), (QUIET, "dot", "diamond"))
BOUNDS = (
    (STRONG, "solid"),
    (GREEN, "dash"),
    ("#e69f00", "dashdot"),
    (ORANGE, "dot"),
    (QUIET, "longdash"),
)
ROUNDING = 1e-12
MANY = 60  # parameters that are no longer named on the axis


def plot_estimates(
    names: Sequence[str], estimate: NDArray[Any], error: NDArray[Any], *, truth: NDArray[Any] | None
) -> go.Figure:
    """Estimates (d,) with two standard errors (d,), and the truth where it is known."""
    if len(names) > MANY:
        return _plot_many(names, estimate, error, truth)
    figure = empty_figure(
        "Estimated fields and couplings", "bars: two standard errors of the sandwich"
    )
    figure.update_xaxes(title_text="", rangemode="normal", type="category", tickformat=None)
    figure.update_yaxes(rangemode="normal", tickformat="~g", automargin=True)
    figure.add_scatter(
        x=list(names),
        y=estimate,
        mode="markers",
        name="estimate",
        marker=dict(color=STRONG, size=8),
        error_y=dict(array=2 * error, color=STRONG, thickness=1.5, width=3),
        hovertemplate="%{x}: %{y:.4f}<extra></extra>",
    )
    if truth is not None:
        figure.add_scatter(
            x=list(names),
            y=truth,
            mode="markers",
            name="truth",
            marker=dict(color=ORANGE, size=9, symbol="x-thin", line=dict(color=ORANGE, width=2)),
            hovertemplate="%{x}: %{y:.4f}<extra>truth</extra>",
        )
    figure.update_layout(showlegend=True)
    return figure


def _plot_many(
    names: Sequence[str], estimate: NDArray[Any], error: NDArray[Any], truth: NDArray[Any] | None
) -> go.Figure:
    """Estimates in order of size, with two standard errors, and the truth of each."""
    order = np.argsort(estimate)
    figure = empty_figure(
        f"{len(names):,} estimated fields and couplings",
        "in order of size; bars: two standard errors of the sandwich",
    )
    figure.update_xaxes(title_text="parameter", rangemode="normal", tickformat=",d")
    figure.update_yaxes(rangemode="normal", tickformat="~g", automargin=True)
    named = [names[slot] for slot in order]
    figure.add_scatter(
        x=np.arange(len(order)), y=estimate[order], mode="markers", text=named, name="estimate",
        marker=dict(color=STRONG, size=4),
        error_y=dict(array=2 * error[order], color=STRONG, thickness=0.7, width=0),
        hovertemplate="%{text}: %{y:.4f}<extra></extra>",
    )  # fmt: skip
    if truth is not None:
        figure.add_scatter(
            x=np.arange(len(order)), y=truth[order], mode="markers", text=named, name="truth",
            marker=dict(color=ORANGE, size=4),
            hovertemplate="%{text}: %{y:.4f}<extra>truth</extra>",
        )  # fmt: skip
    figure.update_layout(showlegend=True)
    return figure


def plot_by_size(
    ks: Sequence[int], lines: Mapping[str, Sequence[float]], *, title: str, subtitle: str
) -> go.Figure:
    """Up to three named lines over k = 1, …, N, on a logarithmic axis."""
    figure = empty_figure(title, subtitle)
    figure.update_xaxes(title_text="hidden sites k", tickvals=list(ks), rangemode="normal")
    figure.update_yaxes(type="log", rangemode="normal", tickformat="~g", automargin=True)
    figure.update_yaxes(title=dict(text="trace, n times the error", font_size=13))
    for (name, values), (colour, dash, symbol) in zip(lines.items(), LINES, strict=False):
        figure.add_scatter(
            x=list(ks), y=list(values), mode="lines+markers", name=name,
            line=dict(color=colour, width=2.5, dash=dash), marker=dict(symbol=symbol, size=8),
            hovertemplate=f"k = %{{x}}: %{{y:.4g}}<extra>{name}</extra>",
        )  # fmt: skip
    figure.update_layout(showlegend=True, legend_font_color=INK)
    return figure


def plot_error_curves(curves: ErrorCurves) -> go.Figure:
    """Mean squared error against samples, bars of half a standard deviation; dotted: trace/n."""
    count = curves.squared_errors.shape[2]
    masks = curves.per_sample
    how = "all masks averaged" if masks is None else f"{masks} random mask{'s'[: masks > 1]} each"
    figure = empty_figure(
        "Squared error of the estimate, k sites hidden",
        f"{count} repetitions, {how}; bars: half a standard deviation<br>"
        "dotted: trace of the exact covariance / n",
    )
    _taller(figure, 420, 130)
    figure.update_xaxes(type="log", title_text="samples n", rangemode="normal", tickformat=",d")
    figure.update_xaxes(tickvals=curves.sizes)
    figure.update_yaxes(type="log", rangemode="normal", tickformat="~g", automargin=True, dtick=1)
    figure.update_yaxes(title=dict(text="squared error", font_size=13))
    for row, k in enumerate(curves.ks):
        colour = COLOURS[row % len(COLOURS)]
        shifted = [n * 1.03 ** (row - (len(curves.ks) - 1) / 2) for n in curves.sizes]
        figure.add_scatter(
            x=shifted, y=curves.mean[row], mode="markers", name=f"k = {k}",
            marker=dict(color=colour, size=8),
            error_y=dict(array=curves.spread[row] / 2, color=colour, thickness=1.5, width=3),
            customdata=curves.sizes,
            hovertemplate=f"k = {k}, n = %{{customdata:,}}: %{{y:.3g}}<extra></extra>",
        )  # fmt: skip
        figure.add_scatter(
            x=curves.sizes, y=curves.predicted[row], mode="lines", showlegend=False,
            line=dict(color=colour, width=1.5, dash="dot"), hoverinfo="skip",
        )  # fmt: skip
    return figure


def plot_bounds(sizes: Sequence[int], lines: Mapping[str, Sequence[float | None]]) -> go.Figure:
    """The true total variation and up to four bounds against the sequences; 1 is no promise."""
    figure = empty_figure(
        "Distance of what is learnt, and its bounds",
        "total variation against the number of sequences; above 1 a bound says nothing<br>"
        "optimistic: lower than the theorem's bound",
    )
    _taller(figure, 440, 140)
    figure.update_xaxes(type="log", title_text="sequences n", rangemode="normal", tickformat=",d")
    figure.update_xaxes(tickvals=list(sizes))
    figure.update_yaxes(type="log", rangemode="normal", tickformat="~g", automargin=True, dtick=1)
    figure.update_yaxes(title=dict(text="total variation", font_size=13))
    for (name, values), (colour, dash) in zip(lines.items(), BOUNDS, strict=False):
        figure.add_scatter(
            x=list(sizes), y=list(values), mode="lines+markers", name=name,
            line=dict(color=colour, width=2.5, dash=dash),
            hovertemplate=f"n = %{{x:,}}: %{{y:.3g}}<extra>{name}</extra>",
        )  # fmt: skip
    figure.add_hline(y=1, line=dict(color=QUIET, width=1.5))
    figure.update_layout(legend_font_color=INK)
    return figure


def plot_dependency(found: Sequence[Dependency]) -> go.Figure:
    """The gap of each block size and the total variation of the parallel sampler, against J."""
    figure = empty_figure(
        "Stronger dependency: slower mixing, and what filling at once costs",
        "lines: spectral gap of k-block dynamics; dashed: total variation from p of the<br>parallel"
        " sampler's stationary distribution (exact) and of the product of p's marginals",
    )
    strengths = [one.coupling for one in found]
    for slot, k in enumerate(found[0].gaps):
        gaps = [one.gaps[k] for one in found]
        figure.add_scatter(
            x=strengths,
            y=[gap.value if gap.value > gap.error else None for gap in gaps],
            mode="lines+markers",
            line=dict(color=COLOURS[(3, 2, 0, 4, 1, 5)[slot % 6]], width=2.5),
            name=f"gap, k = {k}",
            hovertemplate=f"k = {k}, J = %{{x:g}}: gap %{{y:.3g}}<extra></extra>",
        )
    errors = {
        "parallel sampler": [one.parallel.total_variation for one in found],
        "one pass": [one.one_pass.at_most for one in found],
    }
    for (name, values), dash in zip(errors.items(), ("dash", "dot"), strict=True):
        figure.add_scatter(
            x=strengths,
            y=[value if value > ROUNDING else None for value in values],
            mode="lines+markers",
            line=dict(color=ORANGE, width=2.5, dash=dash),
            name=name,
            hovertemplate=f"{name}, J = %{{x:g}}: total variation %{{y:.3g}}<extra></extra>",
        )
    _taller(figure, 420, 130)
    figure.update_xaxes(title_text="coupling J", tickformat="~g")
    figure.update_yaxes(type="log", exponentformat="power", rangemode="normal", automargin=True)
    figure.update_yaxes(tickfont_size=11)
    return figure


def plot_race(races: Sequence[Race], *, up_to: float | None = None) -> go.Figure:
    """Exact mean steps of each k as lines, simulated means as dots, on a logarithmic axis.

    up_to cuts the axis there, so that the fast samplers can be told apart.
    """
    first = races[0]
    figure = empty_figure(
        "Steps from all -1 to all 1 in the clique" + ("" if up_to is None else ", the fast ones"),
        f"N = {first.model.n_sites}, |C| = {first.model.size}, h = {first.model.field:g}; lines: "
        f"exact means; dots: simulated, where all chains came<br>dotted: the budget of "
        f"{first.budget:,} steps",
    )
    couplings = [one.model.coupling for one in races]
    n = len(first.gibbs)
    colours = sample_colorscale("Viridis", list(np.linspace(0.05, 0.9, max(n, 2))))
    for slot in range(n):
        name = f"k = {first.gibbs[slot].k}"
        _add(figure, couplings, [one.gibbs[slot] for one in races], name, colours[slot])
    _add(figure, couplings, [one.parallel for one in races], "parallel", ORANGE, dash="dash")
    figure.add_hline(y=first.budget, line=dict(color=QUIET, width=1, dash="dot"))
    _taller(figure, 520, 150)
    figure.update_xaxes(title_text="coupling J", rangemode="normal", tickformat="~g")
    figure.update_yaxes(
        type="log", title=dict(text="steps", font_size=13), exponentformat="power",
        rangemode="normal", automargin=True, nticks=12, tickformat=None, tickfont_size=11,
    )  # fmt: skip
    if up_to is not None:
        figure.update_yaxes(range=[-0.1, float(np.log10(up_to))], dtick=1)
    return figure


def plot_separation(found: Sequence[Separation]) -> go.Figure:
    """The two chances of failure against |C|, as powers of ten, and what the corollary promises."""
    first = found[0]
    steps = "one step" if first.n_steps == 1 else f"{first.n_steps:,} steps"
    figure = empty_figure(
        "One step of N-Gibbs against the parallel sampler",
        f"exact chances, as powers of ten; dotted: delta = {first.delta:g}, which corollary 3 "
        f"promises from<br>{found[-1].model.size} sites on; the parallel sampler has {steps}, from "
        "a sum of -2 (even |C|) or -3",
    )
    sizes = [one.model.size for one in found]
    chances = {
        "N-Gibbs is not in R1": ([log10(one.gibbs_misses) for one in found], STRONG),
        "the parallel sampler is in R1": ([one.log10_parallel() for one in found], ORANGE),
    }
    for name, (values, colour) in chances.items():
        figure.add_scatter(
            x=sizes,
            y=values,
            mode="lines+markers",
            line=dict(color=colour, width=2.5),
            marker_size=5,
            name=name,
            hovertemplate=f"{name}, |C| = %{{x}}: 10^%{{y:.1f}}<extra></extra>",
        )
    figure.add_hline(y=log10(first.delta), line=dict(color=QUIET, width=1, dash="dot"))
    _taller(figure, 400, 130)
    figure.update_xaxes(title_text="sites of the clique |C|", rangemode="normal")
    figure.update_yaxes(
        title=dict(text="log10 of the chance", font_size=13), rangemode="normal", automargin=True
    )
    return figure


def _add(
    figure: go.Figure,
    couplings: list[float],
    runners: list[Runner],
    name: str,
    colour: str,
    dash: str = "solid",
) -> None:
    """The exact means of one sampler as a line, the simulated ones as dots."""
    figure.add_scatter(
        x=couplings,
        y=[runner.mean for runner in runners],
        mode="lines",
        line=dict(color=colour, width=2.5, dash=dash),
        name=name,
        hovertemplate=f"{name}, J = %{{x:g}}: mean %{{y:.3g}} steps<extra></extra>",
    )
    came = [
        (j, one.simulated)
        for j, one in zip(couplings, runners, strict=True)
        if one.simulated is not None and one.simulated.arrived.all()
    ]
    figure.add_scatter(
        x=[j for j, _ in came],
        y=[seen.mean for _, seen in came],
        error_y=dict(array=[seen.standard_error for _, seen in came], color=colour, width=3),
        mode="markers",
        marker=dict(color=colour, size=6, line=dict(color=INK, width=0.5)),
        showlegend=False,
        hovertemplate=f"{name}, J = %{{x:g}}: simulated %{{y:.3g}}<extra></extra>",
    )


def _taller(figure: go.Figure, height: int, top: int) -> None:
    figure.update_layout(height=height, margin_t=top, title_y=1 - 12 / height)
