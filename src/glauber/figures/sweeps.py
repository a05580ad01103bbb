"""How do the cells of a sweep differ?"""

from typing import Any

import plotly.graph_objects as go

from glauber.figures.style import empty_figure

TITLES = {
    "changed": ("Steps that changed a token", "share of all steps"),
    "entropy": ("How open the draws were", "mean entropy of a redraw, in nats"),
    "kept": ("What is left of the start", "share of the free sites as they began"),
}


def plot_cells(cells: list[dict[str, Any]], axes: list[str]) -> dict[str, go.Figure]:
    """Each number of the cells against the last axis, a line for each value of the first."""
    names = [name for name in TITLES if all(name in cell for cell in cells)] if cells else []
    if not names:
        return {"cells": _counted(cells, axes)}
    return {name: _plot(cells, axes, name) for name in names}


def _plot(cells: list[dict[str, Any]], axes: list[str], name: str) -> go.Figure:
    figure = empty_figure(*TITLES[name])
    first, last = axes[0], axes[-1]
    for value in sorted({cell[first] for cell in cells}):
        row = [cell for cell in cells if cell[first] == value]
        figure.add_scatter(
            x=[cell[last] for cell in row],
            y=[cell[name] for cell in row],
            mode="lines+markers",
            name=f"{first} {value:g}",
            hovertemplate=f"{last} %{{x}}: %{{y:.3g}}<extra></extra>",
        )
    figure.update_xaxes(title_text=last, tickformat="~g")
    return figure


def _counted(cells: list[dict[str, Any]], axes: list[str]) -> go.Figure:
    """Which cells are finished, where nothing else can be drawn."""
    figure = empty_figure("Finished cells", f"{len(cells)} of this sweep")
    figure.add_scatter(
        x=[cell[axes[-1]] for cell in cells], y=[cell[axes[0]] for cell in cells], mode="markers"
    )
    figure.update_xaxes(title_text=axes[-1], tickformat="~g")
    figure.update_yaxes(title_text=axes[0])
    return figure
