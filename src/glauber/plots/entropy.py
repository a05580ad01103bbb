"""How open were the draws? The entropy of the conditionals that the steps drew from."""

from typing import Any

import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import empty_figure
from glauber.plots.chains import add_chains
from glauber.plots.moving import moving_mean, window_of


def plot_entropy(entropy: NDArray[Any], *, window: int | None = None) -> go.Figure:
    """The mean entropy over the last `window` steps; entropy (chains, steps) in nats."""
    window = window or window_of(entropy.shape[1])
    steps, mean = moving_mean(entropy, window)
    figure = empty_figure("How open the draws were", f"entropy in nats, last {window:,} steps")
    figure.update_yaxes(tickformat=".1f")
    add_chains(figure, steps, mean, number=".2f")
    return figure
