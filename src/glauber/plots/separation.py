"""From which size of the clique on does N-Gibbs win and the parallel sampler fail?"""

from collections.abc import Sequence
from math import log10

import plotly.graph_objects as go

from glauber.exact.samplers.bounds import Separation
from glauber.figures.style import QUIET, STRONG, empty_figure

PARALLEL = "#d55e00"


def plot_separation(found: Sequence[Separation]) -> go.Figure:
    """The two chances of failure against |C|, as powers of ten, and what the corollary promises."""
    first = found[0]
    steps = "one step" if first.n_steps == 1 else f"{first.n_steps:,} steps"
    figure = empty_figure(
        "One step of N-Gibbs against the parallel sampler",
        f"exact chances, as powers of ten; dotted: delta = {first.delta:g}, which corollary 3 "
        f"promises from<br>{found[-1].model.size} sites on; the parallel sampler has {steps}, from "
        "a sum of -2 (even |C|) or -3",
    )
    sizes = [one.model.size for one in found]
    chances = {
        "N-Gibbs is not in R1": ([log10(one.gibbs_misses) for one in found], STRONG),
        "the parallel sampler is in R1": ([one.log10_parallel() for one in found], PARALLEL),
    }
    for name, (values, colour) in chances.items():
        figure.add_scatter(
            x=sizes,
            y=values,
            mode="lines+markers",
            line=dict(color=colour, width=2.5),
            marker_size=5,
            name=name,
            hovertemplate=f"{name}, |C| = %{{x}}: 10^%{{y:.1f}}<extra></extra>",
        )
    figure.add_hline(y=log10(first.delta), line=dict(color=QUIET, width=1, dash="dot"))
    height = 400
    figure.update_layout(height=height, margin_t=130, title_y=1 - 12 / height)
    figure.update_xaxes(title_text="sites of the clique |C|", rangemode="normal")
    figure.update_yaxes(
        title=dict(text="log10 of the chance", font_size=13), rangemode="normal", automargin=True
    )
    return figure
