"""Are pairs read, joined and judged as they should be?"""

import lzma

import pytest
import torch

from glauber.foundation.errors import GlauberError
from glauber.translation.data import (
    Corpus,
    Example,
    SubwordVocabulary,
    by_source,
    long_pairs,
    read_pairs,
)
from glauber.translation.evaluation import latency, summarise_times
from glauber.translation.model import PAD, load
from glauber.translation.score import bleu_difference, quality, stutter_rate
from tiny_translation import toy_pairs, toy_vocabulary


def test_pairs_of_plain_and_packed_files(tmp_path):
    text = "I sang.\tCanté.\tattribution\nI talked.\tHablé.\n"
    (tmp_path / "a.tsv").write_text(text)
    (tmp_path / "a.tsv.xz").write_bytes(lzma.compress(text.encode()))
    expected = [("I sang.", "Canté."), ("I talked.", "Hablé.")]
    assert read_pairs(tmp_path / "a.tsv") == read_pairs(tmp_path / "a.tsv.xz") == expected
    (tmp_path / "bad.tsv").write_text("I sang.\tCanté.\n\nalone\n")
    with pytest.raises(GlauberError, match="line 3"):
        read_pairs(tmp_path / "bad.tsv")
    with pytest.raises(GlauberError, match="no file"):
        read_pairs(tmp_path / "none.tsv")


def test_references_are_grouped_by_source():
    judged = by_source([("a", "x"), ("b", "y"), ("a", "z")])
    assert judged == [Example("a", ("x", "z")), Example("b", ("y",))]


def test_joined_rows_are_their_pairs_one_behind_the_other():
    vocabulary = toy_vocabulary()
    pairs = toy_pairs(20)
    corpus = Corpus.of(pairs, vocabulary)
    torch.manual_seed(0)
    source, target = corpus.batch(8, n_joined=2, max_length=64)
    joined = {(f"{a} {c}", f"{b} {d}") for a, b in pairs for c, d in pairs}
    for row in range(8):
        left = vocabulary.decode(source[row].tolist())
        assert (left, vocabulary.decode(target[row].tolist())) in joined
    assert ((source == PAD).long().diff(dim=1) >= 0).all()  # all PAD is behind


def test_long_pairs_are_fixed_and_long():
    vocabulary = toy_vocabulary()
    made = long_pairs(toy_pairs(80), vocabulary, n_pairs=10)
    assert made == long_pairs(toy_pairs(80), vocabulary, n_pairs=10)
    assert all(20 <= len(vocabulary.encode(one.references[0])) <= 60 for one in made)
    with pytest.raises(GlauberError, match="only 0"):
        long_pairs([("the", "el")] * 9 + [("a", "un"), ("cat", "gato"), ("dog", "can")], vocabulary)


def test_scores_of_known_outputs():
    judged = [
        Example("", ("el gato come aqui hoy", "el gato come hoy aqui")),
        Example("", ("no no veo",)),
    ]
    perfect = quality(["el gato come hoy aqui", "no no veo"], judged)
    assert perfect.bleu == pytest.approx(100.0) and perfect.chrf == pytest.approx(100.0)
    assert "nrefs:var" in perfect.bleu_signature
    worse = quality(["el gato gato come", "no no veo"], judged)
    assert worse.bleu < 90 and worse.stutter == pytest.approx(1 / 7)
    assert stutter_rate(["si si si", "no no"], judged) == pytest.approx(2 / 5)
    with pytest.raises(GlauberError, match="cannot be scored"):
        quality(["uno"], judged)


def test_latency_counts_each_text_alone():
    asked = []
    late = latency(asked.append, ["a", "b", "c", "d"])
    assert asked == ["a", "b", "c", "a", "b", "c", "d"]
    assert late.median >= 0 and late.n_sentences == 4
    assert late.p99 is None  # the slowest of four is no 99th percentile


def test_the_99th_percentile_leaves_one_in_a_hundred_out(monkeypatch):
    assert summarise_times([float(n) for n in range(1, 100)]).p99 is None
    assert summarise_times([float(n) for n in range(100, 0, -1)]).p99 == 99.0
    assert summarise_times([float(n) for n in range(1, 1001)]).p99 == 990.0


def test_bleu_takes_its_tokenizer():
    judged = [Example("", ("我喜歡貓。",)), Example("", ("他不在這裡。",))]
    outputs = ["我喜歡狗。", "他不在這裡。"]
    by_name = {name: quality(outputs, judged, tokenizer=name) for name in ("13a", "zh", "char")}
    assert all(f"tok:{name}|" in one.bleu_signature for name, one in by_name.items())
    # 13a sees each sentence as one word, so there is no pair of words to match.
    assert by_name["zh"].bleu > 60 > by_name["13a"].bleu
    for name, one in by_name.items():
        moved = bleu_difference(outputs, ["", ""], judged, tokenizer=name)
        assert moved.value == pytest.approx(one.bleu)
    with pytest.raises(GlauberError, match="the tokenizer of BLEU is klingon"):
        quality(outputs, judged, tokenizer="klingon")


def test_what_is_not_there(tmp_path):
    with pytest.raises(GlauberError, match="no translator student"):
        load(tmp_path, "student")
    with pytest.raises(GlauberError, match="no vocabulary"):
        SubwordVocabulary.read(tmp_path / "vocabulary.model")
