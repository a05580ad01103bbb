"""Which tables and figures of the two papers can be made again, and do their claims hold here?

One file per subject: what each piece shows, how it is made at a small scale and at the paper's own,
and the published numbers beside ours. A piece is a function of one `Settings`, and is listed with
what it can be asked:

    def table_9(settings: Settings) -> Reproduction:
        found = settings.over(CONDITIONS[settings.scale])     # what was given, over the defaults
        run = settings.run(chains_of(settings))               # made, resumed or found, never twice
        mean = mean_over_chains(seen(run))
        ours = Quantity.of("share of …", mean, bounds=(0, 1))
        claim = Claim("chains come back", "paper A, table 9", 0.92, ours, above(0.5), effect=0.92)
        return Reproduction.of(settings, how, rows, claims=[claim], pictures={…},
                               model=found.model, differs=["bundled model"], ours=["temperature 1"])

    def table_9_chains(settings: Settings) -> list[Chains]: …

    PIECES = {"A-table9": Piece("what it shows", table_9, takes=("model", "steps", "device"),
                                needs=table_9_chains)}

Other slow work goes through `settings.part(name, key, make)`, or `settings.place(name, key)` for a
study with a folder of its own. A killed piece then resumes to the same bits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glauber.errors import GlauberError
from glauber.papers.claims import Claim, pooled
from glauber.papers.settings import FLAGS, Chains, Piece, Scale, Settings
from glauber.parameters import Device, Texts
from glauber.progress import check_count, check_seed
from glauber.result import Result, one_of, plain, signature, study
from glauber.tables import table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

__all__ = ["Chains", "Claim", "Piece", "Reproduction", "Scale", "Settings", "paper", "pieces"]
SUBJECTS = (
    "rectangles", "mixing", "temperatures", "semantic_drift", "traps", "basin_drift", "topics",
    "recurrence",
    "learning", "masks", "samplers", "translation",
)  # fmt: skip
STAGES = ("answers", "chains", "plan")


@study
def paper(
    piece: Annotated[str, "A piece such as A-table1; all, or list."] = "list",
    texts: Texts = None,
    *,
    scale: Annotated[str, "small (the bundled model) or paper (the models of the hub)."] = "small",
    seeds: Annotated[
        int | str | Sequence[int], "Seeds such as 0-9: each makes the piece, and they are pooled."
    ] = 0,
    model: Annotated[str | None, "Another model than the scale's own."] = None,
    temperature: Annotated[float | None, "Another temperature than the scale's own."] = None,
    chains: Annotated[int | None, "Another number of chains, pairs or trials."] = None,
    steps: Annotated[int | None, "Another number of steps."] = None,
    embedder: Annotated[str | None, "Another sentence embedder; bundled is the package's."] = None,
    scorer: Annotated[
        str | None, "Another topic scorer: similarity, or an entailment model."
    ] = None,
    device: Device = "auto",
    on: Annotated[str, "Where pieces and seeds run: local, processes or ray."] = "local",
    workers: Annotated[int | None, "Processes or Ray workers (default: one a core)."] = None,
    address: Annotated[str | None, "Address of a Ray cluster (default: this machine's)."] = None,
    until: Annotated[str, "answers; chains to stop after sampling; plan to only list them."] = (
        "answers"
    ),
    out: Annotated[
        str | Path | None, "Folder that keeps everything; the command line takes papers/."
    ] = None,
) -> "Reproduction | Pieces | Result":
    """Make a table or figure of the papers again, and say which published claims hold.

    A is "Mixing Times of Glauber Dynamics on Masked Language Models", B is "Promises and Pitfalls
    of Generative Masked Language Modeling". Each published claim gets a verdict: agrees, disagrees
    or cannot tell. What is slow is kept in the folder: a piece that was stopped resumes to the
    same bits, and pieces that need the same chains share them. `list` names the pieces; `all` makes
    every one and a page, index.html.
    """
    one_of("the scale", scale, ("small", "paper"))
    one_of("until", until, STAGES)
    one_of("the piece", piece, [*pieces(), "all", "list"])
    from glauber.papers.making import Asked, make

    asked = Settings(
        piece, scale, 0, Path(out or ""), model, _texts(texts), temperature, chains, steps,  # type: ignore[arg-type]
        embedder, scorer, device,
    )  # fmt: skip
    _check(asked)
    place, numbers = _place(on, workers, address), read_seeds(seeds)
    if piece == "list":
        return _listed(asked, out)
    named = list(pieces()) if piece == "all" else [piece]
    return make(Asked(named, numbers, asked, until), out, place)


def _listed(asked: Settings, out: str | Path | None) -> "Pieces":
    """The names of the pieces; what was given beside is not swallowed."""
    if asked.given:
        flags = ", ".join(FLAGS[name] for name in asked.given)
        raise GlauberError(f"list takes no {flags}: name a piece, or all.")
    if out is not None and Path(out).is_file():
        raise GlauberError(f"{out} is a file: give a folder.")
    summaries = {name: one.shows for name, one in pieces().items()}
    return Pieces(summaries, signature(study="paper", pieces=len(summaries)))


def _place(on: str, workers: int | None, address: str | None) -> tuple[str, Any, Any]:
    """Where pieces run, checked before anything is made."""
    from glauber.sweeps.executors import choose_executor

    choose_executor(on, workers=workers, address=address)
    return on, workers, address


def _check(asked: Settings) -> None:
    for name in ("chains", "steps"):
        if getattr(asked, name) is not None:
            check_count(f"number of {name}", getattr(asked, name))
    if asked.temperature is not None:
        from glauber.conditionals.base import check_temperature

        check_temperature(asked.temperature)
    from glauber.conditionals.weights import check_device

    check_device(asked.device)


def _texts(given: str | Path | Sequence[str] | None) -> tuple[str, ...] | None:
    from glauber.conditionals.starts import read_texts

    if given is None:
        return None
    corpus = read_texts(given)
    if corpus.unknown != "skip":
        raise GlauberError("a paper's texts are read with unknown=skip: leave unknown out.")
    return tuple(corpus.sound())


def read_seeds(given: int | str | Sequence[int]) -> tuple[int, ...]:
    """Seeds from a number, from 0-9,12, or from a list; each once."""
    parts: list[Any] = given.split(",") if isinstance(given, str) else []
    parts = parts or (list(given) if isinstance(given, list | tuple | range) else [given])
    found: list[int] = []
    for part in parts:
        ends = str(part).strip().split("-")
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
            raise GlauberError(f"{given!r} is not a list of seeds such as 0-9 or 1,4.")
        found += range(int(ends[0]), int(ends[-1]) + 1)
    if not found or len(found) > 10_000:
        raise GlauberError(f"{given!r} are {len(found)} seeds: give between 1 and 10,000.")
    for seed in found:
        check_seed(seed)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Reproduction(Result):
    """A piece made again: the verdicts on its claims, our figures beside the published ones."""

    name: str  # of the piece
    scale: Scale
    how: str  # the protocol in one sentence
    rows: list[dict[str, Any]]  # our figures beside the published ones
    seeds: tuple[int, ...]
    pictures: dict[str, Any] = field(default_factory=dict)  # Plotly's figures, or their JSON
    claims: tuple[Claim, ...] = ()
    model: str | None = None
    differs: tuple[str, ...] = ()  # what is not as in the paper
    ours: tuple[str, ...] = ()  # what the paper does not give and we chose
    given: dict[str, Any] = field(default_factory=dict)  # in place of the scale's defaults

    @classmethod
    def of(
        cls,
        settings: Settings,
        how: str,
        rows: list[dict[str, Any]],
        *,
        claims: Iterable[Claim] = (),
        pictures: "dict[str, go.Figure] | None" = None,
        model: str | None = None,
        differs: Iterable[str] = (),
        ours: Iterable[str] = (),
    ) -> "Reproduction":
        """What a piece returns; its claims take over what differs where they say nothing else."""
        differs, ours = tuple(differs), tuple(ours)
        folded = tuple(
            replace(
                one, differs=one.differs or differs, ours=one.ours or ours, seeds=(settings.seed,)
            )
            for one in claims
        )
        return cls(
            settings.piece, settings.scale, how, rows, (settings.seed,), pictures or {}, folded,
            model, differs, ours, settings.given,
        )  # fmt: skip

    @property
    def signature(self) -> str:  # type: ignore[override]
        seeds = ",".join(map(str, self.seeds))
        return signature(
            study="paper", piece=self.name, scale=self.scale, model=self.model, seeds=seeds
        )

    def to_dict(self) -> dict[str, Any]:
        from glauber.runs.spec import versions

        made = {
            "name": self.name, "scale": self.scale, "how": self.how, "seeds": self.seeds,
            "model": self.model, "given": self.given, "differs": self.differs, "ours": self.ours,
            "claims": [one.to_dict() for one in self.claims], "rows": self.rows,
        }  # fmt: skip
        return plain(made) | {"versions": versions(), "signature": self.signature}

    def lines(self) -> Iterable[str]:
        from glauber.papers.evidence import claim_lines

        yield from claim_lines(self.claims)
        yield self.how
        yield from table(self.rows)

    def frame(self) -> "pandas.DataFrame":
        """One row for each row of the table."""
        import pandas

        return pandas.DataFrame(self.rows)

    def figures(self) -> "dict[str, go.Figure]":
        """The pictures; of a piece that is a table alone, the table."""
        import plotly.graph_objects as go

        from glauber.figures.chart import plot_rows

        drawn = {name: go.Figure(one) for name, one in self.pictures.items()}
        return drawn or {"table": plot_rows(self.name, self.how, self.rows)}


def over_seeds(made: Sequence[Reproduction]) -> Reproduction:
    """One piece from those of several seeds: claims pooled, rows together, the first pictures."""
    first = made[0]
    if len(made) == 1:
        return replace(first, claims=tuple(pooled([one]) for one in first.claims))
    rows = [{"seed": one.seeds[0], **row} for one in made for row in one.rows]
    claims = [pooled(same) for same in zip(*(one.claims for one in made), strict=True)]
    seeds = tuple(seed for one in made for seed in one.seeds)
    return replace(first, rows=rows, seeds=seeds, claims=tuple(claims))


def pieces() -> dict[str, Piece]:
    """Every piece by its name."""
    found: dict[str, Piece] = {}
    for subject in SUBJECTS:
        found |= import_module(f"glauber.papers.{subject}").PIECES
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Pieces(Result):
    """The pieces of the papers that can be made again."""

    summaries: dict[str, str]  # name of a piece -> what it is
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
        from glauber.figures.chart import plot_rows

        rows = [{"piece": name, "shows": shows} for name, shows in self.summaries.items()]
        return {"pieces": plot_rows("Pieces of the papers", "glauber paper NAME", rows)}
