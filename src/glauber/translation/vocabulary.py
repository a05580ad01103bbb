"""How does a sentence become tokens? By one sentencepiece vocabulary for both languages."""

from pathlib import Path
from typing import Any

from glauber.errors import GlauberError
from glauber.translation.model import BEGIN, END, FIRST_WORD, PAD, UNKNOWN


class Vocabulary:
    """A sentencepiece model whose first tokens are PAD, UNKNOWN, BEGIN, END and MASK."""

    def __init__(self, serialized: bytes):
        self.serialized = serialized
        self.pieces: Any = _sentencepiece().SentencePieceProcessor(model_proto=serialized)
        self.size = int(self.pieces.get_piece_size())

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        """The vocabulary in a file."""
        if not path.is_file():
            raise GlauberError(f"there is no vocabulary {path}.")
        return cls(path.read_bytes())

    @classmethod
    def learn(cls, sentences: list[str], size: int) -> "Vocabulary":
        """A unigram vocabulary of the sentences of both languages."""
        import io

        written = io.BytesIO()
        trainer = _sentencepiece().SentencePieceTrainer
        try:
            trainer.train(
                sentence_iterator=iter(sentences),
                model_writer=written,
                vocab_size=size,
                character_coverage=1.0,
                pad_id=PAD,
                unk_id=UNKNOWN,
                bos_id=BEGIN,
                eos_id=END,
                control_symbols=["<mask>"],
                minloglevel=2,
            )
        except RuntimeError as problem:
            raise GlauberError(
                f"the sentences do not give a vocabulary of {size} tokens: {problem}"
            ) from problem
        return cls(written.getvalue())

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return list(self.pieces.encode(text))

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text."""
        return [list(tokens) for tokens in self.pieces.encode(texts)] if texts else []

    def read_source(self, text: str, max_length: int) -> list[int]:
        """The tokens of a text to translate; says what is wrong with one that cannot be."""
        if not text.strip():
            raise GlauberError("the text to translate is empty.")
        tokens = self.encode(text)
        if UNKNOWN in tokens:
            strange = sorted({c for c in text if UNKNOWN in self.encode(c)})
            spelled = ", ".join(repr(character) for character in strange)
            raise GlauberError(f"the translator does not know the character {spelled}.")
        if len(tokens) >= max_length:
            raise GlauberError(
                f"the text has {len(tokens)} tokens, but the translator reads at most "
                f"{max_length - 1}: translate it in parts."
            )
        return tokens

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens; special ones say nothing."""
        return str(self.pieces.decode([token for token in tokens if token >= FIRST_WORD]))

    def spell(self, token: int) -> str:
        """One token as the vocabulary writes it."""
        return str(self.pieces.id_to_piece(token))


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError as missing:
        raise GlauberError(
            "translation needs sentencepiece: pip install sentencepiece."
        ) from missing
    return sentencepiece
