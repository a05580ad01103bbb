"""When was which chain stuck, and do firm texts hold longer?"""

import plotly.graph_objects as go

from glauber.figures.style import FAINT, QUIET, STRONG, empty_figure
from glauber.metastability.census import Trap
from glauber.metastability.traps import Catalogue, RankCorrelation

LOOSE = "#e69f00"
ROW = 22  # pixels of a chain
TICKS = [digit * 10**power for power in range(7) for digit in (1, 2, 5)]
KINDS = ((True, "perfect", STRONG), (False, "approximate", LOOSE))


def plot_trap_timeline(found: Catalogue) -> go.Figure:
    """A row per chain with its traps as bars; the text appears under the pointer."""
    grey = "<br>grey: no whole window left" if "window" in found.settings else ""
    figure = empty_figure(
        "When chains were stuck",
        f"{len(found.traps)} traps of {found.n_chains} chains, {found.detector} detector, "
        f"temperature {found.temperature:g}{grey}",
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
            y=[trap.stretch.chain for trap in traps],
            x=[trap.duration for trap in traps],
            base=[trap.stretch.first for trap in traps],
            orientation="h",
            marker=dict(color=colour, line=dict(color="white", width=1)),
            name=f"{name} ({len(traps)})",
            showlegend=True,
            customdata=[_hover(trap) for trap in traps],
            hovertemplate="%{customdata}<extra></extra>",
        )
    return figure


def plot_gaps_against_duration(found: Catalogue) -> go.Figure:
    """Each trap's duration against its mean gap and against its smallest gap."""
    told = found.summary()
    figure = empty_figure(
        "Do firm texts hold longer?",
        "duration in steps against the gaps of the trap's text<br>"
        f"rank correlation: mean gap {_figure(told.by_mean_gap)}, min gap "
        f"{_figure(told.by_min_gap)}",
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
            customdata=[_hover(trap) for trap in found.traps],
            hovertemplate=f"{name} %{{x:.2f}}<br>%{{customdata}}<extra></extra>",
        )
    figure.add_vline(x=0, line=dict(color=QUIET, width=1, dash="dot"))
    return figure


def _hover(trap: Trap) -> str:
    """The text in lines of a readable width, and the trap's figures."""
    from html import escape
    from textwrap import wrap

    ended = "" if trap.stretch.ended else "at least "
    figures = (
        f"chain {trap.stretch.chain}, step {trap.stretch.first:,}: {ended}{trap.duration:,} steps"
        f"<br>gaps: mean {trap.mean_gap:.2f}, min {trap.min_gap:.2f}"
    )
    return "<br>".join([*(escape(line) for line in wrap(trap.text, 60)), figures])


def _figure(found: RankCorrelation | None) -> str:

    return "unknown" if found is None else f"{found.value:.2f}"
