"""How does the influence that chains meet fall with temperature?"""

from collections.abc import Sequence

import plotly.graph_objects as go

from glauber.figures.style import QUIET, STRONG, empty_figure
from glauber.mixing.averaged import AveragedInfluence


def plot_averaged(averages: Sequence[AveragedInfluence]) -> go.Figure:
    """The mean influence against temperature, with two standard errors each way."""
    rows = sorted(averages, key=lambda one: one.temperature)
    figure = empty_figure(
        "Influence met on average along a chain",
        "what one changed token does to all others together; below 1 disagreement shrinks",
    )
    figure.update_xaxes(title_text="temperature", tickformat="~g")
    figure.update_yaxes(title=dict(text="summed total variation", font_size=13))
    figure.add_scatter(
        x=[one.temperature for one in rows],
        y=[one.mean for one in rows],
        error_y=dict(array=[2 * one.standard_error for one in rows], color=QUIET),
        mode="lines+markers",
        line=dict(color=STRONG, width=2.5),
        showlegend=False,
        hovertemplate="temperature %{x:g}: %{y:.3f}<extra></extra>",
    )
    figure.add_hline(y=1, line=dict(color=QUIET, width=1.5, dash="dot"))
    return figure
