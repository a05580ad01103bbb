"""What does a model say of mutants? Single ones as a map; variants with the spread over orders."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import FAINT, INK, QUIET, STRONG, empty_figure
from glauber.result import visible

if TYPE_CHECKING:
    from glauber.proteins.variants import Variant

AGAINST = "#d55e00"  # Okabe and Ito's vermilion, for what the model disfavours
LETTER = 20  # pixels of a row of letters
SHOWN = 60  # variants that are drawn by name
MARKS = {
    "wild_type_fill": "diamond-open",
    "mutant_fill": "square-open",
    "all_hidden": "x-thin-open",
    "pll": "triangle-up-open",
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # of the conventions, by Okabe and Ito


def plot_singles(
    positions: Sequence[int],
    wild_type: Sequence[str],
    letters: Sequence[str],
    scores: NDArray[Any],
) -> go.Figure:
    """The log-ratio of every letter (positions, letters) to the parent's, a column a position."""
    figure = empty_figure(
        "Single mutants",
        "log-ratio to the parent's letter in nats, its site hidden; a dot marks the parent's own",
    )
    low, high = max(1.0, float(np.quantile(-scores, 0.98))), max(1.0, float(scores.max()))
    columns = list(range(len(positions)))
    named = [f"{old}{place}" for old, place in zip(_plain(wild_type), positions, strict=True)]
    spelled = _plain(letters)
    figure.add_heatmap(
        z=scores.T,
        zmin=-low,
        zmax=high,
        colorscale=[[0, AGAINST], [low / (low + high), "white"], [1, STRONG]],
        customdata=[[f"{old}{new}" for old in named] for new in spelled],
        hovertemplate="%{customdata}: %{z:+.2f} nats<extra></extra>",
        colorbar=dict(title=dict(text="nats", font=dict(color=QUIET)), thickness=12),
    )
    own = [(at, letters.index(old)) for at, old in enumerate(wild_type) if old in letters]
    figure.add_scatter(
        x=[at for at, _ in own], y=[row for _, row in own], mode="markers", hoverinfo="skip",
        marker=dict(color=INK, size=4), showlegend=False,
    )  # fmt: skip
    every = max(1, len(columns) // 24)
    figure.update_xaxes(
        title_text="position, counted from 1", rangemode="normal", range=[-0.5, len(columns) - 0.5],
        tickmode="array", tickvals=columns[::every], ticktext=named[::every], tickangle=-60,
    )  # fmt: skip
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(letters))), ticktext=spelled, rangemode="normal",
        range=[len(letters) - 0.5, -0.5], showgrid=False, title="",
    )  # fmt: skip
    figure.update_layout(height=170 + LETTER * len(letters), margin=dict(b=70))
    return figure


def plot_order_scores(variants: "Sequence[Variant]") -> go.Figure:
    """Each variant by its mean over orders, one standard deviation and the range over orders."""
    shown = variants[:SHOWN]
    more = "" if len(shown) == len(variants) else f"; the best {SHOWN} of {len(variants):,}"
    figure = empty_figure(
        "Variants, with the error of their order",
        f"log-ratio to the parent in nats; thick: one sd over orders, thin: their range{more}",
    )
    rows = list(range(len(shown)))
    names = _plain([one.name if len(one.name) < 40 else one.name[:37] + "…" for one in shown])
    means = [one.mean_over_orders.value for one in shown]
    figure.add_scatter(
        x=means, y=rows, mode="markers", name="one sd over orders", hoverinfo="skip",
        marker=dict(color=STRONG, size=1),
        error_x=dict(
            type="data", color=STRONG, thickness=4, width=0,
            array=[one.order_sd.value for one in shown],
        ),
    )  # fmt: skip
    figure.add_scatter(
        x=means, y=rows, mode="markers", name="mean over orders, range", 
        marker=dict(color="white", size=8, line=dict(color=STRONG, width=2)),
        text=names, hovertemplate="%{text}: mean %{x:+.2f}<extra></extra>",
        error_x=dict(
            type="data", symmetric=False, color=QUIET, thickness=1, width=0,
            array=[one.highest_order - one.mean_over_orders.value for one in shown],
            arrayminus=[one.mean_over_orders.value - one.lowest_order for one in shown],
        ),
    )  # fmt: skip
    for name, mark in MARKS.items():
        if name in shown[0].scores:
            figure.add_scatter(
                x=[one.scores[name] for one in shown], y=rows, mode="markers", text=names,
                name=name.replace("_", " "), marker=dict(symbol=mark, color=INK, size=8),
                hovertemplate="%{text}: %{x:+.2f}<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(title_text="nats", tickformat="~g", rangemode="normal", showgrid=True)
    figure.update_xaxes(gridcolor=FAINT)
    figure.update_yaxes(
        tickmode="array", tickvals=rows, ticktext=names, range=[len(shown) - 0.5, -0.5],
        rangemode="normal", automargin=True, showgrid=False,
    )  # fmt: skip
    height = 200 + 22 * len(shown)
    figure.update_layout(height=height, title_y=1 - 12 / height, margin=dict(t=110))
    return figure


def plot_order_spread(variants: "Sequence[Variant]") -> go.Figure:
    """The standard deviation over orders against the number of changes, a dot a variant."""
    figure = empty_figure(
        "How much the order decides",
        "standard deviation over orders in nats; 0 for every variant if a joint law existed",
    )
    several = [one for one in variants if one.changes > 1]
    changes = np.array([one.changes for one in several])
    spread = np.zeros(len(several))
    for count in np.unique(changes):
        here = np.nonzero(changes == count)[0]
        spread[here] = np.linspace(-0.3, 0.3, len(here)) if len(here) > 1 else 0.0
    figure.add_scatter(
        x=changes + spread, y=[one.order_sd.value for one in several], mode="markers",
        text=_plain([one.name for one in several]), showlegend=False,
        marker=dict(color=STRONG, opacity=0.7),
        hovertemplate="%{text}: sd %{y:.2f}<extra></extra>",
    )  # fmt: skip
    counts = sorted({int(one) for one in changes})
    figure.update_xaxes(title_text="changed letters", tickvals=counts, rangemode="normal")
    figure.update_xaxes(range=[counts[0] - 0.6, counts[-1] + 0.6])
    figure.update_yaxes(title=dict(text="nats", font_size=13))
    return figure


def plot_conventions(variants: "Sequence[Variant]", labels: dict[str, str]) -> go.Figure:
    """Each convention against the mean over orders, with one standard deviation over orders."""
    figure = empty_figure(
        "Conventions beside the mean over orders",
        "log-ratio to the parent in nats; bars: one standard deviation over orders",
    )
    means = [one.mean_over_orders.value for one in variants]
    ends = [min(means), max(means)]
    figure.add_scatter(
        x=ends, y=ends, mode="lines", line=dict(color=QUIET, dash="dot"), hoverinfo="skip",
        name="equal",
    )  # fmt: skip
    for name, colour in zip(variants[0].scores, COLOURS, strict=False):
        figure.add_scatter(
            x=means, y=[one.scores[name] for one in variants], mode="markers", name=labels[name],
            marker=dict(color=colour, size=7, opacity=0.75),
            text=_plain([one.name for one in variants]),
            error_x=dict(
                type="data", array=[one.order_sd.value for one in variants], color=FAINT, width=0,
                thickness=1,
            ),
            hovertemplate="%{text}: %{y:+.2f} against %{x:+.2f}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title_text="mean over orders", tickformat="~g", rangemode="normal")
    figure.update_yaxes(title=dict(text="by the convention", font_size=13), rangemode="normal")
    figure.update_layout(height=420)
    return figure


def _plain(texts: Sequence[str]) -> list[str]:
    """Texts as Plotly shows them, letter by letter."""
    return [escape(visible(text), quote=False) for text in texts]
