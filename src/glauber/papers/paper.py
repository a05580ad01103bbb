"""Which tables and figures of the two papers can be made again?

One file per subject: what each piece shows, how it is made at a small scale and at the paper's own,
and the published numbers beside ours.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

from glauber.parameters import Seed
from glauber.progress import check_seed
from glauber.result import Result, one_of, plain, signature, study
from glauber.tables import table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

Scale = Literal["small", "paper"]
SUBJECTS = (
    "rectangles", "mixing", "traps", "topics", "learning", "samplers", "translation",
)  # fmt: skip


@study
def paper(
    piece: Annotated[str, "A piece such as A-table1, or list."] = "list",
    *,
    scale: Annotated[str, "small (the bundled model) or paper (the models of the hub)."] = "small",
    seed: Seed = 0,
) -> "Reproduction | Pieces":
    """Make a table or figure of the papers again, beside the published numbers; `list` names them.

    A is "Mixing Times of Glauber Dynamics on Masked Language Models", B is "Promises and Pitfalls
    of Generative Masked Language Modeling".
    """
    one_of("the scale", scale, ("small", "paper"))
    check_seed(seed)
    if piece == "list":
        summaries = {name: shows for name, (shows, _) in pieces().items()}
        return Pieces(summaries, signature(pieces=len(summaries)))
    one_of("the piece", piece, pieces())
    made: Reproduction = pieces()[piece][1](scale, seed=seed)
    return made


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
        return signature(piece=self.name, scale=self.scale, seed=self.seed)

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
        from glauber.figures.style import plot_rows

        return self.pictures or {"table": plot_rows(self.name, self.how, self.rows)}


def pieces() -> dict[str, tuple[str, Callable[..., Reproduction]]]:
    """Every piece: what it shows, and the function that makes it."""
    found: dict[str, Any] = {}
    for subject in SUBJECTS:
        found |= import_module(f"glauber.papers.{subject}").PIECES
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Pieces(Result):
    """The pieces of the papers that can be made again."""

    summaries: dict[str, str]
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return dict(self.summaries)

    def lines(self) -> Iterable[str]:
        return (f"{name:>14}  {shows}" for name, shows in self.summaries.items())

    def frame(self) -> "pandas.DataFrame":
        """One row per piece."""
        import pandas

        return pandas.DataFrame(list(self.summaries.items()), columns=["piece", "shows"])

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.style import plot_rows

        rows = [{"piece": name, "shows": shows} for name, shows in self.summaries.items()]
        return {"pieces": plot_rows("Pieces of the papers", "glauber paper NAME", rows)}
