"""What does each millisecond buy? (the speed-quality frontier of the translator)"""

import plotly.graph_objects as go

from glauber.figures.style import INK, QUIET, STRONG, empty_figure
from glauber.translation.frontier import Frontier, Point

LOOKS = (
    (QUIET, "dot", "diamond", "top center"),
    ("#d55e00", "dash", "square", "bottom center"),
    (STRONG, "solid", "circle", "bottom center"),
)
BASELINES = ("x-thin-open", "cross-thin-open")
HEIGHT = 440


def plot_frontier(result: Frontier) -> go.Figure:
    """BLEU over the median milliseconds of a sentence; a line for each number of lengths."""
    figure = empty_figure(
        "What each millisecond buys",
        f"BLEU of {result.n_sentences:,} sentences; latency of {result.n_timed:,} of them, one at "
        f"a time<br>on {result.machine}; the numbers are passes T",
    )
    lengths = sorted({point.n_lengths for point in result.refined})
    for count, look in zip(lengths, LOOKS, strict=False):
        points = [point for point in result.refined if point.n_lengths == count]
        _add_line(figure, sorted(points, key=lambda point: point.n_steps), look)
    for point, symbol in zip(result.autoregressive, BASELINES, strict=False):
        figure.add_scatter(
            x=[1000 * point.median], y=[point.bleu], mode="markers", name=point.system,
            marker=dict(symbol=symbol, size=13, color=INK, line=dict(width=3, color=INK)),
            hovertemplate=f"{point.system}: %{{x:.1f}} ms, BLEU %{{y:.2f}}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title_text="median ms a sentence", tickformat="~g", rangemode="tozero")
    figure.update_yaxes(title=dict(text="BLEU", font_size=13), rangemode="normal", automargin=True)
    figure.update_layout(
        height=HEIGHT, showlegend=True, legend_font_color=INK, margin_t=118, title_y=0.97
    )
    return figure


def _add_line(figure: go.Figure, points: list[Point], look: tuple[str, str, str, str]) -> None:
    colour, dash, symbol, place = look
    name = f"refine, B = {points[0].n_lengths}"
    figure.add_scatter(
        x=[1000 * point.median for point in points],
        y=[point.bleu for point in points],
        text=[str(point.n_steps) for point in points],
        mode="lines+markers+text",
        textposition=place,
        textfont=dict(color=colour, size=12),
        name=name,
        line=dict(color=colour, width=2.5, dash=dash),
        marker=dict(symbol=symbol, size=9),
        hovertemplate=f"{name}, T = %{{text}}: %{{x:.1f}} ms, BLEU %{{y:.2f}}<extra></extra>",
    )
