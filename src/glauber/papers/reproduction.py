"""What comes out of making a table or figure of the papers again?"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from glauber.result import Result, plain
from glauber.result import signature as signed
from glauber.tables import table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

Scale = Literal["small", "paper"]


@dataclass(frozen=True)
class Reproduction(Result):
    """Our figures with the published ones beside them, row by row, and the pictures."""

    name: str
    scale: Scale
    how: str  # the protocol in one sentence
    rows: list[dict[str, Any]]
    seed: int
    pictures: dict[str, "go.Figure"] = field(default_factory=dict)

    @property
    def signature(self) -> str:  # type: ignore[override]
        return signed(piece=self.name, scale=self.scale, seed=self.seed)

    def to_dict(self) -> dict[str, Any]:
        from glauber.runs.spec import versions

        made = {"name": self.name, "scale": self.scale, "how": self.how, "seed": self.seed}
        return made | {"rows": plain(self.rows), "versions": versions()}

    def lines(self) -> Iterable[str]:
        yield self.how
        yield from table(self.rows)

    def frame(self) -> "pandas.DataFrame":
        """One row for each row of the table."""
        import pandas

        return pandas.DataFrame(self.rows)

    def figures(self) -> "dict[str, go.Figure]":
        """The pictures; of a piece that is a table alone, the table."""
        from glauber.figures.papers import plot_rows

        return self.pictures or {"table": plot_rows(self.name, self.how, self.rows)}
