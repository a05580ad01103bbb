"""Do the chains still move? The share of steps that changed a token."""

from typing import Any

import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import SHARES, empty_figure
from glauber.plots.chains import add_chains
from glauber.plots.moving import moving_mean, window_of


def plot_changed(changed: NDArray[Any], *, window: int | None = None) -> go.Figure:
    """The share of the last `window` steps that changed a token; changed (chains, steps) bool."""
    window = window or window_of(changed.shape[1])
    steps, share = moving_mean(changed, window)
    figure = empty_figure("Steps that changed a token", f"share of the last {window:,} steps")
    figure.update_yaxes(range=SHARES, tickformat=".0%")
    add_chains(figure, steps, share, number=".0%")
    return figure
