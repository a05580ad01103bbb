"""Where did the text of a chain go, from its first steps to its last?"""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.colors import sample_colorscale

from glauber.figures.style import INK, THIN, empty_figure
from glauber.landscape.trajectory import Trajectory

# Early is warm, late is cool; dark at both ends, so that every point shows on white.
WARM_TO_COOL = ["#b2182b", "#ef8a62", "#e8b500", "#67a9cf", "#2166ac"]
PIECES = 40  # of the line, each in one colour
ELSEWHERE = "rgba(107, 114, 128, 0.13)"
MOST = 20  # chains that can be chosen in one picture
TRACES = 3  # of each chain: its path, its snapshots, its traps
NEAR = 0.05  # of the picture, within which two rings are in one place
Point = tuple[float, float]

Stay = tuple[int, int, int]  # chain, first step, last step


def plot_trajectory(
    found: Trajectory, *, chain: int = 0, traps: Sequence[Stay] = (), choose: bool = False
) -> go.Figure:
    """A chain's path in time order, from warm to cool, before the snapshots of all chains.

    traps (chain, first step, last step): those of the chain are marked by a ring. With `choose`
    the picture holds the first chains, each with a grey path, and a menu says which is shown.
    """
    n_chains = len(found.points)
    shown = sorted({chain, *range(min(MOST, n_chains))}) if choose else [chain]
    figure = empty_figure(_title(chain), _subtitle(found))
    figure.update_layout(height=560, margin=dict(l=30, r=14, t=124, b=40), showlegend=False)
    for update, number in ((figure.update_xaxes, 0), (figure.update_yaxes, 1)):
        update(title_text=_axis(found, number), showticklabels=False, ticks="", showgrid=False)
        update(rangemode="normal", title_font_size=13)
    cloud = found.points.reshape(-1, 2)
    figure.add_scatter(
        x=cloud[:, 0], y=cloud[:, 1], mode="markers", marker=dict(color=ELSEWHERE, size=5),
        hoverinfo="skip",
    )  # fmt: skip
    for one in shown:
        if choose:
            _grey(figure, found.points[one], visible=one == chain)
        else:
            _coloured(figure, found.points[one])
        _add(figure, found, one, [trap for trap in traps if trap[0] == one], visible=one == chain)
    if len(shown) > 1:
        figure.update_layout(updatemenus=[_menu(found, shown, chain)])
    figure.update_layout(annotations=_ends(found, chain))
    return figure


def _grey(figure: go.Figure, points: NDArray[np.float64], *, visible: bool) -> None:
    """The path in one piece."""
    figure.add_scatter(
        x=points[:, 0], y=points[:, 1], mode="lines", line=dict(color=THIN, width=1),
        hoverinfo="skip", visible=visible,
    )  # fmt: skip


def _coloured(figure: go.Figure, points: NDArray[np.float64]) -> None:
    """The path in pieces, each in the colour of its time."""
    edges = np.unique(np.linspace(0, len(points) - 1, PIECES + 1).round().astype(int))
    for first, last in pairwise(edges.tolist()):
        middle = (first + last) / 2 / (len(points) - 1)
        figure.add_scatter(
            x=points[first : last + 1, 0], y=points[first : last + 1, 1], mode="lines",
            line=dict(color=sample_colorscale(WARM_TO_COOL, [middle])[0], width=1),
            opacity=0.55, hoverinfo="skip",
        )  # fmt: skip


def _add(
    figure: go.Figure, found: Trajectory, chain: int, traps: Sequence[Stay], *, visible: bool
) -> None:
    """The snapshots and the traps of one chain."""
    points = found.points[chain]
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
        hovertext=[
            _hover_text(*snapshot) for snapshot in zip(found.steps, found.texts[chain], strict=True)
        ],
        hoverinfo="text",
        ids=[f"chain {chain} step {step}" for step in found.steps],
        visible=visible,
    )
    rings = [(first, last, _middle(found, chain, first, last)) for _, first, last in traps]
    kept = [(first, last, at) for first, last, at in rings if at is not None]
    figure.add_scatter(
        x=[at[0] for *_, at in kept], y=[at[1] for *_, at in kept], mode="markers+text",
        name="trap", text=_labels(found, kept),
        textposition="top center", textfont=dict(size=12, color=INK),
        marker=dict(symbol="circle-open", size=26, color=INK, line_width=2),
        hovertext=[f"trap from step {first:,} to {last:,}" for first, last, _ in kept],
        ids=[f"chain {chain} step {first}" for first, *_ in kept],
        hoverinfo="text", visible=visible,
    )  # fmt: skip


def _labels(found: Trajectory, rings: Sequence[tuple[int, int, Point]]) -> list[str]:
    """The steps of each ring; of rings in one place the first has all of them, line by line."""
    near = NEAR * np.ptp(found.points.reshape(-1, 2), axis=0)
    labels: list[list[str]] = []
    for number, (first, last, at) in enumerate(rings):
        same = (k for k in range(number) if np.all(np.abs(np.subtract(at, rings[k][2])) < near))
        labels.append([])
        labels[next(same, number)].append(f"{first:,} to {last:,}")
    return ["<br>".join(lines) for lines in labels]


def _middle(found: Trajectory, chain: int, first: int, last: int) -> Point | None:
    """Where a trap lies: the median of its snapshots."""
    inside = (found.steps >= first) & (found.steps <= last)
    if not inside.any():
        return None
    x, y = np.median(found.points[chain, inside], axis=0)
    return float(x), float(y)


def _menu(found: Trajectory, shown: Sequence[int], chain: int) -> dict[str, Any]:
    """A menu that shows one chain's traces at a time."""
    buttons = []
    for place, one in enumerate(shown):
        own = range(1 + TRACES * place, 1 + TRACES * (place + 1))
        visible = [k == 0 or k in own for k in range(1 + TRACES * len(shown))]
        layout = {"title.text": _whole_title(found, one), "annotations": _ends(found, one)}
        label = f"chain {one}"
        buttons.append(dict(label=label, method="update", args=[{"visible": visible}, layout]))
    return dict(
        buttons=buttons, active=list(shown).index(chain), x=1, xanchor="right", y=1.02,
        yanchor="bottom", pad=dict(b=4),
    )  # fmt: skip


def _ends(found: Trajectory, chain: int) -> list[dict[str, Any]]:
    return [
        dict(
            x=float(found.points[chain, place, 0]), y=float(found.points[chain, place, 1]),
            text=f"<b>{which}</b>", arrowcolor=INK, arrowwidth=1, arrowhead=0, ax=0, ay=above,
            font=dict(color=INK), showarrow=True,
        )
        for which, place, above in (("start", 0, -26), ("end", -1, 26))
    ]  # fmt: skip


def _title(chain: int) -> str:
    return f"Where the text of chain {chain} went"


def _whole_title(found: Trajectory, chain: int) -> str:
    return str(empty_figure(_title(chain), _subtitle(found)).layout.title.text)


def _subtitle(found: Trajectory) -> str:
    n_chains = len(found.points)
    how = f"{found.what} in the two directions of largest spread"
    if found.method == "umap":
        how = f"{found.what}, neighbours kept together (UMAP)"
    behind = f"; grey: all {n_chains:,} chains" if n_chains > 1 else ""
    return f"{how},<br>from warm (early) to cool (late){behind}"


def _axis(found: Trajectory, number: int) -> str:
    if found.explained is None:
        return f"UMAP {number + 1}"
    return f"component {number + 1}: {found.explained[number]:.0%} of the spread"


def _hover_text(step: int, text: str) -> str:
    return "<br>".join([f"step {step:,}", *(escape(line, quote=False) for line in wrap(text, 60))])
