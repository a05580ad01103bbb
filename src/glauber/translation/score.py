"""How good, how stuttering and how fast are translations?"""

import platform
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.progress import Advance
from glauber.result import one_of
from glauber.translation.data import Judged

Item = TypeVar("Item")  # a text, or a text with its references
REPEATED = re.compile(r"\b(\w+)(?=\s+\1\b)")
RESAMPLES = 300  # of sentences
COMET = "Unbabel/wmt22-comet-da"  # what COMET loads where no checkpoint is named
# Learned metrics are models with weights of their own, gigabytes that this package does not carry.
MISSING = {
    "comet": "COMET is not at hand: pip install unbabel-comet, and let it load its weights.",
    "bleurt": "BLEURT is not at hand: install bleurt of google-research and name a checkpoint "
    "folder.",
}
SIZES = (1, 4, 16, 64, 256)  # batches whose throughput is measured


@dataclass(frozen=True)
class Quality:
    """Corpus scores with sacrebleu's signatures; each is an estimate on these sentences."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    stutter: float
    n_sentences: int
    reference_stutter: float  # what people repeat: share of words of the first references
    kind: str = "estimate"


@dataclass(frozen=True)
class Latency:
    """Seconds to translate one sentence: median and 99th percentile over the sentences."""

    median: float
    p99: float
    n_sentences: int
    kind: str = "estimate"


@dataclass(frozen=True)
class Throughput:
    """Sentences a second at the best batch size, and at each size that was tried."""

    best: float
    batch_size: int
    by_size: dict[int, float]
    n_sentences: int
    kind: str = "estimate"


def check_sacrebleu() -> None:
    """Says that sacrebleu is missing, before anything is translated for it."""
    if find_spec("sacrebleu") is None:
        raise GlauberError("scoring needs sacrebleu: pip install 'glauber[translation]'.")


def check_learned(metric: str) -> None:
    """Says that a learned metric is not known, or that its package is missing."""
    one_of("the learned metric", metric, MISSING)
    if find_spec(metric) is None:
        raise GlauberError(MISSING[metric])


def machine(device: str = "cpu") -> str:
    """Where times were measured, in words."""
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    count = torch.get_num_threads()
    threads = "1 thread" if count == 1 else f"{count} threads"
    return f"{device}, {platform.machine()}, {threads}, float32"


def quality(outputs: Sequence[str], judged: Sequence[Judged]) -> Quality:
    """BLEU, chrF and stutter of outputs against all references of each sentence."""
    check_sacrebleu()
    from sacrebleu.metrics import BLEU, CHRF

    if not outputs or len(outputs) != len(judged):
        raise GlauberError(f"{len(outputs)} outputs cannot be scored on {len(judged)} sentences.")
    most = max(len(one.references) for one in judged)
    # One stream for each number of a reference; sacrebleu skips those that are None.
    streams = [
        [one.references[k] if k < len(one.references) else None for one in judged]
        for k in range(most)
    ]
    bleu, chrf = BLEU(), CHRF()
    return Quality(
        bleu=float(bleu.corpus_score(list(outputs), streams).score),
        chrf=float(chrf.corpus_score(list(outputs), streams).score),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
        stutter=stutter_rate(outputs, judged),
        n_sentences=len(outputs),
        reference_stutter=repeat_rate([one.references[0] for one in judged]),
    )


def stutter_rate(outputs: Sequence[str], judged: Sequence[Judged]) -> float:
    """Share of output words that repeat their left neighbour more often than any reference does.

    A repetition is a word twice with nothing but a blank between, in small or capital letters:
    "casa casa." has one, "no, no" and "Tom. Tom" have none. It counts where the output has more
    repetitions of that word than each of the references. Words are what blanks part.
    """
    words, repeats = 0, 0
    for output, one in zip(outputs, judged, strict=True):
        excused: Counter[str] = Counter()
        for reference in one.references:
            excused |= Counter(_repeated(reference))
        words += len(output.split())
        repeats += (Counter(_repeated(output)) - excused).total()
    return repeats / max(1, words)


def repeat_rate(texts: Sequence[str]) -> float:
    """Share of the words of texts that repeat their left neighbour."""
    return sum(len(_repeated(text)) for text in texts) / max(
        1, sum(len(text.split()) for text in texts)
    )


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

    So what slows the machine for a while slows all of them, and the comparison stays fair.
    """
    for text in texts[:3]:
        for translate_one in translators:
            translate_one(text)
    seconds: list[list[float]] = [[] for _ in translators]
    for text in texts:
        for translate_one, spent in zip(translators, seconds, strict=True):
            began = time.perf_counter()
            translate_one(text)
            spent.append(time.perf_counter() - began)
        if advance is not None:
            advance()
    return [_latency(spent) for spent in seconds]


def _latency(seconds: list[float]) -> Latency:
    ranked = sorted(seconds)
    late = ranked[min(len(ranked) - 1, int(0.99 * len(ranked)))]
    return Latency(statistics.median(seconds), late, len(seconds))


def throughput(
    translate_all: Callable[[Sequence[Item], int], object],
    texts: Sequence[Item],
    *,
    sizes: Sequence[int] = SIZES,
) -> Throughput:
    """Sentences a second of translating all texts in batches of each size, after one warm-up.

    Sizes above the number of texts would be the same again and are left out.
    """
    translate_all(texts[:3], 3)
    by_size = {}
    for size in [one for one in sizes if one <= len(texts)] or [len(texts)]:
        began = time.perf_counter()
        translate_all(texts, size)
        by_size[size] = len(texts) / (time.perf_counter() - began)
    best = max(by_size, key=lambda size: by_size[size])
    return Throughput(by_size[best], best, by_size, len(texts))


def _repeated(text: str) -> list[str]:
    """The words that stand right behind themselves."""
    return REPEATED.findall(text.lower())


@dataclass(frozen=True)
class Difference:
    """BLEU of one system less that of another on the same sentences."""

    value: float
    standard_error: float  # over sentences, by a paired bootstrap
    kind: str = "estimate"

    @property
    def word(self) -> str:
        """Which way it goes, if by more than two standard errors."""
        if abs(self.value) <= 2 * self.standard_error:
            return "not different from 0"
        return "higher" if self.value > 0 else "lower"


def bleu_difference(
    outputs: Sequence[str], others: Sequence[str], judged: Sequence[Judged], *, seed: int = 0
) -> Difference:
    """BLEU of outputs less BLEU of others, with its error from a bootstrap over sentences.

    BLEU is a function of sums over sentences, so each is scored once and only the sums are
    resampled.
    """
    if not judged or not len(outputs) == len(others) == len(judged):
        raise GlauberError("only outputs for the same sentences can be compared.")
    left, right = _counts(outputs, judged), _counts(others, judged)
    draws = np.random.default_rng(seed).integers(len(judged), size=(RESAMPLES, len(judged)))
    moved = [_bleu(left[rows]) - _bleu(right[rows]) for rows in draws]
    return Difference(_bleu(left) - _bleu(right), float(np.std(moved, ddof=1)))


def _counts(outputs: Sequence[str], judged: Sequence[Judged]) -> NDArray[np.int64]:
    """Of each sentence: matches and n-grams of orders 1 to 4, own length, reference's length."""
    from sacrebleu.metrics import BLEU

    bleu = BLEU(effective_order=True)  # it changes sentence scores only, and warns where it is off
    scores = [
        bleu.sentence_score(output, list(one.references))
        for output, one in zip(outputs, judged, strict=True)
    ]
    return np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scores], dtype=np.int64)


def _bleu(counts: NDArray[np.int64]) -> float:
    from sacrebleu.metrics import BLEU

    total = counts.sum(0).tolist()
    score = BLEU.compute_bleu(total[:4], total[4:8], total[8], total[9], smooth_method="exp")
    return float(score.score)


@dataclass(frozen=True)
class Learned:
    """The mean score of a learned metric, on its own scale."""

    metric: str
    weights: str
    score: float
    n_sentences: int
    kind: str = "estimate"


def learned_score(
    outputs: Sequence[str],
    judged: Sequence[Judged],
    *,
    metric: str = "comet",
    weights: str | None = None,
) -> Learned:
    """The metric's mean over the sentences, each against its first reference.

    `weights`: a checkpoint file or a name on the hub (COMET), a checkpoint folder (BLEURT).
    """
    one_of("the learned metric", metric, MISSING)
    scored = _comet if metric == "comet" else _bleurt
    name, scores = scored(outputs, judged, weights)
    return Learned(metric, name, sum(scores) / len(scores), len(scores))


def _comet(
    outputs: Sequence[str], judged: Sequence[Judged], weights: str | None
) -> tuple[str, list[float]]:
    try:
        from comet import download_model, load_from_checkpoint
    except ImportError as missing:
        raise GlauberError(MISSING["comet"]) from missing
    name = weights or COMET
    try:
        path = name if name.endswith(".ckpt") else download_model(name)
        model = load_from_checkpoint(path)
    except (OSError, KeyError, ValueError) as problem:
        raise GlauberError(f"the weights {name} of COMET are not at hand.") from problem
    rows = [
        {"src": one.source, "mt": output, "ref": one.references[0]}
        for output, one in zip(outputs, judged, strict=True)
    ]
    return name, [float(score) for score in model.predict(rows, gpus=0).scores]


def _bleurt(
    outputs: Sequence[str], judged: Sequence[Judged], weights: str | None
) -> tuple[str, list[float]]:
    try:
        from bleurt.score import BleurtScorer
    except ImportError as missing:
        raise GlauberError(MISSING["bleurt"]) from missing
    if weights is None:
        raise GlauberError("BLEURT needs the folder of a checkpoint, such as BLEURT-20.")
    references = [one.references[0] for one in judged]
    scores = BleurtScorer(weights).score(references=references, candidates=list(outputs))
    return weights, [float(score) for score in scores]
