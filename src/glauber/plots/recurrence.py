"""How does the tracked topic rise and fall, by the topic that chains began with?"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from glauber.figures.style import QUIET, SHARES, empty_figure
from glauber.landscape.topics import TopicScores
from glauber.plots.chains import add_chains
from glauber.plots.topic_river import colour_of


def plot_recurrence(
    found: TopicScores, track: str, *, seeds: Sequence[str] | None = None
) -> go.Figure:
    """The score of one label over steps, its mean by seed topic, and the baseline."""
    figure = empty_figure(
        f"Where the texts turn to {track}",
        f"score of {track} over steps, dotted: the baseline 1 / {len(found.labels)}",
    )
    figure.update_yaxes(tickformat=".0%")
    figure.update_layout(height=400, margin=dict(t=66, b=110), legend=dict(y=-0.2, yanchor="top"))
    values = found.of(track)
    if seeds is None:
        figure.update_yaxes(range=SHARES)
        add_chains(figure, found.steps, values, number=".0%")
    for seed in dict.fromkeys(seeds or ()):
        figure.add_scatter(
            x=found.steps,
            y=values[np.array(seeds) == seed].mean(axis=0),
            mode="lines",
            line=dict(color=colour_of(seed, found.labels), width=2.5),
            name=f"from {seed}",
            hovertemplate=f"step %{{x:,}}: mean %{{y:.1%}}<extra>from {seed}</extra>",
        )
    figure.add_hline(y=found.baseline, line=dict(color=QUIET, width=1.5, dash="dot"))
    return figure
