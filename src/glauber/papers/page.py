"""Verdicts as text and as a page: all pieces together, disagreements first."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from glauber.foundation.study import Result, plain, signature
from glauber.foundation.tables import short, table
from glauber.papers.claims import EXACT, WORDS, Claim, Quantity, by_verdict, count, units
from glauber.papers.piece import Reproduction, Row

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MAX_ROWS = 12  # of a table that a page does not fold
COUNTED = {"disagrees": "disagree", "cannot tell": "cannot be told", "agrees": "agree"}
NOTE = (
    "A claim agrees only if the whole interval of our quantity lies in the region that the claim "
    "names, and disagrees only if all of it lies outside. Power is the probability that a sample "
    "of this size gives agreement if the published effect is true; the sample size is that for a "
    "power of 80%, approximately: errors and intervals are taken to narrow with 1/sqrt(n)."
)


def claim_row(claim: Claim) -> Row:
    """A claim as a row of a table."""
    verdict, ours = claim.verdict, claim.quantity
    power = "" if verdict.power is None else f"{verdict.power:.0%} "
    return {
        "verdict": verdict.word,
        "claim": f"{claim.sentence} ({claim.source})",
        "published": claim.published,
        "ours": f"{ours.name}: {shown(ours)}",
        "agrees if": str(claim.region),
        "because": verdict.reason,
        "power": f"{power}{verdict.power_is}",
        "sample size": sample_size_text(claim),
    }


def sample_size_text(claim: Claim) -> str:
    """The sample size that would decide an undecided claim, next to that of our quantity."""
    verdict, ours = claim.verdict, claim.quantity
    if verdict.word != "cannot tell":
        return ""
    if verdict.sample_size is None:
        return "none" if verdict.power is None else f"none: {verdict.sample_size_is}"
    return f"about {units(verdict.sample_size, ours.unit)} (here {ours.n:,})"


def claim_lines(claims: Iterable[Claim]) -> Iterable[str]:
    """Claims as text, disagreements first; notes that all have in common once, at the end."""
    ordered = by_verdict(claims)
    common = {
        kind: [note for note in _shared_notes(getattr(claim, kind) for claim in ordered)]
        for kind in ("differs", "ours")
    }
    for claim in ordered:
        row = claim_row(claim)
        published = "no number" if claim.published is None else claim.published
        yield f"{row['verdict'].upper()}: {row['claim']}"
        yield f"  published: {published}; ours: {row['ours']}; {row['because']}"
        if claim.verdict.word == "cannot tell":
            yield f"  power: {row['power']}; for 80%: {row['sample size']}"
        own = {
            kind: [note for note in getattr(claim, kind) if note not in common[kind]]
            for kind in common
        }
        yield from (f"  {line}" for line in _note_lines(own))
    yield from _note_lines(common)


def _shared_notes(notes: Iterable[tuple[str, ...]]) -> list[str]:
    """The notes that all of several claims have, in their order."""
    listed = list(notes)
    return [note for note in listed[0] if all(note in own for own in listed)] if listed else []


def _note_lines(notes: dict[str, list[str]]) -> Iterable[str]:
    kind_names = {"differs": "differs from the paper", "ours": "our own choice"}
    return (f"{kind_names[kind]}: {'; '.join(own)}" for kind, own in notes.items() if own)


def shown(ours: Quantity) -> str:
    """The value, its interval, and the number of units that it rests on."""
    if ours.value is None:
        return "no number"
    if ours.kind == EXACT:
        return f"{ours.value:.4g} (exact)"
    ends = ("open" if end is None else f"{end:.4g}" for end in ours.interval or ())
    interval = "" if ours.interval is None else f" [{', '.join(ends)}]"
    return f"{ours.value:.4g}{interval} ({ours.kind}, {count(ours)})"


@dataclass(frozen=True)
class Evidence(Result):
    """The pieces, and the verdicts on all their claims."""

    pieces: tuple[Reproduction, ...]
    missing: dict[str, str] = field(default_factory=dict)  # pieces that cannot be made, and why

    @property
    def claims(self) -> list[tuple[str, Claim]]:
        """The claims with the name of their piece, disagreements first."""
        names = {id(claim): piece.name for piece in self.pieces for claim in piece.claims}
        claims = by_verdict(claim for piece in self.pieces for claim in piece.claims)
        return [(names[id(claim)], claim) for claim in claims]

    @property
    def signature(self) -> str:  # type: ignore[override]
        scales = ",".join(sorted({piece.scale for piece in self.pieces}))
        seeds = sorted({seed for piece in self.pieces for seed in piece.seeds})
        return signature(
            study="paper",
            pieces=len(self.pieces),
            scale=scales or None,
            seeds=",".join(map(str, seeds)) or None,
        )

    def to_dict(self) -> dict[str, object]:
        return plain(
            {
                "verdicts": [{"piece": name, **claim.to_dict()} for name, claim in self.claims],
                "without_claims": self._without_claims,
                "missing": self.missing,
                "pieces": {piece.name: piece.to_dict() for piece in self.pieces},
                "signature": self.signature,
            }
        )

    @property
    def _without_claims(self) -> list[str]:
        return [piece.name for piece in self.pieces if not piece.claims]

    def summary(self) -> str:
        """The number of claims with each verdict."""
        verdict_counts = Counter(claim.verdict.word for _, claim in self.claims)
        counts = ", ".join(f"{verdict_counts[word]} {COUNTED[word]}" for word in WORDS)
        return f"Published claims tested: {sum(verdict_counts.values())}; {counts}."

    def lines(self) -> Iterable[str]:
        yield self.summary()
        yield from claim_lines(claim for _, claim in self.claims)
        if self._without_claims:
            yield f"without a claim that can be tested: {', '.join(self._without_claims)}"
        for name, reason in self.missing.items():
            yield f"{name} cannot be made: {reason}"

    def frame(self) -> "pandas.DataFrame":
        """One row per claim."""
        import pandas

        rows = [{"piece": name, **claim_row(claim)} for name, claim in self.claims]
        return pandas.DataFrame(rows)

    def figures(self) -> "dict[str, go.Figure]":
        """The figures of all pieces."""
        return {
            f"{piece.name}-{name}": figure
            for piece in self.pieces
            for name, figure in piece.figures().items()
        }

    def write_page(self, folder: Path, name: str, summaries: dict[str, str]) -> None:
        """The page and the JSON of all this in the folder, under that name."""
        from glauber.interfaces.report.page import page, write_text

        title = "Claims of the two papers that hold here" if len(self.pieces) > 1 else name
        html = page(
            "papers.html",
            title=title,
            summary=self.summary(),
            note=NOTE,
            shown=shown,
            sample_size_text=sample_size_text,
            short=short,
            claims=self.claims,
            missing=self.missing,
            signature=self.signature,
            pieces=[_section(piece, summaries.get(piece.name, "")) for piece in self.pieces],
        )
        write_text(folder / f"{name}.html", html)
        record = json.dumps(self.to_dict(), indent=1, ensure_ascii=False)
        write_text(folder / f"{name}.json", record + "\n")


def _section(piece: Reproduction, shows: str) -> dict[str, object]:
    """The part of a page that shows a piece."""
    return {
        "piece": piece,
        "shows": shows,
        "claims": by_verdict(piece.claims),
        "tables": [_block(list(same)) for _, same in groupby(piece.rows, key=list)],
        "figures": piece.figures() if piece.pictures else {},
    }


def _block(rows: list[Row]) -> dict[str, object]:
    """Rows with the same fields as a table; fields with one value in all rows are given once."""
    texts = [{name: short(value) for name, value in row.items()} for row in rows]
    shared = {
        name: value
        for name, value in texts[0].items()
        if len(texts) > 1 and all(row[name] == value for row in texts)
    }
    return {
        "shared": shared,
        "names": [name for name in texts[0] if name not in shared],
        "rows": [[value for name, value in row.items() if name not in shared] for row in texts],
        "tall": len(texts) > MAX_ROWS,
    }


@dataclass(frozen=True)
class Listing(Result):
    """Rows without claims: the pieces that can be made, or the runs that they need."""

    title: str  # the heading
    rows: list[Row]  # of the table
    head: str = ""  # the sentence above the table

    @property
    def signature(self) -> str:  # type: ignore[override]
        return signature(study="paper", **{self.title: len(self.rows)})

    def to_dict(self) -> dict[str, object]:
        return {self.title: plain(self.rows), "signature": self.signature}

    def lines(self) -> Iterable[str]:
        if self.head:
            yield self.head
        yield from table(self.rows)

    def frame(self) -> "pandas.DataFrame":
        """One row per piece or run."""
        import pandas

        return pandas.DataFrame(self.rows)

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.chart import plot_rows

        return {self.title: plot_rows(self.title, self.head, self.rows)}
