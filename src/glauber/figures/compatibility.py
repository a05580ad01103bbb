"""How far from closing are the rectangles, and does that go with the sites' influence?"""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import QUIET, STRONG, empty_figure


def plot_deltas(delta: NDArray[Any], noise_floor: float, *, n_bins: int = 40) -> go.Figure:
    """The histogram of Delta; delta (count,) in nats, with its mean and the noise floor."""
    counts, edges = np.histogram(delta, bins=n_bins, range=(0.0, float(delta.max()) or 1.0))
    figure = empty_figure(
        "How far rectangles are from closing",
        f"Delta of {len(delta):,} rectangles in nats; 0 for every one if a joint law existed",
    )
    figure.update_xaxes(title_text="Delta", tickformat="~g")
    figure.update_yaxes(title=dict(text="rectangles", font_size=13))
    figure.add_bar(
        x=(edges[:-1] + edges[1:]) / 2,
        y=counts,
        width=np.diff(edges),
        marker=dict(color=STRONG, line=dict(color="white", width=1)),
        hovertemplate="Delta near %{x:.2f}: %{y} rectangles<extra></extra>",
        showlegend=False,
    )
    _mark(figure, float(delta.mean()), f"mean {delta.mean():.3f}", "solid")
    _mark(figure, noise_floor, f"noise floor {noise_floor:.1e}", "dot")
    return figure


def plot_delta_against_influence(influence: NDArray[Any], delta: NDArray[Any]) -> go.Figure:
    """Delta (count,) against the influence (count,) between the two sites, both not negative."""
    figure = empty_figure(
        "Delta and the influence between the two sites",
        "Delta in nats against the total variation that changing one site makes at the other",
    )
    figure.update_xaxes(title_text="influence, mean of both directions", tickformat="~g")
    figure.update_yaxes(title=dict(text="Delta", font_size=13))
    figure.add_scatter(
        x=influence,
        y=delta,
        mode="markers",
        marker=dict(color=STRONG, size=6, opacity=0.5),
        name="a rectangle",
        hovertemplate="influence %{x:.3f}, Delta %{y:.2f}<extra></extra>",
    )
    middles, medians = _binned_medians(influence, delta)
    figure.add_scatter(
        x=middles,
        y=medians,
        mode="lines",
        line=dict(color=QUIET, width=2.5),
        name="median of each tenth",
        hovertemplate="influence %{x:.3f}, median Delta %{y:.2f}<extra></extra>",
    )
    return figure


def _binned_medians(x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Medians of x and of y over tenths of the points in order of x (fewer if points are few)."""
    tenths = np.array_split(np.argsort(x, kind="stable"), min(10, len(x)))
    return (
        np.array([np.median(x[tenth]) for tenth in tenths]),
        np.array([np.median(y[tenth]) for tenth in tenths]),
    )


def _mark(figure: go.Figure, x: float, name: str, dash: str) -> None:
    """A vertical line over the whole height, named in the legend."""
    figure.add_vline(x=x, line=dict(color=QUIET, width=2, dash=dash), name=name, showlegend=True)
