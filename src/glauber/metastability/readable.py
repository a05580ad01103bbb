"""What is a basin about? Its most central texts and its distinctive words."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glauber.metastability.looks import Looks
from glauber.metastability.passage import Assignment

TEXTS = 3
WORDS = 8
PRIOR = 10.0  # words that the prior is worth: rare words need more than one sight


@dataclass(frozen=True)
class Readable:
    """A basin in words."""

    texts: tuple[str, ...]  # nearest to the mean of the basin's embeddings, each once
    words: tuple[str, ...]  # those that tell it from the other basins best
    n_looks: int
    n_chains: int  # that were ever in it


def readable(looks: Looks, basins: Assignment) -> tuple[Readable, ...]:
    """Each basin in words; basins (chains, looks) says where a look is, -1 for nowhere."""
    n_basins = int(basins.max()) + 1
    texts = np.array(looks.texts, dtype=object)  # (chains, looks)
    bags = [_bag(set(texts[basins == basin])) for basin in range(n_basins)]
    everything = sum(bags, Counter())
    return tuple(
        Readable(
            _central(texts[basins == basin], looks.vectors[basins == basin]),
            distinctive(bags[basin], everything - bags[basin]),
            int((basins == basin).sum()),
            int((basins == basin).any(axis=1).sum()),
        )
        for basin in range(n_basins)
    )


def distinctive(own: Counter[str], others: Counter[str], count: int = WORDS) -> tuple[str, ...]:
    """The words whose log-odds against the others are furthest above zero in standard errors.

    Log-odds with a prior in proportion to all words (Monroe, Colaresi and Quinn 2008).
    """
    together = own + others
    size, own_size, other_size = (sum(bag.values()) for bag in (together, own, others))

    def score(word: str) -> float:
        prior = PRIOR * together[word] / size
        a, b = own[word] + prior, others[word] + prior
        odds = np.log(a / (own_size + PRIOR - a)) - np.log(b / (other_size + PRIOR - b))
        return float(odds / np.sqrt(1 / a + 1 / b))

    scores = {word: score(word) for word in own} if len(together) > 1 else dict.fromkeys(own, 1.0)
    best = sorted((word for word in scores if scores[word] > 0), key=lambda w: (-scores[w], w))
    return tuple(best[:count])


def _bag(texts: set[str]) -> Counter[str]:
    """In how many of the texts each word stands."""
    return Counter(word for text in texts for word in set(re.findall(r"\w+", text.lower())))


def _central(texts: Sequence[str], vectors: NDArray[np.float32]) -> tuple[str, ...]:
    nearness = vectors @ vectors.mean(axis=0)
    ordered = (str(texts[look]) for look in np.argsort(-nearness, kind="stable"))
    return tuple(dict.fromkeys(ordered))[:TEXTS]
