"""Where the time of a translation goes, and how it grows with the length (paper B, section 3.3).

Three systems translate each sentence alone and in turn: refinement, beam search with its cache, and
beam search that reads the source and all tokens so far anew at every step. Time is taken at the
ends of the parts of the work:

- `tokens`: reading the text with the vocabulary; `encoder`: with the projections that refinement
  keeps of it; `lengths`: predicting the target's; `text`: choosing among drafts, and spelling.
- `decoder`: all passes.

Everything but the decoder is a fixed cost. The ratio of the passes would be the speed-up if every
pass cost the same and there were nothing else; with sums over sentences it is the product

    passes = time x (decoder / time) x (without cache / decoder) x (passes / without cache)

of the measured speed-up, what fixed costs take of it, what the cache gives to beam search, and the
cost of a refinement pass, which reads all positions of all lengths, over that of a step without
cache.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from glauber.foundation.checks import OneOf, Whole
from glauber.foundation.parameters import Device
from glauber.foundation.progress import track
from glauber.foundation.statistics import (
    Estimate,
    Floats,
    Quantile,
    jackknife,
    mean_over_chains,
    quantile_ratio,
)
from glauber.foundation.study import Result, reported, study
from glauber.models.weights import choose_device
from glauber.translation.data import MAX_LONG_PAIRS, Example, load_vocabulary
from glauber.translation.decoding import ORDERS, Decoding, Drafted, Steps, translate_texts
from glauber.translation.evaluation import TEST_PAIRS, machine, read_examples
from glauber.translation.model import load
from glauber.translation.translate import Lengths, TranslatorModel, translator_folder

PARTS = ("tokens", "encoder", "lengths", "decoder", "text")
REFINED, SEARCHED, UNCACHED = "refinement", "beam search", "beam search without cache"
WARM_UP = 3  # sentences that are translated before any is timed
FACTORS = {
    "passes": "passes, beam search over refinement",
    "time": "time, beam search over refinement",
    "fixed costs": "time of the decoders alone, the same ratio, over that",
    "cache": "time of beam search's decoder, without its cache over with it",
    "cost of a pass": "time of a pass, refinement over beam search without cache",
}


@study
def time_translator(
    pairs: Annotated[
        str | Path | None, "Two-column file, plain or xz (default: the bundled test pairs)."
    ] = None,
    *,
    model: TranslatorModel = None,
    decoder: Annotated[str, "Of the student; refine is the paper's.", OneOf(ORDERS)] = "refine",
    steps: Annotated[int, "Passes of refinement.", Steps] = 4,
    lengths: Lengths = 5,
    beams: Annotated[int, "Hypotheses of beam search.", Drafted] = 5,
    long: Annotated[
        int,
        "Number of joined long pairs to time; 0: the file's own sentences.",
        Whole(0, MAX_LONG_PAIRS),
    ] = 100,
    limit: Annotated[int | None, "Number of sentences (default: all).", Whole()] = None,
    device: Device = "cpu",
) -> "TranslatorTimes":
    """Time the parts of a translation, by refinement and by beam search with and without cache.

    Each sentence is translated alone, by all systems in turn. Reported are the ratio of the passes
    and of the times, its median and 99th percentile with intervals by order statistics, what fixed
    costs and the cache take of the speed-up, and the milliseconds that a further token costs.
    """
    folder, kind = translator_folder(model), str(choose_device(device))
    examples = read_examples(folder, pairs, limit=limit, long=long)
    refined = Decoding(decoder, steps, lengths, judge="itself")
    searched = Decoding("ar", n_beams=beams)
    systems = {
        REFINED: ("student", refined),
        SEARCHED: ("teacher", searched),
        UNCACHED: ("teacher", Decoding("ar", n_beams=beams, cached=False)),
    }
    vocabulary = load_vocabulary(folder)
    models = {name: load(folder, name, device=kind) for name in ("student", "teacher")}

    def timed(system: str, sentence: Example) -> tuple[int, dict[str, float]]:
        name, decoding = systems[system]
        watch = Stopwatch(kind)
        (translation,) = translate_texts(
            models[name], vocabulary, [sentence.source], decoding=decoding, lap=watch.lap
        )
        return translation.n_passes, watch.seconds

    for sentence in examples[:WARM_UP]:
        for system in systems:
            timed(system, sentence)
    passes: dict[str, list[int]] = {system: [] for system in systems}
    seconds: dict[str, dict[str, list[float]]] = {
        system: {part: [] for part in PARTS} for system in systems
    }
    with track("sentences, one at a time", len(examples)) as advance:
        for sentence in examples:
            for system in systems:
                count, parts = timed(system, sentence)
                passes[system].append(count)
                for part in PARTS:
                    seconds[system][part].append(parts.get(part, 0.0))
            advance()
    tokens = [len(vocabulary.encode(sentence.references[0])) + 1 for sentence in examples]
    return TranslatorTimes(str(pairs or TEST_PAIRS), machine(kind), tokens, passes, seconds)


class Stopwatch:
    """Seconds of each part of the work; a GPU is waited for at the end of each."""

    def __init__(self, device: str):
        self.cuda = device.startswith("cuda")
        self.seconds: dict[str, float] = {}
        self._start = self._now()

    def lap(self, part: str) -> None:
        """The part that was worked on ends here."""
        now = self._now()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._start
        self._start = now

    def _now(self) -> float:
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()


@dataclass(frozen=True, eq=False)
class TranslatorTimes(Result):
    """Times of each sentence by system and part, one sentence at a time; all are estimates."""

    file: str  # of the pairs
    machine: str  # on which the times were measured
    target_tokens: list[int]  # of each first reference, with the end
    passes: dict[str, list[int]]  # of each sentence, by system
    seconds: dict[str, dict[str, list[float]]]  # of each sentence, by system and part
    kind: str = "estimate"  # what every number is

    FIGURES = {
        "lengths": "glauber.interfaces.plots.translation:plot_times",
        "parts": "glauber.interfaces.plots.translation:plot_parts",
    }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "TranslatorTimes":
        """The times of a record: of `to_dict`, or of its fields alone."""
        names = ("file", "machine", "target_tokens", "passes", "seconds")
        return cls(*(record[name] for name in names))

    def total(self, system: str) -> Floats:
        """Seconds of each sentence (sentences,)."""
        return np.sum([self.part(system, part) for part in PARTS], axis=0)

    def part(self, system: str, part: str) -> Floats:
        """Seconds of one part of each sentence (sentences,)."""
        return np.asarray(self.seconds[system][part], np.float64)

    @reported
    def mean_target_tokens(self) -> Estimate:
        """The end included; 28 to 33 in the paper's data sets."""
        return mean_over_chains(self.target_tokens)

    @reported
    def ratios(self) -> dict[str, Estimate]:
        """The factors of `FACTORS`, each with its interval over sentences."""
        sums = np.stack(
            [
                np.asarray(self.passes[SEARCHED], np.float64),
                np.asarray(self.passes[REFINED], np.float64),
                self.total(SEARCHED),
                self.total(REFINED),
                self.part(SEARCHED, "decoder"),
                self.part(REFINED, "decoder"),
                self.part(UNCACHED, "decoder"),
            ]
        )

        def factors(weights: Floats) -> Floats:
            n_slow, n_fast, slow, fast, searching, refining, uncached = sums @ weights
            passes, seconds, decoders = n_slow / n_fast, slow / fast, searching / refining
            left = passes / (uncached / refining)
            return np.array([passes, seconds, decoders / seconds, uncached / searching, left])

        ratios = jackknife(factors, sums.shape[1], scale="log")
        return {name: ratios.item(row) for row, name in enumerate(FACTORS)}

    @reported
    def median_ratio(self) -> Quantile:
        """The median time of beam search over that of refinement."""
        return quantile_ratio(self.total(SEARCHED), self.total(REFINED), 0.5)

    @reported
    def p99_ratio(self) -> Quantile:
        """The 99th percentile of beam search over that of refinement."""
        return quantile_ratio(self.total(SEARCHED), self.total(REFINED), 0.99)

    @reported
    def ms_per_token(self) -> dict[str, Estimate]:
        """Slope of the time over the target's tokens, and that of beam search less refinement's."""
        tokens = np.asarray(self.target_tokens, np.float64)
        times = 1000 * np.stack([self.total(SEARCHED), self.total(REFINED)])

        def slopes(weights: Floats) -> Floats:
            apart = weights * (tokens - tokens @ weights / weights.sum())
            slow, fast = times @ apart / (tokens @ apart)
            return np.array([slow, fast, slow - fast])

        names = (SEARCHED, REFINED, "difference")
        if np.ptp(tokens) == 0:
            return {}
        estimates = jackknife(slopes, len(tokens))
        return {name: estimates.item(row) for row, name in enumerate(names)}

    def lines(self) -> Iterable[str]:
        yield (
            f"{len(self.target_tokens):,} sentences of {self.mean_target_tokens.value:.1f} target "
            f"tokens on average, one at a time on {self.machine}"
        )
        for name, ratio in self.ratios.items():
            yield f"{FACTORS[name]}: {ratio.text(2)}"
        yield f"ratio of the medians: {self.median_ratio.text(2)}"
        yield f"ratio of the 99th percentiles: {self.p99_ratio.text(2)}"
        for name, slope in self.ms_per_token.items():
            yield f"ms for a further token, {name}: {slope.text(2)}"
        for row in self.table():
            parts = ", ".join(f"{part} {row[part].value:.2f}" for part in PARTS)
            yield f"ms of {row['system']}: {row['ms'].value:.2f} ({parts})"
        yield "all are estimates, with intervals over sentences"

    def table(self) -> Sequence[dict[str, Any]]:
        """One row per system: milliseconds of a sentence, of each part and of each pass."""
        return [
            {
                "system": system,
                "passes": mean_over_chains(self.passes[system]),
                "ms": mean_over_chains(1000 * self.total(system)),
            }
            | {part: mean_over_chains(1000 * self.part(system, part)) for part in PARTS}
            | {"ms of a pass": mean_over_chains(1000 * self._of_a_pass(system))}
            for system in self.seconds
        ]

    def _of_a_pass(self, system: str) -> Floats:
        return self.part(system, "decoder") / np.asarray(self.passes[system])
