"""How does one number of each chain go over time?"""

from typing import Any

import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import STRONG, THIN

MOST = 64  # chains drawn one by one; the mean is over all


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
    told = f"step %{{x:,}}: %{{y:{number}}}<extra>%{{fullData.meta}}</extra>"
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
            hovertemplate=told,
        )
    name = "mean" if several else "the chain"
    figure.add_scatter(
        x=steps,
        y=values.mean(axis=0),
        mode="lines",
        line=dict(color=STRONG, width=2.5, shape=shape),
        name=name,
        meta=name,
        hovertemplate=told,
        showlegend=several,
    )
