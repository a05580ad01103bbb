"""Is one translator's BLEU really above another's, or only on these sentences?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.translation.data import Judged

RESAMPLES = 300


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
            return "not told from 0"
        return "higher" if self.value > 0 else "lower"


def bleu_difference(
    outputs: Sequence[str], others: Sequence[str], judged: Sequence[Judged], *, seed: int = 0
) -> Difference:
    """BLEU of outputs less BLEU of others, with its error from redrawing sentences.

    BLEU is a function of sums over sentences, so each is scored once and only the sums are redrawn.
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
