"""How much of the start survives?"""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import SHARES, empty_figure
from glauber.plots.chains import add_chains


def plot_survival(survival: NDArray[Any], *, every: int = 1) -> go.Figure:
    """The share of the starting tokens still in place at step 0, every, 2 every, …

    survival (chains, moments) is what `runs.export.survival` gives.
    """
    steps = np.arange(survival.shape[1]) * every
    figure = empty_figure("What is left of the start", "share of the free sites as they began")
    figure.update_yaxes(range=SHARES, tickformat=".0%")
    add_chains(figure, steps, survival, number=".0%", shape="hv")
    return figure
