"""The two searches for traps and the families, each against its definition by brute force."""

import itertools

import numpy as np
import pytest

from crafted_run import crafted_run
from glauber.foundation.errors import GlauberError
from glauber.runs.embedding import as_embedder
from glauber.runs.snapshots import snapshots
from glauber.studies.metastability.episodes import (
    check_window,
    episodes_of_chain,
    flagged_episodes,
    hamming_episodes,
    rolling_drift,
    rolling_episodes,
    sojourns,
    sojourns_of_path,
)
from glauber.studies.metastability.traps import edit_distances, families


def random_path(rng, n_steps=400, length=5, lazy=0.9):
    path = np.zeros((n_steps + 1, length), np.int64)
    for step in range(1, n_steps + 1):
        path[step] = path[step - 1]
        if rng.random() > lazy:
            path[step, rng.integers(length)] = rng.integers(4)
    return path


@pytest.mark.parametrize("radius", [0, 1, 2, 5])
def test_hamming_episodes_are_those_of_their_rule(radius):
    rng = np.random.default_rng(radius)
    for _ in range(20):
        path = random_path(rng)
        kept = sojourns_of_path(path)
        found = episodes_of_chain(kept, 7, radius=radius)
        assert (found[0].first, found[-1].last) == (0, 400)
        assert all(a.last + 1 == b.first for a, b in itertools.pairwise(found))
        assert [s.ended for s in found] == [True] * (len(found) - 1) + [False]
        longest = []
        for episode in found:
            inside = path[episode.first : episode.last + 1]
            assert ((inside != episode.centre).sum(axis=1) <= radius).all() and episode.chain == 7
            touched, lengths = kept.between(episode.first, episode.last)
            assert lengths.sum() == episode.duration
            own = (kept.states[touched] == episode.centre).all(axis=1)
            longest.append(lengths.max())
            assert lengths[own].max() == lengths.max()
        for (a, size_a), (b, size_b) in itertools.pairwise(zip(found, longest, strict=True)):
            # The one with the longer stay came first, and would have gone on if it could.
            if size_a > size_b:
                assert (path[b.first] != a.centre).sum() > radius
            elif size_b > size_a:
                assert (path[a.last] != b.centre).sum() > radius
    assert radius < 5 or len(found) == 1


def test_stays_of_a_run_are_those_of_its_texts(tmp_path):
    rng = np.random.default_rng(0)
    sites, tokens = rng.integers(0, 3, (2, 50)), rng.integers(8, 10, (2, 50))
    run = crafted_run(tmp_path / "run", np.full((2, 3), 8), sites, tokens)
    for chain, kept in enumerate(sojourns(run)):
        path = np.stack([run.tokens(step)[chain] for step in range(51)])
        again = sojourns_of_path(path)
        assert (kept.states == again.states).all() and (kept.first == again.first).all()
        assert (np.repeat(kept.states, kept.last - kept.first + 1, axis=0) == path).all()


def test_the_drift_looks_ahead():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(3, 20, 6))
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    found = rolling_drift(vectors, 4)
    assert found.shape == (3, 16)
    for chain, look in itertools.product(range(3), range(16)):
        ahead = [1 - vectors[chain, look] @ vectors[chain, look + s] for s in (1, 2, 3, 4)]
        assert found[chain, look] == pytest.approx(np.mean(ahead), abs=1e-12)


def test_flagged_looks_count_as_strides():
    flags = np.array([True, True, False, True, False, True, True, True])
    found = flagged_episodes(flags, 50, chain=2)
    assert [(s.first, s.last, s.duration) for s in found] == [
        (0, 99, 100), (150, 199, 50), (250, 399, 150)
    ]  # fmt: skip
    assert [s.ended for s in found] == [True, True, False] and found[0].chain == 2
    assert flagged_episodes(np.zeros(4, bool), 50) == []


@pytest.fixture
def still(tmp_path):
    """A chain that moves, stands still from step 40 to 99, and moves again until step 200."""
    moving = np.r_[0:40, 100:200]
    tokens = np.full((1, 200), 8)
    tokens[0, moving] = 9 + np.arange(len(moving)) % 7
    tokens[0, 40:100] = tokens[0, 39]
    return crafted_run(tmp_path / "run", np.full((1, 2), 8), np.zeros((1, 200), int), tokens)


def one_hot(texts):
    words = {}
    rows = [words.setdefault(text, len(words)) for text in texts]
    return np.eye(300, dtype=np.float32)[rows]


def test_a_chain_that_stands_still_is_found(still):
    vectors = as_embedder(one_hot).vectors(snapshots(still, every=5))
    found = rolling_episodes(vectors, window=20, stride=5, threshold=0.2)
    found = [episode for episode in found if episode.duration >= 15]
    # At a look all of the next four must agree with it: 40 to 80 (40 - 1 is the last to move).
    assert [(s.first, s.last, s.ended) for s in found] == [(40, 84, True)]
    assert len(rolling_episodes(vectors, window=20, stride=5, threshold=2)) == 1
    exact = [e for e in hamming_episodes(list(sojourns(still)), radius=0) if e.duration >= 15]
    assert [(s.first, s.last) for s in exact] == [(40, 100)]
    assert vectors.shape == (1, 41, 300)


def test_what_cannot_be_searched(still):
    for settings, why in (
        ({"window": 300}, "200 steps, but the window is 300"),
        ({"window": 20, "stride": 30}, "at least one stride"),
    ):
        with pytest.raises(GlauberError, match=why):
            check_window(still, **({"stride": 50} | settings))


def edits(left, right):
    """By the recursion that defines it."""
    if not left or not right:
        return len(left) + len(right)
    same = edits(left[1:], right[1:]) + (left[0] != right[0])
    return min(same, edits(left[1:], right) + 1, edits(left, right[1:]) + 1)


def test_edit_distances_and_families():
    rng = np.random.default_rng(2)
    rows = [rng.integers(0, 3, rng.integers(1, 6)).tolist() for _ in range(14)]
    found = edit_distances(rows)
    assert found.tolist() == [[edits(a, b) for b in rows] for a in rows]
    for reach in (0, 1, 2):
        groups = families(rows, reach=reach)
        assert sorted(itertools.chain(*groups)) == list(range(14))
        assert [len(g) for g in groups] == sorted((len(g) for g in groups), reverse=True)
        for one, other in itertools.combinations(groups, 2):
            assert found[np.ix_(one, other)].min() > reach
        for group in groups:
            reached = {group[0]}
            for _ in group:
                reached |= {j for i in reached for j in group if found[i, j] <= reach}
            assert reached == set(group)
    assert families([]) == [] and families([[1, 2], [3]], reach=2) == [[0, 1]]
