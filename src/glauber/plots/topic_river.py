"""What are the chains about over time? A river with a branch for each label."""

from collections.abc import Sequence

import plotly.graph_objects as go

from glauber.figures.style import empty_figure
from glauber.landscape.topics import TopicScores

# Told apart by neighbours in the stack: the colours of Okabe and Ito, then lighter ones.
COLOURS = (
    "#d55e00", "#56b4e9", "#d4b106", "#009e73", "#cc79a7", "#0072b2", "#e69f00", "#9aa0a6",
    "#7fc8a9", "#b9a3e3", "#8c6d46",
)  # fmt: skip


def plot_topic_river(found: TopicScores, *, first: str | None = None) -> go.Figure:
    """The mean score of each label over the chains, stacked to one; `first` lies at the bottom."""
    n_chains = len(found.values)
    figure = empty_figure(
        "What the texts are about",
        f"mean score of each label over {n_chains:,} chains" if n_chains > 1 else "one chain",
    )
    figure.update_yaxes(range=[0, 1], tickformat=".0%")
    figure.update_layout(
        height=440,
        hovermode="x unified",
        margin=dict(l=46, r=14, t=66, b=120),
        legend=dict(y=-0.2, yanchor="top", traceorder="normal"),
    )
    order = sorted(range(len(found.labels)), key=lambda place: found.labels[place] != first)
    mean = found.values.mean(axis=0)  # (looks, labels)
    for place in order:
        figure.add_scatter(
            x=found.steps,
            y=mean[:, place],
            mode="lines",
            stackgroup="labels",
            line=dict(width=0.6, color="white"),
            fillcolor=colour_of(found.labels[place], found.labels),
            name=found.labels[place],
            hovertemplate="%{y:.1%}",
        )
    return figure


def colour_of(label: str, labels: Sequence[str]) -> str:
    """The colour of a label, the same in every picture of a list of labels."""
    place = list(labels).index(label) if label in labels else len(labels)
    return COLOURS[place % len(COLOURS)]
