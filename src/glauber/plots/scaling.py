"""How does the hitting time grow with the length, and which law fits?"""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from glauber.figures.style import INK, THIN, empty_figure
from glauber.mixing.hitting import HittingTimes
from glauber.mixing.scaling import Scaling

COLOURS = {"n": "#e69f00", "n log n": "#0072b2", "n^2": "#d55e00"}
DASHES = {"n": "dash", "n log n": "solid", "n^2": "dot"}


def plot_scaling(times: Mapping[int, HittingTimes], scaling: Scaling) -> go.Figure:
    """Each chain's hitting time against n, and the fitted means of the three laws."""
    lengths = sorted(times)
    threshold = times[lengths[0]].threshold
    figure = empty_figure(
        f"Steps until the distance reaches {threshold:g}",
        f"against the number of tokens n; {scaling.n_censored} of {scaling.n_times} chains never "
        f"did<br>lines: fitted means; {scaling.best.law} fits best, AIC weight "
        f"{scaling.best.weight:.2f}",
    )
    height = 420
    figure.update_layout(height=height, margin_t=130, title_y=1 - 12 / height)
    figure.update_xaxes(title_text="tokens n", rangemode="normal", tickvals=lengths)
    figure.update_yaxes(type="log", title=dict(text="steps", font_size=13), tickformat=",d")
    figure.update_yaxes(dtick=1, rangemode="normal", automargin=True)
    for hit, name, symbol in ((True, "hit", "circle"), (False, "not by then", "triangle-up-open")):
        rows = [times[n].steps[times[n].hit == hit] for n in lengths]
        figure.add_scatter(
            x=np.concatenate([_beside(n, len(row)) for n, row in zip(lengths, rows, strict=True)]),
            y=np.concatenate(rows),
            mode="markers",
            marker=dict(color=THIN if hit else INK, size=5 if hit else 7, symbol=symbol),
            name=name,
            hovertemplate=f"n = %{{x:.0f}}: {name}, step %{{y:,}}<extra></extra>",
        )
    grid = np.linspace(lengths[0], lengths[-1], 60)
    for fit in scaling.fits:
        figure.add_scatter(
            x=grid,
            y=fit.mean(grid),
            mode="lines",
            line=dict(color=COLOURS[fit.law], width=2.5, dash=DASHES[fit.law]),
            name=f"{fit.c:.2g} {fit.law}",
            hovertemplate=f"{fit.law} (weight {fit.weight:.2g}), n = %{{x:.0f}}: mean %{{y:,.0f}}"
            "<extra></extra>",
        )
    return figure


def _beside(n: int, count: int) -> np.ndarray:
    """Places beside n, so that equal times of one length can be told apart."""
    return n + np.linspace(-0.3, 0.3, count)
