"""What does each millisecond buy? Quality against latency over passes and lengths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from glauber.errors import GlauberError
from glauber.translation.data import Judged
from glauber.translation.evaluation import (
    Evaluation,
    Measures,
    System,
    baselines,
    evaluate,
    machine,
)
from glauber.translation.translate import Way

STEPS, LENGTHS = (1, 2, 4, 10), (1, 3, 5)


@dataclass(frozen=True)
class Point:
    """One system: BLEU of all sentences, median seconds of those that were timed alone."""

    system: str
    n_steps: int  # 0: autoregressive
    n_lengths: int
    bleu: float
    median: float
    p99: float


@dataclass(frozen=True)
class Frontier:
    """Refinement at every number of passes and lengths, beside greedy and beam search."""

    refined: tuple[Point, ...]
    autoregressive: tuple[Point, ...]
    n_sentences: int
    n_timed: int
    machine: str
    bleu_signature: str
    kind: str = "estimate"


def frontier(
    folder: Path,
    judged: Sequence[Judged],
    *,
    n_timed: int = 50,
    device: str = "cpu",
    hear: Callable[[str], None] = lambda system: None,
) -> Frontier:
    """All the points, measured in one run on the same sentences."""
    if n_timed < 1:
        raise GlauberError("the frontier needs at least 1 timed sentence.")
    systems: dict[str, System] = baselines() | {
        f"refine, T = {steps}, B = {lengths}": ("student", Way("refine", steps, lengths))
        for lengths in LENGTHS
        for steps in STEPS
    }
    measures = Measures(n_timed)
    made = evaluate(folder, judged, systems, measures=measures, device=device, hear=hear)
    points = [_point(one) for one in made]
    return Frontier(
        refined=tuple(point for point in points if point.n_steps),
        autoregressive=tuple(point for point in points if not point.n_steps),
        n_sentences=len(judged),
        n_timed=min(n_timed, len(judged)),
        machine=machine(device),
        bleu_signature=made[0].quality.bleu_signature,
    )


def _point(one: Evaluation) -> Point:
    assert one.latency is not None
    parallel = one.way.decoder != "ar"
    return Point(
        system=one.system,
        n_steps=one.way.n_steps if parallel else 0,
        n_lengths=one.way.n_lengths if parallel else one.way.n_beams,
        bleu=one.quality.bleu,
        median=one.latency.median,
        p99=one.latency.p99,
    )
