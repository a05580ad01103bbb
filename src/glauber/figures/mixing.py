"""Which token sways which, when do two chains meet, and has a run mixed?"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import FAINT, INK, QUIET, STRONG, THIN, add_token_map, bars, empty_figure
from glauber.mixing.influence import AveragedInfluence, InfluenceMatrix
from glauber.mixing.meeting import UNKNOWN, Meetings
from glauber.mixing.phase import PhaseCell, PhaseDiagram
from glauber.result import counted
from glauber.statistics import MIN_CHAINS, mean_over_chains
from glauber.statistics.means import mean_ends, tail_probability

SHADE = "rgba(0, 114, 178, 0.18)"
MOMENTS = 500  # more points than this no screen shows
ROW = 60  # pixels of a length
EDGE = "#d55e00"

Floats = NDArray[np.float64]


def plot_influence(influence: InfluenceMatrix, words: Sequence[str]) -> go.Figure:
    """The matrix c_ij as a heat map: a column is the token that changes, a row the one that feels.

    words holds the n tokens as they are spelled. The column of alpha is marked.
    """
    n = len(words)
    figure = empty_figure("Which token sways which", _influence_says(influence))
    add_token_map(
        figure,
        influence.total_variation,
        words,
        hover=[[f"{mover} → {felt}" for mover in words] for felt in words],
        across="the token that is replaced",
        down="the token whose law changes",
    )
    strongest = int(influence.column_sums.argmax())
    figure.add_shape(
        type="rect", x0=strongest - 0.5, x1=strongest + 0.5, y0=-0.5, y1=n - 0.5,
        line=dict(color=EDGE, width=2),
    )  # fmt: skip
    return figure


def _influence_says(influence: InfluenceMatrix) -> str:
    kind = "" if influence.kind == "exact" else f" ({influence.kind})"
    return (
        f"largest total variation when one token changes{kind}<br>temperature "
        f"{influence.temperature:g}; framed: the largest column sum, {influence.alpha:.2f}"
    )


def plot_averaged_influence(averages: Sequence[AveragedInfluence]) -> go.Figure:
    """The mean influence against temperature, with 95% intervals over chains."""
    rows = sorted(averages, key=lambda one: one.temperature)
    means = [mean_over_chains(one.per_chain, bounds=(0.0, np.inf)) for one in rows]
    figure = empty_figure(
        "Influence met on average along a chain",
        "what one changed token does to all others together; below 1 disagreement shrinks",
    )
    figure.update_xaxes(title_text="temperature", tickformat="~g")
    figure.update_yaxes(title=dict(text="summed total variation", font_size=13))
    figure.add_scatter(
        x=[one.temperature for one in rows],
        y=[one.mean for one in rows],
        error_y=bars(means) | dict(color=QUIET),
        mode="lines+markers",
        line=dict(color=STRONG, width=2.5),
        showlegend=False,
        hovertemplate="temperature %{x:g}: %{y:.3f}<extra></extra>",
    )
    figure.add_hline(y=1, line=dict(color=QUIET, width=1.5, dash="dot"))
    return figure


def plot_distance(meetings: Meetings, contraction: Floats | None = None) -> go.Figure:
    """The mean Hamming distance of the pairs against time, and the contraction bound.

    contraction (moments,) is what `Meetings.contraction` gives, or None.
    """
    n = len(meetings.met)
    figure = empty_figure(
        "How far apart the pairs are",
        f"mean Hamming distance over {n} pairs, {meetings.coupling} coupling; "
        f"{int(meetings.met.sum())} of {n} met",
    )
    mean = meetings.mean_distance
    low, high = _distance_ends(meetings)
    if np.isfinite(low).any():
        _add_band(figure, meetings.moments, _or(low, mean), _or(high, mean), "95%, pointwise")
    _add_line(figure, meetings.moments, mean, "mean distance", number=".2f")
    if contraction is not None:
        _add_line(
            figure, meetings.moments, contraction, "contraction bound", number=".2f", dash="dash"
        )
    figure.update_xaxes(range=[0, meetings.moments[-1]])
    figure.update_yaxes(title=dict(text="sites that differ", font_size=13))
    return figure


def _distance_ends(meetings: Meetings) -> tuple[Floats, Floats]:
    """The interval of the mean distance (moments,); nan where fewer than three pairs reach.

    No mean is taken to lie above the largest distance that any pair had.
    """
    known = meetings.distances != UNKNOWN
    low, high = np.full((2, len(meetings.moments)), np.nan)
    for count in np.unique(known.sum(axis=0)):
        at = known.sum(axis=0) == count
        pairs = meetings.distances[known[:, at].all(axis=1)][:, at].T.astype(np.float64)
        if count >= MIN_CHAINS:
            low[at], high[at] = mean_ends(
                pairs, tail_probability(), (0.0, float(meetings.distances.max()))
            )
    return low, high


def _or(ends: Floats, mean: Floats) -> Floats:
    return np.where(np.isnan(ends), mean, ends)


def plot_total_variation(meetings: Meetings, *, epsilon: float = 0.25) -> go.Figure:
    """The estimated bound on the distance to the stationary law against time, with its band."""
    last = int(meetings.times.max()) - meetings.lag
    steps = np.arange(0, last + 1, max(1, math.ceil(last / MOMENTS)))
    subtitle = f"estimated bound on total variation, lag {meetings.lag}; dotted: {epsilon:g}"
    name = "bound"
    if meetings.n_censored:
        steps = steps[steps < max(1, last)]  # beyond the last step nothing is known
        censored = f"{meetings.n_censored} of {len(meetings.met)} pairs did not meet"
        subtitle += f"<br>{censored}: it lies higher"
        name = "lower estimate of the bound"
    figure = empty_figure("How near the chain is to its stationary law", subtitle)
    figure.update_layout(margin_t=86 + 20 * bool(meetings.n_censored))
    bound = meetings.tv_bound(steps)
    if not meetings.n_censored:
        low, high = np.minimum(bound.low, 1), np.minimum(bound.high, 1)
        _add_band(figure, steps, low, high, "95%, pointwise")
    # Total variation is never above 1, whatever the bound says.
    _add_line(figure, steps, np.minimum(bound.value, 1), name, number=".3f")
    figure.update_layout(showlegend=True)
    figure.add_hline(y=epsilon, line=dict(color=QUIET, width=1, dash="dot"))
    figure.update_xaxes(range=[0, max(1, last)])
    figure.update_yaxes(range=[0, 1.03], title=dict(text="total variation", font_size=13))
    return figure


def _add_line(
    figure: go.Figure, steps: NDArray[np.int64], values: Floats, name: str, *, number: str,
    dash: str = "solid",
) -> None:  # fmt: skip
    colour, width = (STRONG, 2.5) if dash == "solid" else (INK, 1.5)
    figure.add_scatter(
        x=steps, y=values, mode="lines", name=name,
        line=dict(color=colour, width=width, dash=dash),
        hovertemplate=f"step %{{x:,}}: %{{y:{number}}}<extra>{name}</extra>",
    )  # fmt: skip


def _add_band(
    figure: go.Figure, steps: NDArray[np.int64], low: Floats, high: Floats, name: str
) -> None:
    figure.add_scatter(
        x=np.concatenate([steps, steps[::-1]]), y=np.concatenate([high, low[::-1]]),
        fill="toself", fillcolor=SHADE, line=dict(width=0), name=name, hoverinfo="skip",
    )  # fmt: skip


def plot_phase(diagram: PhaseDiagram) -> go.Figure:
    """The share of pairs that met, (length, temperature), with the boundary drawn over it."""
    temperatures, lengths = diagram.temperatures, diagram.lengths
    cells = [[diagram.cell(t, n) for t in temperatures] for n in lengths]
    limits = sorted({cell.steps for cell in diagram.cells})
    within = f"{limits[0]:,}" if len(limits) == 1 else f"{limits[0]:,} to {limits[-1]:,}"
    figure = empty_figure(
        "Where two chains meet",
        f"share of pairs that met within {within} steps, and their median time where half did",
    )
    figure.add_heatmap(
        x=list(range(len(temperatures))),
        y=list(range(len(lengths))),
        z=[[np.nan if cell is None else cell.share for cell in row] for row in cells],
        text=[[_label(cell) for cell in row] for row in cells],
        customdata=[[_hover(cell) for cell in row] for row in cells],
        texttemplate="%{text}",
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=False,
        zmin=0,
        zmax=1,
        colorscale=[[0, "white"], [1, STRONG]],
        xgap=1,
        ygap=1,
        colorbar=dict(
            title=dict(text="share met", side="right", font=dict(color=QUIET, size=13)),
            thickness=12,
            outlinecolor=FAINT,
            tickformat=".0%",
        ),
    )
    _boundary(figure, diagram)
    height = ROW * len(lengths) + 190
    figure.update_layout(height=height, title_y=1 - 12 / height, plot_bgcolor=FAINT)
    _ticks(figure.update_xaxes, [f"{t:g}" for t in temperatures], "temperature")
    _ticks(figure.update_yaxes, [str(n) for n in lengths], "tokens")
    return figure


def plot_forgetting(diagram: PhaseDiagram) -> go.Figure:
    """The step at which each pair met, over temperature; pairs that did not are at their last."""
    figure = empty_figure(
        "How long two chains remember where they began",
        f"steps until coupled chains meet, {' and '.join(map(str, diagram.lengths))} tokens; "
        "line: median, where half have met",
    )
    figure.update_xaxes(type="log", title_text="temperature", rangemode="normal")
    figure.update_xaxes(tickvals=diagram.temperatures)
    figure.update_yaxes(
        type="log", title=dict(text="steps", font_size=13), tickformat=",d", dtick=1
    )
    for met, name, symbol in ((True, "met", "circle"), (False, "not by then", "triangle-up-open")):
        rows = [(c.temperature, t) for c in diagram.cells
                for t, m in zip(c.times, c.met, strict=True) if m == met]  # fmt: skip
        figure.add_scatter(
            x=[t for t, _ in rows], y=[step for _, step in rows], mode="markers", name=name,
            marker=dict(color=THIN if met else INK, size=6, symbol=symbol),
            hovertemplate=f"temperature %{{x:g}}: {name}, step %{{y:,}}<extra></extra>",
        )  # fmt: skip
    for n in diagram.lengths:
        found = [(t, diagram.cell(t, n)) for t in diagram.temperatures]
        medians = [(t, cell.median.value) for t, cell in found if cell is not None]
        figure.add_scatter(
            x=[t for t, _ in medians], y=[m for _, m in medians], mode="lines+markers",
            line=dict(color=STRONG, width=2.5), name="median",
            hovertemplate="temperature %{x:g}: median step %{y:,}<extra></extra>",
        )  # fmt: skip
    return figure


def _boundary(figure: go.Figure, diagram: PhaseDiagram) -> None:
    """The crossover of each length with its interval, placed between the columns."""
    shown = [c for c in diagram.crossovers if c.temperature is not None]
    if not shown:
        return
    columns = np.arange(len(diagram.temperatures))
    logs = np.log(diagram.temperatures)

    def place(temperature: float | None, beyond: float) -> float:
        """An open end reaches the edge of the picture."""
        return float(np.interp(np.log(temperature), logs, columns)) if temperature else beyond

    middles = [place(c.temperature, 0) for c in shown]
    edge = len(columns) - 0.5
    ends = [(place(c.interval[0], -0.5), place(c.interval[1], edge)) for c in shown]
    figure.add_scatter(
        x=middles,
        y=[diagram.lengths.index(c.length) for c in shown],
        error_x=dict(
            array=[high - x for x, (_, high) in zip(middles, ends, strict=True)],
            arrayminus=[x - low for x, (low, _) in zip(middles, ends, strict=True)],
            color=EDGE,
            thickness=2,
        ),
        mode="lines+markers",
        line=dict(color=EDGE, width=2.5),
        marker=dict(size=8),
        name="half of the pairs meet (95% interval)",
        customdata=[c.temperature for c in shown],
        hovertemplate="half meet at temperature %{customdata:.3g}<extra></extra>",
        showlegend=True,
    )


def _ticks(update: Callable[..., Any], labels: list[str], title: str) -> None:
    n = len(labels)
    update(tickmode="array", tickvals=list(range(n)), ticktext=labels, showgrid=False)
    update(range=[-0.5, n - 0.5], rangemode="normal", title=dict(text=title, font_size=13))


def _label(cell: PhaseCell | None) -> str:
    if cell is None:
        return ""
    median = cell.median.value
    time = "" if median is None else f"<br>{median:,.0f} steps"
    return f"{sum(cell.met)} of {len(cell.met)}{time}"


def _hover(cell: PhaseCell | None) -> str:
    if cell is None:
        return ""
    median = cell.median
    time = "beyond the steps" if median.value is None else f"{median.value:,.0f} steps"
    low, high = cell.interval
    return (
        f"temperature {cell.temperature:g}, {cell.length} tokens<br>"
        f"{sum(cell.met)} of {len(cell.met)} met (95%: {low:.0%} to {high:.0%})<br>"
        f"median time {time}"
    )


def plot_statistics(values: Mapping[str, Floats], steps: NDArray[np.int64]) -> dict[str, go.Figure]:
    """Each statistic (chains, draws) of the text along the run, a line for each chain."""
    found = {}
    shown = slice(None, None, max(1, math.ceil(len(steps) / MOMENTS)))
    for name, rows in values.items():
        figure = empty_figure(
            f"{name} along the chains", f"{counted(len(rows), 'chain')}, behind the burn-in"
        )
        figure.update_xaxes(rangemode="normal")
        figure.update_yaxes(rangemode="normal", tickformat="~g")
        for chain, row in enumerate(rows):
            figure.add_scatter(
                x=steps[shown], y=row[shown], mode="lines", line_width=1, name=f"chain {chain}",
                hovertemplate=f"chain {chain}, step %{{x:,}}: %{{y:.4g}}<extra></extra>",
            )  # fmt: skip
        found[name] = figure
    return found


def plot_estimates(values: Floats, name: str) -> go.Figure:
    """Estimates (pairs,) of one stationary mean, with their own mean and its 95% interval."""
    found = mean_over_chains(values)
    figure = empty_figure(
        f"Stationary mean of {name}",
        f"{len(values):,} independent estimates, one a pair; line: their mean {found.value:.4g}",
    )
    figure.update_xaxes(title_text="pair", rangemode="normal")
    figure.update_yaxes(rangemode="normal", tickformat="~g")
    if found.interval is not None:
        low, high = found.interval
        figure.add_hrect(y0=low, y1=high, fillcolor=SHADE, line_width=0)
    figure.add_hline(y=found.value, line=dict(color=STRONG, width=2))
    figure.add_scatter(
        x=np.arange(len(values)), y=values, mode="markers", marker=dict(color=THIN, size=6),
        showlegend=False, hovertemplate="pair %{x}: %{y:.4g}<extra></extra>",
    )  # fmt: skip
    return figure
