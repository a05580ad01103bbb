"""Could it be one law? Rectangles, entropy production, potentials and scores as pictures."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import FAINT, QUIET, STRONG, empty_figure
from glauber.result import visible

if TYPE_CHECKING:
    import pandas

    from glauber.compatibility.single_mask import Ratio
    from glauber.statistics import Estimate


def plot_deltas(delta: NDArray[Any], noise_floor: float, *, n_bins: int = 40) -> go.Figure:
    """The histogram of Delta; delta (count,) in nats, with its mean and the noise floor."""
    counts, edges = np.histogram(delta, bins=n_bins, range=(0.0, float(delta.max()) or 1.0))
    figure = empty_figure(
        "How far rectangles are from closing",
        f"Delta of {len(delta):,} rectangles in nats; 0 for every one if a joint law existed",
    )
    figure.update_xaxes(title_text="Delta", tickformat="~g")
    figure.update_yaxes(title=dict(text="rectangles", font_size=13))
    figure.add_bar(
        x=(edges[:-1] + edges[1:]) / 2,
        y=counts,
        width=np.diff(edges),
        marker=dict(color=STRONG, line=dict(color="white", width=1)),
        hovertemplate="Delta near %{x:.2f}: %{y} rectangles<extra></extra>",
        showlegend=False,
    )
    _mark(figure, float(delta.mean()), f"mean {delta.mean():.3f}", "solid")
    _mark(figure, noise_floor, f"noise floor {noise_floor:.1e}", "dot")
    return figure


def plot_delta_against_influence(influence: NDArray[Any], delta: NDArray[Any]) -> go.Figure:
    """Delta (count,) against the influence (count,) between the two sites, both not negative."""
    figure = empty_figure(
        "Delta and the influence between the two sites",
        "Delta in nats against the total variation that changing one site makes at the other",
    )
    figure.update_xaxes(title_text="influence, mean of both directions", tickformat="~g")
    figure.update_yaxes(title=dict(text="Delta", font_size=13))
    figure.add_scatter(
        x=influence,
        y=delta,
        mode="markers",
        marker=dict(color=STRONG, size=6, opacity=0.5),
        name="a rectangle",
        hovertemplate="influence %{x:.3f}, Delta %{y:.2f}<extra></extra>",
    )
    middles, medians = _binned_medians(influence, delta)
    figure.add_scatter(
        x=middles,
        y=medians,
        mode="lines",
        line=dict(color=QUIET, width=2.5),
        name="median of each tenth",
        hovertemplate="influence %{x:.3f}, median Delta %{y:.2f}<extra></extra>",
    )
    return figure


def plot_ratios(ratios: Sequence["Ratio"]) -> go.Figure:
    """The chain's log-ratio of two tokens against the single mask's, a dot for each text."""
    figure = empty_figure(
        "Does a single mask tell what the chain does?",
        "log-ratio of two tokens at one site, nats; on the line if a joint law existed",
    )
    figure.update_xaxes(title_text="by a single mask", tickformat="~g")
    figure.update_yaxes(title=dict(text="of the chain", font_size=13), rangemode="normal")
    single = [one.single for one in ratios]
    chain = [one.stationary for one in ratios]
    ends = [min([*single, *chain]), max([*single, *chain])]
    figure.add_scatter(
        x=ends,
        y=ends,
        mode="lines",
        name="equal",
        line=dict(color=QUIET, width=1.5, dash="dot"),
        hoverinfo="skip",
    )
    counted = [(one.single, one.seen) for one in ratios if one.seen is not None]
    seen = [(single, each.value, each.interval) for single, each in counted if each.interval]
    if seen:
        means = [(value, *ends) for _, value, ends in seen]
        figure.add_scatter(
            x=[single for single, _, _ in seen], y=[value for value, _, _ in means], mode="markers",
            marker=dict(color=QUIET, size=5), name="counted, 95% interval over chains",
            error_y=dict(
                type="data", symmetric=False, color=QUIET, thickness=1,
                array=[high - value for value, _, high in means],
                arrayminus=[value - low for value, low, _ in means],
            ),
            hovertemplate="counted %{y:+.2f}<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=single,
        y=chain,
        mode="markers",
        marker=dict(color=STRONG, size=9, opacity=0.7),
        name="a text, enumerated",
        text=[_plain(f"{one.tokens[0]} / {one.tokens[1]}: {one.context}") for one in ratios],
        hovertemplate="%{text}<br>single mask %{x:+.2f}, chain %{y:+.2f}<extra></extra>",
    )
    return figure


def plot_production(chains: "pandas.DataFrame", rate: "Estimate") -> go.Figure:
    """Entropy production: one row for each chain (chain, temperature, rate with its interval)."""
    figure = empty_figure(
        "Entropy production of each chain",
        "nats per step, with the 95% interval of its own batch means; 0 if one joint law existed",
    )
    figure.update_xaxes(title_text="chain", tickformat="d")
    figure.update_yaxes(title=dict(text="nats per step", font_size=13))
    shaded = "too few chains for an interval"
    if rate.interval is not None:
        low, high = rate.interval
        figure.add_hrect(y0=low, y1=high, fillcolor=FAINT, line_width=0, layer="below")
        shaded = "shaded: the 95% interval over chains"
    figure.add_hline(
        y=rate.value,
        line=dict(color=QUIET, width=2),
        name=f"all chains: {rate.value:.4f}; {shaded}",
        showlegend=True,
    )
    figure.add_scatter(
        x=chains["chain"],
        y=chains["rate"],
        error_y=dict(
            array=chains["rate_high"] - chains["rate"],
            arrayminus=chains["rate"] - chains["rate_low"],
            color=STRONG,
            thickness=1,
        ),
        mode="markers",
        marker=dict(color=STRONG, size=8),
        customdata=chains["temperature"],
        name="a chain",
        hovertemplate="chain %{x}, temperature %{customdata:g}: %{y:.4f}<extra></extra>",
    )
    return figure


def plot_scores(pieces: list[str], variants: dict[str, list[float]], text: str) -> go.Figure:
    """Log-probability of each token of a text, (tokens,) for each variant."""
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    figure = empty_figure(
        "Which tokens does the model not expect?",
        f"log-probability of each token given the others, in nats: {_plain(shown)}",
    )
    places = list(range(len(pieces)))
    figure.update_xaxes(
        title_text="", tickvals=places, ticktext=[_plain(one) for one in pieces], tickangle=-45
    )
    figure.update_yaxes(title=dict(text="nats", font_size=13))
    for (name, values), colour in zip(variants.items(), (STRONG, QUIET), strict=False):
        figure.add_bar(
            x=places,
            y=values,
            marker_color=colour,
            name=name,
            text=[_plain(one) for one in pieces],
            textposition="none",
            hovertemplate="%{text}: %{y:.3f} nats<extra></extra>",
        )
    figure.update_layout(barmode="group", margin_b=80)
    return figure


def plot_totals(texts: list[str], totals: dict[str, list[float]]) -> go.Figure:
    """Pseudo-log-likelihood per token of several texts, (texts,) for each variant."""
    figure = empty_figure(
        "Which text fits its own conditionals best?",
        "pseudo-log-likelihood per token, in nats; hover to read a text",
    )
    figure.update_xaxes(title_text="text", tickformat="d", dtick=1 if len(texts) <= 20 else None)
    figure.update_yaxes(title=dict(text="nats per token", font_size=13))
    for (name, values), colour in zip(totals.items(), (STRONG, QUIET), strict=False):
        figure.add_scatter(
            x=list(range(1, len(texts) + 1)),
            y=values,
            mode="markers",
            marker=dict(color=colour, size=8),
            name=name,
            text=[_plain(text[:80]) for text in texts],
            hovertemplate="%{text}<br>%{y:.3f} nats per token<extra></extra>",
        )
    return figure


def plot_hidden_share(curve: Sequence[tuple[float, "Estimate"]]) -> go.Figure:
    """Mean nll of a hidden token against the hidden share: (share, nats) for each tenth."""
    figure = empty_figure(
        "How hard is a token when more is hidden?",
        "-log probability of a hidden token, nats, mean over texts; the bound is their average",
    )
    figure.update_xaxes(title_text="hidden share", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(title=dict(text="nats a token", font_size=13))
    values = [found.value for _, found in curve]
    ends = [found.interval or (found.value, found.value) for _, found in curve]
    figure.add_scatter(
        x=[share for share, _ in curve],
        y=values,
        mode="lines+markers",
        line=dict(color=STRONG, width=2),
        error_y=dict(
            type="data", symmetric=False, color=STRONG, thickness=1,
            array=[high - value for (_, high), value in zip(ends, values, strict=True)],
            arrayminus=[value - low for (low, _), value in zip(ends, values, strict=True)],
        ),
        name="mean of a tenth, 95% interval over texts",
        hovertemplate="%{x:.0%} hidden: %{y:.3f} nats<extra></extra>",
    )  # fmt: skip
    return figure


def plot_orders(texts: list[str], along: Sequence[NDArray[Any]]) -> go.Figure:
    """log p_o(x) a token of each order (orders,), text by text."""
    figure = empty_figure(
        "Does the order matter?",
        "log-likelihood a token along each order, nats; one point a text if one law owned them",
    )
    few = len(texts) <= 20
    figure.update_xaxes(title_text="text", tickformat="d", dtick=1 if few else None)
    figure.update_yaxes(title=dict(text="nats a token", font_size=13), rangemode="normal")
    numbers = range(1, len(texts) + 1)
    for name, x, y, colour, size in (
        ("an order", np.repeat(numbers, [len(one) for one in along]), along, QUIET, 5),
        (
            "mean over orders",
            np.array(numbers),
            [one.mean(keepdims=True) for one in along],
            STRONG,
            9,
        ),
    ):
        figure.add_scatter(
            x=x,
            y=np.concatenate(y),
            mode="markers",
            marker=dict(color=colour, size=size, opacity=0.7),
            name=name,
            text=[_plain(texts[number - 1][:80]) for number in x],
            hovertemplate="%{text}<br>%{y:.3f} nats a token<extra></extra>",
        )
    return figure


def plot_potential(
    potential: NDArray[Any], pll: NDArray[Any], counts: NDArray[Any], texts: list[str]
) -> go.Figure:
    """Potential and pseudo-log-likelihood (states,), each from its mean, against visits."""
    figure = empty_figure(
        "Who knows how often a text is visited?",
        "nats from the mean, against the steps that chains spent in the text",
    )
    figure.update_xaxes(title_text="steps spent there", type="log", tickformat="~g")
    figure.update_yaxes(title=dict(text="nats", font_size=13), rangemode="normal")
    values = {"pseudo-log-likelihood": (pll, QUIET), "potential": (potential, STRONG)}
    for name, (value, colour) in values.items():
        figure.add_scatter(
            x=counts,
            y=value - np.mean(value),
            mode="markers",
            marker=dict(color=colour, size=7, opacity=0.6),
            name=name,
            text=[_plain(text) for text in texts],
            hovertemplate="%{text}<br>%{x} steps, %{y:.2f} nats<extra></extra>",
        )
    return figure


def _plain(text: str) -> str:
    """A text as Plotly shows it: no markup of its own."""
    return escape(visible(text), quote=False)


def _binned_medians(x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Medians of x and of y over tenths of the points in order of x (fewer if points are few)."""
    tenths = np.array_split(np.argsort(x, kind="stable"), min(10, len(x)))
    return (
        np.array([np.median(x[tenth]) for tenth in tenths]),
        np.array([np.median(y[tenth]) for tenth in tenths]),
    )


def _mark(figure: go.Figure, x: float, name: str, dash: str) -> None:
    """A vertical line over the whole height, named in the legend."""
    figure.add_vline(x=x, line=dict(color=QUIET, width=2, dash=dash), name=name, showlegend=True)
