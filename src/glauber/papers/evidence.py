"""Which published claims hold here? All pieces together on a page, disagreements first."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glauber.papers.claims import EXACT, WORDS, Claim, Quantity, Verdict, by_verdict, count
from glauber.papers.paper import Reproduction
from glauber.result import Result, plain, signature
from glauber.tables import short, table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

TALL = 12  # rows that a page shows at once
COUNTED = {"disagrees": "disagree", "cannot tell": "cannot be told", "agrees": "agree"}
NOTE = (
    "A claim agrees only if the whole interval of our quantity lies in the region that the claim "
    "names, and disagrees only if all of it lies outside. Power is the chance that a sample of "
    "this size would have said that it agrees if the published effect were true."
)


def claim_row(claim: Claim) -> dict[str, Any]:
    """A claim as a row of a table."""
    verdict, ours = claim.verdict, claim.quantity
    return {
        "verdict": verdict.word,
        "claim": f"{claim.sentence} ({claim.source})",
        "published": claim.published,
        "ours": f"{ours.name}: {shown(ours)}",
        "agrees if": str(claim.region),
        "because": verdict.reason,
        "power": verdict.power_is if verdict.power is None else _percent(verdict),
    }


def claim_lines(claims: Iterable[Claim]) -> Iterable[str]:
    """What a person reads of claims, disagreements first; what all have in common once, below."""
    ordered = by_verdict(claims)
    common = [{_notes(claim)[place] for claim in ordered} for place in range(2)]
    for claim in ordered:
        row = claim_row(claim)
        yield f"{row['verdict'].upper()}: {row['claim']}"
        yield f"  published: {_words(claim.published)}; ours: {row['ours']}; {row['because']}"
        if claim.verdict.word == "cannot tell":
            yield f"  power: {row['power']}"
        yield from (
            f"  {note}"
            for note, seen in zip(_notes(claim), common, strict=True)
            if note and len(seen) > 1
        )
    yield from (note for seen in common if len(seen) == 1 for note in seen if note)


def _notes(claim: Claim) -> tuple[str, str]:
    """What differs and what is our own, each in one line; empty where nothing is said."""
    return (
        f"differs from the paper: {'; '.join(claim.differs)}" if claim.differs else "",
        f"our own choice: {'; '.join(claim.ours)}" if claim.ours else "",
    )


def shown(ours: Quantity) -> str:
    """The value, its interval, and on how much it rests."""
    if ours.value is None:
        return "no number"
    if ours.kind == EXACT:
        return f"{ours.value:.4g} (exact)"
    ends = "" if ours.interval is None else f" [{', '.join(map(_end, ours.interval))}]"
    return f"{ours.value:.4g}{ends} ({ours.kind}, {count(ours)})"


def _end(value: float | None) -> str:
    return "open" if value is None else f"{value:.4g}"


def _percent(verdict: Verdict) -> str:
    assert verdict.power is not None
    return f"{verdict.power:.0%} {verdict.power_is}"


def _words(published: Any) -> str:
    return "no number" if published is None else str(published)


@dataclass(frozen=True)
class Evidence(Result):
    """The verdicts on every claim of the pieces, and the pieces."""

    pieces: tuple[Reproduction, ...]
    missing: dict[str, str] = field(default_factory=dict)  # pieces that cannot be made, and why

    @property
    def claims(self) -> list[tuple[str, Claim]]:
        """The claims with the piece of each, disagreements first."""
        home = {id(claim): one.name for one in self.pieces for claim in one.claims}
        return [
            (home[id(claim)], claim)
            for claim in by_verdict(claim for one in self.pieces for claim in one.claims)
        ]

    @property
    def signature(self) -> str:  # type: ignore[override]
        scales = ",".join(sorted({one.scale for one in self.pieces}))
        seeds = ",".join(map(str, sorted({seed for one in self.pieces for seed in one.seeds})))
        return signature(
            study="paper", pieces=len(self.pieces), scale=scales or None, seeds=seeds or None
        )

    def to_dict(self) -> dict[str, Any]:
        verdicts = [{"piece": name, **claim.to_dict()} for name, claim in self.claims]
        return plain(
            {
                "verdicts": verdicts,
                "without_claims": [one.name for one in self.pieces if not one.claims],
                "missing": self.missing,
                "pieces": {one.name: one.to_dict() for one in self.pieces},
                "signature": self.signature,
            }
        )

    def summary(self) -> str:
        """How many claims got which verdict."""
        seen = Counter(claim.verdict.word for _, claim in self.claims)
        told = ", ".join(f"{seen[word]} {COUNTED[word]}" for word in WORDS)
        return f"Published claims tested: {sum(seen.values())}; {told}."

    def lines(self) -> Iterable[str]:
        yield self.summary()
        yield from claim_lines(claim for _, claim in self.claims)
        silent = [one.name for one in self.pieces if not one.claims]
        if silent:
            yield f"without a claim that can be tested: {', '.join(silent)}"
        for name, reason in self.missing.items():
            yield f"{name} cannot be made: {reason}"

    def frame(self) -> "pandas.DataFrame":
        """One row per claim."""
        import pandas

        return pandas.DataFrame([{"piece": name, **claim_row(one)} for name, one in self.claims])

    def figures(self) -> "dict[str, go.Figure]":
        """The pictures of all pieces."""
        return {
            f"{one.name}-{name}": figure
            for one in self.pieces
            for name, figure in one.figures().items()
        }

    def write_page(self, folder: Path, name: str) -> None:
        """The page and the JSON of all this in the folder, under that name."""
        from glauber.figures.page import page, write_text

        title = "Which claims of the two papers hold here?" if len(self.pieces) > 1 else name
        made = page(
            "papers.html", title=title, summary=self.summary(), note=NOTE, shown=shown,
            short=short, claims=self.claims, missing=self.missing, signature=self.signature,
            pieces=[_section(one) for one in self.pieces],
        )  # fmt: skip
        write_text(folder / f"{name}.html", made)
        record = json.dumps(self.to_dict(), indent=1, ensure_ascii=False)
        write_text(folder / f"{name}.json", record + "\n")


def _section(one: Reproduction) -> dict[str, Any]:
    """What a page shows of a piece."""
    from glauber.papers.paper import pieces

    known = pieces().get(one.name)
    return {
        "piece": one,
        "shows": known.shows if known else "",
        "claims": by_verdict(one.claims),
        "tables": [_block(list(same)) for _, same in groupby(one.rows, key=list)],
        "figures": one.figures() if one.pictures else {},
    }


def _block(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows with the same fields as a table: what all have in common is said once."""
    words = [{name: short(value) for name, value in row.items()} for row in rows]
    shared = {
        name: value
        for name, value in words[0].items()
        if len(words) > 1 and all(row[name] == value for row in words)
    }
    return {
        "shared": shared,
        "names": [name for name in words[0] if name not in shared],
        "rows": [[value for name, value in row.items() if name not in shared] for row in words],
        "tall": len(words) > TALL,
    }


@dataclass(frozen=True)
class Planned(Result):
    """The runs that pieces need, and which of them are there."""

    rows: list[dict[str, Any]]
    folder: str

    @property
    def signature(self) -> str:  # type: ignore[override]
        return signature(study="paper", runs=len(self.rows), folder=self.folder)

    def to_dict(self) -> dict[str, Any]:
        return {"runs": plain(self.rows), "signature": self.signature}

    def lines(self) -> Iterable[str]:
        yield f"{sum(row['made'] for row in self.rows)} of {len(self.rows)} runs are made"
        yield from table(self.rows)

    def frame(self) -> "pandas.DataFrame":
        """One row per run."""
        import pandas

        return pandas.DataFrame(self.rows)

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.chart import plot_rows

        return {"runs": plot_rows("Runs of the pieces", self.folder, self.rows)}
