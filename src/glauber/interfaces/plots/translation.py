"""Charts of translators: quality by time, the words of each pass, and training."""

from collections.abc import Sequence
from itertools import cycle

import numpy as np

from glauber.interfaces.plots.chart import BLUE, FAINT, INK, ORANGE, QUIET, Chart
from glauber.translation.evaluation import JUDGE_SUFFIX, Evaluation
from glauber.translation.timing import PARTS, TranslatorTimes
from glauber.translation.training import TrainedModel
from glauber.translation.translate import Sentence

STYLES = (
    (QUIET, "dot", "diamond", "top center"),
    (ORANGE, "dash", "square", "bottom center"),
    (BLUE, "solid", "circle", "bottom center"),
)
BASELINES = ("x-thin-open", "cross-thin-open")
ROW = 34  # pixels of a pass
MOST_CHARACTERS = 100  # of a sentence above a chart


def plot_frontier(systems: Sequence[Evaluation], machine: str) -> Chart:
    """BLEU over the median milliseconds of a sentence; a line for each number of lengths."""
    timed = [system for system in systems if system.latency is not None]
    n_timed = timed[0].latency.n_sentences if timed[0].latency else 0
    chart = Chart(
        "Quality by time",
        f"BLEU of {timed[0].quality.n_sentences:,} sentences; latency of {n_timed:,} of them, one "
        f"at a time on {machine}; the numbers are passes T",
        x=dict(title="median ms per sentence", tickformat="~g", rangemode="tozero"),
        y=dict(title="BLEU"),
        height=420,
        legend="below",
        showlegend=True,
    )
    lines: dict[str, list[Evaluation]] = {}
    for system in timed:
        if system.decoding.decoder != "ar":
            lines.setdefault(_line_name(system), []).append(system)
    for (name, points), style in zip(lines.items(), cycle(STYLES), strict=False):
        points = sorted(points, key=lambda point: point.decoding.n_steps)
        color, dash, symbol, text_position = style
        chart.line(
            [_milliseconds(point) for point in points],
            [point.quality.bleu for point in points],
            name,
            f"{name}, T = %{{text}}: %{{x:.1f}} ms, BLEU %{{y:.2f}}",
            dots=True,
            color=color,
            dash=dash,
            labels=[str(point.decoding.n_steps) for point in points],
            textposition=text_position,
            marker=dict(symbol=symbol, size=9),
        )
    searched = [system for system in timed if system.decoding.decoder == "ar"]
    for system, symbol in zip(searched, cycle(BASELINES), strict=False):
        chart.dots(
            [_milliseconds(system)],
            [system.quality.bleu],
            system.system,
            f"{system.system}: %{{x:.1f}} ms, BLEU %{{y:.2f}}",
            color=INK,
            size=13,
            symbol=symbol,
            line=dict(width=3, color=INK),
        )
    return chart


def plot_quality(systems: Sequence[Evaluation]) -> Chart:
    """BLEU of each system as a bar, with chrF next to it."""
    chart = Chart(
        "Quality of the translations",
        f"{systems[0].quality.n_sentences:,} sentences, against all their references (estimates)",
        x=dict(title="score", tickformat="~g"),
        y=dict(autorange="reversed"),
        height=140 + 2 * ROW * len(systems),
        barmode="group",
        showlegend=True,
    )
    names = [system.system for system in systems]
    for name, color, values in (
        ("BLEU", BLUE, [system.quality.bleu for system in systems]),
        ("chrF", QUIET, [system.quality.chrf for system in systems]),
    ):
        hover = f"%{{y}}: {name} %{{x:.2f}}"
        chart.columns(values, names, name, hover, color=color, horizontal=True)
    return chart


def plot_passes(sentence: Sentence) -> Chart:
    """Every word at every pass, coloured by its probability when it was written."""
    rows, probs = sentence.tokens, np.exp(np.array(sentence.log_probs, dtype=float))
    source = sentence.source
    if len(source) > MOST_CHARACTERS:
        source = source[: MOST_CHARACTERS - 1] + "…"
    chart = Chart(
        "Probability of each word, pass by pass",
        f"{source}; probability of each token in the pass that wrote it",
        x=dict(title="position", tickformat=",d"),
        y=dict(title="pass", autorange="reversed", dtick=1),
        height=190 + ROW * len(rows),
        plot_bgcolor=FAINT,
    )
    chart.cells(
        probs,
        "pass %{y}, position %{x}: %{text}, %{z:.3f}",
        bar="probability",
        text=[[token.replace("▁", " ").strip() for token in row] for row in rows],
        y=list(range(1, len(rows) + 1)),
        x=list(range(len(rows[0]) if rows else 0)),
    )
    return chart


def plot_losses(models: Sequence[TrainedModel]) -> Chart:
    """The loss of single batches over the steps, a line for each model."""
    chart = Chart(
        "Loss in training",
        "of single batches; teacher and student differ in kind",
        y=dict(title="loss, nats per token", rangemode="tozero"),
        showlegend=True,
    )
    for model, (color, dash, *_) in zip(models, cycle(STYLES[1:]), strict=False):
        steps, losses = ([point[k] for point in model.curve] for k in (0, 1))
        hover, few = f"{model.name}, step %{{x}}: %{{y:.3f}}", len(model.curve) < 3
        chart.line(steps, losses, model.name, hover, dots=few, color=color, width=2, dash=dash)
    return chart


def _line_name(evaluation: Evaluation) -> str:
    how = evaluation.decoding
    return (
        f"{how.decoder}, B = {how.n_lengths}{JUDGE_SUFFIX[how.judge] if how.n_drafts > 1 else ''}"
    )


def _milliseconds(system: Evaluation) -> float:
    assert system.latency is not None
    return 1000 * system.latency.median


def plot_times(times: TranslatorTimes) -> Chart:
    """Milliseconds of each sentence over the tokens of its target."""
    chart = Chart(
        "Time by length",
        f"one sentence at a time on {times.machine}",
        x=dict(title="target tokens", tickformat=",d"),
        y=dict(title="ms", tickformat="~g", rangemode="tozero"),
        height=420,
        legend="below",
        showlegend=True,
    )
    for system, (color, _, symbol, _) in zip(times.seconds, cycle(STYLES), strict=False):
        hover = f"{system}, %{{x}} tokens: %{{y:.1f}} ms"
        milliseconds = 1000 * times.total(system)
        chart.dots(times.target_tokens, milliseconds, system, hover, color=color, symbol=symbol)
    return chart


def plot_parts(times: TranslatorTimes) -> Chart:
    """Mean milliseconds of the decoder and of fixed costs, one bar for each system."""
    chart = Chart(
        "Where the time goes",
        f"mean ms of a sentence, one at a time on {times.machine}",
        x=dict(title="ms", tickformat="~g"),
        y=dict(autorange="reversed"),
        height=300,
        legend="below",
        barmode="stack",
        showlegend=True,
    )
    systems, fixed = list(times.seconds), [part for part in PARTS if part != "decoder"]
    for name, parts in (("fixed costs", fixed), ("decoder", ["decoder"])):
        means = [
            1000 * sum(float(times.part(system, part).mean()) for part in parts)
            for system in systems
        ]
        hover = f"%{{y}}, {name}: %{{x:.2f}} ms"
        chart.columns(means, systems, name, hover, horizontal=True)
    return chart
