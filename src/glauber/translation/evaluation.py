"""Does refinement say as much as the autoregressive model, and how much sooner?"""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from glauber.translation.choice import JUDGES
from glauber.translation.data import Judged
from glauber.translation.model import Translator
from glauber.translation.score import Latency, Quality, Throughput, latencies, quality, throughput
from glauber.translation.store import load, load_vocabulary
from glauber.translation.translate import Translation, Way, translate
from glauber.translation.vocabulary import Vocabulary

# Test pairs of Tatoeba, CC BY 2.0 FR; the third column of the file names their authors.
TEST_PAIRS = Path(__file__).resolve().parent.parent / "data" / "translation-test.tsv.xz"

JUDGED = {"itself": "", "teacher": ", judged by ar"}
System = tuple[str, Way]  # the model's name in its folder, and how it decodes


@dataclass(frozen=True)
class Measures:
    """What is timed: so many sentences one at a time, and so many in batches; 0: none."""

    n_timed: int = 50
    n_throughput: int = 0


@dataclass(frozen=True)
class Evaluation:
    """One system on one set of sentences."""

    system: str
    way: Way
    quality: Quality
    n_passes: float  # mean over the sentences
    latency: Latency | None
    throughput: Throughput | None
    outputs: tuple[str, ...]


def baselines() -> dict[str, System]:
    """Greedy and beam search of the teacher."""
    return {
        "ar, greedy": ("teacher", Way("ar", n_beams=1)),
        "ar, beam 5": ("teacher", Way("ar", n_beams=5)),
    }


def ways(
    n_steps: tuple[int, ...] = (4, 10),
    n_lengths: int = 5,
    *,
    decoders: tuple[str, ...] = ("refine",),
    judges: tuple[str, ...] = JUDGES,
    like: Way | None = None,
) -> dict[str, System]:
    """The baselines, and the student by each decoder, judge and count; else as `like` has it."""
    like = like or Way()
    return baselines() | {
        f"{decoder}, {count} step{'s' if count > 1 else ''}{JUDGED[judge]}": (
            "student",
            replace(like, decoder=decoder, n_steps=count, n_lengths=n_lengths, judge=judge),
        )
        for decoder in decoders
        for judge in judges
        for count in n_steps
    }


def evaluate(
    folder: Path,
    judged: Sequence[Judged],
    systems: dict[str, System],
    *,
    measures: Measures | None = None,
    device: str = "cpu",
    hear: Callable[[str], None] = lambda system: None,
) -> list[Evaluation]:
    """Every system on the same sentences, in one run; `hear` is told what begins."""
    measures, vocabulary = measures or Measures(), load_vocabulary(folder)
    names = {name for name, _ in systems.values()}
    names |= {way.judge for _, way in systems.values() if way.judge != "itself"}
    models = {name: load(folder, name, device=device) for name in sorted(names)}
    judges = [
        _Judge(models[name], vocabulary, way, models.get(way.judge))
        for name, way in systems.values()
    ]
    made = []
    for system, judge in zip(systems, judges, strict=True):
        hear(system)
        made.append(judge.evaluation(system, judged, spread(judged, measures.n_throughput)))
    alone = spread(judged, measures.n_timed)
    if not alone:
        return made
    hear(f"{len(alone)} sentences one at a time")
    late = latencies([judge.alone for judge in judges], alone)
    return [replace(one, latency=times) for one, times in zip(made, late, strict=True)]


def spread(judged: Sequence[Judged], count: int) -> list[Judged]:
    """At most so many sentences, evenly spaced: files often begin with their shortest ones."""
    count = min(count, len(judged))
    return [judged[row * len(judged) // count] for row in range(count)]


def machine(device: str = "cpu") -> str:
    """Where times were measured, in words."""
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    count = torch.get_num_threads()
    threads = "1 thread" if count == 1 else f"{count} threads"
    return f"{device}, {platform.machine()}, {threads}, float32"


@dataclass(frozen=True)
class _Judge:
    """One model and its way."""

    model: Translator
    vocabulary: Vocabulary
    way: Way
    teacher: Translator | None = None

    def translate(self, rows: Sequence[Judged], batch_size: int = 64) -> list[Translation]:
        known = [len(self.vocabulary.encode(one.references[0])) for one in rows]
        return translate(
            self.model,
            self.vocabulary,
            [one.source for one in rows],
            way=self.way,
            batch_size=batch_size,
            reference_lengths=known if self.way.length == "oracle" else None,
            teacher=self.teacher,
        )

    def alone(self, one: Judged) -> list[Translation]:
        return self.translate([one])

    def evaluation(
        self, system: str, judged: Sequence[Judged], many: Sequence[Judged]
    ) -> Evaluation:
        """Without latency, which is measured beside the other systems."""
        made = self.translate(judged)
        outputs = tuple(one.text for one in made)
        return Evaluation(
            system=system,
            way=self.way,
            quality=quality(outputs, judged),
            n_passes=sum(one.n_passes for one in made) / len(made),
            latency=None,
            throughput=throughput(self.translate, many) if many else None,
            outputs=outputs,
        )
