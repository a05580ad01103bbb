"""Which words does one group of texts use more than another?

Log-odds with a prior (Monroe, Colaresi and Quinn 2008): for a word with counts y in n words, prior
a of a0,  delta = log (y1 + a) / (n1 + a0 - y1 - a) - log (y2 + a) / (n2 + a0 - y2 - a).
The prior is the words of both groups together, scaled down, so rare words are drawn to no
difference. Their variance 1 / (y1 + a) + 1 / (y2 + a) takes words as independent. Words of one
chain are not, so between groups of chains the standard error comes from resampling chains where
that is larger.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glauber.errors import GlauberError
from glauber.statistics import chain_weights, normal_reach

Floats = NDArray[np.float64]
WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
PRIOR = 100.0  # words that the prior is worth: it caps the log-odds of a small sample
RESAMPLES = 500


@dataclass(frozen=True)
class WordContrast:
    """One word: positive where the first group uses it more."""

    word: str
    log_odds: float
    standard_error: float
    counts: tuple[int, int]
    chains: tuple[int, int]  # that hold it at some snapshot
    sure: bool  # at 95% over all words looked at together (Bonferroni)
    kind: str = "estimate"

    @property
    def z(self) -> float:
        return self.log_odds / self.standard_error


def distinctive_words(
    first: Sequence[Sequence[str]], second: Sequence[Sequence[str]], *, fewest: int = 5
) -> list[WordContrast]:
    """Words by how surely the first group of chains uses them more, the surest first.

    Each group holds a list of texts for each chain. The last words are those that the second group
    uses more. Words are looked at if they stand at least `fewest` times in all, in at least two
    chains.
    """
    if min(len(first), len(second)) < 2:
        raise GlauberError("there is one chain only, but words are compared between several.")
    tables = [[words_of(texts) for texts in group] for group in (first, second)]
    words = _frequent(tables, fewest)
    if not words or len(set().union(*(one for group in tables for one in group))) < 2:
        return []  # a single word all over has no odds
    counts = [_table(group, words) for group in tables]  # (chains, words) of each group
    totals = [np.array([sum(one.values()) for one in group], float) for group in tables]
    prior = PRIOR * (counts[0].sum(axis=0) + counts[1].sum(axis=0)) / sum(t.sum() for t in totals)
    summed = [count.sum(axis=0) for count in counts]
    delta = log_odds(summed, [total.sum() for total in totals], prior)
    errors = _errors(counts, totals, prior)
    limit = normal_reach(comparisons=len(words))
    found = [
        WordContrast(
            word=word,
            log_odds=float(delta[place]),
            standard_error=float(errors[place]),
            counts=tuple(int(c[:, place].sum()) for c in counts),  # type: ignore[arg-type]
            chains=tuple(int((c[:, place] > 0).sum()) for c in counts),  # type: ignore[arg-type]
            sure=bool(abs(delta[place]) > limit * errors[place]),
        )
        for place, word in enumerate(words)
    ]
    return sorted(found, key=lambda one: (-one.z, one.word))


def distinctive(own: Counter[str], others: Counter[str], count: int) -> tuple[str, ...]:
    """The words whose log-odds against the others lie furthest above zero, in standard errors."""
    words = sorted(own)
    together = own + others
    if len(together) < 2:
        return tuple(words[:count])
    counts = [np.array([bag[word] for word in words], float) for bag in (own, others)]
    totals = [float(sum(bag.values())) for bag in (own, others)]
    prior = PRIOR * (counts[0] + counts[1]) / sum(totals)
    z = log_odds(counts, totals, prior) / np.sqrt(variances(counts, prior))
    order = np.argsort(-z, kind="stable")  # words of one z in the order of the alphabet
    return tuple(words[place] for place in order if z[place] > 0)[:count]


def words_of(texts: Sequence[str]) -> Counter[str]:
    """How often each word stands in the texts of one chain, in small letters."""
    return Counter(word for text in texts for word in WORD.findall(text.lower()))


def log_odds(counts: Sequence[Floats], totals: Sequence[ArrayLike], prior: Floats) -> Floats:
    """delta of each word, from the two groups' counts (…, words) and words in all (…, 1)."""
    one, other = (
        np.log(count + prior) - np.log(np.asarray(total) + PRIOR - count - prior)
        for count, total in zip(counts, totals, strict=True)
    )
    return np.asarray(one - other)


def variances(counts: Sequence[Floats], prior: Floats) -> Floats:
    """The variance of delta where words are independent, (words,)."""
    return np.asarray(sum(1 / (count + prior) for count in counts))


def _frequent(tables: list[list[Counter[str]]], fewest: int) -> list[str]:
    total: Counter[str] = Counter()
    holders: Counter[str] = Counter()
    for one in (one for group in tables for one in group):
        total.update(one)
        holders.update(one.keys())
    return sorted(word for word, count in total.items() if count >= fewest and holders[word] > 1)


def _table(group: list[Counter[str]], words: list[str]) -> Floats:
    return np.array([[one[word] for word in words] for one in group], float)


def _errors(counts: list[Floats], totals: list[Floats], prior: Floats) -> Floats:
    """Standard errors (words,): of resampled chains, and no less than of independent words.

    Groups of one size are resampled alike: chain k of both is a pair where they share their noise.
    """
    drawn, sizes = [], []
    for table, total in zip(counts, totals, strict=True):
        times = chain_weights(len(table), seed=0, resamples=RESAMPLES)  # (resamples, chains)
        drawn.append(times @ table)
        sizes.append((times @ total)[:, None])
    spread = log_odds(drawn, sizes, prior).std(axis=0, ddof=1)
    plain = np.sqrt(variances([table.sum(axis=0) for table in counts], prior))
    return np.asarray(np.maximum(spread, plain))
