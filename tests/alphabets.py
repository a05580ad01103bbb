"""Tokenizers of every kind that the field has, made by hand or trained on a few lines."""

from pathlib import Path

import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import conftest

LINES = [
    "the cat sat on the mat .",
    "a dog ran under the old tree",
    "They flew, and it rained!",
] * 8
NAMES = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
RESIDUES = "LAGVSERTIDPKQNFYMHWC"


def wrapped(backend: Tokenizer, known: dict[str, int]) -> transformers.PreTrainedTokenizerFast:
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", known["[CLS]"]), ("[SEP]", known["[SEP]"])],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=60, **NAMES
    )


def letters(symbols: str, *, decoder: bool = False) -> transformers.PreTrainedTokenizerFast:
    """One token per character; without a decoder the library puts blanks between them."""
    known = {one: i for i, one in enumerate([*conftest.SPECIAL, *symbols])}
    backend = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    if decoder:
        backend.decoder = decoders.Fuse()
    return wrapped(backend, known)


def spaced_letters() -> transformers.PreTrainedTokenizerFast:
    """Residues that must have blanks between them, as ProtBert reads them."""
    known = {one: i for i, one in enumerate([*conftest.SPECIAL, *RESIDUES, "X"])}
    backend = Tokenizer(models.WordPiece(known, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return wrapped(backend, known)


def byte_level() -> transformers.PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    bytes_ = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=conftest.SPECIAL,
        initial_alphabet=bytes_,
        show_progress=False,
    )
    backend.train_from_iterator(LINES, trainer)
    return wrapped(backend, backend.get_vocab())


def sentencepiece() -> transformers.PreTrainedTokenizerFast:
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=conftest.SPECIAL, unk_token="[UNK]", show_progress=False
    )
    backend.train_from_iterator(LINES, trainer)
    return wrapped(backend, backend.get_vocab())


def esm(folder: Path) -> transformers.EsmTokenizer:
    """The alphabet of ESM-2, in the order of its own file; a Python tokenizer."""
    others = ["X", "B", "U", "Z", "O", ".", "-", "<null_1>", "<mask>"]
    path = folder / "vocab.txt"
    path.write_text("\n".join(["<cls>", "<pad>", "<eos>", "<unk>", *RESIDUES, *others]))
    return transformers.EsmTokenizer(str(path))
