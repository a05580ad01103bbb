"""What are the texts about, what do prefixes do to them, and how do models differ?"""

from collections.abc import Sequence
from html import escape
from textwrap import wrap

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from glauber.figures.runs import add_chains
from glauber.figures.style import FAINT, FONT, INK, QUIET, SHARES, STRONG, empty_figure
from glauber.landscape.comparison import (
    ModelRow,
    Triple,
    delta_of,
    interval_of,
    production_of,
)
from glauber.landscape.prefix_contrast import Contrast, excludes_zero
from glauber.landscape.recurrence import Recurrence
from glauber.landscape.scorers import TopicScores
from glauber.runs.distinctive_words import WordContrast
from glauber.statistics import Estimate

# Told apart by neighbours in the stack: the colours of Okabe and Ito, then lighter ones.
COLOURS = (
    "#d55e00", "#56b4e9", "#d4b106", "#009e73", "#cc79a7", "#0072b2", "#e69f00", "#9aa0a6",
    "#7fc8a9", "#b9a3e3", "#8c6d46",
)  # fmt: skip
SHORT = 22  # letters of a name that fit beside a picture


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
    mean = found.values.mean(axis=0)  # (snapshots, labels)
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


def plot_crossings(found: Recurrence) -> go.Figure:
    """The share of chains that crossed, a dot for each label, and that of a random order."""
    rows = sorted(found.labels, key=lambda row: row.share.value)
    figure = empty_figure(
        "Is one label special?",
        "chains that crossed its baseline, of those that began below; 95% intervals that hold "
        "together",
    )
    figure.update_layout(height=190 + 26 * len(rows), hovermode="closest", margin=dict(l=130))
    figure.update_xaxes(title_text="", tickformat=".0%", range=SHARES)
    figure.update_yaxes(ticks="", showgrid=True, nticks=0, tickmode="linear")
    figure.update_yaxes(categoryorder="array", categoryarray=[row.label for row in rows])
    for followed, name in ((True, found.track), (False, "the other labels")):
        chosen = [row for row in rows if (row.label == found.track) is followed]
        _dots(figure, {row.label: _ends(row.share) for row in chosen}, name, followed)
    figure.add_scatter(
        x=[row.random_order for row in rows], y=[row.label for row in rows], mode="markers",
        name="the same snapshots in random order",
        marker=dict(symbol="line-ns-open", color=INK, size=13, line=dict(width=2)),
        hovertemplate="%{y}, random order: %{x:.1%}<extra></extra>",
    )  # fmt: skip
    return figure


def plot_prefix_topics(found: Contrast, correction: str) -> go.Figure:
    """A dot and its interval for each label and each word asked for, zero marked."""
    rows = {label: means[2] for label, means in found.topics.items()}
    rows = dict(sorted(rows.items(), key=lambda pair: pair[1].value))
    rows |= {f"P({word})": means[2] for word, means in found.probabilities.items()}
    figure = _contrast_figure(found, f"difference of scores; {correction}", len(rows))
    for sure, name in ((True, "different from zero"), (False, "not clearly different from zero")):
        chosen = {label: mean for label, mean in rows.items() if excludes_zero(mean) is sure}
        _dots(figure, {label: _ends(mean) for label, mean in chosen.items()}, name, sure)
    figure.update_xaxes(title_text="", tickformat="+.2f")
    figure.update_yaxes(categoryorder="array", categoryarray=list(rows))
    return figure


def plot_prefix_words(found: Contrast) -> go.Figure:
    """A dot and its interval for the distinctive words of both prefixes."""
    words = [*found.more, *found.less]
    words.sort(key=lambda one: one.log_odds)
    what = f"log-odds of a {found.called[:-1]}, 95% intervals"
    figure = _contrast_figure(found, what, len(words))
    for sure, name in ((True, f"sure over all {found.called} together"), (False, "not sure")):
        chosen = {one.word: _odds(one) for one in words if one.sure is sure}
        _dots(figure, chosen, name, sure)
    figure.update_xaxes(title_text="", tickformat="+.1f")
    figure.update_yaxes(categoryorder="array", categoryarray=[one.word for one in words])
    return figure


def _contrast_figure(found: Contrast, subtitle: str, n_rows: int) -> go.Figure:
    first, second = ("<br>".join(map(escape, wrap(name, 60))) for name in found.names)
    below = "<br>".join(wrap(subtitle, 90))
    figure = empty_figure(f"right: {first}<br>left: {second}", below)
    lines = f"{first}{second}{below}".count("<br>") + 3
    figure.update_layout(height=150 + 22 * lines + 24 * n_rows, hovermode="closest")
    figure.update_layout(margin=dict(l=130, t=60 + 22 * lines, b=40))
    figure.update_layout(title=dict(y=1, yanchor="top", pad=dict(t=16)))
    figure.update_yaxes(ticks="", showgrid=True, nticks=0, tickmode="linear")
    figure.add_vline(x=0, line=dict(color=QUIET, width=1))
    return figure


def _dots(figure: go.Figure, rows: dict[str, Triple], name: str, strong: bool) -> None:
    """Dots with intervals, one under the other."""
    if not rows:
        return
    centre, low, high = (list(part) for part in zip(*rows.values(), strict=True))
    figure.add_scatter(
        x=centre, y=list(rows), mode="markers", name=name,
        marker=dict(color=STRONG if strong else QUIET, size=9),
        error_x=dict(
            type="data", symmetric=False, thickness=2, color=STRONG if strong else QUIET,
            array=[top - mid for mid, top in zip(centre, high, strict=True)],
            arrayminus=[mid - bottom for mid, bottom in zip(centre, low, strict=True)],
        ),
        customdata=list(zip(low, high, strict=True)),
        hovertemplate="%{y}: %{x:+.3f} (%{customdata[0]:+.3f} to %{customdata[1]:+.3f})"
        "<extra></extra>",
    )  # fmt: skip


def _ends(mean: Estimate) -> Triple:
    low, high = mean.interval or (mean.value, mean.value)
    return mean.value, low, high


def _odds(word: WordContrast) -> Triple:
    low, high = word.interval or (word.log_odds, word.log_odds)
    return word.log_odds, low, high


def plot_comparison(rows: Sequence[ModelRow]) -> go.Figure:
    """Three panels, a dot with its 95% interval for each model that has the figure."""
    panels: dict[str, list[Triple | None]] = {
        "mean rectangle Delta": [delta_of(row) for row in rows],
        "entropy production, nats a step": [production_of(row) for row in rows],
        "steps that changed a token": [interval_of(row.changed) for row in rows],
    }
    names = [short(row.model) for row in rows]
    figure = make_subplots(rows=3, cols=1, subplot_titles=list(panels), vertical_spacing=0.17)
    for place, values in enumerate(panels.values(), start=1):
        there = [(name, one) for name, one in zip(names, values, strict=True) if one is not None]
        centre, low, high = (np.array([one[k] for _, one in there]) for k in range(3))
        figure.add_scatter(
            row=place, col=1, x=centre, y=[name for name, _ in there], mode="markers",
            showlegend=False, marker=dict(color=STRONG, size=10),
            error_x=dict(
                type="data", symmetric=False, thickness=2, color=STRONG,
                array=np.nan_to_num(high - centre), arrayminus=np.nan_to_num(centre - low),
            ),
            hovertemplate="%{y}: %{x:.3f}<extra></extra>",
        )  # fmt: skip
    styled = empty_figure("Models side by side", "from the same starts, 95% intervals")
    figure.update_layout(styled.layout.to_plotly_json() | {"xaxis": {}, "yaxis": {}})
    figure.update_layout(height=250 + 130 * len(names), margin=dict(l=200, t=110), template="none")
    figure.update_xaxes(gridcolor=FAINT, zeroline=False, rangemode="tozero")
    figure.update_yaxes(autorange="reversed", ticks="", showgrid=False)
    for note in figure.layout.annotations:
        note.update(x=0, xanchor="left", font=dict(size=13, color=QUIET, family=FONT))
    return figure


def plot_topics_by_model(rows: Sequence[ModelRow]) -> go.Figure:
    """Bars of the labels' mean scores at the end, stacked to one, a bar for each model."""
    figure = empty_figure("What the texts are about at the end", "mean score over chains")
    ends = {short(row.model): row.topics_end for row in rows if row.topics_end is not None}
    labels = list(next(iter(ends.values())))
    for label in labels:
        figure.add_bar(
            x=[end[label].value for end in ends.values()],
            y=list(ends),
            orientation="h",
            name=label,
            marker_color=colour_of(label, labels),
            hovertemplate="%{y}: %{x:.1%}<extra>" + label + "</extra>",
        )
    figure.update_layout(barmode="stack", margin=dict(l=200, b=130, t=66), bargap=0.35)
    figure.update_layout(
        height=250 + 56 * len(ends), legend=dict(y=-0.3, yanchor="top", traceorder="normal")
    )
    figure.update_xaxes(title_text="", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(autorange="reversed", ticks="")
    return figure


def comparison_table(rows: Sequence[ModelRow]) -> go.Figure:
    """A table of written figures as a picture: the first column names the model."""
    figure = empty_figure("The figures", "estimates with 95% intervals or standard errors")
    written = [row.written() for row in rows]
    head = list(dict.fromkeys(name for row in written for name in row))
    columns = [[row.get(name, "left out") for row in written] for name in head]
    figure.add_table(
        header=dict(values=["model", *head], align="left", fill_color=FAINT, font=dict(color=INK)),
        cells=dict(
            values=[[short(row.model) for row in rows], *columns],
            align="left",
            fill_color="white",
            height=44,
        ),
    )
    figure.update_layout(height=170 + 60 * len(rows), margin=dict(l=14))
    return figure


def short(name: str) -> str:
    """A name, or the end of a long one."""
    return name if len(name) <= SHORT else "…" + name[-SHORT + 1 :]
