"""Charts of traps, basins, timescales, and of what holds a text where it is."""

from collections.abc import Sequence
from textwrap import shorten, wrap
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.study import counted
from glauber.interfaces.plots.chart import (
    AMBER,
    BLUE,
    COLOURS,
    FAINT,
    INK,
    QUIET,
    SHARE,
    STEP,
    WHITE,
    Chart,
    ends,
)
from glauber.runs.snapshots import Snapshots
from glauber.studies.metastability.basin_model import BasinModel
from glauber.studies.metastability.basins import Basins, estimate_text
from glauber.studies.metastability.clusters import Readable
from glauber.studies.metastability.margins import format_log
from glauber.studies.metastability.regimes import Regime
from glauber.studies.metastability.state_model import ImpliedTimescales
from glauber.studies.metastability.traps import RankCorrelation, Trap, TrapList

if TYPE_CHECKING:
    from glauber.studies.metastability.drift import DriftStudy
    from glauber.studies.metastability.margins import MarginStudy
    from glauber.studies.metastability.quoted_traps import QuotedTraps

ROW = 22  # pixels of a chain
TICKS = [digit * 10**power for power in range(7) for digit in (1, 2, 5)]
KINDS = ((True, "perfect", BLUE), (False, "approximate", AMBER))
LARGEST = 74.0  # pixels across a basin that is the whole distribution
LOOSE = 1000  # an upper end so many times the value bounds nothing
MOST_STATES = 400  # of a level that are drawn
REGIMES = (
    ("steps that change a token", "changed", BLUE, "solid"),
    ("steps within a trap", "stuck", AMBER, "dash"),
    ("start tokens kept to the end", "kept", QUIET, "dot"),
)


def plot_trap_timeline(catalogue: TrapList) -> Chart:
    """A row per chain with its traps as bars; the text appears under the pointer."""
    unseen = int(catalogue.settings.get("window", 0))  # no whole window follows these steps
    n = catalogue.n_chains
    chart = Chart(
        "When chains were stuck",
        f"{counted(len(catalogue.traps), 'trap')} of {counted(n, 'chain')}, "
        f"{catalogue.detector} detector, {catalogue.at_temperature}"
        + ("; grey: no whole window left" if unseen else ""),
        x=STEP | dict(range=[0, catalogue.n_steps]),
        y=dict(
            title="chain",
            range=[n - 0.5, -0.5],
            tickformat="d",
            dtick=max(1, n // 10),
            showgrid=False,
        ),
        height=150 + ROW * max(n, 4),
        barmode="overlay",
    )
    if unseen:
        chart.region(x=(catalogue.n_steps - unseen, catalogue.n_steps))
    for chain in range(n):
        chart.add_hline(y=chain, line=dict(color=FAINT, width=1), layer="below")
    for perfect, name, color in KINDS:
        traps = [trap for trap in catalogue.traps if trap.perfect == perfect]
        chart.columns(
            [trap.duration for trap in traps],
            [trap.chain for trap in traps],
            f"{name} ({len(traps)})",
            "%{customdata}",
            horizontal=True,
            color=color,
            width=0.75,
            marker=dict(line=dict(color=WHITE, width=1)),
            showlegend=True,
            base=[trap.first for trap in traps],
            ids=[_moment(trap) for trap in traps],
            customdata=[_hover(trap) for trap in traps],
        )
    return chart


def plot_gaps_against_duration(catalogue: TrapList) -> Chart:
    """Each trap's duration against its mean gap and against its smallest gap."""
    ranks, traps = catalogue.ranks, catalogue.traps
    chart = Chart(
        "Duration of traps by their gaps",
        "duration in steps against the gaps of the trap's text; "
        f"rank correlation: mean gap {_correlation(ranks and ranks.by_mean_gap)}, min gap "
        f"{_correlation(ranks and ranks.by_min_gap)}",
        x=dict(title="gap in units of score"),
        y=dict(title="steps", type="log", tickformat=",d", tickvals=TICKS),
        height=400,
    )
    for name, gaps, color, symbol in (
        ("mean gap", [trap.mean_gap for trap in traps], BLUE, "circle"),
        ("min gap", [trap.min_gap for trap in traps], AMBER, "diamond-open"),
    ):
        texts = dict(
            ids=[_moment(trap) for trap in traps], customdata=[_hover(trap) for trap in traps]
        )
        chart.dots(
            gaps,
            [trap.duration for trap in traps],
            name,
            f"{name} %{{x:.2f}}\n%{{customdata}}",
            color=color,
            size=8,
            symbol=symbol,
            trace=texts,
        )
    chart.rule(x=0, dash="dot", width=1)
    return chart


def _moment(trap: Trap) -> str:
    """Where a click on a trap leads in a page with a player."""
    return f"chain {trap.chain} step {trap.first}"


def _hover(trap: Trap) -> str:
    """The text in lines of a readable width, and the trap's numbers."""
    when, text, gaps, *_ = trap.lines()
    return "\n".join((*wrap(text, 60), when, gaps))


def _correlation(rank: RankCorrelation | None) -> str:
    if rank is None:
        return "unknown"
    interval = rank.interval
    between = f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    return f"{rank.value:.2f}{between}"


def plot_basins(result: Basins) -> Chart:
    """The network of the basins, with their texts."""
    return plot_basin_network(result, result.basins)


def plot_basin_network(model: BasinModel, readable: Sequence[Readable] | None = None) -> Chart:
    """Basins as circles, as large as their stationary share, with arrows as wide as their traffic.

    Below are the most central texts of the basins; the pointer shows more texts and words.
    """
    n, shares = model.n_basins, model.shares.value
    key = []
    for basin in range(n if readable else 0):
        text = shorten(readable[basin].texts[0], 44, placeholder=" …") if readable else ""
        key.append(f"{basin}: {text}")
    chart = Chart(
        "Basins and the transitions between them",
        "area: share of the stationary distribution; width: traffic; "
        f"below: the most central texts (estimates, lag {model.lag:,} steps)",
        x=dict(visible=False, range=[-1.5, 1.5]),
        y=dict(visible=False, range=[-1.5, 1.5]),
        height=420 + 17 * len(key),
        showlegend=False,
    )
    angles = np.pi * (1.0 if n == 2 else 0.5) - 2 * np.pi * np.arange(n) / n
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1)  # two are side by side
    members = np.eye(n)[model.sets.assignment]
    traffic = members.T @ (model.model.stationary[:, None] * model.model.matrix) @ members
    np.fill_diagonal(traffic, 0.0)  # share of the moves of one lag, basin to basin
    passages = {
        (a, b): f"from {a} to {b}: mean first passage {_passage(model, (a, b))} steps"
        for a in range(n)
        for b in range(n)
    }
    sizes = np.maximum(22.0, LARGEST * np.sqrt(shares))
    hover = [_basin_hover(model, readable, basin) for basin in range(n)]
    chart.network(places, sizes, np.asarray(traffic), hover, passages)
    for basin, (x, y) in enumerate(places):
        out = sizes[basin] / 2 + 16  # pixels from the centre, away from the other basins
        shift = dict(xshift=out * x, yshift=out * y)
        chart.note(x, y, f"{shares[basin]:.0%}", font=dict(size=12, color=QUIET), **shift)
    if key:
        below = dict(xref="paper", yref="paper", xanchor="left", yanchor="top", align="left")
        chart.note(0, 0, "\n".join(key), font=dict(size=12, color=QUIET), **below)
        chart.update_layout(margin_b=24 + 17 * len(key))
    return chart


def _passage(model: BasinModel, pair: tuple[int, int]) -> str:
    """A mean first passage time; an upper end that bounds nothing is left out."""
    passage = model.passage_times.item(pair)
    interval, value = passage.interval, passage.value
    if interval is None or not np.isfinite(value) or interval[1] <= LOOSE * value:
        return estimate_text(passage, ",.0f")
    return f"{value:,.0f} (at least {interval[0]:,.0f})"


def _basin_hover(model: BasinModel, readable: Sequence[Readable] | None, basin: int) -> str:
    lines = [
        f"basin {basin}: {model.shares.value[basin]:.0%} of the stationary distribution of the "
        "connected part,",
        f"which holds {model.connected_share:.0%} of the transitions",
    ]
    if readable is None:
        return "\n".join(lines)
    summary = readable[basin]
    chains = "1 chain was" if summary.n_chains == 1 else f"{summary.n_chains} chains were"
    lines[-1] += f"; {chains} in it"
    texts = [line for text in summary.texts for line in wrap(text, 60)]
    return "\n".join([*lines, f"distinctive words: {', '.join(summary.words)}", *texts])


def plot_basin_trajectory(
    snapshots: Snapshots, vectors: NDArray[np.float32], basin_of: NDArray[np.int64]
) -> Chart:
    """The texts in the plane of their main directions, the chain that saw the most basins first."""
    from glauber.interfaces.plots.landscape import plot_trajectory
    from glauber.studies.landscape.trajectory import trajectory_in_plane

    plane = trajectory_in_plane(vectors, snapshots.steps, snapshots.texts)
    most = max(range(snapshots.n_chains), key=lambda chain: len(set(basin_of[chain])))
    return plot_trajectory(plane, chain=most)


def plot_implied_timescales(timescales: ImpliedTimescales, lag: int | None = None) -> Chart:
    """Each timescale against the lag, both in steps, with intervals over chains.

    Below the diagonal a timescale is shorter than the lag and cannot be seen. lag marks the one
    that the model uses.
    """
    steps, lags = timescales.steps, timescales.lags
    known = steps.value[np.isfinite(steps.value) & (steps.value > 0)]
    bottom = float(min(known.min(initial=lags[0]), lags[0])) / 1.4
    top = float(max(known.max(initial=lags[-1]), lags[-1])) * 1.6
    first, last = float(lags[0]) / 1.15, float(lags[-1]) * 1.15
    interval = "too few chains for intervals" if steps.low is None else "bars: 95%, over chains"
    chart = Chart(
        "Implied timescales",
        f"in steps (estimates; {interval}). "
        "Level lines support the Markov model. Shaded: shorter than the lag, not measurable",
        x=dict(
            title="lag in steps", type="log", dtick="D2", range=np.log10([first, last]).tolist()
        ),
        y=dict(type="log", tickformat=",.0f", dtick="D2", range=np.log10([bottom, top]).tolist()),
        height=380,
        showlegend=False,
    )
    shade = dict(fill="toself", mode="lines", fillcolor=FAINT, line=dict(width=0))
    chart.add_scatter(
        x=[first, last, last, first], y=[first, last, bottom, bottom], hoverinfo="skip", **shade
    )
    for number in range(steps.value.shape[1]):
        color, values = COLOURS[number % len(COLOURS)], steps.value[:, number]
        name = f"timescale {number + 1}"
        hover = f"{name}, lag %{{customdata:,}}: %{{y:,.0f}} steps"
        bars = None
        if steps.low is not None and steps.high is not None:
            low, high = steps.low[:, number], steps.high[:, number]
            clear = np.isfinite(low) & np.isfinite(high) & (low > 0)
            low, high = (np.where(clear, end, values) for end in (low, high))
            bars = ends(values, low, high) | dict(thickness=1.2, width=0)
        shifted = lags * 1.02 ** (number - (steps.value.shape[1] - 1) / 2)  # bars side by side
        chart.line(
            shifted, values, name, hover, dots=True, color=color, error=bars, customdata=lags
        )
    if lag is not None:
        chart.rule(x=lag, dash="dot", width=1.5)
        where = dict(yref="paper", xanchor="left", yanchor="top", xshift=4)
        chart.note(np.log10(lag), 1, f"lag {lag:,}", font=dict(color=QUIET), **where)
    return chart


def plot_regimes(regimes: Sequence[Regime]) -> Chart:
    """Three shares against the temperature, on a logarithmic axis."""
    temperatures = [each.temperature for each in regimes]
    chart = Chart(
        "Frozen, wandering, noise",
        "shares in the second half of each run, against the temperature",
        x=dict(title="temperature", type="log", tickvals=temperatures, tickformat="~g"),
        y=SHARE,
        height=420,
        legend="below",
    )
    for name, field, color, dash in REGIMES:
        values = [getattr(each, field) for each in regimes]
        hover = f"temperature %{{x}}: {name} %{{y:.1%}}"
        chart.line(temperatures, values, name, hover, dots=True, color=color, dash=dash)
    return chart


def plot_margins(result: "MarginStudy") -> Chart:
    """The gap of each token, and how many redraws of its site it outlasts on average."""
    places = list(range(len(result.tokens)))
    chart = Chart(
        "How firmly each token is held",
        f"gap to the best other token; mean holding time of the text at temperature "
        f"{result.temperature:g}: {result.holding_text}",
        x=dict(tickvals=places, ticktext=result.tokens, tickangle=-45),
        y=dict(title="gap (score)"),
        legend="below",
        yaxis2=dict(
            overlaying="y", side="right", title="redraws, power of ten", showgrid=False, nticks=5
        ),
    )
    powers = -result.margins.log_leaving / np.log(10)  # logarithms: float64 has no number for some
    chances = [[format_log(log), format_log(-log)] for log in result.margins.log_leaving]
    chart.columns(
        places,
        result.margins.gaps,
        "gap; grey: another token is likelier",
        "%{text}: gap %{y:.3f}\na redraw changes it with probability %{customdata[0]}",
        text=result.tokens,
        color=[BLUE if gap > 0 else QUIET for gap in result.margins.gaps],
        customdata=chances,
    )
    chart.dots(
        places,
        np.where(np.isfinite(powers), powers, np.nan),
        "redraws until it changes, on average (right)",
        "%{customdata[1]} redraws",
        color=INK,
        symbol="line-ew-open",
        size=14,
        trace=dict(customdata=chances, yaxis="y2"),
    )
    return chart


def plot_quoted_traps(result: "QuotedTraps") -> Chart:
    """The mean gap of each quoted trap on this model, next to the published one."""
    traps = [(each.published, each.ours) for each in result.traps][::-1]
    names = [quote.name for quote, _ in traps]
    chart = Chart(
        "Traps that the paper quotes",
        f"mean gap of each text on {result.model}, and as published for BERT",
        x=dict(title="mean gap (score)"),
        y=dict(type="category", automargin=True, dtick=1),
        height=150 + ROW * max(len(traps), 4),
    )
    chart.columns(
        [ours.mean_gap for _, ours in traps],
        names,
        f"{result.model}; grey: another token is likelier somewhere",
        "%{y}: mean gap %{x:.2f}",
        horizontal=True,
        color=[BLUE if ours.margins.perfect else QUIET for _, ours in traps],
    )
    known = [(quote.mean_gap, quote.name) for quote, _ in traps if quote.mean_gap is not None]
    chart.dots(
        [gap for gap, _ in known],
        [name for _, name in known],
        "published",
        "%{y}: published mean gap %{x:.2f}",
        color=AMBER,
        size=10,
        symbol="line-ns-open",
    )
    return chart


def plot_drift(result: "DriftStudy") -> Chart:
    """Expected change of the number of copies, state by state, at each number of copies."""
    note = (
        "no certificate: some states fall"
        if result.descent is None
        else f"probability of coming down at most {result.descent:.3g} ({result.kind})"
    )
    counts = [level.count for level in result.levels]
    chart = Chart(
        f"Expected change of the number of copies of {result.token}",
        f"in one step at temperature {result.temperature:g}; {note}",
        x=dict(title="copies", tickvals=counts),
        y=dict(title="expected change"),
        legend="below",
    )
    for level in result.levels:
        values = level.drifts[:MOST_STATES]
        spread = np.linspace(-0.2, 0.2, len(values)) if len(values) > 1 else np.zeros(1)
        chart.dots(
            level.count + spread,
            values,
            "a sampled state",
            f"{level.count} copies: %{{y:.4f}}",
            color=BLUE,
            size=4,
            opacity=0.4,
            trace=dict(showlegend=level is result.levels[0]),
        )
    medians = [level.median for level in result.levels]
    chart.line(counts, medians, "median", "%{x} copies: median %{y:.4f}", dots=True, color=QUIET)
    name = f"the smallest, which the bound rests on: {result.epsilon:.4f}"
    chart.rule(name, y=result.epsilon, dash="dot")
    chart.rule(y=0, color=INK, width=1)
    return chart
