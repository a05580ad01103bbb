"""Does refinement say as much as the autoregressive model, and how much sooner?"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glauber.conditionals.weights import choose_device
from glauber.errors import GlauberError
from glauber.parameters import Device, Seed
from glauber.progress import check_count, check_seed
from glauber.result import Result, one_of, plain, signature, study
from glauber.tables import table
from glauber.translation.data import Judged, by_source, load_vocabulary, long_pairs, read_pairs
from glauber.translation.decoding import JUDGES, Decoding
from glauber.translation.schedules import MOST_STEPS, ORDERS
from glauber.translation.score import (
    TOKENIZER,
    TOKENIZERS,
    Learned,
    check_learned,
    check_tokenizer,
    learned_score,
)
from glauber.translation.speed import P99, machine
from glauber.translation.systems import (
    BESIDE,
    Evaluation,
    Measures,
    evaluate,
    frontier_systems,
    systems,
)
from glauber.translation.translate import (
    Initial,
    Lengths,
    Ratio,
    Remask,
    RemaskRepeats,
    TranslatorModel,
    translator_folder,
)

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

# Test pairs of Tatoeba, CC BY 2.0 FR; the third column of the file names their authors.
TEST_PAIRS = Path(__file__).resolve().parent.parent / "data" / "translation-test.tsv.xz"
THROUGHPUT = 256  # sentences of each measurement, at most


@study
def evaluate_translator(
    pairs: Annotated[
        str | Path | None, "Two-column file, plain or xz (default: the bundled test pairs)."
    ] = None,
    *,
    model: TranslatorModel = None,
    decoder: Annotated[
        str | Sequence[str], "Of the student, such as refine,refine-remask."
    ] = Decoding.decoder,
    steps: Annotated[int | Sequence[int], "Passes, such as 4,10."] = (4, 10),
    lengths: Lengths = Decoding.n_lengths,
    length: Annotated[str, "Lengths around what: predicted, ratio, oracle."] = Decoding.length,
    ratio: Ratio = Decoding.ratio,
    initial: Initial = None,
    remask: Remask = Decoding.remask,
    remask_repeats: RemaskRepeats = Decoding.remask_repeats,
    judge: Annotated[str | Sequence[str], "Who chooses a draft: itself, teacher."] = JUDGES,
    seed: Seed = 0,
    limit: Annotated[int | None, "Only the first so many sentences."] = None,
    long: Annotated[int, "Score so many joined pairs instead; 0: no."] = 0,
    timed: Annotated[int, "Sentences that are timed one at a time."] = 50,
    tokenizer: Annotated[str, f"Of BLEU: {', '.join(TOKENIZERS)}."] = TOKENIZER,
    throughput: Annotated[bool, "Also sentences a second at the best batch size."] = False,
    learned: Annotated[str | None, "Also a learned metric: comet or bleurt."] = None,
    weights: Annotated[str | None, "The learned metric's checkpoint, or its hub name."] = None,
    frontier: Annotated[bool, "BLEU against latency over passes and lengths instead."] = False,
    device: Device = "cpu",
) -> "TranslatorEvaluation":
    """Score the autoregressive model and the refinement beside it on one file of pairs.

    BLEU and chrF by sacrebleu against all references of a sentence, the share of stuttering words,
    and the time of a sentence alone: all systems take turns, so that what slows the machine slows
    all of them (paper B, table 1). `frontier` runs 12 counts of passes and lengths.
    """
    check_tokenizer(tokenizer)
    if learned is not None:
        check_learned(learned, weights)
    check_seed(seed)
    check_count("number of timed sentences", timed, least=1 if frontier else 0)
    like = Decoding(
        n_lengths=lengths, length=length, ratio=ratio, initial=initial, seed=seed,
        remask_repeats=remask_repeats, remask=remask,
    )  # fmt: skip
    like.check()
    passes = [steps] if isinstance(steps, int) else list(steps)
    if not passes:
        raise GlauberError("no number of steps was given.")
    for count in passes:
        check_count("number of steps", count, most=MOST_STEPS)
    chosen = frontier_systems() if frontier else systems(
        passes,
        lengths,
        decoders=_listed("the decoder", decoder, ORDERS),
        judges=_listed("the judge", judge, JUDGES),
        like=like,
    )  # fmt: skip
    folder, on = translator_folder(model), str(choose_device(device))
    judged = judged_sentences(folder, pairs, limit=limit, long=long)
    measures = Measures(timed, THROUGHPUT if throughput else 0)
    made = evaluate(folder, judged, chosen, measures=measures, device=on, tokenizer=tokenizer)
    metric = [
        learned_score(one.outputs, judged, metric=learned, weights=weights)
        for one in made
        if learned is not None
    ]
    how = signature(
        translator=folder.name, pairs=Path(pairs or TEST_PAIRS).name, sentences=len(judged),
        long=long or None, timed=timed, seed=seed, device=on, bleu=made[0].quality.bleu_signature,
    )  # fmt: skip
    return TranslatorEvaluation(str(pairs or TEST_PAIRS), machine(on), made, metric, how)


@dataclass(frozen=True, eq=False)
class TranslatorEvaluation(Result):
    """Several systems on the same sentences: quality, stutter and speed, all estimates."""

    file: str  # of the pairs
    machine: str  # that the speeds are of
    systems: list[Evaluation]
    learned: list[Learned]  # one for each system, or none
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "kind": "estimate",
            "machine": self.machine,
            "systems": plain([asdict(one) for one in self.systems]),
            "learned": plain(self.learned),
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        yield from table(self._rows())
        quality = self.systems[0].quality
        if any(one.less for one in self.systems):
            yield (
                f"less beam 5: BLEU less that of {BESIDE} on the same sentences, with its 95% "
                "interval over sentences; what another training would give is not in it"
            )
        yield f"words that the first references themselves repeat: {quality.reference_stutter:.4f}"
        yield f"BLEU: {quality.bleu_signature}"
        yield f"chrF: {quality.chrf_signature}"
        if any(one.latency for one in self.systems):
            yield f"ms: the median, one sentence at a time, on {self.machine}"
        if any(one.latency and one.latency.p99 is None for one in self.systems):
            yield f"no 99th percentile: it needs {P99} timed sentences"
        if any(one.throughput for one in self.systems):
            yield "per s: sentences a second at the best batch size, which stands beside it"
        yield f"all figures are estimates on these {quality.n_sentences:,} sentences"

    def frame(self) -> "pandas.DataFrame":
        """One row per system."""
        import pandas

        return pandas.DataFrame(self._rows())

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.translation import plot_frontier, plot_quality

        found = {"quality": plot_quality(self.systems)}
        if all(one.latency for one in self.systems):
            return {"frontier": plot_frontier(self.systems, self.machine)} | found
        return found

    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        for number, one in enumerate(self.systems):
            row: dict[str, Any] = {
                "system": one.system,
                "BLEU": one.quality.bleu,
                "less beam 5": None if one.less is None else one.less.value,
                "interval": None if one.less is None else one.less.interval,
                "chrF": one.quality.chrf,
                "stutter": one.quality.stutter,
                "passes": one.n_passes,
            }
            if one.latency is not None:
                late = one.latency.p99
                row |= {"ms": 1000 * one.latency.median}
                row |= {} if late is None else {"p99 ms": 1000 * late}
            if one.throughput is not None:
                row |= {"per s": one.throughput.best, "batch": one.throughput.batch_size}
            if self.learned:
                row[self.learned[number].metric] = self.learned[number].score
            rows.append(row)
        return rows


def judged_sentences(
    folder: Path, pairs: str | Path | None = None, *, limit: int | None = None, long: int = 0
) -> list[Judged]:
    """The sentences of a file (default: the bundled one) or long ones joined from it."""
    if limit is not None:
        check_count("limit", limit)
    check_count("number of long pairs", long, least=0)
    read = read_pairs(Path(pairs or TEST_PAIRS))
    if long:
        return long_pairs(read, load_vocabulary(folder), n_pairs=long)[:limit]
    return by_source(read)[:limit]


def _listed(name: str, given: str | Sequence[str], known: Sequence[str]) -> list[str]:
    """The names in a list, or in a text with commas; each must be known."""
    parts = given.split(",") if isinstance(given, str) else given
    found = [one_of(name, part.strip(), known) for part in parts if part.strip()]
    if not found:
        raise GlauberError(f"{name} is missing: {', '.join(known)}.")
    return found
