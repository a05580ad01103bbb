"""How likely and how varied are texts that a model wrote? Measures of a set of texts.

Likelihood    nats a character, and a token, under an autoregressive LM that reads the text with a
              tokenizer of its own. Low is not good by itself: "the the the" is likely.
Entropy       of the frequencies of tokens within a text, in nats; at most log(length).
distinct-n    different n-grams over all n-grams of the set (Li et al. 2016).
self-BLEU     mean BLEU of each text with all others as references (Zhu et al. 2018), 0 to 100.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.conditionals.base import PAD, Conditionals
from glauber.conditionals.causal_lm import CausalLM
from glauber.conditionals.load import load
from glauber.conditionals.shelf import is_folder
from glauber.conditionals.weights import kind_of
from glauber.errors import GlauberError
from glauber.statistics import MIN_CHAINS, Estimate, Floats
from glauber.statistics.means import JACKKNIFE, measured, pseudo_values, tail_probability

Rows = Sequence[Sequence[int]]  # the tokens of each text
ORDERS = 4  # n-grams of BLEU


class Judged(NamedTuple):
    """What a judge says of texts, (texts,) each."""

    nats: Floats  # -log p of the whole text
    n_tokens: NDArray[np.int64]  # in the judge's own tokens, those that it scores
    n_characters: NDArray[np.int64]

    @property
    def a_character(self) -> Floats:
        return self.nats / self.n_characters

    @property
    def a_token(self) -> Floats:
        return self.nats / self.n_tokens


def open_judge(given: str | Conditionals, *, device: str, trust_remote_code: bool) -> CausalLM:
    """The autoregressive LM of that name, folder or GGUF file; a masked one is refused."""
    name = given if isinstance(given, str) else ""
    local = name.startswith("bundled:") or is_folder(name)
    judge = None
    if not (name and local and kind_of(name) == "masked"):
        judge = load(given, device=device, trust_remote_code=trust_remote_code)
    if not isinstance(judge, CausalLM):
        called = name or getattr(given, "name", type(given).__name__)
        raise GlauberError(
            f"{called} is no judge: a text has a likelihood under an autoregressive LM, such as "
            "the GGUF file that recipes/smollm2.py makes."
        )
    return judge


def judged(judge: CausalLM, texts: Sequence[str]) -> Judged:
    """The likelihood of each text, read again from its characters."""
    rows = [judge.vocabulary.pieces(text) for text in texts]
    unscored = judge.opening is None  # nothing stands before the first token
    scored = np.array([len(row) - unscored for row in rows])
    if scored.min() < 1:
        raise GlauberError("a text has no token that the judge could score.")
    tokens = torch.full((len(rows), max(map(len, rows))), PAD)
    for place, row in enumerate(rows):
        tokens[place, : len(row)] = torch.tensor(row)
    nats = -judge.log_joint(tokens.to(judge.state_device), alone=False).cpu().numpy()
    return Judged(nats, scored, np.array([len(text) for text in texts]))


def token_entropy(row: Sequence[int]) -> float:
    """Entropy of the frequencies of a text's tokens, in nats."""
    share = np.array([*Counter(row).values()]) / len(row)
    return float(-(share * np.log(share)).sum() + 0.0)


def distinct(rows: Rows, n: int) -> Estimate:
    """Different n-grams over all n-grams of the texts; falls with the number of texts."""
    texts = [Counter(_grams(row, n)) for row in rows]
    sizes = np.array([text.total() for text in texts])
    if not sizes.sum():
        return Estimate(float("nan"), None, reason="the texts are shorter than that")
    every = sum(texts, Counter())
    only_here = np.array([sum(every[gram] == c for gram, c in text.items()) for text in texts])
    value = len(every) / int(sizes.sum())
    rest = np.maximum(sizes.sum() - sizes, 1)
    return _of_set(value, (len(every) - only_here) / rest, (0.0, 1.0))


def self_bleu(rows: Rows) -> Estimate:
    """Mean BLEU of each text with the others as references: high where texts repeat each other.

    On the tokens as they are, up to 4-grams, orders without a match smoothed as sacrebleu does
    (exp). All texts have one length, so nothing is brief.
    """
    order = min(ORDERS, len(rows[0]))
    totals = np.array([len(rows[0]) - n for n in range(order)])
    owner, own, elsewhere = _shared(rows, order)

    def mean_of(kept: NDArray[np.bool_]) -> float:
        clipped = np.minimum(own, (elsewhere * kept).max(axis=1))
        matched = np.bincount(owner, weights=clipped, minlength=len(rows) * order).astype(float)
        return float(_bleu(matched.reshape(-1, order)[kept], totals).mean())

    everyone = np.ones(len(rows), dtype=bool)
    return _of_set(mean_of(everyone), _without_each(mean_of, len(rows)), (0.0, 100.0))


def _grams(row: Sequence[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(row[i : i + n]) for i in range(len(row) - n + 1)]


def _shared(rows: Rows, order: int) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Each n-gram of each text: whose (text * order + n - 1), how often there, how often in all."""
    counts = [[Counter(_grams(row, n + 1)) for row in rows] for n in range(order)]
    listed = [
        (text * order + n, text, gram, counts[n])
        for text in range(len(rows))
        for n in range(order)
        for gram in counts[n][text]
    ]
    elsewhere = np.array([[one[gram] for one in of] for _, _, gram, of in listed], float)
    whose, owner = (np.array([one[part] for one in listed]) for part in (1, 0))
    own = elsewhere[np.arange(len(listed)), whose]
    elsewhere[np.arange(len(listed)), whose] = 0.0
    return owner, own, elsewhere


def _bleu(matched: Floats, totals: NDArray[np.int64]) -> Floats:
    """The geometric mean of the precisions (texts, orders); the j-th zero counts as 1 / 2^j."""
    zeros = np.cumsum(matched == 0, axis=1)
    precision = np.where(matched == 0, 0.5**zeros, matched) / totals
    found = 100 * np.exp(np.log(precision).mean(axis=1))
    return np.where(matched.any(axis=1), found, 0.0)


def _without_each(figure: Callable[[NDArray[np.bool_]], float], n: int) -> Floats:
    """The figure without each of n texts; empty where too few are left for an interval."""
    if n < MIN_CHAINS:
        return np.zeros(n)
    return np.array([figure(np.arange(n) != one) for one in range(n)])


def _of_set(value: float, without: Floats, bounds: tuple[float, float]) -> Estimate:
    """A figure of so many texts together; its spread is what leaving out each text shows.

    Such figures change with the number of texts, so the interval is put around the figure of
    this number and not around the limit of many.
    """
    by_text = pseudo_values(value, without)
    by_text = by_text - by_text.mean() + value
    return measured(value, by_text, tail_probability(), bounds, method=JACKKNIFE)
