"""Table 5 and the temperature regimes of paper A on a tiny model, with embeddings by words."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import TEXTS, VOCABULARY
from glauber import paper
from glauber.metastability.regimes import regime
from glauber.papers import temperatures, traps
from glauber.runs import embedding
from glauber.runs.embedding import Embedder
from glauber.runs.export import trajectory
from glauber.sampling.sample import sample


def embed(texts):
    counts = [[text.split().count(word) for word in VOCABULARY] + [0.1] for text in texts]
    stacked = np.array(counts, np.float32)
    return stacked / np.linalg.norm(stacked, axis=1, keepdims=True)


@pytest.fixture
def tiny_scale(monkeypatch, tiny_folder):
    small = replace(
        traps.CONDITIONS["small"], model=str(tiny_folder), length=5, chains=3, steps=400,
        temperature=0.05,
    )  # fmt: skip
    monkeypatch.setitem(traps.CONDITIONS, "small", small)
    monkeypatch.setattr("glauber.conditionals.starts.bundled_texts", lambda model: TEXTS)
    few = temperatures.Sizes(str(tiny_folder), 5, 3, 150, texts=tuple(TEXTS[:2]))
    monkeypatch.setitem(temperatures.REGIME_SIZES, "small", few)
    monkeypatch.setattr(embedding, "load_embedder", lambda *_, **__: Embedder("words", embed))


def test_table_5(tiny_scale, tmp_path):
    made = paper("A-table5", seeds=1)
    rolling, hamming, *traps = made.rows
    assert (rolling["detector"], hamming["detector"]) == ("rolling", "hamming")
    assert len(traps) == rolling["traps"] + hamming["traps"] > 0
    for row in (rolling, hamming):
        own = [trap for trap in traps if trap["detector"] == row["detector"]]
        assert row["perfect"] == sum(trap["min gap"] > 0 for trap in own)
        assert row["published traps, perfect"] == [17, 4]
        assert row["published mean duration"] == 671 and row["published range"] == [150, 4950]
    assert all(trap["duration"] >= 150 for trap in traps)
    assert len({(trap["detector"], trap["trap"]) for trap in traps}) == len(traps)
    for trap in traps:
        bound = trap["bound on its escape"]
        says = trap["steps it holds by the bound"]
        assert ("vacuous" in says) == (bound is not None and bound >= 1)
    better = rolling["better predictor"]
    verdict = "Too few" if better is None else "disagrees"[3 * (better == "mean gap") :]
    assert verdict in made.how
    assert len(made.pictures) == 4 and made.write(tmp_path / "out").is_dir()
    assert paper("A-table5", seeds=1).rows == made.rows


def test_the_regimes(tiny_scale, tiny_folder, tmp_path):
    made = paper("A-regimes")
    assert [row["temperature"] for row in made.rows] == [0.01, 0.1, 1, 10, 100]
    changed = [row["steps that change a token"] for row in made.rows]
    assert changed[0] < changed[1] < 0.9 < changed[4]
    entropies = [row["entropy, nats"] for row in made.rows]
    assert entropies == sorted(entropies) and entropies[-1] <= np.log(len(VOCABULARY))
    far = [row["distance from the start"] for row in made.rows]
    run = sample(str(tiny_folder), TEXTS[:2], steps=150, chains=3, length=5, temperature=100.0)
    looks = [embed([run.text(chain, step) for chain in range(3)]) for step in (0, 100, 150)]
    by_hand = np.mean([1 - (looks[0] * look).sum(axis=1) for look in looks[1:]])
    assert far[4] == pytest.approx(by_hand, abs=1e-6)
    assert all(low <= value <= high for value, (low, high) in
               zip(far, (row["interval"] for row in made.rows), strict=True))  # fmt: skip
    claims = {claim.sentence: claim for claim in made.claims}
    assert len(claims) == len(made.claims) == 5
    cold = claims["at temperature 0.01 chains stay close to where they began"]
    assert cold.quantity.value == far[0]
    hot = claims["at temperature 100 token selection becomes nearly uniform"]
    assert hot.verdict.word == "agrees" and 0.9 < hot.quantity.value <= 1
    assert len(made.pictures) == 1 and made.write(tmp_path / "out").is_dir()


def test_the_figures_of_a_regime(tiny_folder):
    run = sample(str(tiny_folder), ["the cat sat on it ."], steps=301, chains=3, temperature=0.1)
    found = regime(run, embed, stride=10, shortest=20)
    path = [tokens for _, tokens in trajectory(run)]
    moved = [(path[t] != path[t - 1]).any(axis=1) for t in range(151, 302)]
    assert found.changed == pytest.approx(np.mean(moved))
    free = run.free[0]
    assert found.kept == pytest.approx(np.mean(path[-1][:, free] == path[0][:, free]))
    looks = [embed([run.vocabulary.decode(row) for row in path[t]]) for t in range(150, 302, 10)]
    pairs = zip(looks[1:], looks[:-1], strict=True)
    paces = [1 - (a * b).sum(axis=1) for a, b in pairs]
    assert found.pace == pytest.approx(np.mean(paces), abs=1e-6)
    assert 0 < found.stuck <= 1 and found.kind == "estimate"
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
