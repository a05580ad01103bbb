"""How good, how stuttering and how fast are translations?"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from glauber.errors import GlauberError
from glauber.translation.data import Judged


@dataclass(frozen=True)
class Quality:
    """Corpus scores with sacrebleu's signatures; each is an estimate on these sentences."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    stutter: float
    n_sentences: int


@dataclass(frozen=True)
class Latency:
    """Seconds to translate one sentence: median and 99th percentile over the sentences."""

    median: float
    p99: float
    n_sentences: int


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
    )


def stutter_rate(outputs: Sequence[str], judged: Sequence[Judged]) -> float:
    """Share of output words that repeat their left neighbour where no reference has that pair."""
    words, repeats = 0, 0
    for output, one in zip(outputs, judged, strict=True):
        said = output.lower().split()
        excused = {word for reference in one.references for word in _repeated(reference)}
        words += len(said)
        repeats += sum(word not in excused for word in _repeated(output))
    return repeats / max(1, words)


def latency(translate_one: Callable[[str], object], texts: Sequence[str]) -> Latency:
    """Times of translating each text alone, after three warm-up rounds on the first ones."""
    for text in texts[:3]:
        translate_one(text)
    seconds = []
    for text in texts:
        begun = time.perf_counter()
        translate_one(text)
        seconds.append(time.perf_counter() - begun)
    ranked = sorted(seconds)
    late = ranked[min(len(ranked) - 1, int(0.99 * len(ranked)))]
    return Latency(statistics.median(seconds), late, len(seconds))


def _repeated(text: str) -> list[str]:
    """The words that stand right behind themselves."""
    words = text.lower().split()
    return [word for before, word in pairwise(words) if before == word]
