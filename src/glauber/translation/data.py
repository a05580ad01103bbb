"""Which pairs of sentences does a translator learn from, and which is it judged by?

A file has one pair a line, source and target with a tab between; further columns are ignored. The
sentences of Tatoeba are short, so training also joins 2 to 4 random pairs into longer ones.
"""

import lzma
import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from glauber.errors import GlauberError
from glauber.translation.model import PAD
from glauber.translation.vocabulary import Vocabulary

Pair = tuple[str, str]
LONGEST = 31  # tokens of a pair that is trained on: four of them joined fit into 128 positions
SPREAD = 8  # a batch is one part of so many, by length
ROUNDED = 8  # training rows are as wide as a multiple of this


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a two-column file, plain or xz."""
    if not path.is_file():
        raise GlauberError(f"there is no file {path}.")
    content = path.read_bytes()
    text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
    lines = [line.split("\t") for line in text.splitlines() if line.strip()]
    for number, columns in enumerate(lines, 1):
        if len(columns) < 2 or not columns[0].strip() or not columns[1].strip():
            raise GlauberError(f"line {number} of {path} has no source and target with a tab.")
    return [(columns[0].strip(), columns[1].strip()) for columns in lines]


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """A two-column file that `read_pairs` reads."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


@dataclass(frozen=True)
class Judged:
    """A sentence to translate and what people made of it."""

    source: str
    references: tuple[str, ...]


def by_source(pairs: Iterable[Pair]) -> list[Judged]:
    """Each source once, with all its targets as references, in the order of the file."""
    found: dict[str, list[str]] = {}
    for source, target in pairs:
        found.setdefault(source, []).append(target)
    return [Judged(source, tuple(targets)) for source, targets in found.items()]


def long_pairs(
    pairs: list[Pair], vocabulary: Vocabulary, *, n_pairs: int = 200, seed: int = 0
) -> list[Judged]:
    """A fixed set of 2 to 4 joined pairs with 20 to 60 target tokens, one reference each."""
    draw, sources = random.Random(seed), dict(reversed(pairs))
    single = list(sources.items())
    made: list[Judged] = []
    for _ in range(200 * n_pairs):
        if len(made) == n_pairs:
            return made
        parts = draw.sample(single, draw.randint(2, 4))
        source, target = (" ".join(side) for side in zip(*parts, strict=True))
        if 20 <= len(vocabulary.encode(target)) <= 60:
            made.append(Judged(source, (target,)))
    raise GlauberError(f"only {len(made)} of {n_pairs} long pairs could be made from the file.")


@dataclass(frozen=True)
class Corpus:
    """Tokenised pairs: source and target (pairs + 1, longest), PAD behind; the last is empty."""

    source: Tensor
    target: Tensor

    @classmethod
    def of(cls, pairs: list[Pair], vocabulary: Vocabulary, *, longest: int = LONGEST) -> "Corpus":
        """The pairs of at most `longest` tokens on each side."""
        sources = vocabulary.encode_many([source for source, _ in pairs])
        targets = vocabulary.encode_many([target for _, target in pairs])
        kept = [
            (source, target)
            for source, target in zip(sources, targets, strict=True)
            if 0 < len(source) <= longest and 0 < len(target) <= longest
        ]
        if not kept:
            raise GlauberError(f"no pair of the file has at most {longest} tokens on each side.")
        return cls(padded([s for s, _ in kept] + [[]]), padded([t for _, t in kept] + [[]]))

    def __len__(self) -> int:
        return len(self.source) - 1

    def to(self, device: torch.device | str) -> "Corpus":
        """The same on another device."""
        return Corpus(self.source.to(device), self.target.to(device))

    def batch(self, n_rows: int, *, n_joined: int, max_length: int) -> tuple[Tensor, Tensor]:
        """Random rows (rows, length) of source and target, each joined from `n_joined` pairs.

        The rows of a batch are of like length: of `SPREAD` times as many, sorted by their length,
        one part is taken at random, so that little is padding.
        """
        # Rows and widths are chosen on the CPU: a GPU is never waited for.
        chosen = torch.randint(len(self), (SPREAD * n_rows, n_joined))
        order = self.sizes[:, chosen].sum((0, 2)).argsort(stable=True)
        part = int(torch.randint(SPREAD, (1,)))
        chosen = chosen[order[part * n_rows : (part + 1) * n_rows]]
        widest = self.sizes[:, chosen].sum(2).amax(1).tolist()
        there = chosen.to(self.source.device, non_blocking=True)
        # Few different widths: a GPU's allocator and kernels dislike a new shape at every step.
        width, wide = (-(-most // ROUNDED) * ROUNDED for most in widest)
        source = _joined(self.source[there])[:, : min(width, max_length)]
        return source, _joined(self.target[there])[:, : min(wide, max_length - 1)]

    @cached_property
    def sizes(self) -> Tensor:
        """Tokens of each side of each pair, (2, pairs), on the CPU."""
        return torch.stack([(side != PAD).sum(1) for side in (self.source, self.target)]).cpu()


def padded(rows: list[list[int]]) -> Tensor:
    """Rows of unequal length as one tensor (rows, longest), PAD behind."""
    out = torch.full((len(rows), max(map(len, rows), default=0)), PAD)
    for row, tokens in enumerate(rows):
        out[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    return out


def _joined(parts: Tensor) -> Tensor:
    """(rows, joined, length) -> (rows, joined * length) with all PAD behind."""
    flat = parts.flatten(1)
    return flat.gather(1, (flat == PAD).to(torch.uint8).argsort(dim=1, stable=True))
