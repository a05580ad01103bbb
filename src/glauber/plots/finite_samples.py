"""What does the finite-sample bound promise, beside what really happens?"""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from glauber.figures.style import INK, QUIET, STRONG, empty_figure

LOOKS = ((STRONG, "solid"), ("#009e73", "dash"), ("#e69f00", "dashdot"), ("#d55e00", "dot"))


def plot_bounds(sizes: Sequence[int], lines: Mapping[str, Sequence[float]]) -> go.Figure:
    """The true total variation and up to three bounds against the sequences; 1 is no promise."""
    figure = empty_figure(
        "Distance of the learnt law, and its bounds",
        "total variation against the number of sequences; above 1 a bound says nothing",
    )
    height = 440
    figure.update_layout(height=height, margin_t=140, title_y=1 - 12 / height)
    figure.update_xaxes(type="log", title_text="sequences n", rangemode="normal", tickformat=",d")
    figure.update_xaxes(tickvals=list(sizes))
    figure.update_yaxes(type="log", rangemode="normal", tickformat="~g", automargin=True, dtick=1)
    figure.update_yaxes(title=dict(text="total variation", font_size=13))
    for (name, values), (colour, dash) in zip(lines.items(), LOOKS, strict=False):
        figure.add_scatter(
            x=list(sizes), y=list(values), mode="lines+markers", name=name,
            line=dict(color=colour, width=2.5, dash=dash),
            hovertemplate=f"n = %{{x:,}}: %{{y:.3g}}<extra>{name}</extra>",
        )  # fmt: skip
    figure.add_hline(y=1, line=dict(color=QUIET, width=1.5))
    figure.update_layout(legend_font_color=INK)
    return figure
