"""How do the chains of a run go: what is left of the start, and do they still move?"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import FAINT, SHARES, STRONG, THIN, empty_figure
from glauber.runs.curves import window_of
from glauber.runs.export import step_means, survival
from glauber.runs.folder_log import FileDamage
from glauber.runs.run import Run
from glauber.runs.timeline import Piece, Snapshot

MOST = 64  # chains drawn one by one; the mean is over all
MOMENTS = 500  # more points than this no screen shows
HEAD = '<tr><th scope="col">step</th><th scope="col">text</th></tr>'


def run_figures(run: Run) -> dict[str, go.Figure]:
    """The pictures of a run; of one that has no steps yet, what is left of the start alone."""
    every = max(1, run.steps // MOMENTS)
    found = {"survival": plot_survival(survival(run, every), every=every)}
    if run.steps:
        found["changed"] = plot_changed(np.asarray(run.read("changed").any(axis=2)))
        found["entropy"] = plot_entropy(step_means(run, "entropy"))
    return found


def plot_damages(damages: Sequence[FileDamage], steps: int) -> go.Figure:
    """Which steps of which part are damaged; a part that is about no steps is drawn over all."""
    figure = empty_figure("What is damaged", f"of {steps:,} steps; nothing if all is sound")
    spans = [
        (damage.first or 0, steps if damage.last is None else damage.last) for damage in damages
    ]
    figure.add_bar(
        x=[max(1, last - first) for first, last in spans],
        base=[first for first, _ in spans],
        y=[damage.name for damage in damages],
        orientation="h",
        marker_color=STRONG,
    )
    figure.update_xaxes(title="step", range=[0, max(1, steps)])
    return figure


def plot_survival(survival: NDArray[Any], *, every: int = 1) -> go.Figure:
    """The share of the starting tokens still in place at step 0, every, 2 every, …

    survival (chains, moments) is what `runs.run.survival` gives.
    """
    steps = np.arange(survival.shape[1]) * every
    figure = empty_figure("What is left of the start", "share of the free sites as they began")
    figure.update_yaxes(range=SHARES, tickformat=".0%")
    add_chains(figure, steps, survival, number=".0%", shape="hv")
    return figure


def plot_changed(changed: NDArray[Any], *, window: int | None = None) -> go.Figure:
    """The share of the last `window` steps that changed a token; changed (chains, steps) bool."""
    window = window or window_of(changed.shape[1])
    steps, share = moving_mean(changed, window)
    figure = empty_figure("Steps that changed a token", f"share of the last {window:,} steps")
    figure.update_yaxes(range=SHARES, tickformat=".0%")
    add_chains(figure, steps, share, number=".0%")
    return figure


def plot_entropy(entropy: NDArray[Any], *, window: int | None = None) -> go.Figure:
    """The mean entropy over the last `window` steps; entropy (chains, steps) in nats."""
    window = window or window_of(entropy.shape[1])
    steps, mean = moving_mean(entropy, window)
    figure = empty_figure("How open the draws were", f"entropy in nats, last {window:,} steps")
    figure.update_yaxes(tickformat=".1f")
    add_chains(figure, steps, mean, number=".2f")
    return figure


def plot_timeline(snapshots: Sequence[Snapshot]) -> go.Figure:
    """Which sites of one chain changed from one moment to the next, with their tokens."""
    figure = empty_figure("A chain's text over time", "blue: changed since the row above")
    figure.add_heatmap(
        x=[site + snapshots[0].first for site in range(len(snapshots[0].pieces))],
        y=[f"{snapshot.step:,}" for snapshot in snapshots],
        z=[[int(piece.changed) for piece in snapshot.pieces] for snapshot in snapshots],
        text=[[escape(piece.text.strip()) for piece in snapshot.pieces] for snapshot in snapshots],
        texttemplate="%{text}",
        hovertemplate="step %{y}, site %{x}: %{text}<extra></extra>",
        colorscale=[[0, FAINT], [1, STRONG]],
        zmin=0,
        zmax=1,
        showscale=False,
    )
    figure.update_layout(height=max(figure.layout.height, 120 + 24 * len(snapshots)))
    figure.update_xaxes(title=dict(text="site", font_size=13), rangemode="normal")
    figure.update_yaxes(type="category", autorange="reversed", nticks=len(snapshots))
    return figure


def add_chains(
    figure: go.Figure,
    steps: NDArray[Any],
    values: NDArray[Any],
    *,
    number: str,
    shape: str = "linear",
) -> None:
    """Adds a thin line for each chain and a thick one for their mean.

    steps (moments,), values (chains, moments); number is how a value is written, in d3's words.
    """
    hover = f"step %{{x:,}}: %{{y:{number}}}<extra>%{{fullData.meta}}</extra>"
    several = len(values) > 1
    for chain, row in enumerate(values[:MOST] if several else ()):
        figure.add_scatter(
            x=steps,
            y=row,
            mode="lines",
            line=dict(color=THIN, width=1, shape=shape),
            name="each chain" if len(values) <= MOST else f"each of the first {MOST} chains",
            legendgroup="chains",
            showlegend=chain == 0,
            meta=f"chain {chain}",
            hovertemplate=hover,
        )
    name = "mean" if several else "the chain"
    figure.add_scatter(
        x=steps,
        y=values.mean(axis=0),
        mode="lines",
        line=dict(color=STRONG, width=2.5, shape=shape),
        name=name,
        meta=name,
        hovertemplate=hover,
        showlegend=several,
    )


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
    """An HTML table with a row per moment; <mark> holds a changed token, .frozen a held one."""
    rows = "\n".join(_row(snapshot) for snapshot in snapshots)
    return f'<table class="timeline">\n<thead>{HEAD}</thead>\n<tbody>\n{rows}\n</tbody>\n</table>'


def _row(snapshot: Snapshot) -> str:
    text = "".join(_piece(piece) for piece in snapshot.pieces).strip()
    return f'<tr><th scope="row">{snapshot.step:,}</th><td dir="auto">{text}</td></tr>'


def _piece(piece: Piece) -> str:
    """The token, its space outside of what is marked."""
    bare = piece.text.lstrip(" ")
    space = piece.text[: len(piece.text) - len(bare)]
    if piece.changed:
        return f"{space}<mark>{escape(bare)}</mark>"
    if piece.frozen:
        return f'{space}<span class="frozen">{escape(bare)}</span>'
    return space + escape(bare)
