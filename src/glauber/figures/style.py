"""What do all figures have in common? Colours, an empty figure, a table, a map of tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.statistics import Estimate
from glauber.tables import short

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK = "#1f2328"
QUIET = "#6b7280"
FAINT = "#e5e7eb"
STRONG = "#0072b2"  # the blue of Okabe and Ito, told apart in every common colour blindness
THIN = "rgba(107, 114, 128, 0.5)"
# What a dark page draws instead; colours that are not here it makes light enough by itself.
GROUND = "#14171b"
DARK = {
    INK: "#e6e8eb",
    "black": "#e6e8eb",
    QUIET: "#a4abb6",
    FAINT: "#363c46",
    "white": GROUND,
    "rgba(255, 255, 255, 0.7)": "rgba(20, 23, 27, 0.7)",
}
HEIGHT = 340
MOST = 120  # characters of a cell of a table
CELL = 34  # pixels of a row of a token map
FEW = 16  # up to this many tokens the figures stand in its cells
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


def plot_rows(title: str, subtitle: str, rows: list[dict[str, Any]]) -> go.Figure:
    """The rows as a table, a column for each field that one of them has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [[short(row.get(name))[:MOST] for row in rows] for name in names]
    figure = empty_figure(title, subtitle[:MOST])
    figure.add_table(
        header=dict(values=names, fill_color=FAINT, align="left"),
        cells=dict(values=columns, fill_color="white", align="left"),
    )
    figure.update_layout(height=160 + 34 * len(rows))
    return figure


def add_token_map(
    figure: go.Figure,
    values: NDArray[Any],
    words: Sequence[str],
    *,
    hover: Sequence[Sequence[str]],
    across: str,
    down: str,
    above: int = 200,
) -> None:
    """Draws values (n, n) with the diagonal left out; `above` pixels stay for what is around."""
    n = len(words)
    shown = np.where(np.eye(n, dtype=bool), np.nan, values)
    figure.add_heatmap(
        z=shown,
        zmin=0,
        zmax=1,
        colorscale=[[0, "white"], [1, STRONG]],
        texttemplate="%{z:.2f}" if n <= FEW else None,
        customdata=hover,
        hovertemplate="%{customdata}<br>total variation %{z:.3f}<extra></extra>",
        hoverongaps=False,
        xgap=1,
        ygap=1,
        colorbar=dict(
            title=dict(text="total variation", side="right", font=dict(color=QUIET, size=13)),
            thickness=12,
            outlinecolor=FAINT,
        ),
    )
    height = CELL * n + above
    figure.update_layout(height=height, plot_bgcolor=FAINT, title_y=1 - 12 / height)
    places = dict(
        tickmode="array",
        tickvals=list(range(n)),
        ticktext=list(words),
        showgrid=False,
        automargin=True,
        rangemode="normal",
    )
    figure.update_xaxes(**places, range=[-0.5, n - 0.5], tickangle=-45)
    figure.update_xaxes(title=dict(text=across, standoff=8, font_size=13))
    figure.update_yaxes(**places, range=[n - 0.5, -0.5])
    figure.update_yaxes(title=dict(text=down, standoff=8, font_size=13))


def bars(found: Sequence[Estimate]) -> dict[str, Any]:
    """Error bars from the value to the ends of each interval; none where there is no interval."""
    ends = [one.interval or (one.value, one.value) for one in found]
    return dict(
        type="data",
        symmetric=False,
        array=[high - one.value for one, (_, high) in zip(found, ends, strict=True)],
        arrayminus=[one.value - low for one, (low, _) in zip(found, ends, strict=True)],
    )
