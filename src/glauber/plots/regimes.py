"""How does the way a chain moves depend on its temperature?"""

from collections.abc import Sequence

import plotly.graph_objects as go

from glauber.figures.style import QUIET, SHARES, STRONG, empty_figure
from glauber.metastability.regimes import Regime

LINES = (
    ("steps that change a token", "changed", STRONG, "solid"),
    ("steps within a trap", "stuck", "#e69f00", "dash"),
    ("start tokens kept to the end", "kept", QUIET, "dot"),
)


def plot_regimes(found: Sequence[Regime]) -> go.Figure:
    """Three shares against the temperature, on a logarithmic axis."""
    figure = empty_figure(
        "Frozen, wandering, noise",
        "shares in the second half of each run, against the temperature",
    )
    height = 420
    figure.update_layout(height=height, margin_t=120, title_y=1 - 12 / height)
    warmth = [each.temperature for each in found]
    figure.update_xaxes(type="log", title_text="temperature", rangemode="normal", tickvals=warmth)
    figure.update_xaxes(tickformat="~g")
    figure.update_yaxes(tickformat=".0%", range=SHARES)
    for name, field, colour, dash in LINES:
        figure.add_scatter(
            x=warmth,
            y=[getattr(each, field) for each in found],
            mode="lines+markers",
            line=dict(color=colour, width=2.5, dash=dash),
            name=name,
            hovertemplate=f"temperature %{{x}}: {name} %{{y:.1%}}<extra></extra>",
        )
    return figure
