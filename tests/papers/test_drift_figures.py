"""Figures 2, 3a and 3b of paper A on a tiny model, with an embedding that counts words."""

from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer

from conftest import TEXTS, VOCABULARY
from glauber import paper, phase, sample
from glauber.conditionals.shelf import bundled_folder
from glauber.conditionals.starts import passages
from glauber.papers import mixing as pieces
from glauber.papers import semantic_drift as by_length
from glauber.papers import temperatures
from glauber.papers.settings import Settings, list_chains
from glauber.runs import embedding
from glauber.runs.embedding import Embedder


def embed(texts):
    counts = [[text.split().count(word) for word in VOCABULARY] + [0.1] for text in texts]
    stacked = np.array(counts, np.float32)
    return stacked / np.linalg.norm(stacked, axis=1, keepdims=True)


@pytest.fixture
def tiny_scale(monkeypatch, tiny_folder):
    given = dict(model=str(tiny_folder), texts=tuple(TEXTS[:2]))
    small = replace(by_length.CONDITIONS["small"], lengths=(3, 6), chains=8, step=6, steps=150,
                    **given)  # fmt: skip
    monkeypatch.setitem(by_length.CONDITIONS, "small", small)
    few = replace(temperatures.FORGETTING["small"], chains=6, steps=60, every=10, lengths=(4,),
                  **given)  # fmt: skip
    monkeypatch.setitem(temperatures.FORGETTING, "small", few)
    monkeypatch.setattr(temperatures, "LENGTH", 4)
    monkeypatch.setattr(embedding, "load_embedder", lambda *_, **__: Embedder("words", embed))


def test_figure_3a(tiny_scale, tmp_path):
    made = paper("A-fig3a", seeds=3, out=tmp_path / "kept")
    assert [row["n"] for row in made.rows] == [3, 6]
    for row in made.rows:
        low, high = row["interval"]
        assert low <= row["mean distance"] <= high and row["quartiles"] == sorted(row["quartiles"])
        assert (row["step"], row["trials"], row["embedder"]) == (6, 8, "words")
        assert "grows logarithmically" in row["published"]
    assert (made.write(tmp_path / "out") / "distance.html").exists()
    claim, control = made.claims
    assert "after 2 sweeps" in control.quantity.name and control.quantity.n == 8
    near, far = (row["mean distance"] for row in made.rows)
    assert claim.quantity.value == pytest.approx((far - near) / np.log(2))
    assert claim.source == "paper A, section 6.1 (figure 3a)"
    assert any("temperature 1: that of figure 3 is lost" in note for note in claim.ours)


def test_figure_2(tiny_scale, tiny_folder):
    made = paper("A-fig2", seeds=1)
    assert [row["temperature"] for row in made.rows] == list(temperatures.TEMPERATURES)
    hot, cold = (
        sample(str(tiny_folder), TEXTS[:2], steps=60, chains=6, length=4, temperature=t, seed=1)
        for t in (2.0, 0.1)
    )
    far, near = (_distance(run) for run in (hot, cold))
    assert made.rows[-2]["distance at the end"] == pytest.approx(far.mean(), abs=1e-6)
    assert list(made.figures()) == ["forgetting", "distance"]
    given = dict(lengths=[4], pairs=6, steps=60, temperatures=[2.0], seed=1)
    (cell,) = phase(str(tiny_folder), TEXTS[:2], **given).cells
    assert made.rows[-2]["pairs that met"] == f"{sum(cell.met)} of 6"
    assert made.rows[-2]["median step to forget"] == cell.median.value
    forget, slow = made.claims
    assert "time to forget" in forget.sentence and forget.source.startswith("paper A, introduction")
    assert slow.quantity.value == pytest.approx((near - far / 2).mean(), abs=1e-6)
    assert any("our reading" in note for note in made.ours)


def _distance(run):
    start, end = (embed([run.text(c, step) for c in range(6)]) for step in (0, 60))
    return 1 - (start * end).sum(axis=1)


def test_figure_3b(tiny_scale):
    made = paper("A-fig3b")
    times = [row for row in made.rows if "n" in row]
    laws = [row for row in made.rows if row.get("law") in ("n", "n log n", "n^2")]
    powers = [row for row in made.rows if row.get("law") == "n^b"]
    assert [row["n"] for row in times] == [3, 6]
    assert all(row["hit"] + row["censored"] == len(row["times"]) == 8 for row in times)
    assert [row["law"] for row in laws] == ["n", "n log n", "n^2"] * 2
    for family in ("gamma", "log-normal"):
        rows = [row for row in laws if row["times vary by"] == family]
        assert sum(row["weight among the three"] for row in rows) == pytest.approx(1)
    assert [row["threshold"] for row in powers[2:]] == list(by_length.THRESHOLDS)
    own, corrected = powers[0], powers[2 + by_length.THRESHOLDS.index(0.5)]
    assert own["b"] == corrected["b"] and own["level"] == "95.0%" and corrected["level"] == "99.0%"
    assert corrected["interval of b"][0] < own["interval of b"][0] < own["b"]
    scaling, robust = made.claims
    assert scaling.quantity.value == own["b"] and "robust" in robust.sentence
    assert (scaling.quantity.level, robust.quantity.level) == pytest.approx((0.95, 0.99))
    # Over 3 and 6 tokens n log n looks like this power, and the region is nearer to it than to n.
    slope = np.log(6 * np.log(6) / (3 * np.log(3))) / np.log(2)
    assert scaling.effect == pytest.approx(slope)
    assert (scaling.region.low, scaling.region.high) == pytest.approx(
        ((1 + slope) / 2, (2 + slope) / 2)
    )
    assert list(made.figures()) == ["times"]


def test_the_coupling_figure(tiny_folder, texts, monkeypatch, tmp_path):
    few = replace(pieces.PHASES["small"], model=str(tiny_folder), texts=tuple(texts), chains=3,
                  steps=8, lengths=(2, 4), temperatures=(0.5, 5.0), thresholds=3)  # fmt: skip
    monkeypatch.setitem(pieces.PHASES, "small", few)
    # The cells made apart, as on another machine, on another device's name; the piece goes on.
    settings = Settings("A-fig-coupling", "small", 0, tmp_path, device="cpu")
    list_chains(tmp_path, [])  # marks the folder as one of pieces
    assert len(pieces.diagram(settings, few).cells) == 4
    (cells,) = (tmp_path / "studies").glob("phase-*/cells")
    stamps = {path.name: path.stat().st_mtime_ns for path in cells.iterdir()}
    made = paper("A-fig-coupling", out=tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in cells.iterdir()} == stamps
    assert list(made.figures()) == ["phase"] and "/3 at 0.5" in made.rows[0]["met"]
    assert [row["tokens"] for row in made.rows] == [2, 4] * 3
    budgets = [row.get("budget") for row in made.rows]
    assert budgets == ["equal steps, 8"] * 2 + ["equal sweeps, 2"] * 2 + [None] * 2
    sentences = [claim.sentence for claim in made.claims]
    rises = "the boundary shifts to higher temperatures as texts grow"
    assert sentences[:2] == [rises, f"{rises} (in sweeps: our control)"]
    assert "the crossover does not sharpen as texts grow" in sentences and len(sentences) == 4


def test_the_influence(tiny_folder, texts):
    made = paper("A-influence", [texts[0]], model=str(tiny_folder))
    (row,) = made.rows
    assert row["alpha"] > 0 and row["alpha is"] == "lower bound"
    above, typical = made.claims
    assert above.quantity.kind == "lower bound" and above.quantity.value == row["alpha"]
    # A lower bound at or below 1 says nothing; above 1 it settles it.
    assert above.verdict.word == ("agrees" if row["alpha"] > 1 else "cannot tell")
    difference = row["influence met on average"] - row["alpha"] / 2
    assert typical.quantity.value == pytest.approx(difference) and typical.quantity.n == 8


def test_every_length_starts_from_the_same_passages():
    """No bundled passage is left out for being too short."""
    words = Tokenizer.from_file(str(bundled_folder("bundled:english") / "tokenizer.json"))
    fewest = min(len(words.encode(text, add_special_tokens=False)) for _, text in passages())
    assert all(max(each.lengths) <= fewest for each in by_length.CONDITIONS.values())
