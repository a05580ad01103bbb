"""Does refinement say as much as the autoregressive model, and how much sooner?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glauber.translation.data import Judged
from glauber.translation.model import Translator
from glauber.translation.score import Latency, Quality, latency, quality
from glauber.translation.store import load, load_vocabulary
from glauber.translation.translate import Translation, Way, translate
from glauber.translation.vocabulary import Vocabulary

System = tuple[str, Way]  # the model's name in its folder, and how it decodes


@dataclass(frozen=True)
class Evaluation:
    """One system on one set of sentences."""

    system: str
    quality: Quality
    n_passes: float  # mean over the sentences
    latency: Latency | None
    outputs: tuple[str, ...]


def ways(n_steps: tuple[int, ...] = (4, 10), n_lengths: int = 5) -> dict[str, System]:
    """Greedy and beam search of the teacher, and the student's refinement at each count."""
    systems: dict[str, System] = {
        "ar, greedy": ("teacher", Way("ar", n_beams=1)),
        "ar, beam 5": ("teacher", Way("ar", n_beams=5)),
    }
    for count in n_steps:
        systems[f"refine, {count} steps"] = ("student", Way("refine", count, n_lengths))
    return systems


def evaluate(
    folder: Path,
    judged: Sequence[Judged],
    systems: dict[str, System],
    *,
    n_timed: int = 50,
    device: str = "cpu",
) -> list[Evaluation]:
    """Every system on the same sentences, in one run; the first `n_timed` also one at a time."""
    vocabulary = load_vocabulary(folder)
    models = {name: load(folder, name, device=device) for name, _ in systems.values()}
    return [
        _evaluated(system, models[name], vocabulary, judged, way, n_timed)
        for system, (name, way) in systems.items()
    ]


def _evaluated(
    system: str,
    model: Translator,
    vocabulary: Vocabulary,
    judged: Sequence[Judged],
    way: Way,
    n_timed: int,
) -> Evaluation:
    sources = [one.source for one in judged]
    made = translate(model, vocabulary, sources, way=way)
    outputs = tuple(one.text for one in made)

    def alone(text: str) -> list[Translation]:
        return translate(model, vocabulary, [text], way=way)

    return Evaluation(
        system=system,
        quality=quality(outputs, judged),
        n_passes=sum(one.n_passes for one in made) / len(made),
        latency=latency(alone, sources[:n_timed]) if n_timed else None,
        outputs=outputs,
    )
