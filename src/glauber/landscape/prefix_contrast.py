"""How do two prefixes differ, chain by chain: in topics, in words, in the model's probabilities?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glauber.conditionals.base import Model, log_probs
from glauber.conditionals.batching import rows_at_once
from glauber.errors import GlauberError
from glauber.landscape.scorers import SIMILARITY, Floats, Scorer, scorer_for, topic_scores
from glauber.runs.distinctive_words import (
    WordContrast,
    distinctive_words,
    tokens_of,
    words_of,
)
from glauber.runs.embedding import TOKENS
from glauber.runs.snapshots import Snapshots
from glauber.statistics import Estimate, mean_over_chains

EXAMPLES = 3  # texts shown of each prefix


@dataclass(frozen=True)
class Contrast:
    """One prefix against another, or against none; a difference is the first less the second."""

    first: str
    second: str  # empty: no prefix
    topics: dict[
        str, tuple[Estimate, Estimate, Estimate]
    ]  # label -> scores of both, and their difference
    probabilities: dict[
        str, tuple[Estimate, Estimate, Estimate]
    ]  # of each word asked for, likewise
    more: list[WordContrast]  # words of the first, the surest first
    less: list[WordContrast]  # words of the second
    texts: tuple[list[str], list[str]]  # last texts of a few chains, pair by pair
    called: str = "words"  # letters, of a vocabulary of single ones

    @property
    def names(self) -> tuple[str, str]:
        return self.first, self.second or "no prefix"

    def differing(self, kind: str = "topics") -> list[str]:
        """Labels (or words) whose interval excludes zero, the largest difference first."""
        found = self.topics if kind == "topics" else self.probabilities
        sure = [one for one, (_, _, mean) in found.items() if excludes_zero(mean)]
        return sorted(sure, key=lambda one: -abs(found[one][2].value))

    def lines(self) -> Iterable[str]:
        first, second = self.names
        yield ""
        yield f"{first}  against  {second}"
        if self.topics:
            named = [_difference(label, self.topics[label][2]) for label in self.differing()]
            yield "  topics  " + ("; ".join(named) or self._nothing())
        yield f"  {self.called} of {first}: {_words(self.more)}"
        yield f"  {self.called} of {second}: {_words(self.less)}"
        for word, (mine, other, apart) in self.probabilities.items():
            less = _difference("", apart, 4)
            yield f"  P({word})  {mine.value:.4f} and {other.value:.4f}, {less}"
        for pair in zip(*self.texts, strict=True):
            yield f"  texts  {pair[0]}"
            yield f"         {pair[1]}"

    def _nothing(self) -> str:
        """Why no topic is named."""
        reasons = {means[2].reason for means in self.topics.values() if means[2].interval is None}
        if len(reasons) == 1 and all(means[2].interval is None for means in self.topics.values()):
            return f"no interval: {reasons.pop()}"
        return "no difference can be told from zero"


def excludes_zero(mean: Estimate) -> bool:
    """Whether a difference can be told from none."""
    return mean.excludes(0.0)


def _difference(name: str, mean: Estimate, digits: int = 3) -> str:
    if mean.interval is None:
        return f"{name} {round(mean.value, digits) + 0.0:+.{digits}f} ({mean.reason})".strip()
    value, low, high = (round(one, digits) + 0.0 for one in (mean.value, *mean.interval))  # no -0
    return f"{name} {value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})".strip()


def _words(found: list[WordContrast]) -> str:
    """Words that can be told from chance first, then those that cannot."""
    sure, unsure = ([one for one in found if one.sure is wanted] for wanted in (True, False))
    first = _odds(sure) or "none that can be told from chance"
    return first + (f"; within chance: {_odds(unsure)}" if unsure else "")


def _odds(found: list[WordContrast]) -> str:
    return ", ".join(f"{o.word} {abs(o.log_odds):.1f} +- {o.standard_error:.1f}" for o in found)


def scores_of(
    read: dict[str, Snapshots],
    scorer: str | Scorer,
    labels: Sequence[str],
    embedder: Any,
    device: str,
) -> tuple[dict[str, Floats], Scorer | None, str]:
    """Each chain's mean scores (chains, labels) by prefix, the scorer, or why there are none."""
    try:
        by = scorer_for(next(iter(read.values())), scorer, labels, embedder=embedder, device=device)
    except GlauberError as error:
        if scorer != SIMILARITY or embedder not in (None, TOKENS):
            raise
        return {}, None, f"Topics are left out: {error}"
    found = {
        prefix: np.asarray(topic_scores(one, by).values.mean(axis=1))
        for prefix, one in read.items()
    }
    return found, by, ""


def token_of(opened: Model, word: str) -> int:
    """The token of a word; refuses words that the model writes in several."""
    spellings = [word] if opened.vocabulary.text.letters else [f" {word}", word]
    for text in spellings:
        tokens, free = opened.vocabulary.encode([text])
        if int(free.sum()) == 1:
            return int(tokens[free][0])
    pieces = [opened.vocabulary.spell(int(one)) for one in tokens[free]]
    raise GlauberError(
        f"{word!r} is {len(pieces)} tokens of {opened.name} ({', '.join(pieces)}): only the "
        "probability of a single token can be asked for."
    )


def chances_of(
    opened: Model, found: Snapshots, site: int, tokens: list[int], temperature: float
) -> Floats:
    """The mean probability (chains, words) of each token at the site over a chain's snapshots."""
    free = torch.as_tensor(found.run.free)
    place = (free.cumsum(dim=1) == site + 1).int().argmax(dim=1)  # (chains,)
    if not tokens:
        return np.zeros((found.n_chains, 0))
    rows = torch.as_tensor(found.tokens.astype(np.int64)).flatten(0, 1).to(opened.state_device)
    sites = place.repeat_interleave(len(found))[:, None].to(opened.state_device)
    conditionals, parts = opened.conditionals(), []
    size = rows_at_once(16 * conditionals.vocab_size, opened.state_device)
    for part, at in zip(rows.split(size), sites.split(size), strict=True):
        chances = log_probs(conditionals, part, at, temperature=temperature)[:, 0].exp()
        parts.append(chances[:, tokens].double().cpu().numpy())
    stacked = np.concatenate(parts).reshape(found.n_chains, len(found), len(tokens))
    return np.asarray(stacked.mean(axis=1))


def contrast_of(
    pair: tuple[str, str],
    read: dict[str, Snapshots],
    scores: dict[str, Floats],
    chances: dict[str, Floats],
    words: Sequence[str],
    *,
    count: int,
    listed: int,
    by: Scorer | None,
) -> Contrast:
    one, other = (read[name] for name in pair)
    letters = bool(one.run.vocabulary.letters)
    counts_of = tokens_of if letters and by is None else words_of
    found = distinctive_words(_spelled(one, by), _spelled(other, by), counts_of=counts_of)
    last = [
        [snap.run.vocabulary.decode(row) for row in snap.tokens[:EXAMPLES, -1]]
        for snap in (one, other)
    ]
    return Contrast(
        *pair,
        topics=_means(scores, pair, by.labels, count) if by else {},
        probabilities=_means(chances, pair, words, count),
        more=[word for word in found if word.log_odds > 0][:listed],
        less=sorted((w for w in found if w.log_odds < 0), key=lambda w: (w.z, w.word))[:listed],
        texts=(last[0], last[1]),
        called="letters" if letters else "words",
    )


def _spelled(found: Snapshots, by: Scorer | None) -> Sequence[Sequence[str]]:
    """The texts of each chain; tokens with blanks between them where they are not English."""
    if by is not None:
        return found.texts
    spell = found.run.vocabulary.spell
    return [
        [" ".join(spell(int(token)) for token in row[free]) for row in chain]
        for chain, free in zip(found.tokens, found.run.free, strict=True)
    ]


def _means(
    values: dict[str, Floats], pair: tuple[str, str], names: Sequence[str], count: int
) -> dict[str, tuple[Estimate, Estimate, Estimate]]:
    """Means over chains of both, in 0 to 1, and of their difference, in -1 to 1."""
    one, other = (values[name] for name in pair)

    def mean(column: Floats, least: float) -> Estimate:
        bounds, paired = (least, 1.0), least < 0
        return mean_over_chains(column, bounds=bounds, student=paired, comparisons=max(1, count))

    return {
        name: (mean(one[:, k], 0), mean(other[:, k], 0), mean(one[:, k] - other[:, k], -1))
        for k, name in enumerate(names)
    }
