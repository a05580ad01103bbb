"""How does the covariance of the estimate fall with the number of hidden sites?"""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from glauber.figures.style import INK, QUIET, STRONG, empty_figure

LOOKS = ((STRONG, "solid", "circle"), ("#d55e00", "dash", "square"), (QUIET, "dot", "diamond"))


def plot_by_size(
    ks: Sequence[int], lines: Mapping[str, Sequence[float]], *, title: str, subtitle: str
) -> go.Figure:
    """Up to three named lines over k = 1, …, N, on a logarithmic axis."""
    figure = empty_figure(title, subtitle)
    figure.update_xaxes(title_text="hidden sites k", tickvals=list(ks), rangemode="normal")
    figure.update_yaxes(type="log", rangemode="normal", tickformat="~g", automargin=True)
    figure.update_yaxes(title=dict(text="trace, n times the error", font_size=13))
    for (name, values), (colour, dash, symbol) in zip(lines.items(), LOOKS, strict=False):
        figure.add_scatter(
            x=list(ks), y=list(values), mode="lines+markers", name=name,
            line=dict(color=colour, width=2.5, dash=dash), marker=dict(symbol=symbol, size=8),
            hovertemplate=f"k = %{{x}}: %{{y:.4g}}<extra>{name}</extra>",
        )  # fmt: skip
    figure.update_layout(showlegend=True, legend_font_color=INK)
    return figure
