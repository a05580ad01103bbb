"""Where in temperature and length do two chains meet?"""

import numpy as np
import plotly.graph_objects as go

from glauber.figures.style import FAINT, QUIET, STRONG, empty_figure
from glauber.mixing.phase import PhaseCell, PhaseDiagram

ROW = 60  # pixels of a length
EDGE = "#d55e00"


def plot_phase(diagram: PhaseDiagram) -> go.Figure:
    """The share of pairs that met, (length, temperature), with the boundary drawn over it."""
    temperatures, lengths = diagram.temperatures, diagram.lengths
    cells = [[diagram.cell(t, n) for t in temperatures] for n in lengths]
    budgets = sorted({cell.budget for cell in diagram.cells})
    within = f"{budgets[0]:,}" if len(budgets) == 1 else f"{budgets[0]:,} to {budgets[-1]:,}"
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


def _boundary(figure: go.Figure, diagram: PhaseDiagram) -> None:
    """The crossover of each length with its interval, placed between the columns."""
    shown = [c for c in diagram.crossovers if c.temperature is not None and c.interval is not None]
    if not shown:
        return
    columns = np.arange(len(diagram.temperatures))
    logs = np.log(diagram.temperatures)

    def place(temperature: float) -> float:
        return float(np.interp(np.log(temperature), logs, columns))

    middles = [place(c.temperature or 0) for c in shown]
    ends = [tuple(map(place, c.interval or (0, 0))) for c in shown]
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


def _ticks(update, labels: list[str], title: str) -> None:  # type: ignore[no-untyped-def]
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
    time = "beyond the budget" if median.value is None else f"{median.value:,.0f} steps"
    low, high = cell.interval
    return (
        f"temperature {cell.temperature:g}, {cell.length} tokens<br>"
        f"{sum(cell.met)} of {len(cell.met)} met (95%: {low:.0%} to {high:.0%})<br>"
        f"median time {time}"
    )
