"""Texts along a run, and which embedding is used for them."""

import numpy as np
import pytest

from conftest import VOCABULARY
from crafted_run import crafted_run
from glauber.foundation.errors import GlauberError
from glauber.runs.embedding import (
    Embedder,
    choose_embedder,
    load_embedder,
    not_english,
    one_hot,
)
from glauber.runs.snapshots import snapshots


@pytest.fixture
def run(tmp_path):
    names = {word: place for place, word in enumerate(VOCABULARY)}
    start = [[names[word] for word in text.split()] for text in ("the cat sat on", "a dog ran in")]
    sites = [[0, 1, 2, 3, 0, 1], [3, 2, 1, 0, 3, 2]]
    words = [["a", "bird", "ran", "under", "the", "cat"], ["it", "sat", "cat", "the", "on", "ran"]]
    return crafted_run(tmp_path / "run", start, sites, [[names[w] for w in row] for row in words])


def test_the_texts_are_those_of_the_run_every_so_many_steps(run):
    found = snapshots(run, every=2)
    assert found.steps.tolist() == [0, 2, 4, 6] and found.every == 2 and len(found) == 4
    for chain in range(2):
        for place, step in enumerate(found.steps):
            assert found.texts[chain][place] == run.text(chain, int(step))
            assert found.tokens[chain, place].tolist() == run.tokens(int(step))[chain].tolist()
    late = found.after(3)
    assert late.steps.tolist() == [4, 6] and late.texts[1] == found.texts[1][2:]
    assert snapshots(run, count=3).every == 2


@pytest.mark.parametrize("every", [0, -1, 7, 2.5])
def test_snapshots_that_the_run_has_no_room_for(run, every):
    with pytest.raises(GlauberError):
        snapshots(run, every=every)


def test_the_distance_of_tokens_is_the_share_of_sites_that_differ(run):
    found = snapshots(run, every=1)
    vectors = one_hot(found)
    assert np.allclose(np.linalg.norm(vectors, axis=2), 1)
    for chain in range(2):
        for one in range(len(found)):
            apart = 1 - vectors[chain, one] @ vectors[0, 0]
            share = (found.tokens[chain, one] != found.tokens[0, 0]).mean()
            assert apart == pytest.approx(share, abs=1e-6)


def test_an_object_or_a_function_is_an_embedder(run):
    def letters(texts):
        return np.array([[hash(text) % 97, len(text), 1] for text in texts], np.float32)

    for given in (letters, Embedder("mine", letters)):
        chosen = choose_embedder(run, given)
        assert chosen.reads_meaning and chosen.embed is letters
        assert chosen.vectors(snapshots(run, every=3)).shape == (2, 3, 3)
    with pytest.raises(GlauberError, match="not an embedder"):
        choose_embedder(run, 7)


def test_an_embedder_that_cannot_tell_texts_apart_is_not_used(run):
    chosen = choose_embedder(run, lambda texts: np.ones((len(texts), 3), np.float32))
    assert not chosen.reads_meaning
    assert "gives different texts the same vector" in chosen.description
    assert np.array_equal(chosen.vectors(snapshots(run)), one_hot(snapshots(run)))


def residues(folder, letters, chains=4, length=120):
    """A run over an alphabet, its texts written without blanks."""
    from tokenizers import Tokenizer, decoders, models

    backend = Tokenizer(models.BPE({letter: token for token, letter in enumerate(letters)}, []))
    backend.decoder = decoders.Fuse()

    def save_tokenizer(target):
        target.mkdir()
        backend.save(str(target / "tokenizer.json"))

    generator = np.random.default_rng(0)
    start = generator.integers(len(letters), size=(chains, length))
    sites = generator.integers(length, size=(chains, 40))
    tokens = generator.integers(len(letters), size=(chains, 40))
    return crafted_run(folder, start, sites, tokens, save_tokenizer=save_tokenizer)


@pytest.mark.weights
@pytest.mark.parametrize("letters", ["ACDEFGHIKLMNPQRSTVWY", "ACGT"])
def test_residues_are_measured_by_their_tokens(tmp_path, letters):
    run = residues(tmp_path / "run", letters)
    chosen = choose_embedder(run)
    assert not chosen.reads_meaning and "single characters" in chosen.description
    # The English embedder gives all of these one vector, and that is seen when it is asked for.
    asked = choose_embedder(run, load_embedder(device="cpu"))
    assert not asked.reads_meaning and "same vector" in asked.description


def test_words_of_english_are_english(run):
    assert not_english(snapshots(run)) == ""
