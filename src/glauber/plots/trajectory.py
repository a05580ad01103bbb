"""Where did one chain's text go, from its first steps to its last?"""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from textwrap import wrap

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from glauber.figures.style import INK, empty_figure
from glauber.landscape.trajectory import Trajectory

# Early is warm, late is cool; dark at both ends, so that every point shows on white.
WARM_TO_COOL = ["#b2182b", "#ef8a62", "#e8b500", "#67a9cf", "#2166ac"]
PIECES = 40  # of the line, each in one colour
ELSEWHERE = "rgba(107, 114, 128, 0.13)"

Stay = tuple[int, int, int]  # chain, first step, last step


def plot_trajectory(found: Trajectory, *, chain: int = 0, traps: Sequence[Stay] = ()) -> go.Figure:
    """One chain's path in time order, from warm to cool, before the looks of all the others.

    traps (chain, first step, last step): those of this chain are marked by a ring.
    """
    points = found.points[chain]
    figure = empty_figure(f"Where the text of chain {chain} went", _subtitle(found))
    figure.update_layout(height=520, margin=dict(l=30, r=14, t=104, b=40), showlegend=False)
    for update, number in ((figure.update_xaxes, 0), (figure.update_yaxes, 1)):
        update(title_text=_axis(found, number), showticklabels=False, ticks="", showgrid=False)
        update(rangemode="normal", title_font_size=13)
    others = np.delete(found.points, chain, axis=0).reshape(-1, 2)
    figure.add_scatter(
        x=others[:, 0], y=others[:, 1], mode="markers", marker=dict(color=ELSEWHERE, size=5),
        hoverinfo="skip",
    )  # fmt: skip
    _line(figure, points)
    figure.add_scatter(
        x=points[:, 0],
        y=points[:, 1],
        mode="markers",
        marker=dict(
            size=7,
            color=found.steps,
            colorscale=WARM_TO_COOL,
            line=dict(color="white", width=0.5),
            colorbar=dict(title=dict(text="step", side="right"), thickness=12, tickformat=",d"),
        ),
        hovertext=[_told(*look) for look in zip(found.steps, found.texts[chain], strict=True)],
        hoverinfo="text",
    )
    for which, place in (("start", 0), ("end", -1)):
        figure.add_annotation(
            x=points[place, 0], y=points[place, 1], text=f"<b>{which}</b>", arrowcolor=INK,
            arrowwidth=1, arrowhead=0, ax=0, ay=-26 if which == "start" else 26, font_color=INK,
        )  # fmt: skip
    _rings(figure, found, [trap for trap in traps if trap[0] == chain])
    return figure


def _line(figure: go.Figure, points: np.ndarray) -> None:
    """The path in pieces, each in the colour of its time."""
    edges = np.unique(np.linspace(0, len(points) - 1, PIECES + 1).round().astype(int))
    for first, last in pairwise(edges.tolist()):
        middle = (first + last) / 2 / (len(points) - 1)
        figure.add_scatter(
            x=points[first : last + 1, 0], y=points[first : last + 1, 1], mode="lines",
            line=dict(color=sample_colorscale(WARM_TO_COOL, [middle])[0], width=1),
            opacity=0.55, hoverinfo="skip",
        )  # fmt: skip


def _rings(figure: go.Figure, found: Trajectory, traps: Sequence[Stay]) -> None:
    for chain, first, last in traps:
        inside = (found.steps >= first) & (found.steps <= last)
        if not inside.any():
            continue
        x, y = np.median(found.points[chain, inside], axis=0)
        figure.add_scatter(
            x=[x], y=[y], mode="markers", name="trap",
            marker=dict(symbol="circle-open", size=26, color=INK, line_width=2),
            hovertext=f"trap from step {first:,} to {last:,}", hoverinfo="text",
        )  # fmt: skip
        figure.add_annotation(
            x=x, y=y, text=f"{first:,} to {last:,}", showarrow=False, yshift=22,
            font=dict(size=12, color=INK), bgcolor="rgba(255, 255, 255, 0.7)",
        )  # fmt: skip


def _subtitle(found: Trajectory) -> str:
    n_chains = len(found.points)
    how = "its embeddings in the two directions of largest spread"
    if found.method == "umap":
        how = "its embeddings, neighbours kept together (UMAP)"
    behind = f"; grey: the other {n_chains - 1:,} chains" if n_chains > 1 else ""
    return f"{how},<br>from warm (early) to cool (late){behind}"


def _axis(found: Trajectory, number: int) -> str:
    if found.explained is None:
        return f"UMAP {number + 1}"
    return f"component {number + 1}: {found.explained[number]:.0%} of the spread"


def _told(step: int, text: str) -> str:
    return "<br>".join([f"step {step:,}", *(escape(line, quote=False) for line in wrap(text, 60))])
