"""How do models differ, side by side?"""

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from glauber.comparison.models import Comparison, ModelRow
from glauber.figures.style import FAINT, FONT, INK, QUIET, STRONG, empty_figure
from glauber.plots.topic_river import colour_of
from glauber.statistics import Mean

SHORT = 22  # letters of a model's name that fit beside a picture


def plot_comparison(found: Comparison) -> go.Figure:
    """Three panels, a dot with its 95% interval for each model."""
    panels = {
        "mean rectangle Delta": [_delta(row) for row in found.rows],
        "entropy production, nats a step": [_production(row) for row in found.rows],
        "steps that changed a token": [_interval(row.changed) for row in found.rows],
    }
    names = [short(row.model) for row in found.rows]
    figure = make_subplots(rows=3, cols=1, subplot_titles=list(panels), vertical_spacing=0.17)
    for place, values in enumerate(panels.values(), start=1):
        centre, low, high = zip(*values, strict=True)
        figure.add_scatter(
            row=place, col=1, x=centre, y=names, mode="markers", showlegend=False,
            marker=dict(color=STRONG, size=10),
            error_x=dict(
                type="data", symmetric=False, thickness=2, color=STRONG,
                array=[top - mid for mid, top in zip(centre, high, strict=True)],
                arrayminus=[mid - bottom for mid, bottom in zip(centre, low, strict=True)],
            ),
            hovertemplate="%{y}: %{x:.3f}<extra></extra>",
        )  # fmt: skip
    styled = empty_figure(
        "Models side by side",
        f"{found.n_chains} chains of {found.n_steps:,} steps from the same starts, 95% intervals",
    )
    figure.update_layout(styled.layout.to_plotly_json() | {"xaxis": {}, "yaxis": {}})
    figure.update_layout(height=250 + 130 * len(names), margin=dict(l=200, t=110), template="none")
    figure.update_xaxes(gridcolor=FAINT, zeroline=False, fixedrange=True, rangemode="tozero")
    figure.update_yaxes(fixedrange=True, autorange="reversed", ticks="", showgrid=False)
    for note in figure.layout.annotations:
        note.update(x=0, xanchor="left", font=dict(size=13, color=QUIET, family=FONT))
    return figure


def plot_topics_by_model(found: Comparison) -> go.Figure:
    """Bars of the labels' mean scores at the end, stacked to one, a bar for each model."""
    figure = empty_figure("What the texts are about at the end", "mean score over chains")
    names = [short(row.model) for row in found.rows]
    labels = found.rows[0].topics.labels
    for label in labels:
        figure.add_bar(
            x=[row.topics_end[label].value for row in found.rows],
            y=names,
            orientation="h",
            name=label,
            marker_color=colour_of(label, labels),
            hovertemplate="%{y}: %{x:.1%}<extra>" + label + "</extra>",
        )
    figure.update_layout(barmode="stack", margin=dict(l=200, b=130, t=66), bargap=0.35)
    figure.update_layout(
        height=250 + 56 * len(names), legend=dict(y=-0.3, yanchor="top", traceorder="normal")
    )
    figure.update_xaxes(title_text="", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(autorange="reversed", ticks="")
    return figure


def comparison_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> go.Figure:
    """A table of written figures as a picture: the first column names the model."""
    figure = empty_figure("The figures", "estimates with 95% intervals or standard errors")
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns[0] = [short(name) for name in columns[0]]
    figure.add_table(
        header=dict(values=list(head), align="left", fill_color=FAINT, font=dict(color=INK)),
        cells=dict(values=columns, align="left", fill_color="white", height=44),
    )
    figure.update_layout(height=170 + 60 * len(rows), margin=dict(l=14))
    return figure


def short(name: str) -> str:
    """A model's name, or the end of a long one."""
    return name if len(name) <= SHORT else "…" + name[-SHORT + 1 :]


def _delta(row: ModelRow) -> tuple[float, float, float]:
    low, high = row.rectangles["interval"]
    return row.rectangles["mean"], low, high


def _production(row: ModelRow) -> tuple[float, float, float]:
    rate, reach = row.entropy_production.rate, 1.96 * row.entropy_production.standard_error
    return rate, rate - reach, rate + reach


def _interval(mean: Mean) -> tuple[float, float, float]:
    low, high = mean.interval or (mean.value, mean.value)
    return mean.value, low, high
