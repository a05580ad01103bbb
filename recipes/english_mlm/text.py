"""Which tokens does a folder of text come to?"""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4 after `prepare`


def read(path: Path) -> list[str]:
    """The passages of one *.txt.xz file."""
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [passage for line in lines if (passage := line.strip())]


def training_passages(folder: Path) -> list[str]:
    """The passages of every file that is neither a validation nor a test file."""
    held_out = ("valid", "test")
    files = [f for f in folder.glob("*.txt.xz") if not any(word in f.name for word in held_out)]
    if not files:
        raise SystemExit(f"no training text (*.txt.xz) in {folder}")
    return [passage for file in sorted(files) for passage in read(file)]


def load_tokenizer(folder: Path) -> Tokenizer:
    """The folder's tokenizer, without the truncation and padding that its file may ask for."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def special_tokens(tokenizer: Tokenizer) -> list[int]:
    """The ids of SPECIALS, in that order."""
    vocab = tokenizer.get_vocab()
    return [vocab[token] for token in SPECIALS]


def word_pieces(words: list[str], tokenizer: Tokenizer) -> list[list[int]]:
    """The token ids of each whitespace word."""
    return [e.ids for e in tokenizer.encode_batch(words, add_special_tokens=False)]


def tokenise(passages: list[str], tokenizer: Tokenizer) -> Tensor:
    """All passages as one stream (n_tokens,) int32, a [SEP] after each.

    BERT's rules never look across whitespace, so each distinct word is tokenised once and
    looked up from then on: seconds instead of minutes on one core.
    """
    index: dict[str, int] = {}
    words = np.fromiter(
        (index.setdefault(word, len(index)) for p in passages for word in (*p.split(), "[SEP]")),
        dtype=np.int32,
    )
    pieces = word_pieces(list(index), tokenizer)
    flat = np.fromiter((token for piece in pieces for token in piece), dtype=np.int32)
    lengths = np.fromiter((len(piece) for piece in pieces), dtype=np.int64)
    starts = lengths.cumsum() - lengths  # (distinct words,) where a word's pieces begin in flat
    n = lengths[words]  # (words,)
    shift = starts[words] - (n.cumsum() - n)
    return torch.from_numpy(flat[np.repeat(shift, n) + np.arange(n.sum())])
