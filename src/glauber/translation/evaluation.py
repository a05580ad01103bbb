"""Quality and speed of several ways to translate the same sentences, as one comparison."""

import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar, Unpack

import torch

from glauber.foundation.checks import OneOf, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Device
from glauber.foundation.progress import Advance, say, track
from glauber.foundation.statistics import quantile
from glauber.foundation.study import Result, one_of, study
from glauber.foundation.tables import table
from glauber.models.weights import choose_device
from glauber.translation.data import (
    MAX_LONG_PAIRS,
    Example,
    SubwordVocabulary,
    by_source,
    load_vocabulary,
    long_pairs,
    read_split,
)
from glauber.translation.decoding import (
    JUDGES,
    ORDERS,
    Decoding,
    Steps,
    Translation,
    translate_texts,
)
from glauber.translation.model import Translator, is_file, load
from glauber.translation.score import (
    MISSING,
    TOKENIZER,
    TOKENIZERS,
    Difference,
    Learned,
    Quality,
    bleu_difference,
    check_learned,
    check_tokenizer,
    first_references,
    learned_score,
    preprocessed_bleus,
    quality,
)
from glauber.translation.translate import (
    DecodingOptions,
    Lengths,
    TranslatorModel,
    translator_folder,
)

# Test pairs of Tatoeba, CC BY 2.0 FR; the third column of the file names their authors.
TEST_PAIRS = Path(__file__).resolve().parent.parent / "data" / "translation-test.tsv.xz"
N_THROUGHPUT = 256  # sentences of a throughput measurement, at most
BEAM = "ar, beam 5"  # the system that every other one is compared with
CONTROL = "ar-distilled"  # an autoregressive model that learnt from the student's pairs
JUDGE_SUFFIX = {"itself": "", "teacher": ", judged by ar"}
STEPS, LENGTHS = (1, 2, 4, 10), (1, 3, 5)  # of the frontier
FEWEST_FOR_P99 = 100  # sentences: of fewer the 99th percentile is the slowest
BATCH_SIZES = (1, 4, 16, 64, 256)  # whose throughput is measured
PLOTS = "glauber.interfaces.plots.translation"
System = tuple[str, Decoding]  # the model's name in its folder, and how it decodes
Item = TypeVar("Item")  # a text, or a text with its references


@study
def evaluate_translator(
    pairs: Annotated[
        str | Path | None,
        "Two-column file, plain or xz, or hub:NAME:CONFIG (default: the bundled test pairs).",
    ] = None,
    *,
    model: TranslatorModel = None,
    decoder: Annotated[
        str | Sequence[str], "Of the student, such as refine,refine-remask."
    ] = Decoding.decoder,
    steps: Annotated[int | Sequence[int], "Passes, such as 4,10.", Steps] = (4, 10),
    lengths: Lengths = Decoding.n_lengths,
    judge: Annotated[
        str | Sequence[str], "Model that chooses among drafts: itself, teacher."
    ] = JUDGES,
    limit: Annotated[
        int | None, "Number of sentences, from the first one (default: all).", Whole()
    ] = None,
    long: Annotated[
        int, "Number of joined long pairs to score instead; 0: none.", Whole(0, MAX_LONG_PAIRS)
    ] = 0,
    timed: Annotated[int, "Sentences that are timed one at a time.", Whole(0)] = 50,
    references: Annotated[
        int | None,
        "References of each sentence, from the first one (default: all; the paper has 1).",
        Whole(),
    ] = None,
    tokenizer: Annotated[str, f"Tokenizer of BLEU: {', '.join(TOKENIZERS)}."] = TOKENIZER,
    preprocessing: Annotated[
        bool, "Also BLEU after lowercasing and the like, which cannot be compared."
    ] = False,
    throughput: Annotated[bool, "Also sentences per second at the best batch size."] = False,
    learned: Annotated[
        str | None, "Also a learned metric: comet or bleurt.", OneOf(tuple(MISSING))
    ] = None,
    weights: Annotated[str | None, "The learned metric's checkpoint, or its hub name."] = None,
    frontier: Annotated[bool, "BLEU against latency over passes and lengths instead."] = False,
    device: Device = "cpu",
    **options: Unpack[DecodingOptions],
) -> "TranslatorEvaluation":
    """Score the autoregressive model and parallel refinement on one file of pairs.

    BLEU and chrF by sacrebleu against all references of a sentence, the share of stuttering words,
    and the time of a single sentence: all systems take turns, so that a slow moment of the machine
    slows all of them (paper B, table 1). `frontier` runs 12 counts of passes and lengths.
    """
    check_tokenizer(tokenizer)
    if learned is not None:
        check_learned(learned, weights)
    if frontier and not timed:
        raise GlauberError("the frontier needs at least 1 timed sentence, but timed is 0.")
    decoding = Decoding(n_lengths=lengths, **options)
    decoding.check()
    passes = [steps] if isinstance(steps, int) else list(steps)
    if not passes:
        raise GlauberError("no number of steps was given.")
    decoders = _choices("the decoder", decoder, ORDERS)
    judges = _choices("the judge", judge, JUDGES)
    compared = (
        frontier_systems()
        if frontier
        else systems(passes, lengths, decoders=decoders, judges=judges, options=decoding)
    )
    if is_file(translator_folder(model) / f"{CONTROL}.safetensors"):
        compared |= {"ar on distilled pairs, beam 5": (CONTROL, Decoding("ar", n_beams=5))}
    folder, kind = translator_folder(model), str(choose_device(device))
    examples = first_references(read_examples(folder, pairs, limit=limit, long=long), references)
    measures = Measures(timed, N_THROUGHPUT if throughput else 0)
    rows = evaluate(folder, examples, compared, measures=measures, device=kind, tokenizer=tokenizer)
    metric = [
        learned_score(row.outputs, examples, metric=learned, weights=weights)
        for row in rows
        if learned is not None
    ]
    bleus = [preprocessed_bleus(row.outputs, examples) for row in rows if preprocessing]
    return TranslatorEvaluation(str(pairs or TEST_PAIRS), machine(kind), rows, metric, bleus)


def read_examples(
    folder: Path, pairs: str | Path | None = None, *, limit: int | None = None, long: int = 0
) -> list[Example]:
    """The sentences of a file or a test split (default: bundled), or long ones joined from it."""
    listed = read_split(pairs or TEST_PAIRS, "test")
    if long:
        return long_pairs(listed, load_vocabulary(folder), n_pairs=long)[:limit]
    return by_source(listed)[:limit]


def _choices(name: str, value: str | Sequence[str], known: Sequence[str]) -> list[str]:
    """The names in a list, or in a text with commas; each must be known."""
    listed = value.split(",") if isinstance(value, str) else value
    names = [one_of(name, entry.strip(), known) for entry in listed if entry.strip()]
    if not names:
        raise GlauberError(f"{name} is missing: {', '.join(known)}.")
    return names


@dataclass(frozen=True)
class Latency:
    """Seconds to translate one sentence: median and 99th percentile over the sentences.

    Fewer than 100 sentences have no 99th percentile: it would be the slowest of them. Its interval
    is by order statistics; fewer than 368 leave the upper end open.
    """

    median: float
    p99: float | None
    n_sentences: int
    seconds: tuple[float, ...] = ()  # of each sentence
    p99_interval: tuple[float | None, float | None] | None = None
    kind: str = "estimate"


@dataclass(frozen=True)
class Throughput:
    """Sentences per second at the best batch size, and at each measured size."""

    best: float
    batch_size: int
    by_size: dict[int, float]
    n_sentences: int
    kind: str = "estimate"


@dataclass(frozen=True)
class Measures:
    """Numbers of sentences that are timed one at a time and in batches; 0: none."""

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

    def row(self) -> dict[str, object]:
        """The scores as columns of a table."""
        row: dict[str, object] = {
            "system": self.system,
            "BLEU": self.quality.bleu,
            "less beam 5": None if self.less is None else self.less.value,
            "interval": None if self.less is None else self.less.interval,
            "chrF": self.quality.chrf,
            "stutter": self.quality.stutter,
            "passes": self.n_passes,
        }
        if self.latency is not None:
            row["ms"] = 1000 * self.latency.median
            if self.latency.p99 is not None:
                ends = self.latency.p99_interval or (None, None)
                row["p99 ms"] = 1000 * self.latency.p99
                row["p99 interval"] = [None if end is None else 1000 * end for end in ends]
        if self.throughput is not None:
            row |= {"per s": self.throughput.best, "batch": self.throughput.batch_size}
        return row


@dataclass(frozen=True, eq=False)
class TranslatorEvaluation(Result):
    """Quality, stutter and speed of several systems on the same sentences, all estimates."""

    file: str  # of the pairs
    machine: str  # on which speed was measured
    systems: list[Evaluation]
    learned: list[Learned]  # one for each system, or none
    bleus: list[dict[str, float]]  # of each system by preprocessing, or none
    kind: str = "estimate"  # What every number is

    FIGURES = {
        "frontier": (f"{PLOTS}:plot_frontier", "timed", "machine"),
        "quality": (f"{PLOTS}:plot_quality", "systems"),
    }

    @property
    def timed(self) -> list[Evaluation] | None:
        """The systems, if the latency of all was measured."""
        return self.systems if all(system.latency for system in self.systems) else None

    def lines(self) -> Iterable[str]:
        yield from table(self.table())
        scores = self.systems[0].quality
        if any(system.less for system in self.systems):
            yield (
                f"less beam 5: BLEU less that of {BEAM} on the same sentences, with its 95% "
                "interval over sentences; the variation between trainings is not included"
            )
        yield f"words that the first references themselves repeat: {scores.reference_stutter:.4f}"
        yield f"BLEU: {scores.bleu_signature}"
        yield f"chrF: {scores.chrf_signature}"
        if self.bleus:
            yield "BLEU by 13a is SacreBLEU's; those after other preprocessing cannot be compared"
        if any(system.latency for system in self.systems):
            yield f"ms: the median, one sentence at a time, on {self.machine}"
        if any(system.latency and system.latency.p99 is None for system in self.systems):
            yield f"no 99th percentile: it needs {FEWEST_FOR_P99} timed sentences"
        if any(system.throughput for system in self.systems):
            yield "per s: sentences per second at the best batch size, which is in the next column"
        yield f"all scores are estimates on these {scores.n_sentences:,} sentences"

    def table(self) -> list[dict[str, object]]:
        """One row per system."""
        rows = [system.row() for system in self.systems]
        for row, metric in zip(rows, self.learned, strict=False):
            row[metric.metric] = metric.score
        for row, bleus in zip(rows, self.bleus, strict=False):
            row |= {f"BLEU, {name}": bleu for name, bleu in bleus.items()}
        return rows


def baselines() -> dict[str, System]:
    """Greedy and beam search of the teacher."""
    return {
        "ar, greedy": ("teacher", Decoding("ar", n_beams=1)),
        BEAM: ("teacher", Decoding("ar", n_beams=5)),
    }


def systems(
    n_steps: Sequence[int] = (4, 10),
    n_lengths: int = 5,
    *,
    decoders: Sequence[str] = (Decoding.decoder,),
    judges: Sequence[str] = JUDGES,
    options: Decoding | None = None,
) -> dict[str, System]:
    """The baselines, and the student with each decoder, judge and number of passes."""
    options = options or Decoding()
    return baselines() | {
        f"{decoder}, {count} step{'s' if count > 1 else ''}{JUDGE_SUFFIX[judge]}": (
            "student",
            replace(options, decoder=decoder, n_steps=count, n_lengths=n_lengths, judge=judge),
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
    examples: Sequence[Example],
    compared: dict[str, System],
    *,
    measures: Measures | None = None,
    device: str = "cpu",
    tokenizer: str = TOKENIZER,
) -> list[Evaluation]:
    """Every system on the same sentences, compared with beam search if that is among them."""
    check_tokenizer(tokenizer)
    for _, decoding in compared.values():
        decoding.check()
    measures, runners = measures or Measures(), _runners(folder, compared, device)
    many, evaluations = spread(examples, measures.n_throughput), []
    say(f"{len(compared)} systems on {len(examples):,} sentences")
    with track("sentences", len(compared) * len(examples)) as advance:
        for system, runner in zip(compared, runners, strict=True):
            evaluations.append(runner.evaluation(system, examples, many, advance, tokenizer))
    beam = next((row for row in evaluations if row.system == BEAM), None)
    if beam is not None:
        evaluations = [
            row
            if row is beam
            else replace(
                row, less=bleu_difference(row.outputs, beam.outputs, examples, tokenizer=tokenizer)
            )
            for row in evaluations
        ]
    alone = spread(examples, measures.n_timed)
    if not alone:
        return evaluations
    with track("sentences, one at a time", len(alone)) as advance:
        times = latencies([runner.translate_one for runner in runners], alone, advance=advance)
    return [replace(row, latency=time) for row, time in zip(evaluations, times, strict=True)]


def spread(examples: Sequence[Example], count: int) -> list[Example]:
    """At most so many sentences, evenly spaced: files often begin with their shortest ones."""
    count = min(count, len(examples))
    return [examples[row * len(examples) // count] for row in range(count)]


def _runners(folder: Path, compared: dict[str, System], device: str) -> "list[_Runner]":
    names = {name for name, _ in compared.values()}
    names |= {"teacher" for _, decoding in compared.values() if decoding.asks_teacher}
    vocabulary = load_vocabulary(folder)
    models = {name: load(folder, name, device=device) for name in sorted(names)}
    return [
        _Runner(models[name], vocabulary, decoding, models.get("teacher"))
        for name, decoding in compared.values()
    ]


@dataclass(frozen=True)
class _Runner:
    """One model and how it decodes."""

    model: Translator
    vocabulary: SubwordVocabulary
    decoding: Decoding
    teacher: Translator | None = None

    def translate(
        self, rows: Sequence[Example], batch_size: int = 64, advance: Advance | None = None
    ) -> list[Translation]:
        known = [len(self.vocabulary.encode(row.references[0])) for row in rows]
        return translate_texts(
            self.model,
            self.vocabulary,
            [row.source for row in rows],
            decoding=self.decoding,
            batch_size=batch_size,
            reference_lengths=known if self.decoding.length == "oracle" else None,
            teacher=self.teacher,
            advance=advance,
        )

    def translate_one(self, row: Example) -> list[Translation]:
        return self.translate([row])

    def evaluation(
        self,
        system: str,
        examples: Sequence[Example],
        many: Sequence[Example],
        advance: Advance,
        tokenizer: str,
    ) -> Evaluation:
        """Without latency, which is measured in turns with the other systems."""
        translations = self.translate(examples, advance=advance)
        outputs = tuple(translation.text for translation in translations)
        return Evaluation(
            system=system,
            decoding=self.decoding,
            quality=quality(outputs, examples, tokenizer=tokenizer),
            n_passes=sum(row.n_passes for row in translations) / len(translations),
            latency=None,
            throughput=throughput(self.translate, many) if many else None,
            outputs=outputs,
        )


def machine(device: str = "cpu") -> str:
    """The machine on which times are measured, in words."""
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    count = torch.get_num_threads()
    threads = "1 thread" if count == 1 else f"{count} threads"
    return f"{device}, {platform.machine()}, {threads}, float32"


def latency(translate_one: Callable[[Item], object], texts: Sequence[Item]) -> Latency:
    """Times of translating each text alone, after three warm-up rounds on the first ones."""
    return latencies([translate_one], texts)[0]


def latencies(
    translators: Sequence[Callable[[Item], object]],
    texts: Sequence[Item],
    *,
    advance: Advance | None = None,
) -> list[Latency]:
    """The latency of several systems; each text goes to all of them before the next one.

    A slow moment of the machine then slows all of them, and the comparison stays fair.
    """
    for text in texts[:3]:
        for translate_one in translators:
            translate_one(text)
    seconds: list[list[float]] = [[] for _ in translators]
    for text in texts:
        for translate_one, times in zip(translators, seconds, strict=True):
            start = time.perf_counter()
            translate_one(text)
            times.append(time.perf_counter() - start)
        if advance is not None:
            advance()
    return [summarise_times(times) for times in seconds]


def summarise_times(seconds: list[float]) -> Latency:
    """The latency of sentences that took so many seconds."""
    n, median = len(seconds), statistics.median(seconds)
    if n < FEWEST_FOR_P99:
        return Latency(median, None, n, tuple(seconds))
    p99 = quantile(seconds, 0.99)
    return Latency(median, p99.value, n, tuple(seconds), p99.interval)


def throughput(
    translate_all: Callable[[Sequence[Item], int], object],
    texts: Sequence[Item],
    *,
    sizes: Sequence[int] = BATCH_SIZES,
) -> Throughput:
    """Sentences per second of translating all texts in batches of each size, after one warm-up.

    Sizes above the number of texts would be the same again and are left out.
    """
    translate_all(texts[:3], 3)
    by_size = {}
    for size in [size for size in sizes if size <= len(texts)] or [len(texts)]:
        start = time.perf_counter()
        translate_all(texts, size)
        by_size[size] = len(texts) / (time.perf_counter() - start)
    best = max(by_size, key=lambda size: by_size[size])
    return Throughput(by_size[best], best, by_size, len(texts))
