"""Which tokens are a text's own behind a context, in tokenizers of every kind."""

import pytest

import alphabets
import conftest
from glauber.models.base import PAD
from glauber.models.vocabulary import Vocabulary
from glauber.texts.continuations import (
    Continuation,
    keys_of,
    laid_out,
    read_continuations,
    windows,
    words_of,
)

CUT = [  # context, text, and the text's tokens in byte-level BPE, and joined in sentencepiece
    ("the cat", " sat on", ["Ġsat", "Ġon"], "▁sat▁on"),
    ("the cat ", "sat on", ["Ġsat", "Ġon"], "▁sat▁on"),  # the blank is the text's
    ("the c", "at sat", ["Ġcat", "Ġsat"], "at▁sat"),  # and so is a token with letters of both
    ("the cat", "  sat", ["Ġ", "Ġsat"], "▁▁sat"),
    ("", "the cat", ["the", "Ġcat"], "▁the▁cat"),
]


class Reader:
    """As much of a model as texts ask for."""

    name, longest, length, texts = "reader", 12, None, ()

    def __init__(self, tokenizer):
        self.vocab_size = len(tokenizer)
        self.vocabulary = Vocabulary(tokenizer, self.vocab_size)

    def own(self, context, text, **how):
        (found,) = read_continuations(self, [context], [text], **how)
        assert found.pieces == self.vocabulary.pieces(found.whole)
        return [self.vocabulary.spell(piece) for piece in found.own]


@pytest.mark.parametrize(("context", "text", "in_bytes", "in_pieces"), CUT)
def test_a_text_has_every_token_with_a_letter_of_it(context, text, in_bytes, in_pieces):
    assert Reader(alphabets.byte_level()).own(context, text) == in_bytes
    assert "".join(Reader(alphabets.sentencepiece()).own(context, text)) == in_pieces


def test_letters_are_counted_where_blanks_are_repaired(tmp_path):
    assert Reader(alphabets.esm(tmp_path)).own("LAGV", "SER") == ["S", "E", "R"]  # a slow tokenizer
    spaced = Reader(alphabets.spaced_letters())
    with pytest.warns(match="blanks were put between the letters"):
        assert spaced.own("LAGV", "SER") == ["S", "E", "R"]
    joined = Reader(alphabets.letters(alphabets.RESIDUES))
    with pytest.warns(match="blanks were removed and lower case"):
        assert joined.own("la gv", " ser") == ["S", "E", "R"]


def test_windows_score_each_token_once():
    one = Continuation(list(range(10)), 0, "whole")
    for most in (3, 4, 5, 9, 10, 11):
        cut = windows(one, most)
        assert [piece for part in cut for piece in part.own] == one.pieces
        assert all(len(part.pieces) == min(most, 10) for part in cut)
        assert all(part.pieces[0] == part.dropped for part in cut)


def test_words_and_keys_follow_the_text():
    reader = Reader(conftest.make_tokenizer())
    contexts, texts = ["the bird", "the bird", ""], ["s flewing", " sat", "cats sat"]
    found = read_continuations(reader, contexts, texts)
    tokens, free = laid_out(reader, found)
    assert free.sum(dim=1).tolist() == [3, 1, 3] and not bool(free[:, 0].any())
    words = words_of(reader, found, free)
    assert words[0].tolist() == [PAD, PAD, PAD, 1, 2, 2, PAD] and tokens.shape == words.shape
    assert words[2].tolist() == [PAD, 0, 0, 1, PAD, PAD, PAD]
    first, second, empty = keys_of(found).tolist()
    assert first == second != empty
    assert len(set(keys_of(found, of="texts").tolist())) == 3
