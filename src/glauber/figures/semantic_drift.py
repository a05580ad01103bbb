"""How far has the meaning moved from the start, by length and by temperature?"""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.colors import sample_colorscale

from glauber.figures.style import INK, QUIET, STRONG, THIN, bars, empty_figure
from glauber.mixing.scaling import Scaling
from glauber.mixing.semantic_drift import Distances, HittingTimes, Saturation
from glauber.result import counted
from glauber.statistics import Estimate

BAND = "rgba(0, 114, 178, 0.16)"
LIMIT = "#d55e00"
COLD_TO_HOT = ["#2166ac", "#67a9cf", "#e8b500", "#ef8a62", "#b2182b"]
COLOURS = {"n": "#e69f00", "n log n": "#0072b2", "n^2": "#d55e00"}
DASHES = {"n": "dash", "n log n": "solid", "n^2": "dot"}


def plot_semantic_drift(
    found: Distances, level: Saturation | None = None, *, threshold: float | None = None
) -> go.Figure:
    """The median distance from the start over steps, the band of nine chains in ten, the level."""
    low, middle, high = np.quantile(found.values, [0.05, 0.5, 0.95], axis=0)
    title, what = (
        ("How far the text moved", "share of free sites with another token than at the start")
        if found.farthest <= 1
        else ("How far the meaning moved", "1 - cosine between embeddings of text and start")
    )
    figure = empty_figure(title, f"{what}, {counted(len(found.values), 'chain')}")
    figure.update_yaxes(tickformat=".1f", range=[-0.02, max(1.02, float(high.max()) + 0.04)])
    edge = dict(mode="lines", line=dict(width=0), hoverinfo="skip")
    figure.add_scatter(x=found.steps, y=high, showlegend=False, **edge)
    figure.add_scatter(
        x=found.steps, y=low, fill="tonexty", fillcolor=BAND, name="90% of the chains", **edge
    )
    figure.add_scatter(
        x=found.steps,
        y=middle,
        mode="lines",
        line=dict(color=STRONG, width=2.5),
        name="median",
        hovertemplate="step %{x:,}: median %{y:.2f}<extra></extra>",
    )
    if level is not None:
        word = "saturation" if level.settled else "last half, not known to stay"
        name = f"{word} {level.level.value:.2f}"
        figure.add_hline(
            y=level.level.value, line=dict(color=QUIET, width=2), name=name, showlegend=True
        )
    if threshold is not None:
        figure.add_hline(
            y=threshold,
            line=dict(color=LIMIT, width=2, dash="dot"),
            name=f"threshold {threshold:g}",
            showlegend=True,
        )
    return figure


def plot_distance_by_length(
    values: dict[int, NDArray[np.float64]], means: dict[int, Estimate], *, step: int
) -> go.Figure:
    """The distances (chains,) after one number of steps, by length, with means and intervals."""
    lengths = sorted(values)
    figure = empty_figure(
        f"The distance from the start after {step:,} steps",
        "1 - cosine of the embeddings, against the number of tokens n",
    )
    figure.update_xaxes(title_text="tokens n", rangemode="normal", tickvals=lengths)
    top = max(float(each.max()) for each in values.values())
    figure.update_yaxes(tickformat=".1f", range=[-0.02, max(1.02, top + 0.04)])
    figure.add_scatter(
        x=np.concatenate([np.full(len(values[n]), n) for n in lengths]),
        y=np.concatenate([values[n] for n in lengths]),
        mode="markers",
        marker=dict(color=THIN, size=5),
        name="a chain",
        hovertemplate="n = %{x}: %{y:.2f}<extra></extra>",
    )
    centre = np.array([means[n].value for n in lengths])
    figure.add_scatter(
        x=lengths,
        y=centre,
        error_y=bars([means[n] for n in lengths]) | dict(color=STRONG, thickness=2),
        mode="lines+markers",
        line=dict(color=STRONG, width=2.5),
        name="mean, 95% interval",
        hovertemplate="n = %{x}: mean %{y:.3f}<extra></extra>",
    )
    return figure


def plot_drift_by_temperature(curves: Mapping[float, Distances]) -> go.Figure:
    """The mean distance from the start over time, a line for each temperature."""
    figure = empty_figure(
        "Distance from the start by temperature",
        "1 - cosine of the embeddings, mean over chains; from cold (blue) to hot (red)",
    )
    figure.update_yaxes(title=dict(text="distance", font_size=13))
    ordered = sorted(curves)
    for place, temperature in enumerate(ordered):
        found = curves[temperature]
        where = place / max(1, len(ordered) - 1)
        figure.add_scatter(
            x=found.steps,
            y=found.values.mean(axis=0),
            mode="lines",
            line=dict(color=sample_colorscale(COLD_TO_HOT, [where])[0], width=2.5),
            name=f"{temperature:g}",
            hovertemplate=f"temperature {temperature:g}, step %{{x:,}}: %{{y:.2f}}<extra></extra>",
        )
    return figure


def plot_scaling(times: Mapping[int, HittingTimes], scaling: Scaling) -> go.Figure:
    """Each chain's hitting time against n, and the fitted means of the laws and the free power."""
    lengths = sorted(times)
    threshold = times[lengths[0]].threshold
    figure = empty_figure(
        f"Steps until the distance reaches {threshold:g}",
        f"against the number of tokens n; {scaling.n_censored} of {scaling.n_times} chains never "
        f"did<br>lines: fitted means; free power {scaling.power.label}; among n, n log n and n^2 "
        f"alone {scaling.best.law} weighs {scaling.best.weight:.2f}",
    )
    height = 420
    figure.update_layout(height=height, margin_t=130, title_y=1 - 12 / height)
    figure.update_xaxes(title_text="tokens n", rangemode="normal", tickvals=lengths)
    figure.update_yaxes(type="log", title=dict(text="steps", font_size=13), tickformat=",d")
    figure.update_yaxes(dtick=1, rangemode="normal", automargin=True)
    for hit, name, symbol in ((True, "hit", "circle"), (False, "not by then", "triangle-up-open")):
        rows = [times[n].steps[times[n].hit == hit] for n in lengths]
        figure.add_scatter(
            x=np.concatenate([_beside(n, len(row)) for n, row in zip(lengths, rows, strict=True)]),
            y=np.concatenate(rows),
            mode="markers",
            marker=dict(color=THIN if hit else INK, size=5 if hit else 7, symbol=symbol),
            name=name,
            hovertemplate=f"n = %{{x:.0f}}: {name}, step %{{y:,}}<extra></extra>",
        )
    grid = np.linspace(lengths[0], lengths[-1], 60)
    for fit in scaling.fits:
        figure.add_scatter(
            x=grid,
            y=fit.mean(grid),
            mode="lines",
            line=dict(color=COLOURS[fit.law], width=2.5, dash=DASHES[fit.law]),
            name=f"{fit.c:.2g} {fit.law}",
            hovertemplate=f"{fit.law} (weight {fit.weight:.2g}), n = %{{x:.0f}}: mean %{{y:,.0f}}"
            "<extra></extra>",
        )
    _add_power(figure, scaling, grid)
    return figure


def _add_power(figure: go.Figure, scaling: Scaling, grid: NDArray[np.float64]) -> None:
    power = scaling.power
    figure.add_scatter(
        x=grid,
        y=power.mean(grid),
        mode="lines",
        line=dict(color=INK, width=1.5, dash="dashdot"),
        name=f"{power.c:.2g} n^{power.b:.2f}",
        hovertemplate=f"{power.label}, n = %{{x:.0f}}: mean %{{y:,.0f}}<extra></extra>",
    )


def _beside(n: int, count: int) -> NDArray[np.float64]:
    """Places beside n, so that equal times of one length can be told apart."""
    return n + np.linspace(-0.3, 0.3, count)
