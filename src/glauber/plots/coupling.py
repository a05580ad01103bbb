"""How do two chains come together, and how near is the chain to its stationary law by then?"""

import math

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import INK, QUIET, STRONG, empty_figure
from glauber.mixing.coupling import Coalescence
from glauber.mixing.lagged import Lagged

SHADE = "rgba(0, 114, 178, 0.18)"
MOMENTS = 500  # more points than this no screen shows
SPREAD = 1.96  # standard errors on each side: 95% by the normal approximation

Floats = NDArray[np.float64]


def plot_distance(found: Coalescence, contraction: Floats | None = None) -> go.Figure:
    """The mean Hamming distance of the pairs against time, beside the contraction bound.

    contraction (moments,) is what `Coalescence.contraction` gives, or None.
    """
    n = len(found.met)
    figure = empty_figure(
        "How far apart the pairs are",
        f"mean Hamming distance over {n} pairs, {found.how} coupling; "
        f"{int(found.met.sum())} of {n} met",
    )
    mean = found.mean_distance
    reach = SPREAD * np.nan_to_num(found.standard_error)
    _add_band(figure, found.steps, np.maximum(mean - reach, 0), mean + reach, "95%, pointwise")
    _add_line(figure, found.steps, mean, "mean distance", number=".2f")
    if contraction is not None:
        _add_line(figure, found.steps, contraction, "contraction bound", number=".2f", dash="dash")
    figure.update_xaxes(range=[0, found.steps[-1]])
    figure.update_yaxes(title=dict(text="sites that differ", font_size=13))
    return figure


def plot_total_variation(found: Lagged, *, epsilon: float = 0.25) -> go.Figure:
    """The estimated bound on the distance to the stationary law against time, with its band."""
    last = int(found.times.max()) - found.lag
    steps = np.arange(0, last + 1, max(1, math.ceil(last / MOMENTS)))
    says = f"estimated bound on total variation, lag {found.lag}; dotted: {epsilon:g}"
    name = "bound"
    if found.n_censored:
        steps = steps[steps < max(1, last)]  # beyond the budget nothing is known
        says += f"<br>{found.n_censored} of {len(found.met)} pairs did not meet, so it lies higher"
        name = "lower estimate of the bound"
    figure = empty_figure("How near the chain is to its stationary law", says)
    figure.update_layout(margin_t=86 + 20 * bool(found.n_censored))
    if not found.n_censored:
        low, high = found.band(steps)
        _add_band(figure, steps, np.minimum(low, 1), np.minimum(high, 1), "95%, pointwise")
    # Total variation is never above 1, whatever the bound says.
    _add_line(figure, steps, np.minimum(found.bound(steps), 1), name, number=".3f")
    figure.update_layout(showlegend=True)
    figure.add_hline(y=epsilon, line=dict(color=QUIET, width=1, dash="dot"))
    figure.update_xaxes(range=[0, max(1, last)])
    figure.update_yaxes(range=[0, 1.03], title=dict(text="total variation", font_size=13))
    return figure


def _add_line(
    figure: go.Figure, steps: NDArray[np.int64], values: Floats, name: str, *, number: str,
    dash: str = "solid",
) -> None:  # fmt: skip
    colour, width = (STRONG, 2.5) if dash == "solid" else (INK, 1.5)
    figure.add_scatter(
        x=steps, y=values, mode="lines", name=name,
        line=dict(color=colour, width=width, dash=dash),
        hovertemplate=f"step %{{x:,}}: %{{y:{number}}}<extra>{name}</extra>",
    )  # fmt: skip


def _add_band(
    figure: go.Figure, steps: NDArray[np.int64], low: Floats, high: Floats, name: str
) -> None:
    figure.add_scatter(
        x=np.concatenate([steps, steps[::-1]]), y=np.concatenate([high, low[::-1]]),
        fill="toself", fillcolor=SHADE, line=dict(width=0), name=name, hoverinfo="skip",
    )  # fmt: skip
