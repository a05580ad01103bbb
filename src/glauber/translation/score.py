"""How good, how stuttering and how fast are translations?"""

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from glauber.errors import GlauberError
from glauber.translation.data import Judged

Item = TypeVar("Item")  # a text, or a text with its references
REPEATED = re.compile(r"\b(\w+)(?=\s+\1\b)")
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


def quality(outputs: Sequence[str], judged: Sequence[Judged]) -> Quality:
    """BLEU, chrF and stutter of outputs against all references of each sentence."""
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError as missing:
        raise GlauberError(
            "scoring needs sacrebleu: pip install 'glauber[translation]'."
        ) from missing
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
    translators: Sequence[Callable[[Item], object]], texts: Sequence[Item]
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
            begun = time.perf_counter()
            translate_one(text)
            spent.append(time.perf_counter() - begun)
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
        begun = time.perf_counter()
        translate_all(texts, size)
        by_size[size] = len(texts) / (time.perf_counter() - begun)
    best = max(by_size, key=lambda size: by_size[size])
    return Throughput(by_size[best], best, by_size, len(texts))


def _repeated(text: str) -> list[str]:
    """The words that stand right behind themselves."""
    return REPEATED.findall(text.lower())
