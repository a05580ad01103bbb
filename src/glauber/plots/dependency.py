"""How does mixing slow, and the parallel error grow, with the coupling?"""

from collections.abc import Sequence

import plotly.graph_objects as go

from glauber.exact.samplers.dependency import Dependency
from glauber.figures.style import empty_figure

COLOURS = ("#0072b2", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#1f2328")
PARALLEL = "#d55e00"
ROUNDING = 1e-12


def plot_dependency(found: Sequence[Dependency]) -> go.Figure:
    """The gap of each block size and the total variation of the parallel law, against J."""
    figure = empty_figure(
        "Stronger dependency: slower mixing, and what filling at once costs",
        "lines: spectral gap of k-block dynamics; dashed: total variation from p of the<br>"
        "parallel sampler's own law (exact) and of the product of p's marginals",
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
    errors = {
        "parallel law": [one.parallel.total_variation for one in found],
        "one pass": [one.one_pass.at_most for one in found],
    }
    for (name, values), dash in zip(errors.items(), ("dash", "dot"), strict=True):
        figure.add_scatter(
            x=strengths,
            y=[value if value > ROUNDING else None for value in values],
            mode="lines+markers",
            line=dict(color=PARALLEL, width=2.5, dash=dash),
            name=name,
            hovertemplate=f"{name}, J = %{{x:g}}: total variation %{{y:.3g}}<extra></extra>",
        )
    height = 420
    figure.update_layout(height=height, margin_t=130, title_y=1 - 12 / height)
    figure.update_xaxes(title_text="coupling J", tickformat="~g")
    figure.update_yaxes(type="log", exponentformat="power", rangemode="normal", automargin=True)
    figure.update_yaxes(tickfont_size=11)
    return figure
