"""Charts of compatibility: rectangles, entropy production, potentials and scores."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glauber.interfaces.plots.chart import BLUE, QUIET, WHITE, Chart, bars, ends

if TYPE_CHECKING:
    import pandas

    from glauber.foundation.statistics import Estimate
    from glauber.studies.compatibility.single_mask import Ratio

NATS = dict(title="nats per token")


def plot_deltas(delta: NDArray[Any], noise_floor: float, *, n_bins: int = 40) -> Chart:
    """The histogram of Delta; delta (count,) in nats, with its mean and the noise floor."""
    counts, edges = np.histogram(delta, bins=n_bins, range=(0.0, float(delta.max()) or 1.0))
    chart = Chart(
        "Delta of the rectangles",
        f"{len(delta):,} rectangles, in nats; all are 0 if there is a joint distribution",
        x=dict(title="Delta", tickformat="~g", rangemode="tozero"),
        y=dict(title="rectangles"),
    )
    chart.columns(
        (edges[:-1] + edges[1:]) / 2,
        counts,
        hover="Delta near %{x:.2f}: %{y} rectangles",
        color=BLUE,
        marker=dict(line=dict(color=WHITE, width=1)),
        width=np.diff(edges),
    )
    chart.rule(f"mean {delta.mean():.3f}", x=float(delta.mean()))
    chart.rule(f"noise floor {noise_floor:.1e}", x=noise_floor, dash="dot")
    return chart


def plot_delta_against_influence(influence: NDArray[Any], delta: NDArray[Any]) -> Chart:
    """Delta (count,) against the influence (count,) between the two sites, both not negative."""
    chart = Chart(
        "Delta and the influence between the two sites",
        "Delta in nats against the total variation that changing one site makes at the other",
        x=dict(title="influence, mean of both directions", tickformat="~g", rangemode="tozero"),
        y=dict(title="Delta", rangemode="tozero"),
    )
    hover = "influence %{x:.3f}, Delta %{y:.2f}"
    chart.dots(influence, delta, "a rectangle", hover, size=6, opacity=0.5)
    tenths = np.array_split(np.argsort(influence, kind="stable"), min(10, len(influence)))
    x, y = ([np.median(values[tenth]) for tenth in tenths] for values in (influence, delta))
    chart.line(x, y, "median of each tenth", f"median: {hover}", color=QUIET)
    return chart


def plot_ratios(ratios: "Sequence[Ratio]") -> Chart:
    """The chain's log-ratio of two tokens against the single mask's, a dot for each text."""
    chart = Chart(
        "Log-ratios of a single mask and of the chain",
        "two tokens at one site, in nats; on the line if there is a joint distribution",
        x=dict(title="single mask", tickformat="~g"),
        y=dict(title="chain"),
    )
    single, chain = [ratio.single for ratio in ratios], [ratio.stationary for ratio in ratios]
    diagonal = [min(single + chain), max(single + chain)]
    chart.line(diagonal, diagonal, "equal", color=QUIET, width=1.5, dash="dot")
    counted = [(ratio.single, ratio.seen) for ratio in ratios if ratio.seen and ratio.seen.interval]
    if counted:
        x, y = zip(*counted, strict=True)
        name = "counted, 95% interval over chains"
        chart.dots(list(x), list(y), name, "counted %{y:+.2f}", color=QUIET, size=5)
    chart.dots(
        single,
        chain,
        "a text, enumerated",
        "%{text}\nsingle mask %{x:+.2f}, chain %{y:+.2f}",
        text=[f"{ratio.tokens[0]} / {ratio.tokens[1]}: {ratio.context}" for ratio in ratios],
        color=BLUE,
        size=9,
        opacity=0.7,
    )
    return chart


def plot_production(chains: "pandas.DataFrame", rate: "Estimate") -> Chart:
    """Entropy production: one row for each chain (chain, temperature, rate with its interval)."""
    chart = Chart(
        "Entropy production of each chain",
        "nats per step, 95% intervals from batch means; 0 if there is a joint distribution",
        x=dict(title="chain", tickformat="d", rangemode="tozero"),
        y=dict(title="nats per step", rangemode="tozero"),
    )
    shaded = "too few chains for an interval"
    if rate.interval is not None:
        chart.region(y=rate.interval)
        shaded = "shaded: the 95% interval over chains"
    chart.rule(f"all chains: {rate.value:.4f}; {shaded}", y=rate.value)
    chart.dots(
        chains["chain"],
        chains["rate"],
        "a chain",
        "chain %{x}, temperature %{customdata:g}: %{y:.4f}",
        size=8,
        error=ends(chains["rate"], chains["rate_low"], chains["rate_high"]),
        trace=dict(customdata=chains["temperature"]),
    )
    return chart


def plot_scores(pieces: list[str], variants: dict[str, list[float]], text: str) -> Chart:
    """Log-probability of each token of a text, (tokens,) for each variant."""
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    places = list(range(len(pieces)))
    chart = Chart(
        "Log-probability of each token",
        f"given the others, in nats: {shown}",
        x=dict(tickvals=places, ticktext=pieces, tickangle=-45),
        y=dict(title="nats"),
        barmode="group",
    )
    for (name, values), color in zip(variants.items(), (BLUE, QUIET), strict=False):
        chart.columns(places, values, name, "%{text}: %{y:.3f} nats", text=pieces, color=color)
    return chart


def _by_text(title: str, subtitle: str, texts: Sequence[str]) -> Chart:
    ticks = dict(title="text", tickformat="d", dtick=1 if len(texts) <= 20 else None)
    return Chart(title, subtitle, x=ticks, y=NATS)


def plot_totals(texts: list[str], totals: dict[str, list[float]]) -> Chart:
    """Pseudo-log-likelihood per token of several texts, (texts,) for each variant."""
    chart = _by_text("Pseudo-log-likelihood of each text", "per token, in nats", texts)
    short = [text[:80] for text in texts]
    for (name, values), color in zip(totals.items(), (BLUE, QUIET), strict=False):
        hover = "%{text}\n%{y:.3f} nats per token"
        chart.dots(range(1, len(texts) + 1), values, name, hover, text=short, color=color, size=8)
    return chart


def plot_hidden_share(curve: "Sequence[tuple[float, Estimate]]") -> Chart:
    """Mean nll of a hidden token against the hidden share: (share, nats) for each tenth."""
    chart = Chart(
        "Loss of a hidden token by the hidden share",
        "-log probability in nats, mean over texts; the bound is the average over shares",
        x=dict(title="hidden share", tickformat=".0%", range=[0, 1]),
        y=NATS | dict(rangemode="tozero"),
    )
    shares, estimates = zip(*curve, strict=True)
    chart.line(
        shares,
        [estimate.value for estimate in estimates],
        "mean of a tenth, 95% interval over texts",
        "%{x:.0%} hidden: %{y:.3f} nats",
        dots=True,
        width=2,
        error=bars(estimates),
    )
    return chart


def plot_orders(texts: list[str], along: Sequence[NDArray[Any]]) -> Chart:
    """log p_o(x) per token of each order (orders,), text by text."""
    chart = _by_text(
        "Log-likelihood of each text along several orders",
        "nats per token; one point per text if there is a joint distribution",
        texts,
    )
    hover = "%{text}\n%{y:.3f} nats per token"
    numbers = np.repeat(range(1, len(texts) + 1), [len(values) for values in along])
    labels = [texts[number - 1][:80] for number in numbers]
    chart.dots(
        numbers,
        np.concatenate(along),
        "an order",
        hover,
        text=labels,
        color=QUIET,
        size=5,
        opacity=0.7,
    )
    chart.dots(
        np.arange(1, len(texts) + 1),
        [values.mean() for values in along],
        "mean over orders",
        hover,
        text=[text[:80] for text in texts],
        color=BLUE,
        size=9,
        opacity=0.7,
    )
    return chart


def plot_potential(
    potential: NDArray[Any], pll: NDArray[Any], counts: NDArray[Any], texts: list[str]
) -> Chart:
    """Potential and pseudo-log-likelihood (states,), each from its mean, against visits."""
    chart = Chart(
        "Predicting visit counts: potential and pseudo-log-likelihood",
        "nats from the mean, against the steps that chains spent in the text",
        x=dict(title="steps spent there", type="log", tickformat="~g"),
        y=dict(title="nats"),
    )
    for name, values, color in (
        ("pseudo-log-likelihood", pll, QUIET),
        ("potential", potential, BLUE),
    ):
        hover = "%{text}\n%{x} steps, %{y:.2f} nats"
        centred = values - np.mean(values)
        chart.dots(counts, centred, name, hover, text=texts, color=color, opacity=0.6)
    return chart
