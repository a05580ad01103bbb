"""How does mixing slow, and the parallel error grow, with the coupling?"""

from collections.abc import Sequence

import plotly.graph_objects as go

from glauber.exact.samplers.dependency import Dependency
from glauber.plots.style import empty_figure

COLOURS = ("#0072b2", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#1f2328")
PARALLEL = "#d55e00"


def plot_dependency(found: Sequence[Dependency]) -> go.Figure:
    """The gap of each block size and the total variation of the parallel law, against J."""
    figure = empty_figure(
        "Stronger dependency: slower mixing, larger parallel error",
        "lines: spectral gap of k-block dynamics; dashed: total variation between p<br>"
        "and the law that the independent parallel sampler keeps (all exact)",
    )
    strengths = [one.coupling for one in found]
    for slot, k in enumerate(found[0].gaps):
        gaps = [one.gaps[k] for one in found]
        figure.add_scatter(
            x=strengths,
            y=[gap.value if gap.value > gap.error else None for gap in gaps],
            mode="lines+markers",
            line=dict(color=COLOURS[slot % len(COLOURS)], width=2.5),
            name=f"gap, k = {k}",
            hovertemplate=f"k = {k}, J = %{{x:g}}: gap %{{y:.3g}}<extra></extra>",
        )
    figure.add_scatter(
        x=strengths,
        y=[one.parallel.total_variation or None for one in found],
        mode="lines+markers",
        line=dict(color=PARALLEL, width=2.5, dash="dash"),
        name="parallel error",
        hovertemplate="J = %{x:g}: total variation %{y:.3g}<extra></extra>",
    )
    height = 420
    figure.update_layout(height=height, margin_t=130, title_y=1 - 12 / height)
    figure.update_xaxes(title_text="coupling J", tickformat="g")
    figure.update_yaxes(type="log", exponentformat="power", rangemode="normal", automargin=True)
    return figure
