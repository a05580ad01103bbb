"""What holds a text where it is? Gaps of its tokens, and the drift of one token's copies."""

from html import escape
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from glauber.figures.style import QUIET, STRONG, empty_figure
from glauber.metastability.holding import written
from glauber.result import visible

if TYPE_CHECKING:
    from glauber.metastability.drift import DriftStudy
    from glauber.metastability.margins import MarginStudy

SHOWN = 400  # states of a level that are drawn


def plot_margins(found: "MarginStudy") -> go.Figure:
    """The gap of each token, and how many redraws of its site it outlasts on average."""
    figure = empty_figure(
        "How firmly each token is held",
        f"gap to the best other token; mean holding time of the text at temperature "
        f"{found.temperature:g}: {found.held}",
    )
    places = list(range(len(found.tokens)))
    names = [escape(visible(token), quote=False) for token in found.tokens]
    figure.update_xaxes(title_text="", tickvals=places, ticktext=names, tickangle=-45)
    figure.update_yaxes(title=dict(text="gap (score)", font_size=13))
    powers = -found.log_leaving / np.log(10)  # logarithms: float64 has no number for some
    said = [[written(log), written(-log)] for log in found.log_leaving]
    figure.add_bar(
        x=places,
        y=found.gaps,
        marker_color=[STRONG if gap > 0 else QUIET for gap in found.gaps],
        name="gap; grey: another token is likelier",
        customdata=said,
        text=names,
        textposition="none",
        hovertemplate="%{text}: gap %{y:.3f}<br>a redraw changes it with chance "
        "%{customdata[0]}<extra></extra>",
    )
    figure.add_scatter(
        x=places,
        y=np.where(np.isfinite(powers), powers, np.nan),
        customdata=said,
        yaxis="y2",
        mode="markers",
        marker=dict(color="black", symbol="line-ew-open", size=14),
        name="redraws until it changes, on average (right)",
        hovertemplate="%{customdata[1]} redraws<extra></extra>",
    )
    figure.update_layout(
        margin=dict(b=80, r=60),
        yaxis2=dict(
            overlaying="y", side="right", title="redraws, power of ten", showgrid=False, nticks=5
        ),
    )
    return figure


def plot_drift(found: "DriftStudy") -> go.Figure:
    """Expected change of the number of copies, state by state, at each number of copies."""
    note = (
        "no certificate: some states fall"
        if found.descent is None
        else f"chance to come down at most {found.descent:.3g} ({found.kind})"
    )
    figure = empty_figure(
        f"Does the number of copies of {escape(visible(found.token), quote=False)} grow?",
        f"expected change in one step at temperature {found.temperature:g}; {note}",
    )
    counts = [level.count for level in found.levels]
    figure.update_xaxes(title_text="copies", tickvals=counts, rangemode="normal")
    figure.update_yaxes(title=dict(text="expected change", font_size=13), rangemode="normal")
    for level in found.levels:
        values = level.drifts[:SHOWN]
        spread = np.linspace(-0.2, 0.2, len(values)) if len(values) > 1 else np.zeros(1)
        figure.add_scatter(
            x=level.count + spread,
            y=values,
            mode="markers",
            marker=dict(color=STRONG, size=4, opacity=0.4),
            name="a sampled state",
            showlegend=level is found.levels[0],
            hovertemplate=f"{level.count} copies: %{{y:.4f}}<extra></extra>",
        )
    figure.add_scatter(
        x=counts,
        y=[level.median for level in found.levels],
        mode="lines+markers",
        line=dict(color=QUIET, width=2.5),
        name="median",
        hovertemplate="%{x} copies: median %{y:.4f}<extra></extra>",
    )
    figure.add_hline(
        y=found.epsilon,
        line=dict(color=QUIET, width=2, dash="dot"),
        name=f"the smallest, which the bound rests on: {found.epsilon:.4f}",
        showlegend=True,
    )
    figure.add_hline(y=0, line=dict(color="black", width=1))
    return figure
