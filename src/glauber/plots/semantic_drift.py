"""How far has the meaning moved from the start, and where does it stay?"""

import numpy as np
import plotly.graph_objects as go

from glauber.figures.style import QUIET, STRONG, THIN, empty_figure
from glauber.mixing.drift import Distances, Saturation
from glauber.statistics import Mean

BAND = "rgba(0, 114, 178, 0.16)"
LIMIT = "#d55e00"


def plot_semantic_drift(
    found: Distances, level: Saturation | None = None, *, threshold: float | None = None
) -> go.Figure:
    """The median distance from the start over steps, the band of nine chains in ten, the level."""
    low, middle, high = np.quantile(found.values, [0.05, 0.5, 0.95], axis=0)
    figure = empty_figure(
        "How far the meaning moved",
        f"1 - cosine between the embeddings of the text and of its start, "
        f"{len(found.values):,} chains",
    )
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
        word = "saturation" if level.settled else "last quarter"
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
    values: dict[int, np.ndarray], means: dict[int, Mean], *, step: int
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
    spread = [means[n].interval for n in lengths]
    reach = [0.0 if pair is None else (pair[1] - pair[0]) / 2 for pair in spread]
    figure.add_scatter(
        x=lengths,
        y=centre,
        error_y=dict(type="data", array=reach, color=STRONG, thickness=2),
        mode="lines+markers",
        line=dict(color=STRONG, width=2.5),
        name="mean, 95% interval",
        hovertemplate="n = %{x}: mean %{y:.3f}<extra></extra>",
    )
    return figure
