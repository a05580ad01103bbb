"""When was a chain stuck, between which basins does it go, and what does temperature change?"""

from collections.abc import Sequence
from html import escape
from textwrap import shorten, wrap

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import FAINT, QUIET, SHARES, STRONG, empty_figure
from glauber.metastability.basin_model import BasinModel
from glauber.metastability.basins import written
from glauber.metastability.catalogue import Catalogue
from glauber.metastability.clusters import Readable
from glauber.metastability.regimes import Regime
from glauber.metastability.state_model import ImpliedTimescales
from glauber.metastability.trap_census import Trap
from glauber.metastability.trap_ranks import RankCorrelation
from glauber.result import counted
from glauber.runs.snapshots import Snapshots

LOOSE = "#e69f00"
ROW = 22  # pixels of a chain
TICKS = [digit * 10**power for power in range(7) for digit in (1, 2, 5)]
KINDS = ((True, "perfect", STRONG), (False, "approximate", LOOSE))
# Those of Okabe and Ito that show on white, and two more.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b7280", "#882255",
)  # fmt: skip
WIDEST = 9.0  # pixels of the busiest arrow
LARGEST = 74.0  # pixels across a basin that is the whole distribution
BULGE = 0.16  # how far an arrow bends, so that the way back has its own
REGIMES = (
    ("steps that change a token", "changed", STRONG, "solid"),
    ("steps within a trap", "stuck", LOOSE, "dash"),
    ("start tokens kept to the end", "kept", QUIET, "dot"),
)


def plot_trap_timeline(found: Catalogue) -> go.Figure:
    """A row per chain with its traps as bars; the text appears under the pointer."""
    grey = "<br>grey: no whole window left" if "window" in found.settings else ""
    figure = empty_figure(
        "When chains were stuck",
        f"{counted(len(found.traps), 'trap')} of {counted(found.n_chains, 'chain')}, "
        f"{found.detector} detector, {found.at_temperature}{grey}",
    )
    top = 106 if grey else 86
    height = top + 64 + ROW * max(found.n_chains, 4)
    figure.update_layout(
        height=height, margin_t=top, title_y=1 - 12 / height, barmode="overlay", bargap=0.25
    )
    figure.update_xaxes(range=[0, found.n_steps])
    figure.update_yaxes(
        title=dict(text="chain", font_size=13), range=[found.n_chains - 0.5, -0.5],
        rangemode="normal", tickformat="d", dtick=max(1, found.n_chains // 10), showgrid=False,
    )  # fmt: skip
    unseen = int(found.settings.get("window", 0))  # no whole window follows these steps
    if unseen:
        figure.add_vrect(
            x0=found.n_steps - unseen, x1=found.n_steps, fillcolor=FAINT, line_width=0,
            layer="below",
        )  # fmt: skip
    for chain in range(found.n_chains):
        figure.add_hline(y=chain, line=dict(color=FAINT, width=1), layer="below")
    for perfect, name, colour in KINDS:
        traps = [trap for trap in found.traps if trap.perfect == perfect]
        figure.add_bar(
            y=[trap.episode.chain for trap in traps],
            x=[trap.duration for trap in traps],
            base=[trap.episode.first for trap in traps],
            orientation="h",
            marker=dict(color=colour, line=dict(color="white", width=1)),
            name=f"{name} ({len(traps)})",
            showlegend=True,
            ids=[_moment(trap) for trap in traps],
            customdata=[_hover(trap) for trap in traps],
            hovertemplate="%{customdata}<extra></extra>",
        )
    return figure


def plot_gaps_against_duration(found: Catalogue) -> go.Figure:
    """Each trap's duration against its mean gap and against its smallest gap."""
    summary = found.summary()
    figure = empty_figure(
        "Do firm texts hold longer?",
        "duration in steps against the gaps of the trap's text<br>"
        f"rank correlation: mean gap {_figure(summary.by_mean_gap)}, min gap "
        f"{_figure(summary.by_min_gap)}",
    )
    height = 420
    figure.update_layout(height=height, margin_t=120, title_y=1 - 12 / height)
    figure.update_xaxes(title_text="gap in units of score", tickformat="", rangemode="normal")
    figure.update_yaxes(
        type="log", title=dict(text="steps", font_size=13, standoff=8), tickformat=",d",
        tickvals=TICKS, rangemode="normal", automargin=True,
    )  # fmt: skip
    for name, gaps, colour, symbol in (
        ("mean gap", [trap.mean_gap for trap in found.traps], STRONG, "circle"),
        ("min gap", [trap.min_gap for trap in found.traps], LOOSE, "diamond-open"),
    ):
        figure.add_scatter(
            x=gaps,
            y=[trap.duration for trap in found.traps],
            mode="markers",
            marker=dict(color=colour, size=8, symbol=symbol),
            name=name,
            ids=[_moment(trap) for trap in found.traps],
            customdata=[_hover(trap) for trap in found.traps],
            hovertemplate=f"{name} %{{x:.2f}}<br>%{{customdata}}<extra></extra>",
        )
    figure.add_vline(x=0, line=dict(color=QUIET, width=1, dash="dot"))
    return figure


def _moment(trap: Trap) -> str:
    """Where a click on a trap leads in a page with a player."""
    return f"chain {trap.episode.chain} step {trap.episode.first}"


def _hover(trap: Trap) -> str:
    """The text in lines of a readable width, and the trap's figures."""
    when, text, gaps, *_ = trap.lines()
    return "<br>".join(_plain(line) for line in (*wrap(text, 60), when, gaps))


def _figure(found: RankCorrelation | None) -> str:
    if found is None:
        return "unknown"
    ends = found.interval
    return f"{found.value:.2f}" + (f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends else "")


def plot_basin_network(found: BasinModel, readable: Sequence[Readable] | None = None) -> go.Figure:
    """Basins as circles, as large as their stationary share, with arrows as wide as their traffic.

    The words at a circle are its most central text; a touch shows more texts and its words.
    """
    figure = empty_figure(
        "The basins, and the ways between them",
        "area: share of the stationary distribution; width: traffic; in words:<br>"
        f"the most central text (estimates, lag {found.model.lag_steps:,} steps)",
    )
    figure.update_layout(height=520, margin=dict(l=14, r=14, t=104, b=30), showlegend=False)
    figure.update_xaxes(visible=False, range=[-1.75, 1.75], rangemode="normal")
    figure.update_yaxes(visible=False, range=[-1.6, 1.65], rangemode="normal")
    places = _circle(found.n_basins)
    traffic = _traffic(found)
    for a, b in zip(*np.nonzero(traffic > 0), strict=True):
        _arrow(figure, found, (int(a), int(b)), places, traffic)
    _circles(figure, found, readable, places)
    return figure


def _circle(n: int) -> NDArray[np.float64]:
    """Places (n, 2) on the unit circle; two stand side by side."""
    angles = np.pi * (1.0 if n == 2 else 0.5) - 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _traffic(found: BasinModel) -> NDArray[np.float64]:
    """Share of the moves of one lag that go from basin to basin: (basins, basins)."""
    members = np.eye(found.n_basins)[found.sets.assignment]
    flow = members.T @ (found.model.stationary[:, None] * found.model.matrix) @ members
    np.fill_diagonal(flow, 0.0)
    return np.asarray(flow)


def _arrow(
    figure: go.Figure,
    found: BasinModel,
    pair: tuple[int, int],
    places: NDArray[np.float64],
    traffic: NDArray[np.float64],
) -> None:
    """A bent line from one basin to the other, with its head in the middle."""
    a, b = (places[end] for end in pair)
    share = traffic[pair] / traffic.max()
    across = np.array([b[1] - a[1], a[0] - b[0]])
    bend = np.linspace(0, 1, 31)[:, None]
    line = a + bend * (b - a) + 4 * bend * (1 - bend) * BULGE * across
    colour = COLOURS[pair[0] % len(COLOURS)]
    passage = written(found.passages.at(pair), ",.0f")
    hover = f"from {pair[0]} to {pair[1]}: mean first passage {passage} steps"
    figure.add_scatter(
        x=line[:, 0], y=line[:, 1], mode="lines", opacity=0.25 + 0.6 * share,
        line=dict(color=colour, width=0.8 + WIDEST * share), hoverinfo="text", text=hover,
    )  # fmt: skip
    head, behind = line[17], line[14]
    figure.add_annotation(
        x=head[0], y=head[1], ax=behind[0], ay=behind[1], axref="x", ayref="y", text="",
        arrowhead=2, arrowsize=1, arrowwidth=1.5 + 2 * share, arrowcolor=colour,
    )  # fmt: skip


def _circles(
    figure: go.Figure,
    found: BasinModel,
    readable: Sequence[Readable] | None,
    places: NDArray[np.float64],
) -> None:
    shares = found.shares.value
    sizes = np.maximum(22.0, LARGEST * np.sqrt(shares))
    figure.add_scatter(
        x=places[:, 0],
        y=places[:, 1],
        mode="markers+text",
        marker=dict(
            size=sizes,
            color=[COLOURS[k % len(COLOURS)] for k in range(len(shares))],
            opacity=1,
            line=dict(color="white", width=2),
        ),
        text=[str(basin) for basin in range(len(shares))],
        textfont=dict(color="white", size=14),
        hovertext=[_basin_hover(found, readable, basin) for basin in range(len(shares))],
        hoverinfo="text",
    )
    for basin, (x, y) in enumerate(places):
        text = "" if readable is None else shorten(readable[basin].texts[0], 66, placeholder=" …")
        lines = [f"<b>{shares[basin]:.0%}</b>", *map(_plain, wrap(text, 24))]
        up = y > 0.6
        figure.add_annotation(
            x=x, y=y, text="<br>".join(lines), showarrow=False, font=dict(size=12, color=QUIET),
            bgcolor="rgba(255, 255, 255, 0.7)", yanchor="bottom" if up else "top",
            yshift=(1 if up else -1) * (sizes[basin] / 2 + 4),
        )  # fmt: skip


def _basin_hover(found: BasinModel, readable: Sequence[Readable] | None, basin: int) -> str:
    share = found.shares.value[basin]
    heading = f"basin {basin}: {share:.0%} of the stationary distribution of the connected part"
    heading += f",<br>which holds {found.model.share:.0%} of the transitions"
    if readable is None:
        return heading
    own = readable[basin]
    texts = ["<br>".join(map(_plain, wrap(text, 60))) for text in own.texts]
    words = f"words that tell it apart: {', '.join(map(_plain, own.words))}"
    seen = "1 chain was" if own.n_chains == 1 else f"{own.n_chains} chains were"
    return "<br>".join([f"{heading}; {seen} in it", words, *texts])


def _plain(text: str) -> str:
    """The text as plotly shows it letter by letter, quotation marks too."""
    return escape(text, quote=False)


def plot_basin_trajectory(
    snapshots: Snapshots, vectors: NDArray[np.float32], basin_of: NDArray[np.int64]
) -> go.Figure:
    """The texts in the plane of their main directions, the chain that saw the most basins first."""
    from glauber.figures.trajectory import plot_trajectory
    from glauber.landscape.trajectory import trajectory_in_plane

    plane = trajectory_in_plane(vectors, snapshots.steps, snapshots.texts)
    most = max(range(snapshots.n_chains), key=lambda chain: len(set(basin_of[chain])))
    return plot_trajectory(plane, chain=most)


def plot_implied_timescales(found: ImpliedTimescales, *, lag: int | None = None) -> go.Figure:
    """Each timescale against the lag, both in steps, with bands over chains.

    Below the diagonal a timescale is shorter than the lag and cannot be seen. lag marks the one
    that the model uses.
    """
    alone = found.steps.low is None
    band = "too few chains for bands" if alone else "bands: 95%, over chains"
    figure = empty_figure(
        "How slow the slowest motions are",
        f"implied timescales in steps (estimates; {band}).<br>"
        "Level lines speak for the model. Shaded: shorter than the lag, so it cannot be measured",
    )
    figure.update_layout(height=400, margin_t=112, margin_l=64, showlegend=False)
    figure.update_xaxes(title_text="lag in steps", type="log", rangemode="normal", dtick="D2")
    figure.update_yaxes(type="log", rangemode="normal", tickformat=",.0f", dtick="D2")
    _shade(figure, found)
    for place in range(found.steps.value.shape[1]):
        _add(figure, found, place)
    if lag is not None:
        figure.add_vline(x=lag, line=dict(color=QUIET, width=1.5, dash="dot"))
        figure.add_annotation(
            x=np.log10(lag), y=1, yref="paper", text=f"lag {lag:,}", showarrow=False,
            xanchor="left", yanchor="top", xshift=4, font_color=QUIET,
        )  # fmt: skip
    return figure


def _shade(figure: go.Figure, found: ImpliedTimescales) -> None:
    lags, values = found.lags, found.steps.value[np.isfinite(found.steps.value)]
    seen = values[values > 0]
    bottom = float(min(seen.min(initial=lags[0]), lags[0])) / 1.4
    top = float(max(seen.max(initial=lags[-1]), lags[-1])) * 1.6
    ends = [lags[0] / 1.15, lags[-1] * 1.15]
    figure.update_yaxes(range=[np.log10(bottom), np.log10(top)])
    figure.update_xaxes(range=np.log10(ends).tolist())
    figure.add_scatter(
        x=[*ends, ends[1], ends[0]], y=[*ends, bottom, bottom], fill="toself", mode="lines",
        line=dict(width=0), fillcolor=FAINT, hoverinfo="skip",
    )  # fmt: skip


def _add(figure: go.Figure, found: ImpliedTimescales, place: int) -> None:
    colour = COLOURS[place % len(COLOURS)]
    if found.steps.low is not None and found.steps.high is not None:
        low, high = found.steps.low[:, place], found.steps.high[:, place]
        there = np.isfinite(low) & np.isfinite(high) & (low > 0)
        figure.add_scatter(
            x=np.concatenate([found.lags[there], found.lags[there][::-1]]),
            y=np.concatenate([high[there], low[there][::-1]]),
            fill="toself", mode="lines", line=dict(width=0), fillcolor=colour, opacity=0.14,
            hoverinfo="skip",
        )  # fmt: skip
    figure.add_scatter(
        x=found.lags,
        y=found.steps.value[:, place],
        mode="lines+markers",
        line=dict(color=colour, width=2.5),
        name=f"timescale {place + 1}",
        hovertemplate="lag %{x:,}: %{y:,.0f} steps<extra>%{fullData.name}</extra>",
    )


def plot_regimes(found: Sequence[Regime]) -> go.Figure:
    """Three shares against the temperature, on a logarithmic axis."""
    figure = empty_figure(
        "Frozen, wandering, noise",
        "shares in the second half of each run, against the temperature",
    )
    height = 420
    figure.update_layout(height=height, margin_t=120, title_y=1 - 12 / height)
    temperatures = [each.temperature for each in found]
    figure.update_xaxes(
        type="log", title_text="temperature", rangemode="normal", tickvals=temperatures
    )
    figure.update_xaxes(tickformat="~g")
    figure.update_yaxes(tickformat=".0%", range=SHARES)
    for name, field, colour, dash in REGIMES:
        figure.add_scatter(
            x=temperatures,
            y=[getattr(each, field) for each in found],
            mode="lines+markers",
            line=dict(color=colour, width=2.5, dash=dash),
            name=name,
            hovertemplate=f"temperature %{{x}}: {name} %{{y:.1%}}<extra></extra>",
        )
    return figure
