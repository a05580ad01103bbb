"""Does a text's potential, or its pseudo-log-likelihood, say how often the chain visits it?"""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import QUIET, STRONG, empty_figure


def plot_potential(
    potential: NDArray[Any], pll: NDArray[Any], counts: NDArray[Any], texts: list[str]
) -> go.Figure:
    """Potential and pseudo-log-likelihood (states,), each from its mean, against visits."""
    figure = empty_figure(
        "Who knows how often a text is visited?",
        "nats from the mean, against the steps that chains spent in the text",
    )
    figure.update_xaxes(title_text="steps spent there", type="log", tickformat="~g")
    figure.update_yaxes(title=dict(text="nats", font_size=13), rangemode="normal")
    values = {"pseudo-log-likelihood": (pll, QUIET), "potential": (potential, STRONG)}
    for name, (value, colour) in values.items():
        figure.add_scatter(
            x=counts,
            y=value - np.mean(value),
            mode="markers",
            marker=dict(color=colour, size=7, opacity=0.6),
            name=name,
            text=texts,
            hovertemplate="%{text}<br>%{x} steps, %{y:.2f} nats<extra></extra>",
        )
    return figure
