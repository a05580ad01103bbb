"""Between which basins does the chain go, and what are they about?"""

from collections.abc import Sequence
from html import escape
from textwrap import shorten, wrap

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import QUIET, empty_figure
from glauber.metastability.basins import Basins
from glauber.metastability.readable import Readable
from glauber.plots.implied_timescales import COLOURS

WIDEST = 9.0  # pixels of the busiest arrow
LARGEST = 74.0  # pixels across a basin that is the whole law
BULGE = 0.16  # how far an arrow bends, so that the way back has its own


def plot_basin_network(found: Basins, readable: Sequence[Readable] | None = None) -> go.Figure:
    """Basins as circles (area: share of the stationary law) with arrows as wide as their traffic.

    The words at a circle are its most central text; a touch shows more texts and its words.
    """
    figure = empty_figure(
        "The basins, and the ways between them",
        "area: share of the stationary law; width: traffic; in words:<br>"
        f"the most central text (estimates, lag {found.model.lag_steps:,} steps)",
    )
    figure.update_layout(height=520, margin=dict(l=14, r=14, t=104, b=30), showlegend=False)
    figure.update_xaxes(visible=False, range=[-1.75, 1.75], rangemode="normal")
    figure.update_yaxes(visible=False, range=[-1.6, 1.65], rangemode="normal")
    places = _circle(found.n_basins)
    traffic = _traffic(found)
    for a, b in zip(*np.nonzero(traffic > 0), strict=True):
        _arrow(figure, found, (int(a), int(b)), places, traffic)
    _circles(figure, found, readable, places)
    return figure


def _circle(n: int) -> NDArray[np.float64]:
    """Places (n, 2) on the unit circle; two stand side by side."""
    angles = np.pi * (1.0 if n == 2 else 0.5) - 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _traffic(found: Basins) -> NDArray[np.float64]:
    """Steps from basin to basin per look of one lag, in stationarity: (basins, basins)."""
    members = np.eye(found.n_basins)[found.sets.assignment]
    flow = members.T @ (found.model.law[:, None] * found.model.matrix) @ members
    np.fill_diagonal(flow, 0.0)
    return np.asarray(flow)


def _arrow(
    figure: go.Figure,
    found: Basins,
    pair: tuple[int, int],
    places: NDArray[np.float64],
    traffic: NDArray[np.float64],
) -> None:
    """A bent line from one basin to the other, with its head in the middle."""
    a, b = (places[end] for end in pair)
    share = traffic[pair] / traffic.max()
    across = np.array([b[1] - a[1], a[0] - b[0]])
    bend = np.linspace(0, 1, 31)[:, None]
    line = a + bend * (b - a) + 4 * bend * (1 - bend) * BULGE * across
    colour = COLOURS[pair[0] % len(COLOURS)]
    words = f"from {pair[0]} to {pair[1]}: mean first passage {passage_words(found, pair)}"
    figure.add_scatter(
        x=line[:, 0], y=line[:, 1], mode="lines", opacity=0.25 + 0.6 * share,
        line=dict(color=colour, width=0.8 + WIDEST * share), hoverinfo="text", text=words,
    )  # fmt: skip
    head, behind = line[17], line[14]
    figure.add_annotation(
        x=head[0], y=head[1], ax=behind[0], ay=behind[1], axref="x", ayref="y", text="",
        arrowhead=2, arrowsize=1, arrowwidth=1.5 + 2 * share, arrowcolor=colour,
    )  # fmt: skip


def _circles(
    figure: go.Figure,
    found: Basins,
    readable: Sequence[Readable] | None,
    places: NDArray[np.float64],
) -> None:
    shares = found.shares.value
    sizes = np.maximum(22.0, LARGEST * np.sqrt(shares))
    figure.add_scatter(
        x=places[:, 0],
        y=places[:, 1],
        mode="markers+text",
        marker=dict(
            size=sizes,
            color=[COLOURS[k % len(COLOURS)] for k in range(len(shares))],
            opacity=1,
            line=dict(color="white", width=2),
        ),
        text=[str(basin) for basin in range(len(shares))],
        textfont=dict(color="white", size=14),
        hovertext=[_told(found, readable, basin) for basin in range(len(shares))],
        hoverinfo="text",
    )
    for basin, (x, y) in enumerate(places):
        text = "" if readable is None else shorten(readable[basin].texts[0], 66, placeholder=" …")
        lines = [f"<b>{shares[basin]:.0%}</b>", *map(_plain, wrap(text, 24))]
        up = y > 0.6
        figure.add_annotation(
            x=x, y=y, text="<br>".join(lines), showarrow=False, font=dict(size=12, color=QUIET),
            bgcolor="rgba(255, 255, 255, 0.7)", yanchor="bottom" if up else "top",
            yshift=(1 if up else -1) * (sizes[basin] / 2 + 4),
        )  # fmt: skip


def _told(found: Basins, readable: Sequence[Readable] | None, basin: int) -> str:
    told = f"basin {basin}: {found.shares.value[basin]:.0%} of the time"
    if readable is None:
        return told
    own = readable[basin]
    texts = ["<br>".join(map(_plain, wrap(text, 60))) for text in own.texts]
    words = f"words that tell it apart: {', '.join(map(_plain, own.words))}"
    return "<br>".join([f"{told}, {own.n_chains} chains were in it", words, *texts])


def _plain(text: str) -> str:
    """The text as plotly shows it letter by letter, quotation marks too."""
    return escape(text, quote=False)


def passage_words(found: Basins, pair: tuple[int, int]) -> str:
    """A mean first-passage time with its standard error."""
    value, error = found.passages.value[pair], found.passages.standard_error
    if error is None or not np.isfinite(error[pair]):
        return f"{value:,.0f} steps"
    return f"{value:,.0f} +- {error[pair]:,.0f} steps"
