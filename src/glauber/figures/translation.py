"""What does each millisecond buy, how sure is each word at each pass, and how did training go?"""

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import plotly.graph_objects as go

from glauber.figures.style import FAINT, INK, QUIET, STRONG, empty_figure
from glauber.translation.evaluation import JUDGED, Evaluation
from glauber.translation.training import TrainedModel
from glauber.translation.translate import Sentence

STYLES = (
    (QUIET, "dot", "diamond", "top center"),
    ("#d55e00", "dash", "square", "bottom center"),
    (STRONG, "solid", "circle", "bottom center"),
)
BASELINES = ("x-thin-open", "cross-thin-open")
HEIGHT = 440
ROW = 34  # pixels of a pass


def plot_frontier(systems: Sequence[Evaluation], machine: str) -> go.Figure:
    """BLEU over the median milliseconds of a sentence; a line for each number of lengths."""
    timed = [one for one in systems if one.latency is not None]
    n_sentences = timed[0].quality.n_sentences
    n_timed = timed[0].latency.n_sentences if timed[0].latency else 0
    figure = empty_figure(
        "What each millisecond buys",
        f"BLEU of {n_sentences:,} sentences; latency of {n_timed:,} of them, one at "
        f"a time<br>on {machine}; the numbers are passes T",
    )
    parallel = [one for one in timed if one.decoding.decoder != "ar"]
    lines: dict[str, list[Evaluation]] = {}
    for one in parallel:
        lines.setdefault(_line_name(one), []).append(one)
    for (name, points), style in zip(lines.items(), cycle(STYLES), strict=False):
        _add_line(figure, name, sorted(points, key=lambda one: one.decoding.n_steps), style)
    searched = [one for one in timed if one.decoding.decoder == "ar"]
    for one, symbol in zip(searched, cycle(BASELINES), strict=False):
        figure.add_scatter(
            x=[_milliseconds(one)], y=[one.quality.bleu], mode="markers", name=one.system,
            marker=dict(symbol=symbol, size=13, color=INK, line=dict(width=3, color=INK)),
            hovertemplate=f"{one.system}: %{{x:.1f}} ms, BLEU %{{y:.2f}}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title_text="median ms a sentence", tickformat="~g", rangemode="tozero")
    figure.update_yaxes(title=dict(text="BLEU", font_size=13), rangemode="normal", automargin=True)
    figure.update_layout(
        height=HEIGHT, showlegend=True, legend_font_color=INK, margin_t=118, title_y=0.97
    )
    return figure


def plot_quality(systems: Sequence[Evaluation]) -> go.Figure:
    """BLEU of each system as a bar, with chrF beside it."""
    figure = empty_figure(
        "How good are the translations?",
        f"{systems[0].quality.n_sentences:,} sentences, against all their references (estimates)",
    )
    names = [one.system for one in systems]
    for name, colour, values in (
        ("BLEU", STRONG, [one.quality.bleu for one in systems]),
        ("chrF", QUIET, [one.quality.chrf for one in systems]),
    ):
        figure.add_bar(
            y=names, x=values, name=name, orientation="h", marker_color=colour,
            hovertemplate=f"%{{y}}: {name} %{{x:.2f}}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(height=140 + 2 * ROW * len(systems), barmode="group", showlegend=True)
    figure.update_xaxes(title_text="score", tickformat="~g")
    figure.update_yaxes(autorange="reversed", automargin=True)
    return figure


def plot_passes(sentence: Sentence) -> go.Figure:
    """Every word at every pass, coloured by its probability when it was written."""
    rows, sure = sentence.tokens, np.exp(np.array(sentence.log_probs, dtype=float))
    figure = empty_figure(
        "How sure is the translator of each word?",
        f"{_short(sentence.source)}<br>probability of each token in the pass that wrote it",
    )
    shown = [[token.replace("▁", " ").strip() for token in row] for row in rows]
    # A light word on a dark cell and the other way round is what plotly does by itself.
    figure.add_heatmap(
        z=sure, text=shown, texttemplate="%{text}", zmin=0, zmax=1, xgap=1, ygap=1,
        colorscale=[[0, "white"], [1, STRONG]],
        hovertemplate="pass %{y}, position %{x}: %{text}, %{z:.3f}<extra></extra>",
        colorbar=dict(title=dict(text="probability", side="right"), thickness=12),
        y=list(range(1, len(rows) + 1)), x=list(range(len(rows[0]) if rows else 0)),
    )  # fmt: skip
    figure.update_layout(height=190 + ROW * len(rows), plot_bgcolor=FAINT, margin_t=100)
    figure.update_xaxes(title_text="position", rangemode="normal")
    figure.update_yaxes(
        title=dict(text="pass", font_size=13), autorange="reversed", dtick=1, rangemode="normal"
    )
    return figure


def plot_losses(models: Sequence[TrainedModel]) -> go.Figure:
    """The loss of single batches over the steps, a line for each model."""
    figure = empty_figure(
        "How did the training go?", "loss of single batches; teacher and student differ in kind"
    )
    for one, (colour, dash, _, _) in zip(models, cycle(STYLES[1:]), strict=False):
        figure.add_scatter(
            x=[step for step, _ in one.curve], y=[loss for _, loss in one.curve], name=one.name,
            mode="lines+markers" if len(one.curve) < 3 else "lines",
            line=dict(color=colour, width=2, dash=dash),
            hovertemplate=f"{one.name}, step %{{x}}: %{{y:.3f}}<extra></extra>",
        )  # fmt: skip
    figure.update_yaxes(title=dict(text="loss, nats a token", font_size=13))
    figure.update_layout(showlegend=True)
    return figure


def _line_name(one: Evaluation) -> str:
    how = one.decoding
    return f"{how.decoder}, B = {how.n_lengths}{JUDGED[how.judge] if how.n_drafts > 1 else ''}"


def _milliseconds(one: Evaluation) -> float:
    assert one.latency is not None
    return 1000 * one.latency.median


def _short(text: str, most: int = 100) -> str:
    from html import escape

    return escape(text if len(text) <= most else text[: most - 1] + "…")


def _add_line(
    figure: go.Figure, name: str, points: list[Evaluation], style: tuple[str, str, str, str]
) -> None:
    colour, dash, symbol, place = style
    figure.add_scatter(
        x=[_milliseconds(one) for one in points],
        y=[one.quality.bleu for one in points],
        text=[str(one.decoding.n_steps) for one in points],
        mode="lines+markers+text",
        textposition=place,
        textfont=dict(color=colour, size=12),
        name=name,
        line=dict(color=colour, width=2.5, dash=dash),
        marker=dict(symbol=symbol, size=9),
        hovertemplate=f"{name}, T = %{{text}}: %{{x:.1f}} ms, BLEU %{{y:.2f}}<extra></extra>",
    )
