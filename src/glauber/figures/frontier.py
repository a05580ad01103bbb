"""What do fewer passes cost, and does correction pay?"""

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from glauber.figures.style import QUIET, STRONG, THIN, bars, empty_figure

if TYPE_CHECKING:
    from glauber.generation.correction import CorrectionStudy
    from glauber.generation.frontier import Frontier, ScheduleResult

SCHEDULES = (STRONG, "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")  # Okabe and Ito
DASHES = ("solid", "dash", "dot", "dashdot")


def plot_frontier(found: "Frontier") -> go.Figure:
    """Quality against cost on a logarithmic axis, one line a schedule, dashed where corrected."""
    name, what = _quality(found)
    figure = empty_figure(
        "What do fewer passes cost?",
        f"{what} against rows of a text through the model; bars: 95% intervals over texts",
    )
    for schedule, cells in _by_schedule(found).items():
        measured = [cell.figures[name] for cell in cells]
        figure.add_scatter(
            x=[cell.cost for cell in cells],
            y=[one.value for one in measured],
            error_y=bars(measured) | dict(color=THIN, width=2),
            name=schedule,
            mode="lines+markers",
            line=_line(found, cells),
            text=[cell.texts[0] for cell in cells],
            hovertemplate="%{x} passes: %{y:.3f}<br>%{text}<extra></extra>",
        )
    for cell in found.schedules:
        if cell.how is None:
            figure.add_hline(
                y=cell.figures[name].value, line=dict(color=QUIET, dash="dot"),
                annotation_text=cell.schedule,
            )  # fmt: skip
    ticks = sorted({cell.cost for cell in found.schedules if cell.how is not None})
    shown = [tick for tick in ticks if tick == int(tick) and int(tick) & (int(tick) - 1) == 0]
    figure.update_xaxes(type="log", title_text="passes", rangemode="normal", tickformat=None)
    figure.update_xaxes(tickvals=shown or ticks)
    figure.update_yaxes(title=dict(text=what, font_size=13), rangemode="normal")
    figure.update_layout(height=420, margin_t=110)
    return figure


def plot_quality_diversity(found: "Frontier") -> go.Figure | None:
    """Likelihood under the judge against the entropy of a text's tokens."""
    if found.judge is None:
        return None
    figure = empty_figure(
        "Is what is likely also varied?",
        "each schedule and cost; texts that repeat themselves are likely and stand on the left",
    )
    groups = _by_schedule(found) | {
        cell.schedule: [cell] for cell in found.schedules if cell.how is None
    }
    for schedule, cells in groups.items():
        figure.add_scatter(
            x=[cell.figures["entropy"].value for cell in cells],
            y=[cell.figures["nats_a_character"].value for cell in cells],
            name=schedule,
            mode="lines+markers+text",
            line=_line(found, cells),
            text=[f"{cell.cost:g}" if cell.how else "" for cell in cells],
            textposition="top center",
            hovertemplate="entropy %{x:.3f}, %{y:.3f} nats a character<extra></extra>",
        )
    figure.update_xaxes(title_text="entropy of a text's tokens, nats", tickformat=".2f")
    figure.update_xaxes(rangemode="normal")
    figure.update_yaxes(title=dict(text="nats a character", font_size=13), rangemode="normal")
    figure.update_layout(height=420, margin_t=110)
    return figure


def _quality(found: "Frontier") -> tuple[str, str]:
    """The measure on the upright axis, and its name."""
    if found.judge is None:
        return "entropy", "entropy of a text's tokens, nats"
    return "nats_a_character", "nats a character under the judge"


def _by_schedule(found: "Frontier") -> dict[str, list["ScheduleResult"]]:
    """The written cells of each line, by cost."""
    lines: dict[str, list[ScheduleResult]] = {}
    for cell in sorted((one for one in found.schedules if one.how), key=lambda one: one.cost):
        swept = cell.how.correct if cell.how else 0
        ending = f", {swept} sweep{'s' if swept > 1 else ''}" if swept else ""
        lines.setdefault(f"{cell.schedule}{ending}", []).append(cell)
    return dict(sorted(lines.items()))


def _line(found: "Frontier", cells: list["ScheduleResult"]) -> dict[str, object]:
    """A colour for each schedule, a dash for each number of sweeps."""
    how = cells[0].how
    if how is None:
        return dict(color=QUIET)
    schedules = list(dict.fromkeys(cell.schedule for cell in found.schedules))
    swept = sorted({cell.how.correct for cell in found.schedules if cell.how})
    colour = SCHEDULES[schedules.index(cells[0].schedule) % len(SCHEDULES)]
    return dict(color=colour, width=2, dash=DASHES[swept.index(how.correct) % len(DASHES)])


def plot_correction(found: "CorrectionStudy") -> go.Figure:
    """Distance from filling one by one against cost, a line for each number of passes."""
    exact = found.exact is not None
    what = "total variation from filling one by one (exact)" if exact else "share in a trap"
    figure = empty_figure(
        "What does correction buy?",
        f"{what} against rows of a text through the model; each further point has more sweeps",
    )
    for place, passes in enumerate(dict.fromkeys(row.passes for row in found.rows)):
        rows = [row for row in found.rows if row.passes == passes]
        figure.add_scatter(
            x=[row.cost for row in rows],
            y=[(row.from_one_by_one or row.traps).value for row in rows],
            name=f"{passes} pass{'es' * (passes > 1)}",
            mode="lines+markers",
            line=dict(color=SCHEDULES[place % len(SCHEDULES)], width=2),
            hovertemplate="%{x} passes: %{y:.3f}<extra></extra>",
        )
    if found.exact is not None:
        figure.add_hline(
            y=found.exact.apart, line=dict(color=QUIET, dash="dot"),
            annotation_text="where the sweeps lead",
        )  # fmt: skip
    figure.update_xaxes(title_text="cost, passes and redraws")
    figure.update_yaxes(title=dict(text=what, font_size=13))
    return figure
