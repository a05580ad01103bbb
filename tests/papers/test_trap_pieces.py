"""Tables 2 and 5 and the temperature regimes of paper A on a tiny model, embedded by words."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import poisson, somersd

import glauber
from conftest import TEXTS, VOCABULARY
from glauber import paper
from glauber.metastability.regimes import regime
from glauber.metastability.traps import TrapSearch
from glauber.papers import basin_drift, temperatures, traps
from glauber.runs import embedding
from glauber.runs.embedding import Embedder
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
    made = paper("A-table5", seeds=1, chains=4, out=tmp_path / "papers")
    rolling, hamming, periods, *listed = made.rows
    assert (rolling["detector"], hamming["detector"]) == ("rolling", "hamming")
    assert len(listed) == rolling["traps"] + hamming["traps"] > 0
    for row in (rolling, hamming):
        own = [trap for trap in listed if trap["detector"] == row["detector"]]
        assert row["perfect"] == sum(trap["min gap"] > 0 for trap in own)
        assert row["published traps, perfect"] == [17, 4]
        assert row["published mean duration"] == 671 and row["published range"] == [150, 4950]
    assert all(trap["duration"] >= 150 for trap in listed)
    for trap in listed:
        assert trap["detector"] in trap["trap"] and trap["trap"] in str(made)
        assert ("none" in trap["escape bound"]) == (not trap["perfect"])
    assert traps._bound(1.5e4) == "vacuous (1.5e+04)" and "50 steps" in traps._bound(0.02)
    assert periods["text"] == traps.PERIODS and periods["holds, exact"] > 1
    assert len(made.pictures) == 4 and made.write(tmp_path / "out").is_dir()
    assert "4 chains" in made.how and len(made.claims) == 7
    for claim in made.claims:
        assert any("temperature 0.05" in own for own in claim.ours)
    exact = made.claims[-1]
    assert exact.verdict.word == ("agrees" if periods["perfect"] else "disagrees")
    again = paper("A-table5", seeds=1, chains=4, out=tmp_path / "papers")
    assert again.to_dict() == made.to_dict()


def test_the_claims_of_a_catalogue(tiny_folder):
    run = sample(str(tiny_folder), TEXTS, steps=400, chains=6, temperature=0.1)
    model = glauber.load(str(tiny_folder), dtype="float64").conditionals()
    found = TrapSearch(run, model).hamming(shortest=30, reach=0)
    gaps, count, perfect, duration, vacuous, weakest = traps._claims(found)
    traps_of = [sum(trap.chain == chain for trap in found.traps) for chain in range(6)]
    assert count.quantity.value == pytest.approx(np.mean(traps_of) * 750)
    low, high = count.quantity.interval
    assert 0 <= low <= count.quantity.value <= high
    assert poisson.cdf(17, count.region.high) == pytest.approx(0.025)
    assert poisson.sf(16, count.region.low) == pytest.approx(0.025)
    assert perfect.quantity.value == pytest.approx(np.mean([t.perfect for t in found.traps]))
    assert duration.quantity.value == pytest.approx(np.mean([t.duration for t in found.traps]))
    firm = [trap for trap in found.traps if trap.perfect]
    assert vacuous.quantity.value == np.mean([trap.margins.escape_bound >= 1 for trap in firm])
    assert vacuous.verdict.word == ("agrees" if vacuous.quantity.value == 1 else "disagrees")
    left = [trap for trap in found.traps if trap.escape]
    at = np.mean([trap.escape.site == trap.weakest.site for trap in left])
    assert weakest.quantity.value == pytest.approx(at)
    assert gaps.quantity.value == pytest.approx(found.ranks.difference.value)
    words = [traps._claims(replace(found, traps=()))[place].verdict.word for place in range(6)]
    assert set(words[2:]) == {"cannot tell"} and words[0] == "cannot tell"


def test_the_traps_that_the_paper_lists_rank_the_other_way():
    """Whatever the four lost min gaps are, up to 0: by SciPy, with random values and ties."""
    ranks, (durations, means, least) = traps.listed_ranks(), zip(*traps.LISTED, strict=True)
    assert least.count(None) == 4 and min(gap for gap in least if gap is not None) > 0
    assert ranks.by_mean_gap == pytest.approx(somersd(durations, means).statistic)
    random = np.random.default_rng(0)
    seen = []
    for _ in range(400):
        lost = iter(-random.integers(0, 6, size=4) / random.integers(1, 9))
        filled = [next(lost) if gap is None else gap for gap in least]
        seen.append(somersd(durations, filled).statistic)
    assert ranks.by_min_gap == pytest.approx((min(seen), max(seen)))
    assert ranks.by_min_gap == pytest.approx((-1 / 13, 5 / 13))  # 26 pairs whose order is known
    assert ranks.by_mean_gap < ranks.by_min_gap[0]


def test_what_is_computed_from_the_published_table_is_called_ours(tiny_folder):
    run = sample(str(tiny_folder), TEXTS, steps=400, chains=6, temperature=0.1)
    model = glauber.load(str(tiny_folder), dtype="float64").conditionals()
    claim = traps._claims(TrapSearch(run, model).hamming(shortest=30, reach=0))[0]
    assert claim.published == "better, no number"
    (note,) = (one for one in claim.ours if "published table" in one)
    assert note.startswith("computed by us") and "between -0.08 and 0.38" in note


def test_table_2(tiny_folder, monkeypatch, tmp_path):
    for name, value in (("LENGTH", 5), ("COUNT", 3), ("LEVELS", 1), ("SAMPLES", 12)):
        monkeypatch.setattr(basin_drift, name, value)
    monkeypatch.setitem(basin_drift.MODELS, "small", str(tiny_folder))
    made = paper("A-table2", TEXTS, seeds=2, out=tmp_path)
    assert [row["temperature, ours"] for row in made.rows] == [0.5, 1.0]
    for row, (positive, certified) in zip(
        made.rows, (made.claims[:2], made.claims[2:]), strict=True
    ):
        how = dict(count=3, levels=1, samples=12, length=5, seed=2)
        found = glauber.drift(
            str(tiny_folder), TEXTS, token="!", temperature=row["temperature, ours"], **how
        )
        edge = found.levels[0]
        assert row["positive"] == f"{edge.positive} of 12" and row["min"] == edge.smallest
        assert positive.quantity.value == pytest.approx(edge.positive / 12)
        assert certified.quantity.value == found.epsilon
        # Samples can show that there is no certificate, and never that there is one.
        word = "disagrees" if found.epsilon <= 0 else "cannot tell"
        assert certified.verdict.word == word
        assert any("lost" in one for one in positive.ours)


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
    assert len(claims) == len(made.claims) == 7
    close = "at temperature 0.01 chains stay close to where they began"
    assert claims[close].quantity.value == pytest.approx(far[0])
    beside = claims[f"{close}, set against noise"]
    assert beside.quantity.value == pytest.approx(far[0] - far[3] / 2)
    hot = claims["at temperature 100 token selection becomes nearly uniform"]
    assert hot.verdict.word == "agrees" and 0.9 < hot.quantity.value <= 1
    assert len(made.pictures) == 1 and made.write(tmp_path / "out").is_dir()


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
