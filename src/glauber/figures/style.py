"""What do all figures have in common?"""

import plotly.graph_objects as go

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK = "#1f2328"
QUIET = "#6b7280"
FAINT = "#e5e7eb"
STRONG = "#0072b2"  # the blue of Okabe and Ito, told apart in every common colour blindness
THIN = "rgba(107, 114, 128, 0.5)"
HEIGHT = 340
SHARES = [-0.02, 1.02]  # of an axis; a line along 0% or 100% keeps its width


def empty_figure(title: str, subtitle: str) -> go.Figure:
    """A figure without data over steps, as wide as its place; drag to zoom, double click back."""
    below = f'<span style="font-size: 13px; color: {QUIET}">{subtitle}</span>'
    figure = go.Figure()
    figure.update_layout(
        template="none",
        autosize=True,
        height=HEIGHT,
        margin=dict(l=46, r=14, t=86, b=46),
        font=dict(family=FONT, size=13, color=INK),
        title=dict(text=f"{title}<br>{below}", x=0, y=0.96, yanchor="top", font_size=16),
        legend=dict(orientation="h", x=0, y=1.02, yanchor="bottom", font_color=QUIET),
        hoverlabel=dict(bgcolor="white", bordercolor=FAINT, font_color=INK),
        hovermode="closest",
        dragmode="zoom",
    )
    figure.update_xaxes(tickformat=",d", nticks=6, showgrid=False, rangemode="tozero")
    figure.update_xaxes(title=dict(text="step", font_size=13))
    figure.update_yaxes(gridcolor=FAINT, nticks=6, rangemode="tozero")
    for update in (figure.update_xaxes, figure.update_yaxes):
        update(zeroline=False, linecolor=QUIET, tickcolor=QUIET, ticks="outside")
    return figure
