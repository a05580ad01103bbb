"""What changed in a chain's text from one look to the next?"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.runs.run import Run

if TYPE_CHECKING:
    from glauber.conditionals.vocabulary import Text


class Piece(NamedTuple):
    """One token as it stands in the text."""

    text: str  # with the space before it, if it has one
    changed: bool  # since the look before
    frozen: bool


class Look(NamedTuple):
    """A chain's text after some step."""

    step: int
    pieces: list[Piece]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces).strip()


def timeline(run: Run, chain: int, steps: Iterable[int]) -> list[Look]:
    """Looks at one chain after the given steps; changes are against the look before."""
    run.check_chain(chain)
    free = run.free[chain]
    inside = slice(*_inside(run, chain))
    looks: list[Look] = []
    before: NDArray[np.int64] | None = None
    for step in steps:
        tokens = run.tokens(step)[chain]
        changed = np.zeros(len(tokens), bool) if before is None else tokens != before
        texts = spelled(run.vocabulary, tokens[inside])
        marks = zip(texts, changed[inside], ~free[inside], strict=True)
        looks.append(Look(step, [Piece(text, bool(new), bool(held)) for text, new, held in marks]))
        before = tokens
    return looks


def looks_at(run: Run, count: int) -> list[int]:
    """About `count` steps of a run, evenly spread, the first and the last among them."""
    if count < 1:
        raise GlauberError(f"the number of rows is {count}, but it must be at least 1.")
    return sorted({round(step) for step in np.linspace(0, run.steps, count)})


def _inside(run: Run, chain: int) -> tuple[int, int]:
    """First and last site of the text, without the special tokens around it."""
    tokens = run.tokens(0)[chain]
    there = [i for i, token in enumerate(tokens) if token >= 0 and run.vocabulary.decode([token])]
    sites = there + np.nonzero(run.free[chain])[0].tolist()
    return min(sites), max(sites) + 1


def spelled(words: "Text", tokens: Iterable[int]) -> list[str]:
    """Each token as it would be read, with a space before where a word begins."""
    tokens = [int(token) for token in tokens]
    names = [words.spell(token) for token in tokens]
    if any(name.startswith("Ġ") for name in names):  # byte-level BPE spells bytes, not letters
        return [words.decode([token]) for token in tokens]
    if any(name.startswith("▁") for name in names):  # sentencepiece marks where a word begins
        return [name.replace("▁", " ") for name in names]
    return [name[2:] if name.startswith("##") else " " + name for name in names]
