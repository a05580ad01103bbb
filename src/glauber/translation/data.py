"""Sentences as tokens, and pairs of sentences: to train on and to score with.

Both languages share one sentencepiece vocabulary. A file has one pair per line, source and target
separated by a tab; further columns are ignored. The sentences of Tatoeba are short, so training
also joins 2 to 4 random pairs into longer ones.
"""

import io
import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import check_count, say
from glauber.foundation.study import visible
from glauber.texts.read import decode, read_bytes
from glauber.translation.model import BEGIN, END, FIRST_WORD, PAD, UNKNOWN, is_file

if TYPE_CHECKING:
    from types import ModuleType

VOCABULARY = "vocabulary.model"  # file in the folder of a translator
Pair = tuple[str, str]
LONGEST = 31  # tokens of a training pair at most: four of them joined fit into 128 positions
MAX_LONG_PAIRS = 100_000
LENGTH_GROUPS = 8  # a batch is one of so many groups, sorted by length
WIDTH_MULTIPLE = 8  # of the width of training rows


class SubwordVocabulary:
    """A sentencepiece model whose first tokens are PAD, UNKNOWN, BEGIN, END and MASK."""

    def __init__(self, serialized: bytes):
        self.serialized = serialized
        self.pieces = _sentencepiece().SentencePieceProcessor(model_proto=serialized)
        self.size = int(self.pieces.get_piece_size())

    @classmethod
    def read(cls, path: Path) -> "SubwordVocabulary":
        """The vocabulary in a file."""
        if not is_file(path):
            raise GlauberError(f"there is no vocabulary {visible(str(path))[:200]}.")
        try:
            return cls(path.read_bytes())
        except (RuntimeError, ValueError) as problem:
            raise GlauberError(f"{path} is no vocabulary.") from problem

    @classmethod
    def learn(cls, sentences: list[str], size: int) -> "SubwordVocabulary":
        """A unigram vocabulary of the sentences of both languages."""
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

    def read_source(self, text: str, max_length: int, *, unknown: str = "error") -> list[int]:
        """The tokens of a text to translate; refuses one that cannot be translated.

        unknown: error refuses characters outside the vocabulary; token reads them as unknown.
        """
        if not isinstance(text, str) or not text.strip():
            raise GlauberError("the text to translate is empty.")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise GlauberError(f"{visible(text)[:40]!r} is not UTF-8 text.") from None
        tokens = self.encode(text)
        if UNKNOWN in tokens and unknown != "token":
            unknown_characters = sorted({c for c in text if UNKNOWN in self.encode(c)})
            raise GlauberError(
                "the translator does not know the character "
                f"{', '.join(map(repr, unknown_characters))}."
            )
        if len(tokens) >= max_length:
            raise GlauberError(
                f"the text has {len(tokens)} tokens, but the translator reads at most "
                f"{max_length - 1}: translate it in parts."
            )
        return tokens

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self.pieces.decode([token for token in tokens if token >= FIRST_WORD]))

    def spell(self, token: int) -> str:
        """One token as the vocabulary writes it."""
        return str(self.pieces.id_to_piece(token))


def load_vocabulary(folder: Path) -> SubwordVocabulary:
    """The vocabulary that the models of a folder share."""
    return SubwordVocabulary.read(folder / VOCABULARY)


def _sentencepiece() -> "ModuleType":
    try:
        import sentencepiece
    except ImportError as missing:
        raise GlauberError(
            "translation needs sentencepiece: pip install sentencepiece."
        ) from missing
    return sentencepiece


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a two-column file, plain or compressed."""
    pairs = []
    for number, line in enumerate(_read(path).splitlines(), 1):
        if not line.strip():
            continue
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) < 2 or not columns[0] or not columns[1]:
            raise GlauberError(f"line {number} of {path} has no source and target with a tab.")
        pairs.append((columns[0], columns[1]))
    if not pairs:
        raise GlauberError(f"{path} has no pair of sentences.")
    return pairs


def read_lines(path: Path) -> list[str]:
    """The sentences of a file, plain or compressed, one per line."""
    return [line.strip() for line in _read(path).splitlines() if line.strip()]


def _read(path: Path) -> str:
    if not is_file(path):
        raise GlauberError(f"there is no file {visible(str(path))[:200]}.")
    name, content = read_bytes(path)
    return decode(content, name)


def read_split(name: str | Path, split: str) -> list[Pair]:
    """The pairs of a file, or of a split of a data set on the hub.

    A data set is hub:NAME:CONFIG, such as hub:wmt/wmt14:de-en, from German to English;
    hub:wmt/wmt14:de-en:en-de is the other direction. NAME may be a folder. A row has a column
    `translation` with a text for each language. White space is joined to single blanks, and pairs
    with an empty side are left out.
    """
    if not str(name).startswith("hub:"):
        return read_pairs(Path(name))
    fields = str(name).split(":")[1:]
    sides = fields[-1].split("-")
    if len(fields) not in (2, 3) or len(sides) != 2 or not all((*fields, *sides)):
        raise GlauberError(
            f"{visible(str(name))} is no data set: write hub:NAME:CONFIG, as in "
            "hub:wmt/wmt14:de-en, or hub:wmt/wmt14:de-en:en-de for the other direction."
        )
    rows = [
        (" ".join(source.split()), " ".join(target.split()))
        for source, target in _read_hub(fields[0], fields[1], split, sides)
    ]
    pairs = [(source, target) for source, target in rows if source and target]
    if not pairs:
        raise GlauberError(f"the split {split} of {name} has no pair of sentences.")
    if len(pairs) < len(rows):
        say(f"{len(rows) - len(pairs):,} of {len(rows):,} pairs have an empty side: left out")
    return pairs


def _read_hub(name: str, config: str, split: str, sides: list[str]) -> Iterable[Pair]:
    try:
        from datasets import load_dataset
    except ImportError as missing:
        raise GlauberError(
            "hub names need the package datasets: pip install datasets."
        ) from missing
    label = f"the split {split} of {visible(name)}, {visible(config)},"
    from huggingface_hub.utils import logging

    loud, _ = logging.get_verbosity(), logging.set_verbosity_error()  # it reports every retry
    try:
        rows = load_dataset(name, config, split=split)
        if "translation" not in rows.column_names:
            raise GlauberError(f"{label} has no column translation.")
        return [(row[sides[0]], row[sides[1]]) for row in rows["translation"]]
    except KeyError as problem:
        raise GlauberError(f"{label} has no texts in {problem.args[0]}.") from problem
    except (OSError, ValueError, RuntimeError) as problem:
        message = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise GlauberError(f"{label} could not be read: {message}") from problem
    finally:
        logging.set_verbosity(loud)


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """A two-column file that `read_pairs` reads."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


def readable(sources: list[str], vocabulary: SubwordVocabulary, most: int) -> list[str]:
    """The sources that `translate` accepts: known characters only, and not too many tokens."""
    unknown = int(vocabulary.pieces.unk_id())
    encoded = vocabulary.encode_many(sources)
    return [
        source
        for source, tokens in zip(sources, encoded, strict=True)
        if 0 < len(tokens) < most and unknown not in tokens
    ]


@dataclass(frozen=True)
class Example:
    """A sentence to translate and its translations by people."""

    source: str
    references: tuple[str, ...]


def by_source(pairs: Iterable[Pair]) -> list[Example]:
    """Each source once, with all its targets as references, in the order of the file."""
    references: dict[str, list[str]] = {}
    for source, target in pairs:
        references.setdefault(source, []).append(target)
    return [Example(source, tuple(targets)) for source, targets in references.items()]


def long_pairs(
    pairs: list[Pair], vocabulary: SubwordVocabulary, *, n_pairs: int = 200, seed: int = 0
) -> list[Example]:
    """A fixed set of 2 to 4 joined pairs with 20 to 60 target tokens, one reference each."""
    check_count("number of long pairs", n_pairs, most=MAX_LONG_PAIRS)
    draw, sources = random.Random(seed), dict(reversed(pairs))
    single = list(sources.items())
    if len(single) < 4:
        raise GlauberError(f"long pairs are joined from 4 sentences, the file has {len(single)}.")
    joined: list[Example] = []
    for _ in range(200 * n_pairs):
        if len(joined) == n_pairs:
            return joined
        chosen = draw.sample(single, draw.randint(2, 4))
        source, target = (" ".join(side) for side in zip(*chosen, strict=True))
        if 20 <= len(vocabulary.encode(target)) <= 60:
            joined.append(Example(source, (target,)))
    raise GlauberError(f"only {len(joined)} of {n_pairs} long pairs could be made from the file.")


@dataclass(frozen=True)
class Corpus:
    """Tokenised pairs: source and target (pairs + 1, longest), padded; the last is empty."""

    source: Tensor
    target: Tensor

    @classmethod
    def of(
        cls, pairs: list[Pair], vocabulary: SubwordVocabulary, *, longest: int = LONGEST
    ) -> "Corpus":
        """The pairs of at most `longest` tokens on each side; reports how many are longer."""
        sources = vocabulary.encode_many([source for source, _ in pairs])
        targets = vocabulary.encode_many([target for _, target in pairs])
        short = [
            (source, target)
            for source, target in zip(sources, targets, strict=True)
            if 0 < len(source) <= longest and 0 < len(target) <= longest
        ]
        if not short:
            raise GlauberError(f"no pair of the file has at most {longest} tokens on each side.")
        if len(short) < len(pairs):
            say(
                f"{len(pairs) - len(short):,} of {len(pairs):,} pairs are not trained on: more "
                f"than {longest} tokens on a side, or none"
            )
        return cls(pad_rows([s for s, _ in short] + [[]]), pad_rows([t for _, t in short] + [[]]))

    def __len__(self) -> int:
        return len(self.source) - 1

    def to(self, device: torch.device | str) -> "Corpus":
        """The same on another device."""
        return Corpus(self.source.to(device), self.target.to(device))

    def batch(self, n_rows: int, *, n_joined: int, max_length: int) -> tuple[Tensor, Tensor]:
        """Random rows (rows, length) of source and target, each joined from `n_joined` pairs.

        The rows of a batch are of like length: of `LENGTH_GROUPS` times as many, sorted by their
        length, one group is taken at random, so that little is padding.
        """
        # Rows and widths are chosen on the CPU: a GPU is never waited for.
        chosen = torch.randint(len(self), (LENGTH_GROUPS * n_rows, n_joined))
        order = self.sizes[:, chosen].sum((0, 2)).argsort(stable=True)
        part = int(torch.randint(LENGTH_GROUPS, (1,)))
        chosen = chosen[order[part * n_rows : (part + 1) * n_rows]]
        widest = self.sizes[:, chosen].sum(2).amax(1).tolist()
        chosen = chosen.to(self.source.device, non_blocking=True)
        # Few different widths: a GPU's allocator and kernels dislike a new shape at every step.
        source_width, target_width = (
            -(-width // WIDTH_MULTIPLE) * WIDTH_MULTIPLE for width in widest
        )
        source = _join(self.source[chosen])[:, : min(source_width, max_length)]
        return source, _join(self.target[chosen])[:, : min(target_width, max_length - 1)]

    @cached_property
    def sizes(self) -> Tensor:
        """Tokens of each side of each pair, (2, pairs), on the CPU."""
        return torch.stack([(side != PAD).sum(1) for side in (self.source, self.target)]).cpu()


def pad_rows(rows: list[list[int]]) -> Tensor:
    """Rows of unequal length as one tensor (rows, longest), padded at the end."""
    out = torch.full((len(rows), max(map(len, rows), default=0)), PAD)
    for row, tokens in enumerate(rows):
        out[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    return out


def _join(pairs: Tensor) -> Tensor:
    """(rows, joined, length) -> (rows, joined * length), padded at the end."""
    flat = pairs.flatten(1)
    return flat.gather(1, (flat == PAD).to(torch.uint8).argsort(dim=1, stable=True))
