"""The basins of runs whose texts are known, with an embedding that counts words."""

import json

import numpy as np
import pytest

import glauber
from conftest import VOCABULARY
from crafted_run import crafted_run
from glauber.foundation.errors import GlauberError
from glauber.runs.embedding import Embedder
from glauber.sampling.sample import sample


def embed(texts):
    counts = [[text.split().count(word) for word in VOCABULARY] + [0.1] for text in texts]
    stacked = np.array(counts, np.float32)
    return stacked / np.linalg.norm(stacked, axis=1, keepdims=True)


def run_of(folder, n_chains, n_steps):
    """Chains over two words, which change seldom: two basins, 'cat cat' and 'dog dog'."""
    rng = np.random.default_rng(n_chains)
    cat, dog = VOCABULARY.index("cat"), VOCABULARY.index("dog")
    kind = np.cumsum(rng.random((n_chains, n_steps)) < 0.02, axis=1) % 2
    odd = rng.random((n_chains, n_steps)) < 0.1
    tokens = np.where(kind ^ odd, dog, cat)
    sites = np.tile(np.arange(n_steps) % 2, (n_chains, 1))
    return crafted_run(folder, np.full((n_chains, 2), cat), sites, tokens).folder


def test_the_two_basins_of_a_run(tmp_path):
    run = run_of(tmp_path / "run", 8, 400)
    asked = {"every": 2, "lag": 4, "clusters": 3, "embedder": Embedder("words", embed)}
    found = glauber.basins(run, **asked)
    answer = found.to_dict()
    assert answer == json.loads(json.dumps(answer, allow_nan=False))
    assert answer["lag"] == 4 and answer["embedder"] == "words" and answer["clusters"] == 3
    assert {basin["texts"][0] for basin in answer["basins"]} >= {"cat cat", "dog dog"}
    shares = [basin["share"] for basin in answer["basins"]]
    assert sum(share["value"] for share in shares) == pytest.approx(1)
    assert all(share["kind"] == "estimate" and share["standard_error"] > 0 for share in shares)
    times = answer["passage_times"]
    assert times["kind"] == "estimate" and times["low"][0][1] < times["high"][0][1]
    assert answer["chapman_kolmogorov"]["holds"] in (True, False)
    assert list(found.figures()) == ["network", "timescales", "trajectory"]
    assert [basin.staying.value for basin in found.basins] == found.staying.value.tolist()
    assert [basin.share.value for basin in found.basins] == found.shares.value.tolist()
    frame = found.frame()
    assert frame["text"].tolist() == [basin["texts"][0] for basin in answer["basins"]]
    assert frame["share_low"].tolist() == [share["interval"][0] for share in shares]
    for share in shares:
        low, high = share["interval"]
        assert 0 <= low <= share["value"] <= high <= 1
    said = str(glauber.basins(run, **asked, sets=2))
    assert "cat cat" in said and "There are 2 basins, as asked." in said
    assert "of the connected part" in said and "embeddings of words" in said
    assert all(note.endswith(".") and note[0].isupper() for note in found.notes)


def test_one_chain_is_said(tmp_path):
    found = glauber.basins(run_of(tmp_path / "run", 1, 600), every=2, clusters=3, embedder=embed)
    assert "one chain only" in str(found)
    assert found.to_dict()["passage_times"]["standard_error"] is None


def test_texts_that_an_embedding_cannot_tell_apart_are_compared_by_tokens(tmp_path):
    """Such as the English one on residues: it must not say that all texts are the same."""
    run = run_of(tmp_path / "run", 4, 400)
    blind = Embedder("blind", lambda texts: np.tile([[1.0, 0.0]], (len(texts), 1)))
    found = glauber.basins(run, every=2, lag=4, clusters=3, embedder=blind)
    assert found.embedder == "tokens" and "blind gives different texts" in str(found)
    assert {"cat cat", "dog dog"} <= {own.texts[0] for own in found.basins}
    still = np.full((2, 40), VOCABULARY.index("cat"))
    where = np.zeros((2, 40), int)
    same = crafted_run(tmp_path / "still", still[:, :2], where, still)
    with pytest.raises(GlauberError, match="same embedding"):
        glauber.basins(same, embedder=embed)


def test_bad_input_is_one_sentence(tiny_folder, tmp_path):
    short = run_of(tmp_path / "short", 2, 30)
    empty = sample(str(tiny_folder), ["the cat sat"], steps=0, out=tmp_path / "empty").folder
    for run, asked, why in (
        (empty, {}, "no steps yet"),
        (short, {"every": 31}, "30 steps"),
        (short, {"lag": 20}, "too short for a lag of 20"),
        (short, {"every": 4, "lag": 6}, "multiple of the 4"),
        (short, {"clusters": 1}, "at least 2"),
        (short, {"clusters": 30}, "clusters are asked for"),
        (short, {"clusters": 10**8}, "GiB"),
        (short, {"clusters": 10**10}, "not possible"),
        (short, {"sets": 1}, "at least 2"),
        (short, {"seed": -1}, "between 0 and"),
        (short, {"seed": 10**20}, "between 0 and"),
        (short, {"every": 0}, "at least 1"),
        (short, {"lag": 0}, "at least 1"),
        (tmp_path / "nowhere", {}, "nowhere"),
    ):
        with pytest.raises(GlauberError, match=why):
            glauber.basins(run, **{"embedder": embed, **asked})
    glauber.basins(run_of(tmp_path / "run", 3, 60), seed=2**40, every=1, lag=1, embedder=embed)
