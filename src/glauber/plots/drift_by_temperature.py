"""How much sooner does a hot chain forget what its text was about?"""

from collections.abc import Mapping

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from glauber.figures.style import empty_figure
from glauber.mixing.drift import Distances

COLD_TO_HOT = ["#2166ac", "#67a9cf", "#e8b500", "#ef8a62", "#b2182b"]


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
