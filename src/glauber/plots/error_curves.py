"""How fast does the error of the estimate fall with the number of samples?"""

import plotly.graph_objects as go

from glauber.exact.learning.error_curves import ErrorCurves
from glauber.figures.style import QUIET, empty_figure

COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#0072b2", "#cc79a7", "#d55e00")


def plot_error_curves(curves: ErrorCurves) -> go.Figure:
    """Mean squared error against samples, bars of half a standard deviation; dotted: trace/n."""
    count = curves.squared_errors.shape[2]
    masks = curves.drawing.per_sample
    how = "all masks averaged" if masks is None else f"{masks} random mask{'s'[: masks > 1]} each"
    figure = empty_figure(
        "Squared error of the estimate, k sites hidden",
        f"{count} repetitions, {how}; bars: half a standard deviation<br>"
        "dotted: trace of the exact covariance / n",
    )
    height = 420
    figure.update_layout(height=height, margin_t=130, title_y=1 - 12 / height)
    figure.update_xaxes(type="log", title_text="samples n", rangemode="normal", tickformat=",d")
    figure.update_xaxes(tickvals=curves.sizes)
    figure.update_yaxes(type="log", rangemode="normal", tickformat="~g", automargin=True, dtick=1)
    figure.update_yaxes(title=dict(text="squared error", font_size=13))
    for row, k in enumerate(curves.ks):
        colour = COLOURS[row % len(COLOURS)]
        shifted = [n * 1.03 ** (row - (len(curves.ks) - 1) / 2) for n in curves.sizes]
        figure.add_scatter(
            x=shifted, y=curves.mean[row], mode="markers", name=f"k = {k}",
            marker=dict(color=colour, size=8),
            error_y=dict(array=curves.spread[row] / 2, color=colour, thickness=1.5, width=3),
            customdata=curves.sizes,
            hovertemplate=f"k = {k}, n = %{{customdata:,}}: %{{y:.3g}}<extra></extra>",
        )  # fmt: skip
        figure.add_scatter(
            x=curves.sizes, y=curves.predicted[row], mode="lines", showlegend=False,
            line=dict(color=colour or QUIET, width=1.5, dash="dot"), hoverinfo="skip",
        )  # fmt: skip
    return figure
