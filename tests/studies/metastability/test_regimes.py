"""The figures of a regime, by hand, with an embedding that counts words."""

import numpy as np
import pytest

from conftest import VOCABULARY
from crafted_run import crafted_run
from glauber.sampling.sample import sample
from glauber.studies.metastability.regimes import regime


def embed(texts):
    counts = [[text.split().count(word) for word in VOCABULARY] + [0.1] for text in texts]
    stacked = np.array(counts, np.float32)
    return stacked / np.linalg.norm(stacked, axis=1, keepdims=True)


def test_the_figures_of_a_regime(tiny_folder):
    run = sample(str(tiny_folder), ["the cat sat on it ."], steps=301, chains=3, temperature=0.1)
    found = regime(run, embed, stride=10, shortest=20)
    path = [tokens for _, tokens in run.states()]
    moved = [(path[t] != path[t - 1]).any(axis=1) for t in range(151, 302)]
    assert found.changed == pytest.approx(np.mean(moved))
    free = run.free[0]
    assert found.kept == pytest.approx(np.mean(path[-1][:, free] == path[0][:, free]))
    looks = [embed([run.vocabulary.decode(row) for row in path[t]]) for t in range(150, 302, 10)]
    pairs = zip(looks[1:], looks[:-1], strict=True)
    paces = [1 - (a * b).sum(axis=1) for a, b in pairs]
    assert found.pace == pytest.approx(np.mean(paces), abs=1e-6)
    assert 0 < found.stuck <= 1 and found.kind == "estimate"
    assert found.entropy == pytest.approx(run.read("entropy")[:, 150:].mean())
    assert found.log_prob == pytest.approx(run.read("log_prob_new")[:, 150:].mean())
    starts = [embed([run.vocabulary.decode(row) for row in path[t]]) for t in range(0, 302, 10)]
    by_hand = np.stack([1 - (starts[0] * now).sum(axis=1) for now in starts], axis=1)
    assert found.steps.tolist() == list(range(0, 302, 10))
    np.testing.assert_allclose(found.distances, by_hand, atol=1e-6)
    np.testing.assert_allclose(found.from_start.value, by_hand.mean(axis=0), atol=1e-6)
    ends = found.at_end.interval
    assert 0 <= ends[0] <= by_hand[:, -1].mean() <= ends[1] <= 2
    two = sample(str(tiny_folder), ["the cat sat on it ."], steps=60, chains=2, temperature=0.1)
    alone = regime(two, embed, stride=10, shortest=20)
    assert alone.at_end.interval is None and alone.from_start.low is None


def test_a_chain_that_never_moves_is_stuck_all_the_time(tmp_path):
    cat = VOCABULARY.index("cat")
    sites, tokens = np.tile(np.arange(80) % 2, (3, 1)), np.full((3, 80), cat)
    found = regime(crafted_run(tmp_path / "run", tokens[:, :2], sites, tokens), embed, stride=10)
    assert found.stuck == 0  # shorter than an episode of 150 steps
    run = crafted_run(tmp_path / "again", tokens[:, :2], sites, tokens)
    found = regime(run, embed, stride=10, shortest=20)
    assert (found.stuck, found.changed, found.kept, found.pace) == (1.0, 0.0, 1.0, 0.0)
