"""Do the timescales of the model depend on how it was looked at?"""

import numpy as np
import plotly.graph_objects as go

from glauber.figures.style import FAINT, QUIET, empty_figure
from glauber.metastability.state_model import ImpliedTimescales

# Those of Okabe and Ito that show on white, and two more.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b7280", "#882255",
)  # fmt: skip


def plot_implied_timescales(found: ImpliedTimescales, *, lag: int | None = None) -> go.Figure:
    """Each timescale against the lag, both in steps, with bands over redrawn chains.

    Below the diagonal a timescale is shorter than the lag and cannot be seen. lag marks the one
    that the model uses.
    """
    alone = found.steps.low is None
    band = "one chain: no errors" if alone else "bands: 95%, redrawing chains"
    figure = empty_figure(
        "How slow the slowest motions are",
        f"implied timescales in steps (estimates; {band}).<br>"
        "Level lines speak for the model; shaded: over before the lag is",
    )
    figure.update_layout(height=400, margin_t=112, margin_l=64, showlegend=False)
    figure.update_xaxes(title_text="lag in steps", type="log", rangemode="normal", dtick="D2")
    figure.update_yaxes(type="log", rangemode="normal", tickformat=",.0f", dtick="D2")
    _shade(figure, found)
    for place in range(found.steps.value.shape[1]):
        _add(figure, found, place)
    if lag is not None:
        figure.add_vline(x=lag, line=dict(color=QUIET, width=1.5, dash="dot"))
        figure.add_annotation(
            x=np.log10(lag), y=1, yref="paper", text=f"lag {lag:,}", showarrow=False,
            xanchor="left", yanchor="top", xshift=4, font_color=QUIET,
        )  # fmt: skip
    return figure


def _shade(figure: go.Figure, found: ImpliedTimescales) -> None:
    lags, values = found.lags, found.steps.value[np.isfinite(found.steps.value)]
    seen = values[values > 0]
    bottom = float(min(seen.min(initial=lags[0]), lags[0])) / 1.4
    top = float(max(seen.max(initial=lags[-1]), lags[-1])) * 1.6
    ends = [lags[0] / 1.15, lags[-1] * 1.15]
    figure.update_yaxes(range=[np.log10(bottom), np.log10(top)])
    figure.update_xaxes(range=np.log10(ends).tolist())
    figure.add_scatter(
        x=[*ends, ends[1], ends[0]], y=[*ends, bottom, bottom], fill="toself", mode="lines",
        line=dict(width=0), fillcolor=FAINT, hoverinfo="skip",
    )  # fmt: skip


def _add(figure: go.Figure, found: ImpliedTimescales, place: int) -> None:
    colour = COLOURS[place % len(COLOURS)]
    if found.steps.low is not None and found.steps.high is not None:
        low, high = found.steps.low[:, place], found.steps.high[:, place]
        there = np.isfinite(low) & np.isfinite(high) & (low > 0)
        figure.add_scatter(
            x=np.concatenate([found.lags[there], found.lags[there][::-1]]),
            y=np.concatenate([high[there], low[there][::-1]]),
            fill="toself", mode="lines", line=dict(width=0), fillcolor=colour, opacity=0.14,
            hoverinfo="skip",
        )  # fmt: skip
    figure.add_scatter(
        x=found.lags,
        y=found.steps.value[:, place],
        mode="lines+markers",
        line=dict(color=colour, width=2.5),
        name=f"timescale {place + 1}",
        hovertemplate="lag %{x:,}: %{y:,.0f} steps<extra>%{fullData.name}</extra>",
    )
