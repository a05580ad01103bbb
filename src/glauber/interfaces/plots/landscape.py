"""Charts of topics, prefixes, models side by side, and paths of texts in the plane."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray
from plotly.colors import sample_colorscale

from glauber.foundation.statistics import Estimate
from glauber.interfaces.plots.chart import (
    BLUE,
    COLD_TO_HOT,
    INK,
    QUIET,
    SHARE,
    STEP,
    THIN,
    WHITE,
    Chart,
    axis,
    heading,
    plain,
    table,
    transparent,
)
from glauber.interfaces.plots.runs import add_chains
from glauber.studies.landscape.comparison import ModelRow
from glauber.studies.landscape.persistence import Persistence
from glauber.studies.landscape.prefixes import Contrast
from glauber.studies.landscape.recurrence import Recurrence
from glauber.studies.landscape.scorers import TopicScores
from glauber.studies.landscape.trajectory import Trajectory

# Distinguishable from their neighbours in the stack: Okabe and Ito's colours, then lighter ones.
TOPICS = (
    "#d55e00",
    "#56b4e9",
    "#d4b106",
    "#009e73",
    "#cc79a7",
    "#0072b2",
    "#e69f00",
    "#9aa0a6",
    "#7fc8a9",
    "#b9a3e3",
    "#8c6d46",
)
LETTERS = 22  # of a name that fits next to a chart
ROWS = dict(showgrid=True, nticks=0, tickmode="linear", ticks="")  # an axis of names
# Early is warm, late is cool; dark at both ends, so that every point shows on white.
WARM_TO_COOL = COLD_TO_HOT[::-1]
PIECES = 40  # of the line of a path, each in one colour
MOST = 20  # chains that can be chosen in one chart
TRACES = 3  # of each chain: its path, its snapshots, its traps
NEAR = 0.05  # of the chart, within which two rings are in one place
Point = tuple[float, float]
Triple = tuple[float, float, float]  # a value and the ends of its interval
Stay = tuple[int, int, int]  # chain, first step, last step


def plot_topic_river(scores: TopicScores, *, first: str | None = None) -> Chart:
    """The mean score of each label over the chains, stacked to one; `first` lies at the bottom."""
    n_chains = len(scores.values)
    last = float(scores.steps[-1])
    chart = Chart(
        "Topics of the texts",
        f"mean score of each label over {n_chains:,} chains" if n_chains > 1 else "one chain",
        x=STEP | dict(range=[0, last]),
        y=dict(range=[0, 1], tickformat=".0%"),
        height=400,
        legend="below",
        hovermode="x unified",
    )
    order = sorted(range(len(scores.labels)), key=lambda index: scores.labels[index] != first)
    mean = scores.values.mean(axis=0)  # (snapshots, labels)
    for index in order:
        label = scores.labels[index]
        chart.line(
            scores.steps,
            mean[:, index],
            label,
            f"{label} %{{y:.1%}}",
            color=WHITE,
            width=0.6,
            stackgroup="labels",
            fillcolor=colour_of(label, scores.labels),
        )
    return chart


def colour_of(label: str, labels: Sequence[str]) -> str:
    """The colour of a label, the same in every chart of a list of labels."""
    number = list(labels).index(label) if label in labels else len(labels)
    return TOPICS[number % len(TOPICS)]


def plot_recurrence(
    scores: TopicScores, track: str, *, seeds: Sequence[str] | None = None
) -> Chart:
    """The score of one label over steps, its mean by seed topic, and the baseline."""
    chart = Chart(
        f"Recurrence of {track}",
        f"score of {track} over steps, dotted: the baseline 1 / {len(scores.labels)}",
        y=SHARE if seeds is None else dict(tickformat=".0%", rangemode="tozero"),
        height=380,
        legend="below",
    )
    values = scores.of(track)
    if seeds is None:
        add_chains(chart, scores.steps, values, number=".0%")
    for seed in dict.fromkeys(seeds or ()):
        mean = values[np.array(seeds) == seed].mean(axis=0)
        hover, color = (
            f"from {seed}, step %{{x:,}}: mean %{{y:.1%}}",
            colour_of(seed, scores.labels),
        )
        chart.line(scores.steps, mean, f"from {seed}", hover, color=color)
    chart.rule(y=scores.baseline, dash="dot", width=1.5)
    return chart


def plot_persistence(result: Persistence) -> Chart:
    """The duration of each stay against the mean smallest gap of its texts, a colour per label."""
    chart = Chart(
        f"Duration of stays, by {result.of}",
        f"steps in a row against the mean smallest gap of the texts, one every {result.every:,} "
        "steps",
        x=dict(title="smallest gap in units of score"),
        y=dict(title="steps", type="log", tickformat=",d"),
        legend="below",
    )
    for label in dict.fromkeys(stay.label for stay in result.stays):
        own = [stay for stay in result.stays if stay.label == label]
        chart.dots(
            [stay.min_gap for stay in own],
            [stay.duration for stay in own],
            label,
            f"{label}, chain %{{customdata}}: %{{y:,}} steps, smallest gap %{{x:.2f}}",
            trace=dict(customdata=[stay.chain for stay in own]),
        )
    return chart


def plot_crossings(recurrence: Recurrence) -> Chart:
    """The share of chains that crossed, a dot for each label, and that of a random order."""
    rows = sorted(recurrence.labels, key=lambda row: row.share.value)
    chart = Chart(
        "Chains that crossed the baseline, by label",
        "of those that began below it; simultaneous 95% intervals",
        x=SHARE,
        y=ROWS | dict(categoryorder="array", categoryarray=[row.label for row in rows]),
        height=190 + 26 * len(rows),
    )
    for name, color, followed in (
        (recurrence.track, BLUE, True),
        ("the other labels", QUIET, False),
    ):
        chosen = [row for row in rows if (row.label == recurrence.track) is followed]
        chart.intervals({row.label: _interval(row.share) for row in chosen}, name, color)
    chart.dots(
        [row.random_order for row in rows],
        [row.label for row in rows],
        "the same snapshots in random order",
        "%{y}, random order: %{x:.1%}",
        color=INK,
        size=13,
        symbol="line-ns-open",
        line=dict(width=2),
    )
    return chart


def plot_prefix_topics(contrast: Contrast, correction: str) -> Chart:
    """A dot and its interval for each label and each word asked for, zero marked."""
    means = {label: topic.difference for label, topic in contrast.topics.items()}
    means = dict(sorted(means.items(), key=lambda pair: pair[1].value))
    means |= {f"P({word})": values.difference for word, values in contrast.probabilities.items()}
    chart = _contrast(contrast, f"difference of scores; {correction}", list(means), "+.2f")
    for clear, name in ((True, "different from zero"), (False, "not clearly different from zero")):
        rows = {label: _interval(m) for label, m in means.items() if m.excludes(0.0) is clear}
        chart.intervals(rows, name, BLUE if clear else QUIET)
    return chart


def plot_prefix_words(contrast: Contrast) -> Chart:
    """A dot and its interval for the distinctive words of both prefixes."""
    words = sorted([*contrast.more, *contrast.less], key=lambda word: word.log_odds)
    what = f"log-odds of a {contrast.called[:-1]}, 95% intervals"
    chart = _contrast(contrast, what, [word.word for word in words], "+.1f")
    for clear, name in ((True, f"sure over all {contrast.called} together"), (False, "not sure")):
        rows = {
            word.word: (word.log_odds, *(word.interval or (word.log_odds, word.log_odds)))
            for word in words
            if word.sure is clear
        }
        chart.intervals(rows, name, BLUE if clear else QUIET)
    return chart


def _contrast(contrast: Contrast, subtitle: str, names: list[str], number: str) -> Chart:
    first, second = ("\n".join(wrap(name, 60)) for name in contrast.names)
    chart = Chart(
        f"right: {first}\nleft: {second}",
        subtitle,
        x=dict(tickformat=number),
        y=ROWS | dict(categoryorder="array", categoryarray=names),
        height=170 + 24 * len(names),
    )
    chart.rule(x=0, width=1)
    return chart


def _interval(mean: Estimate) -> Triple:
    low, high = mean.interval or (mean.value, mean.value)
    return mean.value, low, high


def plot_comparison(rows: Sequence[ModelRow]) -> Chart:
    """Three panels, a dot with its 95% interval for each model that has the number."""
    panels: dict[str, list[Triple | None]] = {
        "mean rectangle Delta": [_interval(row.delta) for row in rows],
        "entropy production, nats per step": [
            _interval(row.production) if row.production else None for row in rows
        ],
        "steps that changed a token": [
            _interval(row.changed) if row.changed else None for row in rows
        ],
    }
    names = [short(row.model) for row in rows]
    height = 180 + 3 * (70 + 30 * len(names))
    about = "from the same starts, 95% intervals"
    chart = Chart("Models side by side", about, x={}, height=height)
    for number, (title, values) in enumerate(panels.items(), start=1):
        known = {
            name: value for name, value in zip(names, values, strict=True) if value is not None
        }
        centre, low, high = np.array(list(known.values()), dtype=float).reshape(-1, 3).T
        top = 1 - (number - 1) * 0.36
        x = axis(dict(title=title, rangemode="tozero", showgrid=True)) | dict(anchor=f"y{number}")
        y = dict(autorange="reversed", ticks="", domain=[top - 0.24, top], anchor=f"x{number}")
        chart.update_layout({f"xaxis{number}": x, f"yaxis{number}": y | dict(automargin=True)})
        spread = dict(array=np.nan_to_num(high - centre), arrayminus=np.nan_to_num(centre - low))
        chart.dots(
            centre,
            list(known),
            "",
            "%{y}: %{x:.3f}",
            color=BLUE,
            size=10,
            error_x=dict(type="data", symmetric=False, thickness=2) | spread,
            trace=dict(xaxis=f"x{number}", yaxis=f"y{number}"),
        )
    return chart


def plot_topics_by_model(rows: Sequence[ModelRow]) -> Chart:
    """Bars of the labels' mean scores at the end, stacked to one, a bar for each model."""
    ends = {short(row.model): row.topics_end for row in rows if row.topics_end is not None}
    chart = Chart(
        "Topics of the last texts",
        "mean score over chains",
        x=dict(tickformat=".0%", range=[0, 1]),
        y=dict(autorange="reversed", ticks=""),
        height=210 + 56 * len(ends),
        legend="below",
        barmode="stack",
        bargap=0.35,
    )
    labels = list(next(iter(ends.values())))
    for label in labels:
        chart.columns(
            [end[label].value for end in ends.values()],
            list(ends),
            label,
            f"%{{y}}, {label}: %{{x:.1%}}",
            color=colour_of(label, labels),
            horizontal=True,
        )
    return chart


def comparison_table(rows: Sequence[ModelRow]) -> Chart:
    """The numbers of each model as a table: the first column names the model."""
    written = [row.cells() for row in rows]
    head = list(dict.fromkeys(name for row in written for name in row))
    cells = [
        [short(row.model), *(numbers.get(name, "left out") for name in head)]
        for row, numbers in zip(rows, written, strict=True)
    ]
    subtitle = "with 95% intervals or standard errors"
    return table("Estimates", subtitle, ["model", *head], cells)


def short(name: str) -> str:
    """A name, or the end of a long one."""
    return name if len(name) <= LETTERS else "…" + name[-LETTERS + 1 :]


def plot_trajectory(
    trajectory: Trajectory, *, chain: int = 0, traps: Sequence[Stay] = (), choose: bool = False
) -> Chart:
    """A chain's path in time order, from warm to cool, before the snapshots of all chains.

    traps (chain, first step, last step): those of the chain are marked by a ring. With `choose`
    the chart contains the first chains, each with a grey path, and a menu of them.
    """
    n_chains = len(trajectory.points)
    shown = sorted({chain, *range(min(MOST, n_chains))}) if choose else [chain]
    shares = enumerate(trajectory.explained, start=1)
    names = [f"component {k}: {share:.0%} of the spread" for k, share in shares]
    x, y = (dict(title=name, showticklabels=False, ticks="", showgrid=False) for name in names)
    title, subtitle = _title(trajectory, chain)
    chart = Chart(title, subtitle, x=x, y=y, height=540, showlegend=False)
    cloud = trajectory.points.reshape(-1, 2)
    chart.dots(cloud[:, 0], cloud[:, 1], color=transparent(QUIET, 0.13), size=5)
    rings = {number: _rings(trajectory, number, traps) for number in shown}
    for number in shown:
        points, visible = trajectory.points[number], number == chain
        if choose:
            chart.line(points[:, 0], points[:, 1], color=THIN, width=1, visible=visible)
        else:
            _add_coloured_path(chart, points)
        _add_snapshots(chart, trajectory, number, rings[number], visible=visible)
    if len(shown) > 1:
        chart.update_layout(updatemenus=[_menu(trajectory, rings, chain)])
    chart.update_layout(annotations=_ends(trajectory, chain, rings[chain]))
    return chart


def _add_coloured_path(chart: Chart, points: NDArray[np.float64]) -> None:
    """The path in pieces, each in the colour of its time."""
    edges = np.unique(np.linspace(0, len(points) - 1, PIECES + 1).round().astype(int))
    for first, last in pairwise(edges.tolist()):
        color = sample_colorscale(WARM_TO_COOL, [(first + last) / 2 / (len(points) - 1)])[0]
        x, y = points[first : last + 1].T
        chart.line(x, y, color=color, width=1, opacity=0.55)


Ring = tuple[int, int, Point]  # first and last step of a trap, and where it lies


def _rings(trajectory: Trajectory, chain: int, traps: Iterable[Stay]) -> list[Ring]:
    """The traps of a chain, each at the median of its snapshots."""
    rings = []
    for first, last in (trap[1:] for trap in traps if trap[0] == chain):
        inside = (trajectory.steps >= first) & (trajectory.steps <= last)
        if inside.any():
            x, y = np.median(trajectory.points[chain, inside], axis=0)
            rings.append((first, last, (float(x), float(y))))
    return rings


def _add_snapshots(
    chart: Chart, trajectory: Trajectory, chain: int, rings: Sequence[Ring], *, visible: bool
) -> None:
    """The snapshots and the traps of one chain."""
    points, steps, texts = trajectory.points[chain], trajectory.steps, trajectory.texts[chain]
    hover = [
        "\n".join([f"step {step:,}", *wrap(text, 60)])
        for step, text in zip(steps, texts, strict=True)
    ]
    chart.dots(
        points[:, 0],
        points[:, 1],
        "",
        "%{text}",
        text=hover,
        color=steps,
        colorscale=WARM_TO_COOL,
        line=dict(color=WHITE, width=0.5),
        colorbar=dict(title=dict(text="step", side="right"), thickness=12, tickformat=",d"),
        trace=dict(ids=[f"chain {chain} step {step}" for step in steps], visible=visible),
    )
    chart.dots(
        [at[0] for *_, at in rings],
        [at[1] for *_, at in rings],
        "trap",
        "%{customdata}",
        text=_labels(trajectory, rings),
        color=INK,
        size=26,
        symbol="circle-open",
        line_width=2,
        trace=dict(
            cliponaxis=False,
            mode="markers+text",
            textposition="top center",
            textfont=dict(size=12, color=INK),
            customdata=[f"trap from step {first:,} to {last:,}" for first, last, _ in rings],
            ids=[f"chain {chain} step {first}" for first, *_ in rings],
            visible=visible,
        ),
    )


def _labels(trajectory: Trajectory, rings: Sequence[Ring]) -> list[str]:
    """The steps of each ring; of rings in one place the first has all of them, line by line."""
    near = NEAR * np.ptp(trajectory.points.reshape(-1, 2), axis=0)
    labels: list[list[str]] = []
    for number, (first, last, at) in enumerate(rings):
        same = (k for k in range(number) if np.all(np.abs(np.subtract(at, rings[k][2])) < near))
        labels.append([])
        labels[next(same, number)].append(f"{first:,} to {last:,}")
    return ["\n".join(lines) for lines in labels]


def _menu(trajectory: Trajectory, rings: dict[int, list[Ring]], chain: int) -> dict[str, Any]:
    """A menu that shows one chain's traces at a time."""
    buttons = []
    for menu_index, shown_chain in enumerate(rings):
        own = range(1 + TRACES * menu_index, 1 + TRACES * (menu_index + 1))
        visible = [k == 0 or k in own for k in range(1 + TRACES * len(rings))]
        layout = {
            "title.text": heading(*_title(trajectory, shown_chain)),
            "annotations": _ends(trajectory, shown_chain, rings[shown_chain]),
        }
        button = dict(
            label=f"chain {shown_chain}", method="update", args=[{"visible": visible}, layout]
        )
        buttons.append(button)
    return dict(
        buttons=buttons,
        active=list(rings).index(chain),
        x=1,
        xanchor="right",
        y=1.02,
        yanchor="bottom",
        pad=dict(b=4),
    )


def _ends(trajectory: Trajectory, chain: int, rings: Sequence[Ring]) -> list[dict[str, Any]]:
    """The names of the first and the last snapshot, on the side where no other label is near."""
    span = np.ptp(trajectory.points.reshape(-1, 2), axis=0) + 1e-12
    labels = [np.divide(at, span) + np.array([0, 0.09]) for *_, at in rings]  # above their rings
    notes = []
    for name, snapshot in (("start", 0), ("end", -1)):
        at = trajectory.points[chain, snapshot]
        sides = {
            (ax, ay): at / span + [ax / 300, -ay / 300]
            for ax, ay in ((0, -30), (0, 30), (34, -22), (-34, -22), (34, 22), (-34, 22))
        }
        ax, ay = max(
            sides,
            key=lambda side: min(
                (np.hypot(*(sides[side] - label)) for label in labels), default=1.0
            ),
        )
        labels.append(sides[ax, ay])
        notes.append(
            dict(
                x=float(at[0]),
                y=float(at[1]),
                text=plain(name),
                arrowcolor=INK,
                arrowwidth=1,
                arrowhead=0,
                ax=ax,
                ay=ay,
                font=dict(color=INK, weight="bold"),
                showarrow=True,
            )
        )
    return notes


def _title(trajectory: Trajectory, chain: int) -> tuple[str, str]:
    n_chains = len(trajectory.points)
    how = f"{trajectory.what} in the two directions of largest spread"
    others = f"; grey: all {n_chains:,} chains" if n_chains > 1 else ""
    return (
        f"Path of the text of chain {chain}",
        f"{how}, from warm (early) to cool (late){others}",
    )
