"""How many steps from R-1 to R1, against the coupling? (figure 3 of paper B)"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from glauber.exact.samplers.race import Race, Runner
from glauber.figures.style import INK, QUIET, empty_figure

PARALLEL = "#d55e00"


def plot_race(races: Sequence[Race], *, up_to: float | None = None) -> go.Figure:
    """Exact mean steps of each k as lines, simulated means as dots, on a logarithmic axis.

    up_to cuts the axis there, so that the fast samplers can be told apart.
    """
    first = races[0]
    figure = empty_figure(
        "Steps from all -1 to all 1 in the clique" + ("" if up_to is None else ", the fast ones"),
        f"N = {first.model.n_sites}, |C| = {first.model.size}, h = {first.model.field:g}; lines: "
        f"exact means; dots: simulated, where all chains came<br>dotted: the budget of "
        f"{first.budget:,} steps",
    )
    couplings = [one.model.coupling for one in races]
    n = len(first.gibbs)
    colours = sample_colorscale("Viridis", list(np.linspace(0.05, 0.9, max(n, 2))))
    for slot in range(n):
        name = f"k = {first.gibbs[slot].k}"
        _add(figure, couplings, [one.gibbs[slot] for one in races], name, colours[slot])
    _add(figure, couplings, [one.parallel for one in races], "parallel", PARALLEL, dash="dash")
    figure.add_hline(y=first.budget, line=dict(color=QUIET, width=1, dash="dot"))
    height = 520
    figure.update_layout(height=height, margin_t=150, title_y=1 - 12 / height)
    figure.update_xaxes(title_text="coupling J", rangemode="normal", tickformat="~g")
    figure.update_yaxes(
        type="log", title=dict(text="steps", font_size=13), exponentformat="power",
        rangemode="normal", automargin=True, nticks=12, tickformat=None, tickfont_size=11,
    )  # fmt: skip
    if up_to is not None:
        figure.update_yaxes(range=[-0.1, float(np.log10(up_to))], dtick=1)
    return figure


def _add(
    figure: go.Figure,
    couplings: list[float],
    runners: list[Runner],
    name: str,
    colour: str,
    dash: str = "solid",
) -> None:
    figure.add_scatter(
        x=couplings,
        y=[runner.mean for runner in runners],
        mode="lines",
        line=dict(color=colour, width=2.5, dash=dash),
        name=name,
        hovertemplate=f"{name}, J = %{{x:g}}: mean %{{y:.3g}} steps<extra></extra>",
    )
    came = [
        (j, one.simulated)
        for j, one in zip(couplings, runners, strict=True)
        if one.simulated is not None and one.simulated.arrived.all()
    ]
    figure.add_scatter(
        x=[j for j, _ in came],
        y=[seen.mean for _, seen in came],
        error_y=dict(array=[seen.standard_error for _, seen in came], color=colour, width=3),
        mode="markers",
        marker=dict(color=colour, size=6, line=dict(color=INK, width=0.5)),
        showlegend=False,
        hovertemplate=f"{name}, J = %{{x:g}}: simulated %{{y:.3g}}<extra></extra>",
    )
