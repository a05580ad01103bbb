"""Which hidden tokens must not be filled at once, and how does the cost grow?"""

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import FAINT, QUIET, STRONG, THIN, add_token_map, bars, empty_figure
from glauber.generation.calibration import Rung
from glauber.generation.filling import FillCost
from glauber.generation.pair_costs import PairCosts
from glauber.statistics import Estimate

COSTLY = "#d55e00"
LINE = 110  # characters of a text above a figure
FEW_SITES = 40  # up to this many sites have their tokens in the cells


def plot_pairs(pairs: PairCosts, words: Sequence[str], error: float) -> go.Figure:
    """The cost of each ordered pair as a heat map; pairs above the error are framed."""
    kind = "exact" if not pairs.rest.any() else f"lower bounds, {pairs.rest.max():.2g} missing"
    figure = empty_figure(
        "What filling two hidden tokens at once costs",
        f"total variation from filling the row first ({kind})<br>"
        f"framed: above {error:g} as a mean of both orders",
    )
    add_token_map(
        figure,
        pairs.total_variation,
        words,
        hover=[[f"{first} → {second}" for second in words] for first in words],
        across="the token filled second",
        down="the token filled first",
        above=220,
    )
    figure.update_layout(margin_t=100)
    for row, column in np.argwhere(pairs.mean > error).tolist():
        figure.add_shape(
            type="rect", x0=column - 0.46, x1=column + 0.46, y0=row - 0.46, y1=row + 0.46,
            line=dict(color=COSTLY, width=2),
        )  # fmt: skip
    return figure


def plot_filling(
    probs: NDArray[np.float64],
    tokens: Sequence[Sequence[str]],
    moments: Sequence[str],
    sites: Sequence[str],
    text: str,
) -> go.Figure:
    """When each site was filled and with which probability: probs (moments, sites), NaN else."""
    figure = empty_figure(
        "In which order was it filled?", escape(text if len(text) < LINE else text[:LINE] + "…")
    )
    few = len(sites) <= FEW_SITES
    figure.add_heatmap(
        x=list(sites),
        y=list(moments),
        z=probs,
        text=[[escape(token) for token in row] for row in tokens],
        texttemplate="%{text}" if few else None,
        hovertemplate="pass %{y}, site %{x}: %{text}, probability %{z:.3f}<extra></extra>",
        hoverongaps=False,
        colorscale=[[0, "white"], [1, STRONG]],
        zmin=0,
        zmax=1,
        colorbar=dict(
            title=dict(text="probability when placed", side="right", font_size=13), thickness=12
        ),
    )
    figure.update_layout(height=min(1200, 180 + 24 * len(moments)), plot_bgcolor=FAINT)
    figure.update_xaxes(title_text="site", type="category")
    figure.update_yaxes(title_text="pass", type="category", autorange="reversed", nticks=40)
    return figure


def plot_cost_by_count(counts: Sequence[FillCost]) -> go.Figure:
    """Total variation against k, with 95% intervals."""
    figure = empty_figure(
        "What filling k hidden tokens at once costs",
        "total variation from filling them one by one, mean over sets and orders<br>"
        "bars: 95% intervals",
    )
    found = [one.total_variation for one in counts]
    figure.add_scatter(
        x=[one.n_sites for one in counts],
        y=[one.value for one in found],
        error_y=bars(found) | dict(color=QUIET, width=3),
        mode="lines+markers",
        line=dict(color=STRONG, width=2.5),
        hovertemplate="k = %{x}: %{y:.3f}<extra></extra>",
        showlegend=False,
    )
    figure.update_layout(margin_t=100)
    figure.update_xaxes(title_text="tokens filled at once, k", rangemode="normal")
    figure.update_xaxes(tickvals=[one.n_sites for one in counts])
    figure.update_yaxes(title=dict(text="total variation", font_size=13), range=[0, 1.02])
    return figure


def plot_cost_by_distance(pairs: PairCosts) -> go.Figure:
    """The cost of each pair against how far apart the two tokens stand, and the mean."""
    figure = empty_figure(
        "Does the cost fall with distance?",
        "each pair of hidden tokens, mean of both orders; line: mean at each distance",
    )
    n = len(pairs.sites)
    couples = [(a, b) for a in range(n) for b in range(a + 1, n)]
    figure.add_scatter(
        x=[abs(pairs.sites[a] - pairs.sites[b]) for a, b in couples],
        y=[pairs.mean[a, b] for a, b in couples],
        mode="markers",
        marker=dict(color=THIN, size=6),
        hovertemplate="distance %{x}: %{y:.3f}<extra></extra>",
        showlegend=False,
    )
    means = pairs.by_distance()
    figure.add_scatter(
        x=list(means),
        y=[mean for mean, _ in means.values()],
        mode="lines+markers",
        line=dict(color=STRONG, width=2.5),
        hovertemplate="distance %{x}: mean %{y:.3f}<extra></extra>",
        showlegend=False,
    )
    figure.update_xaxes(title_text="tokens apart")
    figure.update_yaxes(title=dict(text="total variation", font_size=13))
    return figure


def plot_mask_rates(shares: list[str], by_masks: dict[str, list[float]]) -> go.Figure:
    """Nll at each share that is hidden, a line for each kind of training mask."""
    figure = empty_figure(
        "How well do masked LMs fill in text, by the masks of their training?",
        "nll a hidden token in nats, means over training seeds; lower is better",
    )
    for kind, values in by_masks.items():
        figure.add_scatter(x=shares, y=values, name=kind, mode="lines+markers")
    figure.update_xaxes(title_text="hidden at once in the test", tickformat=None, type="category")
    figure.update_yaxes(title_text="nll, nats", rangemode="normal")
    figure.update_layout(height=460, legend=dict(orientation="v", x=1.02, y=1, yanchor="top"))
    return figure


def plot_calibration(rungs: Sequence[Rung], error: float) -> go.Figure:
    """Measured cost and bound of the passes against the entropy bound gamma."""
    figure = empty_figure(
        "What a pass within an entropy bound costs",
        "nats of KL that 95% of the passes on the calibration texts do not exceed",
    )
    some = [rung for rung in rungs if rung.tokens > 1]
    gammas = [float(rung.count.partition(":")[2]) for rung in some]
    for name, colour, values in (
        ("entropy bound", QUIET, [rung.bound for rung in some]),
        ("measured cost", STRONG, [rung.cost for rung in some]),
    ):
        figure.add_scatter(
            x=gammas, y=values, name=name, mode="lines+markers", line_color=colour,
            hovertemplate="gamma %{x:.3g}: %{y:.3g} nats<extra>" + name + "</extra>",
        )  # fmt: skip
    figure.add_hline(y=error, line=dict(color=COSTLY, dash="dot"), annotation_text="error")
    figure.update_xaxes(title_text="entropy bound, gamma (nats)", tickformat=None)
    figure.update_yaxes(title_text="nats")
    return figure


def plot_tokens_a_pass(names: Sequence[str], tokens: Sequence[Estimate]) -> go.Figure:
    """How many tokens each calibrated rule fills in a pass, with 95% intervals."""
    figure = empty_figure("How many tokens a pass?", "mean over held-out passes; bars: 95%")
    figure.add_bar(
        x=list(names), y=[one.value for one in tokens], marker_color=STRONG,
        error_y=bars(tokens) | dict(color=QUIET, width=3),
    )  # fmt: skip
    figure.update_xaxes(title_text="", tickformat=None, type="category")
    figure.update_yaxes(title_text="tokens a pass")
    return figure
