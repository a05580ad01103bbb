"""Stays with a label: durations and means by plain loops, ranks over pairs."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import glauber
from conftest import TEXTS
from glauber.foundation.errors import GlauberError
from glauber.studies.landscape.scorers import Scorer
from glauber.studies.metastability.margins import margins_of


def by_first_word(texts):
    """One of three labels by the first letter; equal scores where "the" is in the text twice."""
    scores = np.full((len(texts), 3), 1 / 3)
    for row, text in zip(scores, texts, strict=True):
        if text.split().count("the") < 2:
            row[:] = 0.2
            row[ord(text[:1] or "a") % 3] = 0.6
    return scores


SCORER = Scorer("first letters", ("none", "one", "two"), by_first_word)


@pytest.fixture(scope="module")
def run(tiny_folder):
    return glauber.sample(str(tiny_folder), TEXTS, steps=200, chains=6, length=5, temperature=0.5)


def labels_of(run, every):
    """By hand: the best label where its score is above a third, else none; (chains, snapshots)."""
    rows = []
    for chain in range(run.n_chains):
        texts = [
            run.vocabulary.decode(run.tokens(step)[chain])
            for step in range(0, run.steps + 1, every)
        ]
        scores = SCORER.score(texts)
        rows.append(np.where(scores.max(axis=1) > 0.5, scores.argmax(axis=1), -1))
    return np.array(rows)


def test_stays_are_those_of_plain_loops(run, tiny_folder):
    found = glauber.persistence(run, of="topics", scorer=SCORER, every=10)
    model = glauber.load(str(tiny_folder), dtype="float64").conditionals()
    stays = iter(found.stays)
    for chain, row in enumerate(labels_of(run, 10)):
        edges = [0, *(np.flatnonzero(row[1:] != row[:-1]) + 1), len(row)]
        for first, end in pairwise(edges):
            if row[first] < 0:
                continue
            stay = next(stays)
            assert (stay.label, stay.chain) == (SCORER.labels[row[first]], chain)
            assert (stay.first, stay.duration) == (10 * first, 10 * (end - first))
            assert stay.ended == (end < len(row))
            own = [
                margins_of(
                    model,
                    torch.from_numpy(run.tokens(10 * place)[chain].astype(np.int64)),
                    torch.from_numpy(run.free[chain]),
                    temperature=0.5,
                )
                for place in range(first, end)
            ]
            assert stay.mean_gap == pytest.approx(np.mean([each.mean_gap for each in own]))
            assert stay.min_gap == pytest.approx(np.mean([each.margin for each in own]))
            assert stay.escape_rate == pytest.approx(np.mean([each.escape_rate for each in own]))
            moves = [each.escape_moves for each in own]
            assert stay.escape_moves == pytest.approx(np.mean(moves))
    assert next(stays, None) is None and len(found.stays) > 10
    assert {stay.ended for stay in found.stays} == {True, False}
    assert any(-1 in row for row in labels_of(run, 10))


def test_ranks_are_over_pairs_of_different_chains(run):
    found = glauber.persistence(run, of="topics", scorer=SCORER, every=10)
    total = pairs = 0
    for short in found.stays:
        for long in found.stays:
            if short.duration < long.duration and short.ended and short.chain != long.chain:
                pairs += 1
                total += np.sign(long.min_gap - short.min_gap)
    assert found.ranks.by_min_gap.value == pytest.approx(total / pairs)
    assert found.ranks.by_min_gap.n_families == 6


def test_basins_have_stays_too(run):
    found = glauber.persistence(run, embedder="tokens", every=4)
    assert {stay.label.split()[0] for stay in found.stays} == {"basin"}
    by_chain = [sum(s.duration for s in found.stays if s.chain == chain) for chain in range(6)]
    assert max(by_chain) <= 4 * 51 and "Somers' D" in str(found)
    few = glauber.sample(run.spec.model, TEXTS[:3], steps=60, length=5)
    assert "at least four chains" in str(glauber.persistence(few, embedder="tokens", every=2))


def test_other_kernels_and_words_are_refused(run, tiny_folder):
    swept = glauber.sample(str(tiny_folder), TEXTS[:2], steps=5, scan="sweep")
    with pytest.raises(GlauberError, match="one random site a step"):
        glauber.persistence(swept)
    with pytest.raises(GlauberError, match="topics, basins"):
        glauber.persistence(run, of="words")
