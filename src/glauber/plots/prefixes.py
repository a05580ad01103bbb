"""Which topics does each prefix pull towards?"""

from textwrap import wrap

import plotly.graph_objects as go

from glauber.figures.style import empty_figure
from glauber.landscape.prefixes import PrefixStudy, Pull

LETTERS = 16  # of a prefix in one line
COLOURS = ((0.0, "#0072b2"), (0.5, "#ffffff"), (1.0, "#d55e00"))


def plot_prefixes(found: PrefixStudy) -> go.Figure:
    """A heat map of the pulls, prefixes down and labels across; bold where surely not zero."""
    figure = empty_figure(
        "What each prefix pulls towards",
        "score less that of the chains without it; bold: 95% interval without zero",
    )
    values = [[pull.pull[label].value for label in found.labels] for pull in found.pulls]
    most = max(0.01, *(abs(value) for row in values for value in row))
    figure.add_heatmap(
        z=values,
        x=list(found.labels),
        y=["<br>".join(wrap(pull.prefix, LETTERS)) for pull in found.pulls],
        zmin=-most,
        zmax=most,
        colorscale=COLOURS,
        showscale=False,
        xgap=2,
        ygap=2,
        text=[[_written(pull, label) for label in found.labels] for pull in found.pulls],
        texttemplate="%{text}",
        hovertemplate="%{y}<br>%{x}: %{z:+.3f}<extra></extra>",
    )
    figure.update_layout(height=150 + 56 * len(found.pulls), margin=dict(l=130, b=90))
    figure.update_xaxes(title_text="", ticks="", showline=False, tickangle=-40, nticks=0)
    figure.update_yaxes(autorange="reversed", ticks="", showline=False, nticks=0)
    figure.update_xaxes(type="category", tickmode="linear")
    return figure


def _written(pull: Pull, label: str) -> str:
    mean = pull.pull[label]
    number = f"{mean.value:+.2f}"
    low, high = mean.interval or (0.0, 0.0)
    return f"<b>{number}</b>" if low > 0 or high < 0 else number
