"""What is given as texts is read whole, repaired and reported, or refused in one sentence."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import alphabets
import conftest
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.models.base import PAD
from glauber.models.load import load
from glauber.models.vocabulary import Vocabulary
from glauber.texts.starts import (
    passages,
    people_of,
    positions_of,
    read_sites,
    read_texts,
    reads_english,
    spell_sites,
    starts,
)


@pytest.fixture(scope="module")
def model(tiny_folder):
    return load(str(tiny_folder), device="cpu")


def reader(tokenizer):
    """As much of a model as starts needs."""
    return SimpleNamespace(
        vocabulary=Vocabulary(tokenizer, len(tokenizer)),
        name="reader",
        longest=60,
        length=None,
        texts=(),
    )


@pytest.fixture
def protein():
    return reader(alphabets.letters(alphabets.RESIDUES))


def test_a_string_is_one_text_and_a_path_is_a_file(model, source, texts):
    tokens, free = starts(model, "the old cat")
    assert tokens.shape == (1, 5) and free.sum() == 3
    assert list(read_texts(source)) == texts
    assert torch.equal(starts(model, source)[0], starts(model, texts)[0])
    assert torch.equal(starts(model, tuple(texts))[0], starts(model, texts)[0])


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ("", "text 1 is empty"),
        ([], "the list is empty"),
        (["  "], "text 1 is empty"),
        (["", None, float("nan")], "none of 3 texts can be used: text 1 is empty"),
        (["the cat", 3], "text 2 is 3, but it must be a string"),
        (b"the cat", "texts are a string, a list of strings or a Path"),
        (7, "texts are a string, a list of strings or a Path"),
        ("the zebra", "text 1 has 'z' at character 5"),
        (Path("/dev/zero"), "/dev/zero is a device"),
        (Path("/nowhere/texts"), "No such file"),
        (Path("/tmp"), "Is a directory"),
        (Path("a\0b"), "cannot be read"),
    ],
)
def test_refusals(model, texts, why):
    with pytest.raises(GlauberError, match=why):
        starts(model, texts)


def test_files_that_are_no_texts(model, tmp_path, monkeypatch):
    path = tmp_path / "texts"
    path.write_bytes("the cat é".encode("latin-1"))
    with pytest.raises(GlauberError, match="it is not UTF-8 text"):
        starts(model, path)
    path.write_text("\n \n")
    with pytest.raises(GlauberError, match="holds no text"):
        starts(model, path)
    monkeypatch.setattr("glauber.texts.read.LARGEST", 100)
    path.write_text("the cat\n" * 13)
    with pytest.raises(GlauberError, match="holds more than"):
        starts(model, path)


def test_standard_input_and_odd_line_ends(model, monkeypatch, tmp_path):
    stream = io.BytesIO("\ufeffthe cat\r\n\r\na dog\u2028ran".encode())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream))
    assert list(read_texts(Path("-"))) == ["the cat", "a dog\u2028ran"]


def test_fasta(protein, tmp_path):
    path = tmp_path / "two.fasta"
    path.write_text(">heavy chain\nEVQL\nVESG\n\n>light\nDIQ*\n")
    assert [row[:2] for row in read_texts(path).rows] == [
        ("EVQLVESG", "heavy chain"),
        ("DIQ", "light"),
    ]
    tokens, free = starts(protein, path)
    assert free.sum(dim=1).tolist() == [8, 3]
    assert protein.vocabulary.decode(tokens[0]) == "EVQLVESG"
    assert list(read_texts(path.read_text())) == ["EVQLVESG", "DIQ"]
    with pytest.warns(GlauberWarning, match="1 of 2 texts .*the record 'light' has no sequence"):
        assert len(starts(protein, ">heavy\nEVQ\n>light\n")[0]) == 1


@pytest.mark.parametrize(
    ("given", "how"),
    [
        ("E V Q L", "blanks were removed in text 2"),
        ("evql", "lower case was read as upper case in text 2"),
        ("e v q l", "blanks were removed and lower case was read as upper case in text 2"),
    ],
)
def test_residues_are_repaired_and_that_is_said(protein, given, how):
    with pytest.warns(GlauberWarning, match=how):
        tokens, _ = starts(protein, ["EVQL", given])
    assert torch.equal(tokens[0], tokens[1])


def test_residues_that_need_blanks_get_them():
    with pytest.warns(GlauberWarning, match="blanks were put between the letters in text 1"):
        tokens, _ = starts(reader(alphabets.spaced_letters()), "EVQL")
    assert tokens.shape == (1, 6)


def test_lower_case_letters_with_a_meaning_stay():
    """c and C are two atoms: a letter that is missing in lower case is not read as another."""
    with pytest.raises(GlauberError, match="'n' at character 2"):
        starts(reader(alphabets.letters("CNc()")), "cn")


def test_esm(tmp_path):
    esm = reader(alphabets.esm(tmp_path))
    with pytest.warns(GlauberWarning, match="lower case"):
        tokens, _ = starts(esm, "evql")
    assert torch.equal(tokens, starts(esm, "EVQL")[0])
    with pytest.raises(GlauberError, match="text 1 has 'J' at character 3"):
        starts(esm, "EVJ")


def test_short_texts_are_left_out_and_that_is_said(model, texts, recwarn):
    with pytest.warns(GlauberWarning, match=r"2 of 5 texts have fewer than 7 tokens .* texts 3, 4"):
        tokens, free = starts(model, texts, length=7)
    assert len(tokens) == 3 and free.sum(dim=1).tolist() == [7, 7, 7]
    with pytest.raises(GlauberError, match="no starting text has 30 tokens or more"):
        starts(model, texts, length=30)


def test_the_bundled_passages_are_for_english_models_only(model, protein, recwarn):
    for other in (model, protein):
        assert not reads_english(other.vocabulary)
        with pytest.raises(GlauberError, match="give texts to start from"):
            starts(other)
    english = load("bundled:english", device="cpu")
    assert reads_english(english.vocabulary)
    tokens, free = starts(english, length=20)
    assert len(tokens) > 100 and free.sum(dim=1).eq(20).all()
    assert len(starts(english)[0]) == len(passages())
    assert not recwarn.list  # the passages that are too short are nobody's loss


def test_prefixes_are_exactly_the_first_tokens(model, protein):
    tokens, free = starts(model, ["dog ran on it", "cat"], prefix="the old", length=1)
    assert free.tolist() == [[False, False, False, True, False]] * 2
    assert model.vocabulary.decode(tokens[0]) == "the old dog"
    tokens, free = starts(protein, "LVES", prefix="EVQ", freeze="0")
    assert protein.vocabulary.decode(tokens[0]) == "EVQLVES"
    assert free[0].tolist() == [False] * 5 + [True] * 3 + [False]
    with pytest.raises(GlauberError, match=r"the prefix is .* must be one text"):
        starts(model, "the cat", prefix=["the man"])
    with pytest.raises(GlauberError, match="the prefix has 'z'"):
        starts(model, "the cat", prefix="zebra")


def test_a_prefix_of_a_byte_level_model_is_followed_by_a_blank():
    model = reader(alphabets.byte_level())
    tokens, free = starts(model, "the cat sat", prefix="a dog")
    assert model.vocabulary.decode(tokens[0]) == "a dog the cat sat"
    before = model.vocabulary.pieces("a dog")
    assert tokens[0, 1 : 1 + len(before)].tolist() == before
    assert not free[0, : 1 + len(before)].any() and free[0, 1 + len(before) : -1].all()


def test_sites_have_one_numbering(model):
    text, prefix = model.vocabulary.text, "the old"
    tokens, free = starts(model, "dog ran on it", prefix=prefix, freeze="1-2")
    spelled = [model.vocabulary.spell(int(t)) for t in tokens[0, free[0]]]
    assert spelled == ["dog", "it"]
    assert people_of(text, free[0].nonzero()[:, 0], prefix=prefix) == [0, 3]
    assert positions_of(text, [0, 3], prefix=prefix) == free[0].nonzero()[:, 0].tolist()
    assert people_of(text, [1]) == [0]


def test_ranges_of_sites():
    assert read_sites("0-4,9, 12-12") == [0, 1, 2, 3, 4, 9, 12]
    assert read_sites([3, 1, 1]) == [1, 3] and read_sites("") == []
    assert read_sites(torch.tensor([2, 1])) == [1, 2]
    assert spell_sites([*range(96), *range(109, 120)]) == "0-95,109-119"
    assert spell_sites([4]) == "4" and spell_sites([]) == ""
    for listed in ("a", "1-", "-1", "1-2-3", "4-2", "0-99999999999", "²"):
        with pytest.raises(GlauberError, match="site"):
            read_sites(listed)
    for part in (-1, 1.5, True, None):
        with pytest.raises(GlauberError, match="is no site"):
            read_sites([part])


def test_frozen_sites_outside_a_text(model):
    with pytest.raises(GlauberError, match="site 3 cannot be frozen: a text has sites 0 to 1"):
        starts(model, ["the cat sat on it", "a dog"], freeze=[3])
    with pytest.raises(GlauberError, match="every site of a text is frozen"):
        starts(model, "a dog", freeze="0-1")


def test_chains_take_the_texts_in_turn(model):
    tokens, _ = starts(model, ["the cat", "a dog ran"], chains=5)
    assert torch.equal(tokens[0], tokens[2]) and torch.equal(tokens[1], tokens[3])
    assert (tokens[0] == PAD).sum() == 1
    for chains, why in ((0, "at least 1"), (2.5, "whole number"), (10**9, "GiB"), (10**12, "more")):
        with pytest.raises(GlauberError, match=why):
            starts(model, "the cat", chains=chains)


def test_texts_that_are_too_long(model):
    with pytest.raises(GlauberError, match=r"text 1 has 42 tokens .* reads at most 38"):
        starts(model, "the cat " * 20)
    with pytest.warns(GlauberWarning, match=r"text 2 has 42 tokens .* reads at most 38"):
        assert len(starts(model, ["the cat", "the cat " * 20])[0]) == 1
    tokens, _ = starts(model, ["the cat sat", "the cat " * 20], length=3)
    assert tokens.shape == (2, 5)
    assert conftest.SIZES["max_position_embeddings"] == 40


def test_text_that_only_begins_as_fasta_does_is_refused(tmp_path):
    path = tmp_path / "mail.txt"
    path.write_text("> she said\nHello, world!\n")
    with pytest.raises(GlauberError, match="',' is no letter of a sequence"):
        read_texts(path)
    path.write_text(">a\nEVQL VESG\n")
    with pytest.warns(GlauberWarning, match="blanks in it are removed"):
        assert list(read_texts(path)) == ["EVQLVESG"]


def test_short_texts_can_be_taken_whole_and_that_is_said(model, texts):
    with pytest.warns(GlauberWarning, match=r"2 of 5 .* 7 tokens and are taken whole: texts 3, 4"):
        free = starts(model, texts, length=7, least=2)[1]
    whole = starts(model, texts)[1].sum(dim=1)
    assert free.sum(dim=1).tolist() == whole.clamp(max=7).tolist()
    with pytest.warns(GlauberWarning, match="^the text has fewer than 99 .* is taken whole"):
        starts(model, texts[0], length=99, least=2)
    with pytest.raises(GlauberError, match="no starting text has 30 tokens or more"):
        starts(model, texts, length=40, least=30)
