"""Words that one group of texts uses more than another.

Log-odds with a prior (Monroe, Colaresi and Quinn 2008): for a word with counts y in n words, prior
a of a0,  delta = log (y1 + a) / (n1 + a0 - y1 - a) - log (y2 + a) / (n2 + a0 - y2 - a).
The prior is the words of both groups together, scaled down, so rare words are drawn to no
difference. Their variance 1 / (y1 + a) + 1 / (y2 + a) takes words as independent. Words of one
chain are not, so between groups of chains the standard error comes from leaving out each chain
once where that is larger.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import MIN_CHAINS, t_quantile

Floats = NDArray[np.float64]
WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
PRIOR = 100.0  # words that the prior is worth: it caps the log-odds of a small sample


@dataclass(frozen=True)
class WordContrast:
    """One word: positive where the first group uses it more."""

    word: str
    log_odds: float
    standard_error: float
    counts: tuple[int, ...]  # in each group
    chains: tuple[int, ...]  # that contain it at some snapshot
    sure: bool  # at 95% over all words looked at together (Bonferroni); never for two chains
    kind: str = "estimate"
    n_chains: int = 0  # of the smaller group

    @property
    def z(self) -> float:
        return self.log_odds / self.standard_error

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of this word alone, at 95% by Student's t; none for two chains."""
        if self.n_chains < MIN_CHAINS:
            return None
        reach = t_quantile(self.n_chains) * self.standard_error
        return self.log_odds - reach, self.log_odds + reach


def words_of(texts: Sequence[str]) -> Counter[str]:
    """The number of times each word occurs in the texts of one chain, in lower case."""
    return Counter(word for text in texts for word in WORD.findall(text.lower()))


def tokens_of(texts: Sequence[str]) -> Counter[str]:
    """The same of texts that are tokens with blanks between them, each as it is spelled."""
    return Counter(token for text in texts for token in text.split())


def distinctive_words(
    first: Sequence[Sequence[str]],
    second: Sequence[Sequence[str]],
    *,
    fewest: int = 5,
    counts_of: Callable[[Sequence[str]], Counter[str]] = words_of,
) -> list[WordContrast]:
    """Words by how surely the first group of chains uses them more, the surest first.

    Each group has a list of texts for each chain. The last words are those that the second group
    uses more. Words count if they occur at least `fewest` times in all, in at least two
    chains.
    """
    if min(len(first), len(second)) < 2:
        raise GlauberError("there is one chain only, but words are compared between several.")
    tables = [[counts_of(texts) for texts in group] for group in (first, second)]
    vocabulary = _frequent(tables, fewest)
    if not vocabulary or len(set().union(*(counter for group in tables for counter in group))) < 2:
        return []  # a single word all over has no odds
    counts = [_table(group, vocabulary) for group in tables]  # (chains, words) of each group
    totals = [np.array([sum(counter.values()) for counter in group], float) for group in tables]
    prior = PRIOR * (counts[0].sum(axis=0) + counts[1].sum(axis=0)) / sum(t.sum() for t in totals)
    summed = [count.sum(axis=0) for count in counts]
    delta = log_odds(summed, [total.sum() for total in totals], prior)
    errors = _errors(counts, totals, prior)
    n_chains = min(len(first), len(second))
    enough = n_chains >= MIN_CHAINS
    limit = t_quantile(n_chains, comparisons=len(vocabulary))
    sure = enough & (np.abs(delta) > limit * errors)
    in_chains = [(count > 0).sum(axis=0) for count in counts]
    columns = (delta, errors, np.stack(summed, 1).astype(int), np.stack(in_chains, 1), sure)
    rows = zip(vocabulary, *(column.tolist() for column in columns), strict=True)
    contrasts = [
        WordContrast(word, odds, error, tuple(uses), tuple(chains), is_sure, n_chains=n_chains)
        for word, odds, error, uses, chains, is_sure in rows
    ]
    return sorted(contrasts, key=lambda contrast: (-contrast.z, contrast.word))


def distinctive(own: Counter[str], others: Counter[str], count: int) -> tuple[str, ...]:
    """The words whose log-odds against the others lie furthest above zero, in standard errors."""
    vocabulary = sorted(own)
    together = own + others
    if len(together) < 2:
        return tuple(vocabulary[:count])
    counts = [np.array([bag[word] for word in vocabulary], float) for bag in (own, others)]
    totals = [float(sum(bag.values())) for bag in (own, others)]
    prior = PRIOR * (counts[0] + counts[1]) / sum(totals)
    z = log_odds(counts, totals, prior) / np.sqrt(variances(counts, prior))
    order = np.argsort(-z, kind="stable")  # words of one z in the order of the alphabet
    return tuple(vocabulary[number] for number in order if z[number] > 0)[:count]


def log_odds(counts: Sequence[Floats], totals: Sequence[ArrayLike], prior: Floats) -> Floats:
    """delta of each word, from the two groups' counts (…, words) and words in all (…, 1)."""
    log_odds_first, log_odds_second = (
        np.log(count + prior) - np.log(np.asarray(total) + PRIOR - count - prior)
        for count, total in zip(counts, totals, strict=True)
    )
    return np.asarray(log_odds_first - log_odds_second)


def variances(counts: Sequence[Floats], prior: Floats) -> Floats:
    """The variance of delta where words are independent, (words,)."""
    return np.asarray(sum(1 / (count + prior) for count in counts))


def _frequent(tables: list[list[Counter[str]]], fewest: int) -> list[str]:
    total: Counter[str] = Counter()
    holders: Counter[str] = Counter()
    for counter in (counter for group in tables for counter in group):
        total.update(counter)
        holders.update(counter.keys())
    return sorted(word for word, count in total.items() if count >= fewest and holders[word] > 1)


def _table(group: list[Counter[str]], vocabulary: list[str]) -> Floats:
    return np.array([[counter[word] for word in vocabulary] for counter in group], float)


def _errors(counts: list[Floats], totals: list[Floats], prior: Floats) -> Floats:
    """Standard errors (words,): of chains left out in turn, no less than of independent words.

    Of groups of one size, chain k is left out of both: a pair where they share their noise.
    """
    sizes = [len(table) for table in counts]
    if sizes[0] == sizes[1]:
        variance = _left_out(counts, totals, prior, (1 - np.eye(sizes[0]),) * 2)
    else:
        first, second = ((1 - np.eye(n), np.ones((n, m))) for n, m in (sizes, sizes[::-1]))
        variance = _left_out(counts, totals, prior, first)
        variance = variance + _left_out(counts, totals, prior, second[::-1])
    plain = variances([table.sum(axis=0) for table in counts], prior)
    return np.asarray(np.sqrt(np.maximum(variance, plain)))


def _left_out(
    counts: list[Floats], totals: list[Floats], prior: Floats, chain_weights: Sequence[Floats]
) -> Floats:
    """The jackknife's variance (words,); kept are the chains of each group (times, chains)."""
    summed = [keep @ table for keep, table in zip(chain_weights, counts, strict=True)]
    sizes = [(keep @ total)[:, None] for keep, total in zip(chain_weights, totals, strict=True)]
    return np.asarray((len(chain_weights[0]) - 1) * log_odds(summed, sizes, prior).var(axis=0))
