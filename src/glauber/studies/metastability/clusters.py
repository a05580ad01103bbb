"""Clusters of texts as states, and basins of such states in words.

States are clusters of the texts' embeddings. A basin is read by its most central texts and by the
words that tell it from the other basins; of texts without words, such as proteins, by the letters
at their sites.
"""

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError
from glauber.runs.distinctive_words import distinctive
from glauber.runs.snapshots import Snapshots
from glauber.studies.metastability.state_model import Assignment, Labels, check_basins

MOST = 40  # clusters, where nothing else is said
TEXTS = 3
WORDS = 8


def usual_clusters(n_texts: int) -> int:
    """Half the square root of the number of texts, from 2 to 40: each then holds enough of them."""
    return int(np.clip(round(n_texts**0.5 / 2), 2, MOST))


def cluster(
    vectors: NDArray[np.float32], n_clusters: int | None = None, *, seed: int = 0
) -> Labels:
    """The cluster (chains, snapshots) of each embedding (chains, snapshots, d), by k-means."""
    flat = vectors.reshape(-1, vectors.shape[-1])
    different = len(np.unique(flat, axis=0))
    if different < 2:
        raise GlauberError(
            "every snapshot has the same embedding, so there are no basins to tell apart."
        )
    if n_clusters is None:
        n_clusters = usual_clusters(len(flat))
    elif different < n_clusters:
        raise GlauberError(
            f"{n_clusters} clusters are asked for, but the snapshots have only {different} "
            "different embeddings."
        )
    check_basins("sklearn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sklearn.cluster import KMeans
    fit = KMeans(min(n_clusters, different), n_init=4, random_state=seed % 2**32).fit(flat)
    return np.asarray(fit.labels_, np.int64).reshape(vectors.shape[:2])


@dataclass(frozen=True)
class Readable:
    """A basin in words."""

    texts: tuple[str, ...]  # nearest to the mean of the basin's embeddings, each once
    words: tuple[str, ...]  # those that tell it from the other basins best; or letters at sites
    n_snapshots: int
    n_chains: int  # that were ever in it


def readable(
    texts: Sequence[Sequence[str]],
    vectors: NDArray[np.float32],
    basins: Assignment,
    words_of: Mapping[str, set[str]] | None = None,
) -> tuple[Readable, ...]:
    """Each basin in words, from texts (chains, snapshots) and vectors (chains, snapshots, d).

    basins (chains, snapshots) says where a snapshot is, -1 for nowhere; words_of has the words
    of each text (default: as they are written).
    """
    n_basins = int(basins.max()) + 1
    every = np.array(texts, dtype=object)  # (chains, snapshots)
    if not words_of:
        words_of = {text: set(re.findall(r"\w+", text.lower())) for text in set(every.ravel())}
    bags = [_bag(set(every[basins == basin]), words_of) for basin in range(n_basins)]
    everything = sum(bags, Counter())
    return tuple(
        Readable(
            _central(every[basins == basin], vectors[basins == basin]),
            distinctive(bags[basin], everything - bags[basin], WORDS),
            int((basins == basin).sum()),
            int((basins == basin).any(axis=1).sum()),
        )
        for basin in range(n_basins)
    )


def letters_at_sites(snapshots: Snapshots) -> dict[str, set[str]] | None:
    """The letters of each text with their sites, as in 96:G; nothing where tokens are no letters.

    Sites are counted from 0, without special tokens and prefix; frozen ones are left out.
    """
    run = snapshots.run
    if not run.vocabulary.letters:
        return None
    return {
        text: {
            f"{site - run.first_site}:{run.vocabulary.spell(int(row[site]))}"
            for site in np.flatnonzero(free)
        }
        for texts, rows, free in zip(snapshots.texts, snapshots.tokens, run.free, strict=True)
        for text, row in zip(texts, rows, strict=True)
    }


def _bag(texts: set[str], words_of: Mapping[str, set[str]]) -> Counter[str]:
    """In how many of the texts each word stands."""
    return Counter(word for text in texts for word in words_of[text])


def _central(texts: Sequence[str], vectors: NDArray[np.float32]) -> tuple[str, ...]:
    nearness = vectors @ vectors.mean(axis=0)
    ordered = (str(texts[number]) for number in np.argsort(-nearness, kind="stable"))
    return tuple(dict.fromkeys(ordered))[:TEXTS]
