"""Charts of unmasking: the cost of filling tokens at once, and of fewer passes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.statistics import Estimate
from glauber.interfaces.plots.chart import (
    AMBER,
    BLUE,
    COLOURS,
    FAINT,
    GREEN,
    ORANGE,
    QUIET,
    THIN,
    Chart,
    bars,
    token_map,
)
from glauber.studies.decoding.calibrate import CalibrationStep
from glauber.studies.decoding.parallel_cost import FillCost, PairCosts

if TYPE_CHECKING:
    from glauber.studies.decoding.correction import CorrectionStudy
    from glauber.studies.decoding.frontier import Frontier, ScheduleResult

SCHEDULES = (BLUE, ORANGE, GREEN, COLOURS[3], COLOURS[5], AMBER)
DASHES = ("solid", "dash", "dot", "dashdot")
MOST_CHARACTERS = 110  # of a text above a chart
MOST_SITES = 40  # with tokens in the cells
TOTAL_VARIATION = dict(title="total variation", rangemode="tozero")


def plot_pairs(pairs: PairCosts, tokens: Sequence[str], error: float) -> Chart:
    """The cost of each ordered pair as a heat map; pairs above the error are framed."""
    kind = "exact" if not pairs.rest.any() else f"lower bounds, {pairs.rest.max():.2g} missing"
    chart = token_map(
        "What filling two hidden tokens at once costs",
        f"total variation from filling the row first ({kind}); "
        f"framed: above {error:g} as a mean of both orders",
        pairs.total_variation,
        tokens,
        hover=[[f"{first} → {second}" for second in tokens] for first in tokens],
        across="the token filled second",
        down="the token filled first",
    )
    for row, column in np.argwhere(pairs.mean > error).tolist():
        chart.region(x=(column - 0.46, column + 0.46), y=(row - 0.46, row + 0.46), frame=ORANGE)
    return chart


def plot_filling(
    probs: NDArray[np.float64],
    tokens: Sequence[Sequence[str]],
    moments: Sequence[str],
    sites: Sequence[str],
    text: str,
) -> Chart:
    """When each site was filled and with which probability: probs (moments, sites), NaN else."""
    chart = Chart(
        "Order in which the sites were filled",
        text if len(text) < MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…",
        x=dict(title="site", type="category"),
        y=dict(title="pass", type="category", autorange="reversed", nticks=40),
        height=min(1200, 180 + 24 * len(moments)),
        plot_bgcolor=FAINT,
    )
    chart.cells(
        probs,
        "pass %{y}, site %{x}: %{text}, probability %{z:.3f}",
        x=list(sites),
        y=list(moments),
        text=tokens,
        texttemplate="%{text}" if len(sites) <= MOST_SITES else None,
        bar="probability when placed",
        gap=0,
    )
    return chart


def plot_cost_by_count(counts: Sequence[FillCost]) -> Chart:
    """Total variation against k, with 95% intervals."""
    sizes = [count.n_sites for count in counts]
    chart = Chart(
        "What filling k hidden tokens at once costs",
        "total variation from filling them one by one, mean over sets and orders; "
        "bars: 95% intervals",
        x=dict(title="tokens filled at once, k", tickvals=sizes),
        y=TOTAL_VARIATION | dict(range=[0, 1.02]),
    )
    costs = [count.total_variation for count in counts]
    chart.line(
        sizes,
        [cost.value for cost in costs],
        hover="k = %{x}: %{y:.3f}",
        dots=True,
        error=bars(costs) | dict(color=QUIET, width=3),
    )
    return chart


def plot_cost_by_distance(pairs: PairCosts) -> Chart:
    """The cost of each pair against the distance of the two tokens, and the mean."""
    chart = Chart(
        "Cost of a pair by its distance",
        "each pair of hidden tokens, mean of both orders; line: mean at each distance",
        x=dict(title="tokens apart", tickformat=",d", rangemode="tozero"),
        y=TOTAL_VARIATION,
    )
    a, b = np.triu_indices(len(pairs.sites), 1)
    sites, hover = np.asarray(pairs.sites), "distance %{x}: %{y:.3f}"
    chart.dots(np.abs(sites[a] - sites[b]), pairs.mean[a, b], "", hover, color=THIN, size=6)
    means = pairs.by_distance()
    values = [mean for mean, _ in means.values()]
    chart.line(list(means), values, "", f"mean at {hover}", color=BLUE, dots=True)
    return chart


def plot_mask_rates(shares: list[str], by_masks: dict[str, list[float]]) -> Chart:
    """Nll at each share that is hidden, a line for each kind of training mask."""
    chart = Chart(
        "How well do masked LMs fill in text, by the masks of their training?",
        "nll of a hidden token in nats, means over training seeds; lower is better",
        x=dict(title="hidden at once in the test", type="category"),
        y=dict(title="nll, nats"),
        height=460,
        legend="below",
    )
    for kind, values in by_masks.items():
        chart.line(shares, values, kind, f"{kind}, %{{x}}: %{{y:.3f}} nats", dots=True, width=2)
    return chart


def plot_calibration(rungs: Sequence[CalibrationStep], error: float) -> Chart:
    """Measured cost and bound of the passes against the entropy bound gamma."""
    chart = Chart(
        "What a pass within an entropy bound costs",
        "nats of KL that 95% of the passes on the calibration texts do not exceed",
        x=dict(title="entropy bound, gamma (nats)", rangemode="tozero"),
        y=dict(title="nats", rangemode="tozero"),
    )
    rows = [rung for rung in rungs if rung.tokens > 1]
    gammas = [float(rung.count.partition(":")[2]) for rung in rows]
    for name, color, values in (
        ("entropy bound", QUIET, [rung.bound for rung in rows]),
        ("measured cost", BLUE, [rung.cost for rung in rows]),
    ):
        hover = f"{name}, gamma %{{x:.3g}}: %{{y:.3g}} nats"
        chart.line(gammas, values, name, hover, dots=True, color=color, width=2)
    chart.rule(y=error, dash="dot", color=ORANGE, note="error")
    return chart


def plot_tokens_a_pass(names: Sequence[str], tokens: Sequence[Estimate]) -> Chart:
    """How many tokens each calibrated rule fills in a pass, with 95% intervals."""
    chart = Chart(
        "Tokens per pass",
        "mean over held-out passes; bars: 95%",
        x=dict(type="category"),
        y=dict(title="tokens per pass"),
    )
    errors = bars(tokens) | dict(color=QUIET, width=3)
    chart.columns(
        list(names), [estimate.value for estimate in tokens], "", "%{x}: %{y:.3g}", error_y=errors
    )
    return chart


def plot_frontier(result: "Frontier") -> Chart:
    """Quality against cost on a logarithmic axis, one line a schedule, dashed where corrected."""
    name, what = _quality(result)
    ticks = sorted({cell.cost for cell in result.schedules if cell.how is not None})
    powers = [tick for tick in ticks if tick == int(tick) and int(tick) & (int(tick) - 1) == 0]
    chart = Chart(
        "What fewer passes cost",
        f"{what} against rows of a text through the model; bars: 95% intervals over texts",
        x=dict(type="log", title="passes", tickvals=powers or ticks),
        y=dict(title=what),
        height=420,
        legend="below",
    )
    for schedule, cells in _by_schedule(result).items():
        measured = [cell.figures[name] for cell in cells]
        chart.line(
            [cell.cost for cell in cells],
            [estimate.value for estimate in measured],
            schedule,
            "%{x} passes: %{y:.3f}\n%{customdata}",
            dots=True,
            **_style(result, cells),
            error=bars(measured) | dict(color=THIN, width=2),
            customdata=[cell.texts[0] for cell in cells],
        )
    for cell in result.schedules:
        if cell.how is None:
            chart.rule(y=cell.figures[name].value, dash="dot", note=cell.schedule)
    return chart


def plot_quality_diversity(result: "Frontier") -> Chart | None:
    """Likelihood under the judge against the entropy of a text's tokens."""
    if result.judge is None:
        return None
    chart = Chart(
        "Likelihood and diversity",
        "each schedule and cost; texts that repeat themselves are likely and are on the left",
        x=dict(title="entropy of a text's tokens, nats", tickformat=".2f"),
        y=dict(title="nats per character"),
        height=420,
        legend="below",
    )
    alone = {cell.schedule: [cell] for cell in result.schedules if cell.how is None}
    for schedule, cells in (_by_schedule(result) | alone).items():
        chart.line(
            [cell.figures["entropy"].value for cell in cells],
            [cell.figures["nats_a_character"].value for cell in cells],
            schedule,
            "entropy %{x:.3f}, %{y:.3f} nats per character",
            dots=True,
            textposition="top center",
            labels=[f"{cell.cost:g}" if cell.how else "" for cell in cells],
            **_style(result, cells),
        )
    return chart


def _quality(result: "Frontier") -> tuple[str, str]:
    """The measure on the vertical axis, and its name."""
    if result.judge is None:
        return "entropy", "entropy of a text's tokens, nats"
    return "nats_a_character", "nats per character under the judge"


def _by_schedule(result: "Frontier") -> "dict[str, list[ScheduleResult]]":
    """The written cells of each line, by cost."""
    lines: dict[str, list[ScheduleResult]] = {}
    for cell in sorted((cell for cell in result.schedules if cell.how), key=lambda cell: cell.cost):
        sweeps = cell.how.correct if cell.how else 0
        ending = f", {sweeps} sweep{'s' if sweeps > 1 else ''}" if sweeps else ""
        lines.setdefault(f"{cell.schedule}{ending}", []).append(cell)
    return dict(sorted(lines.items()))


def _style(result: "Frontier", cells: "list[ScheduleResult]") -> dict[str, Any]:
    """A colour for each schedule, a dash for each number of sweeps."""
    how = cells[0].how
    if how is None:
        return dict(color=QUIET)
    schedules = list(dict.fromkeys(cell.schedule for cell in result.schedules))
    sweeps = sorted({cell.how.correct for cell in result.schedules if cell.how})
    color = SCHEDULES[schedules.index(cells[0].schedule) % len(SCHEDULES)]
    return dict(color=color, dash=DASHES[sweeps.index(how.correct) % len(DASHES)])


def plot_correction(result: "CorrectionStudy") -> Chart:
    """Distance from filling one by one against cost, a line for each number of passes."""
    exact = result.exact is not None
    what = "total variation from filling one by one (exact)" if exact else "share in a trap"
    chart = Chart(
        "What correction buys",
        f"{what} against rows of a text through the model; each further point has more sweeps",
        x=dict(title="cost, passes and redraws", tickformat=",d", rangemode="tozero"),
        y=dict(title=what, rangemode="tozero"),
    )
    for number, passes in enumerate(dict.fromkeys(row.passes for row in result.rows)):
        rows = [row for row in result.rows if row.passes == passes]
        chart.line(
            [row.cost for row in rows],
            [(row.from_one_by_one or row.traps).value for row in rows],
            f"{passes} pass{'es' * (passes > 1)}",
            "%{x} passes: %{y:.3f}",
            dots=True,
            color=SCHEDULES[number % len(SCHEDULES)],
            width=2,
        )
    if result.exact is not None:
        chart.rule(y=result.exact.apart, dash="dot", note="where the sweeps lead")
    return chart
