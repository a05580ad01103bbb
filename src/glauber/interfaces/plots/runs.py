"""Charts of the chains of a run, of its damages, and of the cells of a sweep; its timeline."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glauber.interfaces.plots.chart import BLUE, FAINT, SHARE, STEP, THIN, Axis, Chart
from glauber.runs.curves import window_of
from glauber.runs.export import step_means, survival
from glauber.runs.folder_log import FileDamage
from glauber.runs.run import Run
from glauber.runs.timeline import Piece, Snapshot

MOST = 64  # chains drawn one by one; the mean is over all
MOMENTS = 500  # more points than this no screen shows
HEAD = '<tr><th scope="col">step</th><th scope="col">text</th></tr>'
CELLS = {
    "changed": ("Steps that changed a token", "share of all steps"),
    "entropy": ("Entropy of the draws", "mean entropy of a redraw, in nats"),
    "kept": ("Tokens of the start that are left", "share of the free sites"),
}


def run_figures(run: Run) -> dict[str, Chart]:
    """The charts of a run; of one that has no steps yet, what is left of the start alone."""
    every = max(1, run.steps // MOMENTS)
    charts = {"survival": plot_survival(survival(run, every), every=every)}
    if run.steps:
        charts["changed"] = plot_changed(np.asarray(run.read("changed").any(axis=2)))
        charts["entropy"] = plot_entropy(step_means(run, "entropy"))
    return charts


def plot_damages(damages: Sequence[FileDamage], steps: int) -> Chart:
    """Which steps of which part are damaged; a part that is about no steps is drawn over all."""
    chart = Chart(
        "Damaged parts",
        f"of {steps:,} steps; empty if the run is sound",
        x=STEP | dict(range=[0, max(1, steps)]),
        y=dict(type="category"),
    )
    first = [damage.first or 0 for damage in damages]
    last = [steps if damage.last is None else damage.last for damage in damages]
    lengths = [max(1, b - a) for a, b in zip(first, last, strict=True)]
    names = [damage.name for damage in damages]
    hover = "%{y}: from step %{base:,}, %{x:,}"
    chart.columns(lengths, names, hover=hover, base=first, horizontal=True, color=BLUE)
    return chart


def plot_survival(survival: NDArray[Any], *, every: int = 1) -> Chart:
    """The share of the starting tokens still in place at step 0, every, 2 every, …

    survival (chains, moments) is what `runs.run.survival` gives.
    """
    chart = Chart("Tokens of the start that are left", "share of the free sites", y=SHARE)
    steps = np.arange(survival.shape[1]) * every
    add_chains(chart, steps, survival, number=".0%", shape="hv")
    return chart


def plot_changed(changed: NDArray[Any], *, window: int | None = None) -> Chart:
    """The share of the last `window` steps that changed a token; changed (chains, steps) bool."""
    return _moving_average_chart(
        "Steps that changed a token", "share", changed, window, SHARE, ".0%"
    )


def plot_entropy(entropy: NDArray[Any], *, window: int | None = None) -> Chart:
    """The mean entropy over the last `window` steps; entropy (chains, steps) in nats."""
    y = dict(tickformat="~g", rangemode="tozero")
    return _moving_average_chart(
        "Entropy of the draws", "mean, in nats,", entropy, window, y, ".2f"
    )


def _moving_average_chart(
    title: str, what: str, values: NDArray[Any], window: int | None, y: Axis, number: str
) -> Chart:
    window = window or window_of(values.shape[1])
    steps, means = moving_mean(values, window)
    chart = Chart(title, f"{what} of the last {window:,} steps", y=y)
    add_chains(chart, steps, means, number=number)
    return chart


def plot_timeline(snapshots: Sequence[Snapshot]) -> Chart:
    """Which sites of one chain changed from one moment to the next, with their tokens."""
    chart = Chart(
        "A chain's text over time",
        "blue: changed since the row above",
        x=dict(title="site", tickformat=",d"),
        y=dict(type="category", autorange="reversed", nticks=len(snapshots)),
        height=max(340, 120 + 24 * len(snapshots)),
    )
    chart.cells(
        [[int(piece.changed) for piece in snapshot.pieces] for snapshot in snapshots],
        "step %{y}, site %{x}: %{text}",
        x=[site + snapshots[0].first for site in range(len(snapshots[0].pieces))],
        y=[f"{snapshot.step:,}" for snapshot in snapshots],
        text=[[piece.text.strip() for piece in snapshot.pieces] for snapshot in snapshots],
        colors=((0, FAINT), (1, BLUE)),
        gap=0,
    )
    return chart


def plot_cells(cells: list[dict[str, Any]], axes: list[str]) -> dict[str, Chart]:
    """Each number of a sweep's cells against the last axis, a line for each value of the first."""
    first, last = axes[0], axes[-1]
    x = dict(title=last, tickformat="~g")
    names = [name for name in CELLS if all(name in cell for cell in cells)] if cells else []
    if not names:  # which cells are finished, where nothing else can be drawn
        chart = Chart("Finished cells", f"{len(cells)} of this sweep", x=x, y=dict(title=first))
        hover = f"{last} %{{x}}, {first} %{{y}}"
        chart.dots([c[last] for c in cells], [c[first] for c in cells], hover=hover)
        return {"cells": chart}
    charts = {}
    for name in names:
        charts[name] = chart = Chart(*CELLS[name], x=x, y=dict(rangemode="tozero"))
        for value in sorted({cell[first] for cell in cells}):
            row = [cell for cell in cells if cell[first] == value]
            label = f"{first} {value:g}"
            hover = f"{label}, {last} %{{x}}: %{{y:.3g}}"
            x_values, y_values = ([cell[key] for cell in row] for key in (last, name))
            chart.line(x_values, y_values, label, hover, dots=True, width=2)
    return charts


def add_chains(
    chart: Chart, steps: NDArray[Any], values: NDArray[Any], *, number: str, shape: str = "linear"
) -> None:
    """Adds a thin line for each chain and a thick one for their mean.

    steps (moments,), values (chains, moments); number is how a value is written, in d3's words.
    """
    several = len(values) > 1
    hover = f"step %{{x:,}}: %{{y:{number}}}"
    for chain, row in enumerate(values[:MOST] if several else ()):
        name = "each chain" if len(values) <= MOST else f"each of the first {MOST} chains"
        chart.line(
            steps,
            row,
            name,
            f"chain {chain}, {hover}",
            color=THIN,
            width=1,
            shape=shape,
            legendgroup="chains",
            showlegend=chain == 0,
        )
    name, mean = "mean" if several else "the chain", values.mean(axis=0)
    chart.line(steps, mean, name, f"{name}, {hover}", color=BLUE, shape=shape, showlegend=several)


def moving_mean(values: NDArray[Any], window: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Steps (moments,) and the mean over the window that ends at each, (chains, moments).

    values (chains, steps) holds one number per step, the first for step 1. Only whole windows
    count, so the first moment is at step `window`.
    """
    n_steps = values.shape[1]
    sums = np.cumsum(np.pad(values.astype(np.float64), ((0, 0), (1, 0))), axis=1)
    ends = np.unique(np.linspace(window, n_steps, MOMENTS).round().astype(np.int64))
    return ends, (sums[:, ends] - sums[:, ends - window]) / window


def timeline_table(snapshots: Iterable[Snapshot]) -> str:
    """An HTML table with a row per moment; <mark> holds a changed token, .frozen a frozen one."""
    rows = "\n".join(
        f'<tr><th scope="row">{snapshot.step:,}</th><td dir="auto">'
        f"{''.join(map(_token, snapshot.pieces)).strip()}</td></tr>"
        for snapshot in snapshots
    )
    return f'<table class="timeline">\n<thead>{HEAD}</thead>\n<tbody>\n{rows}\n</tbody>\n</table>'


def _token(piece: Piece) -> str:
    """The token, its space outside of what is marked."""
    bare = piece.text.lstrip(" ")
    space, text = piece.text[: len(piece.text) - len(bare)], escape(bare)
    if piece.changed:
        return f"{space}<mark>{text}</mark>"
    return f'{space}<span class="frozen">{text}</span>' if piece.frozen else space + text
