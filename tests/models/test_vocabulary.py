"""Texts are spelled so that they can be read again, and nothing unknown is silent."""

import pytest
import torch

import alphabets
import conftest
from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD
from glauber.models.vocabulary import Text, Vocabulary

SMILES = "CNOcno()=#123[]+-"
TEXTS = {
    "wordpiece": ["the cats sat on the mat .", "a dog"],
    "smiles": ["CC(=O)Oc1ccccc1", "N#C"],
    "smiles with decoder": ["CC(=O)Oc1ccccc1"],
    "letters and blanks": ["the cat sat", "a  b"],
    "spaced residues": ["E V Q L"],
    "byte-level": ["the cat sat, and é ☃", " a dog ran", "They flew"],
    "sentencepiece": ["the cat sat on the mat .", "a dog ran under the old tree"],
    "esm": ["EVQLVESGGG", "LAGV"],
}


@pytest.fixture(params=TEXTS)
def kind(request):
    return request.param


@pytest.fixture
def vocabulary(kind, tmp_path):
    made = {
        "wordpiece": conftest.make_tokenizer,
        "smiles": lambda: alphabets.letters(SMILES),
        "smiles with decoder": lambda: alphabets.letters(SMILES, decoder=True),
        "letters and blanks": lambda: alphabets.letters("abcehst "),
        "spaced residues": alphabets.spaced_letters,
        "byte-level": alphabets.byte_level,
        "sentencepiece": alphabets.sentencepiece,
        "esm": lambda: alphabets.esm(tmp_path),
    }
    tokenizer = made[kind]()
    return Vocabulary(tokenizer, len(tokenizer))


def test_what_is_decoded_encodes_to_the_same_tokens(vocabulary, kind):
    tokens, free = vocabulary.encode(TEXTS[kind])
    again, _ = vocabulary.encode([vocabulary.decode(row) for row in tokens])
    assert torch.equal(tokens, again)
    assert bool((tokens[free] >= 0).all())


def test_the_text_of_a_stored_run_is_spelled_the_same(vocabulary, kind, tmp_path):
    vocabulary.save(tmp_path / "saved")
    stored = Text.open(tmp_path / "saved")
    generator = torch.Generator().manual_seed(1)
    normal = torch.tensor(vocabulary.text.normal)
    for _ in range(5):
        row = normal[torch.randint(len(normal), (9,), generator=generator)].tolist()
        assert stored.decode(row) == vocabulary.decode(row)
        assert [stored.spell(token) for token in row] == [vocabulary.spell(t) for t in row]
    assert stored.boundary_tokens == vocabulary.text.boundary_tokens


def test_rows_of_letters_are_read_back_whatever_they_are(vocabulary, kind):
    if not vocabulary.text.letters:
        return
    generator = torch.Generator().manual_seed(2)
    normal = torch.tensor(vocabulary.text.normal)
    rows = normal[torch.randint(len(normal), (20, 12), generator=generator)].tolist()
    for row in rows:
        assert vocabulary.pieces(vocabulary.decode(row)) == row


def test_letters_have_no_blanks_between_them(tmp_path):
    esm = Vocabulary(alphabets.esm(tmp_path), 33)
    assert esm.decode(esm.encode(["EVQL"])[0][0]) == "EVQL"
    smiles = Vocabulary(alphabets.letters(SMILES), 22)
    assert smiles.decode(smiles.encode(["C(=O)"])[0][0]) == "C(=O)"


def test_the_parts_of_a_text_are_the_text(vocabulary, kind):
    """Up to the blanks that a decoder puts before full stops or takes away."""
    tokens, free = vocabulary.encode(TEXTS[kind][:1])
    parts = vocabulary.text.parts(tokens[0, free[0]])
    assert len(parts) == int(free.sum())
    if kind not in ("byte-level", "spaced residues"):
        assert "".join(parts).replace(" .", ".").strip() == vocabulary.decode(tokens[0]).replace(
            " .", "."
        )
    if vocabulary.text.letters and kind != "spaced residues":
        assert "".join(parts) == vocabulary.decode(tokens[0])


def test_masks_are_shown(vocabulary, kind):
    row = vocabulary.encode(TEXTS[kind][:1])[0][0].tolist()
    opening, _ = vocabulary.text.boundary_tokens
    mask = int(vocabulary.tokenizer.mask_token_id)
    row[len(opening)] = mask
    shown = vocabulary.decode([*row, PAD])
    assert vocabulary.spell(mask) in shown
    assert vocabulary.spell(opening[0]) not in shown
    if kind != "sentencepiece":  # its blank before a text moves behind the mask
        assert vocabulary.pieces(shown) == row[1:-1]


def test_encode_lays_out_as_the_tokenizer_does(vocabulary, kind):
    tokens, free = vocabulary.encode(TEXTS[kind])
    for row, is_free, text in zip(tokens, free, TEXTS[kind], strict=True):
        told = vocabulary.tokenizer(text, return_special_tokens_mask=True)
        assert row[row != PAD].tolist() == told["input_ids"]
        assert is_free[row != PAD].tolist() == [not one for one in told["special_tokens_mask"]]


@pytest.mark.parametrize(
    ("kind", "text", "place", "piece"),
    [
        ("wordpiece", "the cat ☃ sat", 9, "☃"),
        ("wordpiece", "the zebra sat", 5, "z"),
        ("smiles", "CC C", 3, " "),
        ("smiles", "CCX", 3, "X"),
        ("spaced residues", "EVQL", 1, "EVQL"),
        ("esm", "EVJQ", 3, "J"),
        ("esm", "evql", 1, "e"),
    ],
)
def test_what_cannot_be_spelled_is_refused_with_its_place(vocabulary, text, place, piece):
    with pytest.raises(GlauberError, match=f"^text 2 has '{piece}' at character {place},"):
        vocabulary.encode([TEXTS["esm"][0] if "J" in text else vocabulary_text(vocabulary), text])


def vocabulary_text(vocabulary):
    return vocabulary.decode(vocabulary.text.normal[:1])


def test_characters_that_a_tokenizer_drops_are_missed():
    """A tokenizer without an unknown token drops what it cannot spell."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    vocabulary = Vocabulary(PreTrainedTokenizerFast(tokenizer_object=backend), 2)
    assert vocabulary.strange("ab ba") is None
    assert vocabulary.strange("ab xa") == (3, "x")


def test_only_standard_residues_are_proposed(tmp_path):
    vocabulary = Vocabulary(alphabets.esm(tmp_path), 33)
    names = {vocabulary.spell(int(t)) for t in vocabulary.proposable().nonzero()}
    assert names == set(alphabets.RESIDUES)
    every = {vocabulary.spell(int(t)) for t in vocabulary.proposable(standard_only=False).nonzero()}
    assert every == set(alphabets.RESIDUES) | set("XBUZO.-")
    fewer = vocabulary.proposable(forbid=["C", "M"])
    assert int(fewer.sum()) == 18 and not fewer[vocabulary.token("C")]
    with pytest.raises(GlauberError, match="'J' is not a single token"):
        vocabulary.proposable(forbid=["J"])
    with pytest.raises(GlauberError, match="every token is forbidden"):
        vocabulary.proposable(forbid=list(alphabets.RESIDUES))


def test_letters_are_words_of_their_own(tmp_path):
    vocabulary = Vocabulary(alphabets.esm(tmp_path), 33)
    assert vocabulary.words(["EVQ", "L"]).tolist() == [[-1, 0, 1, 2, -1], [-1, 0, -1, -1, -1]]


def test_words_are_the_pieces_of_the_first_cut():
    vocabulary = Vocabulary(conftest.make_tokenizer(), len(conftest.VOCABULARY))
    assert vocabulary.words(["the cats sat"]).tolist() == [[-1, 0, 1, 1, 2, -1]]


def unflagged(config, *, template=False, **named):
    """A vocabulary whose tokenizer flags no bracketed token but those that are named."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["AAA", "<eos>", "[C]", "AAC", "<cls>", "<mask>", "ACA"]
    known = {word: token for token, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(known, unk_token="AAA"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if template:
        backend.post_processor = processors.TemplateProcessing(
            single="<cls> $A", special_tokens=[("<cls>", 4)]
        )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="<mask>", **named)
    made = Vocabulary(tokenizer, len(words), config=config)
    allowed = made.proposable().nonzero()[:, 0].tolist()
    return [words[token] for token in allowed]


def test_special_tokens_of_the_config_and_the_template_are_not_proposed():
    from transformers import PreTrainedConfig

    config = PreTrainedConfig(eos_token_id=1, bos_token_id=3, pad_token_id=6)
    assert unflagged(None) == ["<eos>", "[C]", "AAC", "<cls>", "ACA"]
    assert unflagged(config) == ["[C]", "AAC", "<cls>", "ACA"]
    assert unflagged(config, template=True) == ["[C]", "AAC", "ACA"]
    several = PreTrainedConfig(eos_token_id=[1, 4])
    assert unflagged(several) == ["[C]", "AAC", "ACA"]


def test_the_tokenizer_overrules_the_numbers_of_a_config():
    """Defaults of a config may name an ordinary token, which may be spelled in brackets."""
    from transformers import PreTrainedConfig

    config = PreTrainedConfig(eos_token_id=2)
    assert "[C]" in unflagged(config, eos_token="<eos>")
    assert "[C]" not in unflagged(config)
