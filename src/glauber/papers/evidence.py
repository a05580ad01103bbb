"""Which published claims hold here? All pieces together, disagreements first."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glauber.papers.claims import Claim, by_verdict, claim_lines, claim_row
from glauber.papers.paper import Reproduction
from glauber.result import Result, plain, signature
from glauber.tables import table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Evidence(Result):
    """The verdicts on every claim of the pieces, and the pieces."""

    pieces: tuple[Reproduction, ...]

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
        first = self.pieces[0]
        seeds = ",".join(map(str, first.seeds))
        return signature(pieces=len(self.pieces), scale=first.scale, seeds=seeds)

    def to_dict(self) -> dict[str, Any]:
        verdicts = [{"piece": name, **claim.to_dict()} for name, claim in self.claims]
        return plain(
            {
                "verdicts": verdicts,
                "without_claims": [one.name for one in self.pieces if not one.claims],
                "pieces": {one.name: one.to_dict() for one in self.pieces},
                "signature": self.signature,
            }
        )

    def lines(self) -> Iterable[str]:
        yield from claim_lines(claim for _, claim in self.claims)
        silent = [one.name for one in self.pieces if not one.claims]
        if silent:
            yield f"without a claim that can be tested: {', '.join(silent)}"

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


@dataclass(frozen=True)
class Planned(Result):
    """The runs that pieces need, and which of them are there."""

    rows: list[dict[str, Any]]
    folder: str

    @property
    def signature(self) -> str:  # type: ignore[override]
        return signature(runs=len(self.rows), folder=self.folder)

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
        from glauber.figures.style import plot_rows

        return {"runs": plot_rows("Runs of the pieces", self.folder, self.rows)}
