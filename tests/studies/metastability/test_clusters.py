"""Clusters of points that are known, and basins in words that are known."""

from collections import Counter

import numpy as np
import pytest

from glauber.foundation.errors import GlauberError
from glauber.runs.distinctive_words import distinctive
from glauber.studies.metastability.clusters import WORDS, cluster, readable


def test_central_texts_and_distinctive_words():
    first = ["the king and the queen", "the king rode", "the old king"]
    second = ["the ship at sea", "the sea was rough"]
    texts = (tuple(first), (*second, "the nothing"))
    vectors = np.array(
        [[[1, 0], [0.8, 0.6], [0.6, 0.8]], [[0, -1], [0.28, -0.96], [0, 1]]], np.float32
    )
    basins = np.array([[0, 0, 0], [1, 1, -1]])
    king, sea = readable(texts, vectors, basins)
    assert king.texts[0] == "the king rode" and set(king.texts) == set(first)
    assert king.words[0] == "king" and sea.words[0] == "sea"
    assert "nothing" not in king.words + sea.words and "the" not in (king.words[0], sea.words[0])
    assert (king.n_snapshots, king.n_chains, sea.n_snapshots) == (3, 1, 2)


def test_a_word_seen_often_beats_a_word_seen_once():
    own = Counter({"the": 50, "sea": 20, "once": 1})
    others = Counter({"the": 50, "sea": 1})
    words = distinctive(own, others, WORDS)
    assert words[0] == "sea" and "the" not in words
    assert distinctive(Counter({"one": 3}), Counter(), WORDS) == ("one",)


def test_clusters_are_those_of_the_points():
    rng = np.random.default_rng(0)
    which = rng.integers(3, size=(4, 50))
    vectors = np.eye(3)[which] + rng.normal(scale=0.02, size=(4, 50, 3))
    found = cluster(vectors.astype(np.float32), 3)
    assert found.shape == (4, 50)
    assert len({(a, b) for a, b in zip(which.ravel(), found.ravel(), strict=True)}) == 3
    assert (cluster(vectors.astype(np.float32), 3) == found).all()
    points = np.eye(3, dtype=np.float32)[which]
    assert cluster(points).max() == 2  # no more clusters than different texts
    same = np.ones((2, 5, 3), np.float32)
    for n_clusters, vectors, why in ((4, points, "only 3"), (None, same, "embedding")):
        with pytest.raises(GlauberError, match=why):
            cluster(vectors, n_clusters)
