"""Which token ids make up a text, which sites of it are free, and which tokens may be proposed?"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.base import PAD
from glauber.errors import GlauberError

# Rows of the embedding that training never met, as the field's vocabularies spell them.
UNUSED = re.compile(r"\[unused\d+\]|<unused_?\d+>|madeupword\d+|<null_\d+>|<extra_id_\d+>")


class Text:
    """Tokens back to text, by a tokenizer of the tokenizers library (or a slower Python one)."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of one row of tokens, without its special tokens."""
        row = [int(token) for token in tokens if int(token) != PAD]
        return str(self._backend.decode(row, skip_special_tokens=True))

    def spell(self, token: int) -> str:
        """The token by itself, as the vocabulary spells it."""
        if hasattr(self._backend, "id_to_token"):
            name = self._backend.id_to_token(int(token))
        else:
            name = self._backend.convert_ids_to_tokens(int(token))
        return f"#{token}" if name is None else str(name)

    @classmethod
    def open(cls, folder: Path) -> "Text":
        """What `Vocabulary.save` wrote; avoids importing transformers where it can."""
        try:
            if (folder / "tokenizer.json").is_file():
                from tokenizers import Tokenizer

                return cls(Tokenizer.from_file(str(folder / "tokenizer.json")))
            from transformers import AutoTokenizer

            return cls(AutoTokenizer.from_pretrained(folder))
        except Exception as error:
            raise GlauberError(f"the tokenizer in {folder} cannot be read.") from error


class Vocabulary:
    """Text to tokens and back, through a transformers tokenizer."""

    def __init__(self, tokenizer: Any, size: int) -> None:
        self.tokenizer = tokenizer
        self.size = size
        self.text = Text(getattr(tokenizer, "backend_tokenizer", None) or tokenizer)

    def save(self, folder: Path) -> None:
        """Writes what `Text.open` reads."""
        self.tokenizer.save_pretrained(folder)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of one row of tokens, without its special tokens."""
        return self.text.decode(tokens)

    def spell(self, token: int) -> str:
        """The token by itself, as the vocabulary spells it."""
        return self.text.spell(token)

    def encode(self, texts: Sequence[str], *, length: int | None = None) -> tuple[Tensor, Tensor]:
        """Tokens (chains, longest) with PAD behind shorter texts, and their free sites (bool).

        length counts tokens without the special ones and cuts what is longer. The special tokens
        that the tokenizer adds around a text are not free.
        """
        around = self.tokenizer.num_special_tokens_to_add()
        cut = {} if length is None else {"truncation": True, "max_length": length + around}
        rows = [self.tokenizer(text, return_special_tokens_mask=True, **cut) for text in texts]
        longest = max(len(row["input_ids"]) for row in rows)
        tokens = torch.full((len(rows), longest), PAD)
        free = torch.zeros((len(rows), longest), dtype=torch.bool)
        for i, row in enumerate(rows):
            n = len(row["input_ids"])
            tokens[i, :n] = torch.tensor(row["input_ids"])
            free[i, :n] = ~torch.tensor(row["special_tokens_mask"], dtype=torch.bool)
            if not bool(free[i].any()):
                raise GlauberError(f"text {i + 1} is empty: there is no token to redraw.")
        return tokens, free

    def words(self, texts: Sequence[str]) -> Tensor:
        """Which word of its text each token is a piece of, (texts, longest) as `encode` lays out.

        Words are those of the tokenizer's own first cut; PAD at special tokens and behind the end.
        """
        if not self.tokenizer.is_fast:
            raise GlauberError("this tokenizer does not say which tokens make up one word.")
        rows = [self.tokenizer(text).word_ids() for text in texts]
        words = torch.full((len(rows), max(len(row) for row in rows)), PAD)
        for i, row in enumerate(rows):
            words[i, : len(row)] = torch.tensor([PAD if word is None else word for word in row])
        return words

    def count(self, text: str) -> int:
        """Number of tokens of a text, without the special ones."""
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def proposable(self) -> Tensor:
        """Tokens that are neither special nor unused, (vocab,) bool."""
        names = self.tokenizer.convert_ids_to_tokens(
            list(range(min(self.size, len(self.tokenizer))))
        )
        special = set(self.tokenizer.all_special_ids)
        allowed = torch.zeros(self.size, dtype=torch.bool)
        for token, name in enumerate(names):
            allowed[token] = (
                name is not None and token not in special and not UNUSED.fullmatch(name)
            )
        return allowed
