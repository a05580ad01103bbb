"""A chain's text over time, with what changed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import check_count
from glauber.foundation.study import Result, internal, plain, study
from glauber.runs.run import Folder, Run

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST = 10**5  # rows that anybody reads


@study
def show(
    run: Folder,
    *,
    chain: Annotated[int, "Number of the chain, from 0."] = 0,
    rows: Annotated[int, "Number of moments, evenly spread.", Whole(1, MOST)] = 20,
    every: Annotated[
        int | None, "One moment every so many steps, instead of rows.", Whole(1, 10**15)
    ] = None,
) -> "Timeline":
    """Show a chain's text over time, with what changed since the row above.

    Sites are counted from 0 without special tokens and prefix. What changed is between
    asterisks in the printed lines, in small letters for an alphabet of capital ones (proteins), and
    highlighted in a notebook.
    """
    run = Run.of(run, generations=True)
    if every is not None and run.steps // every >= MOST:
        raise GlauberError(f"every {every} steps makes more than {MOST:,} rows: take fewer.")
    steps = moments(run, rows) if every is None else range(0, run.steps + 1, every)
    return Timeline(chain, timeline(run, chain, steps), run)


class Piece(NamedTuple):
    """One token in the text."""

    text: str  # with the space before it, if it has one
    changed: bool  # since the snapshot before
    frozen: bool


class Snapshot(NamedTuple):
    """A chain's text after some step."""

    step: int
    pieces: list[Piece]
    first: int = 0  # the number of the first piece's site; a prefix has negative ones

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces).strip()

    @property
    def changed(self) -> list[int]:
        """The sites that changed since the snapshot before."""
        return [site for site, piece in enumerate(self.pieces, self.first) if piece.changed]

    @property
    def marked_text(self) -> str:
        """The text with asterisks around what changed."""
        return "".join(map(_mark, self.pieces)).strip()

    @property
    def lower_text(self) -> str:
        """The text with what changed in small letters: sites stay under each other."""
        pieces = (p.text.lower() if p.changed else p.text for p in self.pieces)
        return "".join(pieces).strip()


def _mark(piece: Piece) -> str:
    word = piece.text.lstrip(" ")
    blanks = " " * (len(piece.text) - len(word))
    return f"{blanks}*{word}*" if piece.changed else piece.text


class TimelineRow(NamedTuple):
    """A row of a timeline."""

    step: int
    text: str
    changed: list[int]  # sites


@dataclass(frozen=True, eq=False)
class Timeline(Result):
    """A chain's text at some moments."""

    chain: int
    snapshots: list[Snapshot] = internal()
    run: Run = internal()

    FIGURES = {"timeline": ("glauber.interfaces.plots.runs:plot_timeline", "snapshots")}

    def to_dict(self) -> dict[str, Any]:
        own = {"run": self.run.folder, "snapshots": self.table()}
        return plain(own) | super().to_dict()

    def lines(self) -> Iterable[str]:
        letters = self.run.vocabulary.letters
        capitals = bool(letters) and not any(letter.islower() for letter in letters)
        if capitals:  # an asterisk is a letter of some alphabets, and would shift the sites
            yield "small letters changed since the row above"
        for snapshot in self.snapshots:
            text = snapshot.lower_text if capitals else snapshot.marked_text
            yield f"{snapshot.step:>8,} {text}"

    def table(self) -> list[TimelineRow]:
        """One row per moment."""
        texts = (self.run.text(self.chain, snapshot.step) for snapshot in self.snapshots)
        rows = zip(self.snapshots, texts, strict=True)
        return [TimelineRow(snapshot.step, text, snapshot.changed) for snapshot, text in rows]

    def figures(self) -> "dict[str, go.Figure]":
        return super().figures() | self.run.figures()

    def _repr_html_(self) -> str:
        from html import escape

        from glauber.interfaces.plots.runs import timeline_table

        return f"{timeline_table(self.snapshots)}<p><small>{escape(self.signature)}</small></p>"


def timeline(run: Run, chain: int, steps: Iterable[int]) -> list[Snapshot]:
    """One chain after the given steps; changes are against the step before in that list."""
    free = run.free[run.check_chain(chain)]
    first, last = run.text_spans[chain]
    shown = slice(first, last)
    snapshots: list[Snapshot] = []
    before: NDArray[np.int64] | None = None
    for step in steps:
        tokens = run.tokens(step)[chain]
        changed = np.zeros(len(tokens), bool) if before is None else tokens != before
        texts = run.vocabulary.parts(tokens[shown])
        columns = texts, changed[shown].tolist(), (~free[shown]).tolist()
        pieces = [Piece(*row) for row in zip(*columns, strict=True)]
        snapshots.append(Snapshot(step, pieces, first - run.first_site))
        before = tokens
    return snapshots


def moments(run: Run, count: int) -> list[int]:
    """About `count` steps of a run, evenly spread, the first and the last among them."""
    check_count("number of rows", count, most=MOST)
    return sorted({round(step) for step in np.linspace(0, run.steps, count)})
