"""glauber basins, with an embedding that counts words."""

import json

import numpy as np
import pytest

from conftest import VOCABULARY
from crafted_run import crafted_run
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


@pytest.fixture(autouse=True)
def words_embedder(monkeypatch):
    loaded = lambda *_, **__: Embedder("words", embed)  # noqa: E731
    monkeypatch.setattr("glauber.runs.embedding.load_embedder", loaded)


def test_the_two_basins_of_a_run(glauber, tmp_path):
    run, picture = run_of(tmp_path / "run", 8, 400), tmp_path / "basins.html"
    words = ("basins", run, "--every", 2, "--lag", 4, "--clusters", 3)
    code, out, err = glauber(*words, "--json", "--out", picture)
    told = json.loads(out)
    assert (code, err) == (0, "") and picture.read_text().startswith("<!doctype html>")
    assert told["lag"] == 4 and told["embedder"] == "words" and told["clusters"] == 3
    assert {basin["texts"][0] for basin in told["basins"]} >= {"cat cat", "dog dog"}
    shares = [basin["share"] for basin in told["basins"]]
    assert sum(share["value"] for share in shares) == pytest.approx(1)
    assert all(share["kind"] == "estimate" and share["standard_error"] > 0 for share in shares)
    times = told["passage_times"]
    assert times["kind"] == "estimate" and times["low"][0][1] < times["high"][0][1]
    assert told["chapman_kolmogorov"]["holds"] in (True, False)
    code, out, _ = glauber(*words, "--sets", 2)
    assert code == 0 and "cat cat" in out and "2 basins, as asked" in out and "+-" in out


def test_one_chain_is_told(glauber, tmp_path):
    run = run_of(tmp_path / "run", 1, 600)
    code, out, _ = glauber("basins", run, "--every", 2, "--clusters", 3)
    assert code == 0 and "one chain only" in out
    code, out, _ = glauber("basins", run, "--every", 2, "--clusters", 3, "--json")
    assert json.loads(out)["passage_times"]["standard_error"] is None


def test_bad_input_is_one_sentence(glauber, tiny_folder, tmp_path):
    short = run_of(tmp_path / "short", 2, 30)
    empty = sample(str(tiny_folder), ["the cat sat"], steps=0, out=tmp_path / "empty").folder
    for words, why in (
        ((empty,), "no steps yet"),
        ((short, "--every", 31), "30 steps"),
        ((short, "--lag", 20), "too short for a lag of 20"),
        ((short, "--every", 4, "--lag", 6), "multiple of the 4"),
        ((short, "--clusters", 1), "at least 2"),
        ((short, "--clusters", 30), "clusters are asked for"),
        ((tmp_path / "nowhere",), "nowhere"),
    ):
        code, out, err = glauber("basins", *words, "--json")
        assert (code, out) == (2, "") and err.count("\n") == 1 and why in err, words
