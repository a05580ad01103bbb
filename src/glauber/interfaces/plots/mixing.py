"""Charts of influence, coupled chains, diagnostics, and the distance from the start."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from plotly.colors import sample_colorscale

from glauber.foundation.statistics import MIN_CHAINS, Estimate, mean_over_chains
from glauber.foundation.statistics.means import mean_ends, tail_probability
from glauber.foundation.study import counted
from glauber.interfaces.plots.chart import (
    AMBER,
    BLUE,
    COLD_TO_HOT,
    COLOURS,
    FAINT,
    INK,
    ORANGE,
    QUIET,
    STEP,
    THIN,
    Axis,
    Chart,
    bars,
    ends,
    token_map,
    transparent,
)
from glauber.studies.mixing.coherence import Coherence
from glauber.studies.mixing.growing_margin import MarginAndTime
from glauber.studies.mixing.growth import Growth
from glauber.studies.mixing.influence import AveragedInfluence, InfluenceMatrix
from glauber.studies.mixing.meeting import UNKNOWN, Meetings
from glauber.studies.mixing.phase import PhaseCell, PhaseDiagram
from glauber.studies.mixing.scaling import Scaling
from glauber.studies.mixing.semantic_drift import (
    DriftDistances,
    HittingTimes,
    Saturation,
    SaturationFit,
)

MOMENTS = 500  # more points than this no screen shows
ROW = 64  # pixels of a length
STEPS = dict(title="steps", type="log", tickformat=",d", dtick=1)
LAWS = {
    "n": (AMBER, "dash"),
    "n log n": (BLUE, "solid"),
    "n^2": (ORANGE, "dot"),
    "log n": (INK, "solid"),
    "n^b": (ORANGE, "dot"),
}
MET = ((True, "met", "circle"), (False, "not by then", "triangle-up-open"))

Floats = NDArray[np.float64]


def plot_influence(influence: InfluenceMatrix, tokens: Sequence[str]) -> Chart:
    """The matrix c_ij as a heat map: columns are perturbed tokens, rows affected tokens.

    words holds the n tokens as they are spelled. The column of alpha is marked.
    """
    kind = "" if influence.kind == "exact" else f" ({influence.kind})"
    chart = token_map(
        "Influence of each token on each other",
        f"largest total variation when one token changes{kind}; temperature "
        f"{influence.temperature:g}; framed: the largest column sum, {influence.alpha:.2f}",
        influence.total_variation,
        tokens,
        hover=[[f"{perturbed} → {affected}" for perturbed in tokens] for affected in tokens],
        across="the token that is replaced",
        down="the token whose distribution changes",
    )
    strongest, n = int(influence.column_sums.argmax()), len(tokens)
    chart.region(x=(strongest - 0.5, strongest + 0.5), y=(-0.5, n - 0.5), frame=ORANGE)
    return chart


def plot_averaged_influence(averages: Sequence[AveragedInfluence]) -> Chart:
    """The mean influence against temperature, with 95% intervals over chains."""
    rows = sorted(averages, key=lambda average: average.temperature)
    means = [mean_over_chains(average.per_chain, bounds=(0.0, np.inf)) for average in rows]
    chart = Chart(
        "Influence met on average along a chain",
        "effect of one changed token on all others together; below 1 disagreement shrinks",
        x=dict(title="temperature", tickformat="~g", rangemode="tozero"),
        y=dict(title="summed total variation", rangemode="tozero"),
    )
    chart.line(
        [average.temperature for average in rows],
        [average.mean for average in rows],
        "",
        "temperature %{x:g}: %{y:.3f}",
        dots=True,
        error=bars(means) | dict(color=QUIET),
    )
    chart.rule(y=1, dash="dot", width=1.5)
    return chart


def plot_distance(meetings: Meetings, contraction: Floats | None = None) -> Chart:
    """The mean Hamming distance of the pairs against time, and the contraction bound.

    contraction (moments,) is what `Meetings.contraction` gives, or None.
    """
    n, steps = len(meetings.met), meetings.moments
    chart = Chart(
        "Distance of the pairs",
        f"mean Hamming distance over {n} pairs, {meetings.coupling} coupling; "
        f"{int(meetings.met.sum())} of {n} met",
        x=STEP | dict(range=[0, steps[-1]]),
        y=dict(title="sites that differ", rangemode="tozero"),
    )
    mean = meetings.mean_distance
    low, high = _distance_ends(meetings)
    if np.isfinite(low).any():
        low, high = (np.where(np.isnan(end), mean, end) for end in (low, high))
        chart.band(steps, low, high, "95%, pointwise")
    hover = "step %{x:,}: %{y:.2f}"
    chart.line(steps, mean, "mean distance", f"mean distance, {hover}", color=BLUE)
    if contraction is not None:
        name = "contraction bound"
        chart.line(steps, contraction, name, f"{name}, {hover}", color=INK, width=1.5, dash="dash")
    return chart


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


def plot_total_variation(meetings: Meetings, *, epsilon: float = 0.25) -> Chart:
    """The estimated bound on the distance to the stationary distribution, with its band."""
    last = int(meetings.times.max()) - meetings.lag
    steps = np.arange(0, last + 1, max(1, math.ceil(last / MOMENTS)))
    subtitle = f"estimated bound on total variation, lag {meetings.lag}; dotted: {epsilon:g}"
    name = "bound"
    if meetings.n_censored:
        steps = steps[steps < max(1, last)]  # beyond the last step nothing is known
        censored = f"{meetings.n_censored} of {len(meetings.met)} pairs did not meet"
        subtitle += f"; {censored}: it lies higher"
        name = "lower estimate of the bound"
    chart = Chart(
        "Distance of the chain to its stationary distribution",
        subtitle,
        x=STEP | dict(range=[0, max(1, last)]),
        y=dict(title="total variation", range=[0, 1.03]),
        showlegend=True,
    )
    bound = meetings.tv_bound(steps)
    if not meetings.n_censored:
        low, high = np.minimum(bound.low, 1), np.minimum(bound.high, 1)
        chart.band(steps, low, high, "95%, pointwise")
    # Total variation is never above 1, whatever the bound says.
    value = np.minimum(bound.value, 1)
    chart.line(steps, value, name, f"{name}, step %{{x:,}}: %{{y:.3f}}", color=BLUE)
    chart.rule(y=epsilon, dash="dot", width=1)
    return chart


def plot_phase(diagram: PhaseDiagram) -> Chart:
    """The share of pairs that met, (length, temperature), with the boundary drawn over it."""
    temperatures, lengths = diagram.temperatures, diagram.lengths
    rows = [[diagram.cell(t, n) for t in temperatures] for n in lengths]
    limits = sorted({cell.steps for cell in diagram.cells})
    within = f"{limits[0]:,}" if len(limits) == 1 else f"{limits[0]:,} to {limits[-1]:,}"
    logs = np.log(temperatures)
    middles = (logs[1:] + logs[:-1]) / 2
    first, last = (2 * logs[[0, -1]] - middles[[0, -1]]) if len(middles) else logs[0] + [-0.1, 0.1]
    edges = np.exp([first, *middles, last])  # a column is as wide as its share of the axis
    chart = Chart(
        "Where two chains meet",
        f"share of pairs that met within {within} steps, and their median time where half did",
        x=dict(
            title="temperature",
            type="log",
            tickvals=temperatures,
            showgrid=False,
            ticktext=[f"{t:g}" for t in temperatures],
            range=np.log10(edges[[0, -1]]).tolist(),
        ),
        y=dict(
            title="tokens",
            tickvals=list(range(len(lengths))),
            ticktext=lengths,
            showgrid=False,
            range=[-0.5, len(lengths) - 0.5],
        ),
        height=ROW * len(lengths) + 190,
        plot_bgcolor=FAINT,
    )
    chart.cells(
        [[np.nan if cell is None else cell.share for cell in row] for row in rows],
        "%{customdata}",
        x=edges,
        y=list(range(len(lengths))),
        bar="share met",
        format=".0%",
        text=[[_cell_label(cell) for cell in row] for row in rows],
        data=[[_cell_hover(cell) for cell in row] for row in rows],
    )
    known = [c for c in diagram.crossovers if c.temperature is not None]
    if known:
        boundary = [c.temperature for c in known]
        low = [c.interval[0] or edges[0] for c in known]  # an open end reaches the edge
        high = [c.interval[1] or edges[-1] for c in known]
        chart.dots(
            boundary,
            [diagram.lengths.index(c.length) - 0.36 for c in known],
            "half of the pairs meet (95% interval)",
            "half meet at temperature %{x:.3g}",
            color=ORANGE,
            size=9,
            trace=dict(showlegend=True),
            error_x=ends(boundary, low, high) | dict(thickness=2),
        )
    return chart


def _cell_label(cell: PhaseCell | None) -> str:
    """The label of a cell, raised above the mark of the boundary."""
    if cell is None:
        return ""
    median = cell.median.value
    time = "" if median is None else f"\n{median:,.0f} steps"
    return f"{sum(cell.met)} of {len(cell.met)}{time}\n "


def _cell_hover(cell: PhaseCell | None) -> str:
    if cell is None:
        return ""
    median = cell.median
    time = "beyond the steps" if median.value is None else f"{median.value:,.0f} steps"
    low, high = cell.interval
    return (
        f"temperature {cell.temperature:g}, {cell.length} tokens\n"
        f"{sum(cell.met)} of {len(cell.met)} met (95%: {low:.0%} to {high:.0%})\n"
        f"median time {time}"
    )


def plot_forgetting(diagram: PhaseDiagram) -> Chart:
    """The step at which each pair met, over temperature; pairs that did not are at their last."""
    chart = Chart(
        "Steps until coupled chains meet",
        f"{' and '.join(map(str, diagram.lengths))} tokens; line: median, where half have met",
        x=dict(title="temperature", type="log", tickvals=diagram.temperatures, tickformat="~g"),
        y=STEPS,
    )
    for met, name, symbol in MET:
        rows = [
            (c.temperature, t)
            for c in diagram.cells
            for t, m in zip(c.times, c.met, strict=True)
            if m == met
        ]
        chart.dots(
            [t for t, _ in rows],
            [step for _, step in rows],
            name,
            f"temperature %{{x:g}}: {name}, step %{{y:,}}",
            color=THIN if met else INK,
            size=6,
            symbol=symbol,
        )
    for n in diagram.lengths:
        cells = [(t, diagram.cell(t, n)) for t in diagram.temperatures]
        medians = [(t, cell.median.value) for t, cell in cells if cell is not None]
        hover = "temperature %{x:g}: median step %{y:,}"
        chart.line(
            [t for t, _ in medians], [m for _, m in medians], "median", hover, dots=True, color=BLUE
        )
    return chart


def plot_statistics(values: Mapping[str, Floats], steps: NDArray[np.int64]) -> dict[str, Chart]:
    """Each statistic (chains, draws) of the text along the run, a line for each chain."""
    charts = {}
    shown = slice(None, None, max(1, math.ceil(len(steps) / MOMENTS)))
    for name, rows in values.items():
        subtitle = f"{counted(len(rows), 'chain')}, after the burn-in"
        x = dict(title="step", tickformat=",d")
        chart = Chart(f"{name} along the chains", subtitle, x=x, y=dict(tickformat="~g"))
        for chain, row in enumerate(rows):
            hover = f"chain {chain}, step %{{x:,}}: %{{y:.4g}}"
            chart.line(steps[shown], row[shown], f"chain {chain}", hover, width=1)
        charts[name] = chart
    return charts


def plot_estimates(values: Floats, name: str) -> Chart:
    """Estimates (pairs,) of one stationary mean, with their own mean and its 95% interval."""
    mean = mean_over_chains(values)
    chart = Chart(
        f"Stationary mean of {name}",
        f"{len(values):,} independent estimates, one per pair; line: their mean {mean.value:.4g}",
        x=dict(title="pair", tickformat=",d"),
        y=dict(tickformat="~g"),
    )
    if mean.interval is not None:
        chart.region(y=mean.interval, fill=transparent(BLUE, 0.18))
    chart.rule(y=mean.value, color=BLUE)
    chart.dots(np.arange(len(values)), values, "", "pair %{x}: %{y:.4g}", color=THIN, size=6)
    return chart


def _distance_axis(highest: float) -> Axis:
    return dict(tickformat=".1f", range=[-0.02, max(1.02, highest + 0.04)])


def plot_semantic_drift(
    distances: DriftDistances,
    level: Saturation | None = None,
    fitted: SaturationFit | None = None,
    *,
    threshold: float | None = None,
) -> Chart:
    """The median distance from the start over steps, the band of nine chains in ten, the level."""
    low, middle, high = np.quantile(distances.values, [0.05, 0.5, 0.95], axis=0)
    title, what = (
        ("Tokens that changed", "share of free sites with another token than at the start")
        if distances.farthest <= 1
        else ("Change of the meaning", "1 - cosine between embeddings of text and start")
    )
    subtitle = f"{what}, {counted(len(distances.values), 'chain')}"
    chart = Chart(title, subtitle, y=_distance_axis(float(high.max())))
    chart.band(distances.steps, low, high, "90% of the chains")
    hover = "step %{x:,}: median %{y:.2f}"
    chart.line(distances.steps, middle, "median", hover, color=BLUE)
    if fitted is not None and not fitted.reason:
        chart.line(
            distances.steps,
            fitted.mean(distances.steps),
            f"fit of the mean, level {fitted.level.value:.2f}",
            "step %{x:,}: fit %{y:.2f}",
            color=INK,
            width=1.5,
            dash="dash",
        )
    if level is not None:
        word = "saturation" if level.settled else "last half, not known to stay"
        chart.rule(f"{word} {level.level.value:.2f}", y=level.level.value)
    if threshold is not None:
        chart.rule(f"threshold {threshold:g}", y=threshold, color=ORANGE, dash="dot")
    return chart


def plot_distance_by_length(
    values: dict[int, Floats],
    means: dict[int, Estimate],
    *,
    step: int,
    growth: Growth | None = None,
) -> Chart:
    """The distances (chains,) after one number of steps, by length, with means and fitted laws."""
    lengths = sorted(values)
    chart = Chart(
        f"Distance from the start after {step:,} steps",
        "1 - cosine of the embeddings, against the number of tokens n",
        x=dict(title="tokens n", tickformat=",d", tickvals=lengths),
        y=_distance_axis(max(float(each.max()) for each in values.values())),
        legend="above" if growth is None else "below",
    )
    x = np.concatenate([np.full(len(values[n]), n) for n in lengths])
    y = np.concatenate([values[n] for n in lengths])
    chart.dots(x, y, "a chain", "n = %{x}: %{y:.2f}", color=THIN, size=5)
    estimates = [means[n] for n in lengths]
    chart.line(
        lengths,
        [estimate.value for estimate in estimates],
        "mean, 95% interval",
        "n = %{x}: mean %{y:.3f}",
        dots=True,
        color=BLUE,
        error=bars(estimates) | dict(thickness=2),
    )
    grid = np.linspace(lengths[0], lengths[-1], 60)
    for fit in () if growth is None else growth.fits:
        color, dash = LAWS.get(fit.law, (QUIET, "dashdot"))
        hover = f"{fit.law}, n = %{{x:.0f}}: %{{y:.3f}}"
        name = f"{fit.law} (weight {fit.weight:.2g})"
        chart.line(grid, fit.mean(grid), name, hover, color=color, dash=dash, width=1.5)
    return chart


def plot_drift_by_temperature(curves: Mapping[float, DriftDistances]) -> Chart:
    """The mean distance from the start over time, a line for each temperature."""
    chart = Chart(
        "Distance from the start by temperature",
        "1 - cosine of the embeddings, mean over chains; from cold (blue) to hot (red)",
        y=dict(title="distance", rangemode="tozero"),
        legend="below",
    )
    for number, temperature in enumerate(sorted(curves)):
        distances = curves[temperature]
        color = sample_colorscale(COLD_TO_HOT, [number / max(1, len(curves) - 1)])[0]
        hover = f"temperature {temperature:g}, step %{{x:,}}: %{{y:.2f}}"
        mean = distances.values.mean(axis=0)
        chart.line(distances.steps, mean, f"{temperature:g}", hover, color=color)
    return chart


def plot_coherence(coherence: Coherence) -> Chart:
    """The median score over steps, the band of nine chains in ten, and the level."""
    low, middle, high = np.quantile(coherence.values, [0.05, 0.5, 0.95], axis=0)
    chart = Chart(
        "Coherence of the texts",
        f"pseudo-log-likelihood per token by {coherence.judge}, in nats; "
        f"{counted(len(coherence.values), 'chain')}",
        y=dict(tickformat="~g"),
    )
    chart.band(coherence.steps, low, high, "90% of the chains")
    hover = "step %{x:,}: median %{y:.2f}"
    chart.line(coherence.steps, middle, "median", hover, color=BLUE)
    chart.rule(f"coherent from {coherence.level:.2f}", y=coherence.level, color=ORANGE, dash="dot")
    return chart


def plot_margin_growth(rows: Sequence[MarginAndTime]) -> Chart:
    """The exact mixing time against the length, and Theorem 8's lower bound."""
    chart = Chart(
        "Mixing time where the margin grows with the length",
        "exact t_mix(1/4) of a family of chains with the margin of order n",
        x=dict(title="tokens n", tickformat=",d"),
        y=STEPS,
    )
    lengths = [row.length for row in rows]
    for name, values, color in (
        ("mixing time", [row.mixing_time for row in rows], BLUE),
        ("lower bound", [row.bound for row in rows], ORANGE),
    ):
        hover = f"n = %{{x}}: {name} %{{y:,.0f}}"
        chart.line(lengths, values, name, hover, dots=True, color=color)
    return chart


def plot_saturation(
    curves: Mapping[int, DriftDistances], fits: Mapping[int, SaturationFit], *, threshold: float
) -> Chart:
    """The mean distance from the start over time and its fitted curve, for each length."""
    chart = Chart(
        "Distance from the start by length",
        "mean over chains; dashed: L (1 - exp(-t / T)), where its level is known",
        y=dict(title="distance", rangemode="tozero"),
        legend="below",
    )
    for number, (n, curve) in enumerate(sorted(curves.items())):
        color, fit = COLOURS[number % len(COLOURS)], fits[n]
        hover = f"{n} tokens, step %{{x:,}}: %{{y:.2f}}"
        chart.line(curve.steps, curve.values.mean(axis=0), f"{n} tokens", hover, color=color)
        if not fit.reason:
            hover = f"{n} tokens, level {fit.level.value:.2f}, step %{{x:,}}: fit %{{y:.2f}}"
            mean = fit.mean(curve.steps)
            chart.line(curve.steps, mean, "", hover, color=color, width=1.5, dash="dash")
    chart.rule(f"threshold {threshold:g}", y=threshold, color=ORANGE, dash="dot")
    return chart


def plot_scaling(times: Mapping[int, HittingTimes], scaling: Scaling) -> Chart:
    """Each chain's hitting time against n, and the fitted means of the laws and the free power."""
    lengths, power = sorted(times), scaling.power
    chart = Chart(
        f"Steps until the distance reaches {times[lengths[0]].threshold:g}",
        f"against the number of tokens n; {scaling.n_censored} of {scaling.n_times} chains never "
        f"did; lines: fitted means; free power {power.label}; among n, n log n and n^2 "
        f"alone {scaling.best.law} weighs {scaling.best.weight:.2f}",
        x=dict(title="tokens n", tickformat=",d", tickvals=lengths),
        y=STEPS,
        height=400,
        legend="below",
    )
    for hit, name, symbol in ((True, "hit", "circle"), MET[1]):
        rows = {n: times[n].steps[times[n].hit == hit] for n in lengths}
        # Equal times of one length are drawn side by side.
        x = [n + np.linspace(-0.3, 0.3, len(row)) for n, row in rows.items()]
        chart.dots(
            np.concatenate(x),
            np.concatenate(list(rows.values())),
            name,
            f"n = %{{x:.0f}}: {name}, step %{{y:,}}",
            color=THIN if hit else INK,
            size=5 if hit else 7,
            symbol=symbol,
        )
    grid = np.linspace(lengths[0], lengths[-1], 60)
    for fit in scaling.fits:
        color, dash = LAWS[fit.law]
        hover = f"{fit.law} (weight {fit.weight:.2g}), n = %{{x:.0f}}: mean %{{y:,.0f}}"
        name = f"{fit.c:.2g} {fit.law}"
        chart.line(grid, fit.mean(grid), name, hover, color=color, dash=dash)
    chart.line(
        grid,
        power.mean(grid),
        f"{power.c:.2g} n^{power.b:.2f}",
        f"{power.label}, n = %{{x:.0f}}: mean %{{y:,.0f}}",
        color=INK,
        width=1.5,
        dash="dashdot",
    )
    return chart
