"""Which ways to decode are compared, and what comes out of running them on the same sentences?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from glauber.progress import Advance, say, track
from glauber.translation.data import Judged, Vocabulary, load_vocabulary
from glauber.translation.decoding import JUDGES, Decoding, Translation, translate_texts
from glauber.translation.model import Translator, load
from glauber.translation.score import (
    TOKENIZER,
    Difference,
    Quality,
    bleu_difference,
    check_tokenizer,
    quality,
)
from glauber.translation.speed import Latency, Throughput, latencies, throughput

BESIDE = "ar, beam 5"  # what every other system is compared with
JUDGED = {"itself": "", "teacher": ", judged by ar"}
STEPS, LENGTHS = (1, 2, 4, 10), (1, 3, 5)  # of the frontier
System = tuple[str, Decoding]  # the model's name in its folder, and how it decodes


@dataclass(frozen=True)
class Measures:
    """What is timed: so many sentences one at a time, and so many in batches; 0: none."""

    n_timed: int = 50
    n_throughput: int = 0


@dataclass(frozen=True)
class Evaluation:
    """One system on one set of sentences."""

    system: str
    decoding: Decoding
    quality: Quality
    n_passes: float  # mean over the sentences
    latency: Latency | None
    throughput: Throughput | None
    outputs: tuple[str, ...]
    less: Difference | None = None  # its BLEU less that of beam search


def baselines() -> dict[str, System]:
    """Greedy and beam search of the teacher."""
    return {
        "ar, greedy": ("teacher", Decoding("ar", n_beams=1)),
        BESIDE: ("teacher", Decoding("ar", n_beams=5)),
    }


def systems(
    n_steps: Sequence[int] = (4, 10),
    n_lengths: int = 5,
    *,
    decoders: Sequence[str] = (Decoding.decoder,),
    judges: Sequence[str] = JUDGES,
    like: Decoding | None = None,
) -> dict[str, System]:
    """The baselines, and the student by each decoder, judge and count; else as `like` has it."""
    like = like or Decoding()
    return baselines() | {
        f"{decoder}, {count} step{'s' if count > 1 else ''}{JUDGED[judge]}": (
            "student",
            replace(like, decoder=decoder, n_steps=count, n_lengths=n_lengths, judge=judge),
        )
        for decoder in decoders
        for judge in judges
        for count in n_steps
    }


def frontier_systems() -> dict[str, System]:
    """The baselines, and refinement judged by itself at every number of passes and lengths."""
    return baselines() | {
        f"{Decoding.decoder}, T = {n_steps}, B = {n_lengths}": (
            "student",
            Decoding(n_steps=n_steps, n_lengths=n_lengths, judge="itself"),
        )
        for n_lengths in LENGTHS
        for n_steps in STEPS
    }


def evaluate(
    folder: Path,
    judged: Sequence[Judged],
    chosen: dict[str, System],
    *,
    measures: Measures | None = None,
    device: str = "cpu",
    tokenizer: str = TOKENIZER,
) -> list[Evaluation]:
    """Every system on the same sentences, in one run, beside beam search if that is among them."""
    check_tokenizer(tokenizer)
    for _, decoding in chosen.values():
        decoding.check()
    measures, runners = measures or Measures(), _runners(folder, chosen, device)
    many, made = spread(judged, measures.n_throughput), []
    say(f"{len(chosen)} systems on {len(judged):,} sentences")
    with track("sentences", len(chosen) * len(judged)) as advance:
        for system, runner in zip(chosen, runners, strict=True):
            made.append(runner.evaluation(system, judged, many, advance, tokenizer))
    made = _beside(made, judged, tokenizer)
    alone = spread(judged, measures.n_timed)
    if not alone:
        return made
    with track("sentences, one at a time", len(alone)) as advance:
        late = latencies([runner.alone for runner in runners], alone, advance=advance)
    return [replace(one, latency=times) for one, times in zip(made, late, strict=True)]


def _beside(made: list[Evaluation], judged: Sequence[Judged], tokenizer: str) -> list[Evaluation]:
    """With the difference of each in BLEU from beam search on the same sentences."""
    beam = next((one for one in made if one.system == BESIDE), None)
    if beam is None:
        return made
    return [
        one
        if one is beam
        else replace(
            one, less=bleu_difference(one.outputs, beam.outputs, judged, tokenizer=tokenizer)
        )
        for one in made
    ]


def spread(judged: Sequence[Judged], count: int) -> list[Judged]:
    """At most so many sentences, evenly spaced: files often begin with their shortest ones."""
    count = min(count, len(judged))
    return [judged[row * len(judged) // count] for row in range(count)]


def _runners(folder: Path, chosen: dict[str, System], device: str) -> "list[_Runner]":
    names = {name for name, _ in chosen.values()}
    names |= {"teacher" for _, decoding in chosen.values() if decoding.asks_teacher}
    vocabulary = load_vocabulary(folder)
    models = {name: load(folder, name, device=device) for name in sorted(names)}
    return [
        _Runner(models[name], vocabulary, decoding, models.get("teacher"))
        for name, decoding in chosen.values()
    ]


@dataclass(frozen=True)
class _Runner:
    """One model and how it decodes."""

    model: Translator
    vocabulary: Vocabulary
    decoding: Decoding
    teacher: Translator | None = None

    def translate(
        self, rows: Sequence[Judged], batch_size: int = 64, advance: Advance | None = None
    ) -> list[Translation]:
        known = [len(self.vocabulary.encode(one.references[0])) for one in rows]
        return translate_texts(
            self.model,
            self.vocabulary,
            [one.source for one in rows],
            decoding=self.decoding,
            batch_size=batch_size,
            reference_lengths=known if self.decoding.length == "oracle" else None,
            teacher=self.teacher,
            advance=advance,
        )

    def alone(self, one: Judged) -> list[Translation]:
        return self.translate([one])

    def evaluation(
        self,
        system: str,
        judged: Sequence[Judged],
        many: Sequence[Judged],
        advance: Advance,
        tokenizer: str = TOKENIZER,
    ) -> Evaluation:
        """Without latency, which is measured beside the other systems."""
        made = self.translate(judged, advance=advance)
        outputs = tuple(one.text for one in made)
        return Evaluation(
            system=system,
            decoding=self.decoding,
            quality=quality(outputs, judged, tokenizer=tokenizer),
            n_passes=sum(one.n_passes for one in made) / len(made),
            latency=None,
            throughput=throughput(self.translate, many) if many else None,
            outputs=outputs,
        )
