"""A piece of a paper as data: its settings, study calls, table, figures and claims.

A claim names one number of the answers and the region in which that number agrees. The rest follows
from the declaration: the flags that a piece takes, the notes on what differs from the paper,
pooling over seeds, verdicts and pages. For example

    Piece(
        "share of chains that come back",
        "{chains} chains of {steps:,} steps of {model}",
        small=dict(model="bundled:english", texts=None, chains=8, steps=500, temperature=1.0),
        paper=dict(model="bert-base-uncased", chains=30, steps=10_000),
        not_in_paper=("temperature",),
        chains=lambda s: [Chains(s.model, s.texts, s.steps, s.chains, temperature=s.temperature)],
        ask=lambda s: {"recurrence": recurrence(s.run(...), "politics")},
        table=lambda a: columns(a.recurrence.rows, "seed", "crossed", "peak"),
        claims=[
            Published("chains come back", "paper A, table 9", 0.92, "share of chains",
                      lambda a: a.recurrence.share, above(0.5), effect=0.92),
        ],
    )
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from glauber.foundation.errors import GlauberError
from glauber.foundation.extras import need
from glauber.foundation.json_text import parse_json
from glauber.foundation.statistics import Estimate
from glauber.foundation.study import Result, plain, signature
from glauber.foundation.tables import table
from glauber.papers.claims import EXACT, Claim, Quantity, Region, by_verdict, pool_claims
from glauber.papers.work import FLAGS, Chains, Request, Scale, Settings
from glauber.studies.landscape.entailment import EXAMPLE
from glauber.studies.landscape.scorers import SIMILARITY

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

Answers = SimpleNamespace  # what `ask` returns, by name, and `settings`
Number = Estimate | Quantity | float | None  # a plain number is exact
Record = dict[str, Any]  # a JSON object, or options of several calls
Row = Record
MS_MARCO = "MS MARCO"
OWN = ("texts", "topics")  # settings about texts that were given
TOKENS = "tokens"  # the embedder that compares tokens
JINA = "jinaai/jina-embeddings-v4?task=text-matching&truncate_dim=768"  # of paper A
BART, DEBERTA = "facebook/bart-large-mnli", "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli"
# What a paper leaves open of a model that it names.
LEFT_OPEN = {
    JINA: "the task of the embedder, text-matching, is not in the paper",
    BART: f'hypothesis "{EXAMPLE}", the default of the pipeline that the paper names',
    DEBERTA: f"the checkpoint of DeBERTa-v3, {DEBERTA}, is not in the paper",
}


@dataclass(frozen=True)
class Published:
    """One sentence of a paper, and the number of ours that it is about.

    `name` and `choices` may contain settings and answers in braces.
    """

    sentence: str
    source: str  # such as paper A, table 5
    published: object  # number or words in the paper
    name: str  # of our number
    number: Number | Callable[[Answers], Number]
    agrees: Region | Callable[[Answers], Region]
    effect: float | Callable[[Answers], float] | None = None  # for the power
    choices: tuple[str, ...] = ()  # of ours, which the paper does not give
    unit: str = "chains"
    bounds: tuple[float, float] | None = None
    kind: str = EXACT  # of a plain number
    differs: tuple[str, ...] = ()  # from the paper, besides the settings
    when: Callable[[Answers], bool] | None = None  # the claim is tested only then

    def quantity(self, answers: Answers) -> Quantity:
        """Our number with its interval."""
        number = self.number(answers) if callable(self.number) else self.number
        name = self.name.format_map(_names(answers))
        if isinstance(number, Quantity):
            return replace(number, name=name)
        if isinstance(number, Estimate):
            return Quantity.of(name, number, unit=self.unit, bounds=self.bounds)
        return Quantity(name, number, kind=self.kind, unit=self.unit)

    def claim(self, answers: Answers) -> Claim:
        """The sentence with our number, which gives the verdict."""
        return Claim(
            self.sentence,
            self.source,
            self.published,
            self.quantity(answers),
            self.agrees(answers) if callable(self.agrees) else self.agrees,
            self.differs,
            tuple(choice.format_map(_names(answers)) for choice in self.choices),
            self.effect(answers) if callable(self.effect) else self.effect,
        )


@dataclass(frozen=True)
class Piece:
    """A table, figure or theorem of a paper."""

    shows: str
    protocol: str | Callable[[Answers], str]  # in one sentence, with settings in braces
    small: Mapping[str, object]  # settings at the small scale
    ask: Callable[[Settings], dict[str, object]]  # the study calls
    claims: Sequence[Published] | Callable[[Answers], Iterable[Published]] = ()
    paper: Mapping[str, object] = field(
        default_factory=dict
    )  # settings that differ at the paper's scale
    published: Mapping[str, object] = field(
        default_factory=dict
    )  # of the paper, if not those of `paper`
    table: Callable[[Answers], list[Row]] | None = None
    figures: "Callable[[Answers], dict[str, go.Figure]] | None" = None
    not_in_paper: tuple[str, ...] = ()  # settings that our copy of the paper does not give
    chains: Callable[[Settings], list[Chains]] | None = None  # every run that `ask` reads
    differs: tuple[str, ...] = ()  # from the paper, besides the settings
    choices: tuple[str, ...] = ()  # of ours, besides the settings
    extra: str | None = None  # an optional dependency, besides those of embedder and scorer
    model: str | None = None  # of a piece that has no such setting
    several_models: bool = False  # whether it compares the models that are given
    seconds: float | None = None  # at the small scale on two cores, measured

    @property
    def takes(self) -> tuple[str, ...]:
        """The flags of the command line that change a setting of the piece."""
        return tuple(name for name in FLAGS if name in self.small)

    def settings(self, request: Request) -> Settings:
        """The settings of the scale, with the given ones in their place."""
        defaults = {**self.small, **(self.paper if request.scale == "paper" else {})}
        if isinstance(defaults.get("temperature"), tuple) and "temperature" in request.given:
            request = replace(
                request, given=request.given | {"temperature": _numbers(request.given)}
            )
        return Settings(request, defaults)

    def needs(self, request: Request) -> list[Chains]:
        """The chains that have to be run before."""
        return [] if self.chains is None else self.chains(self.settings(request))

    def extras(self, request: Request) -> tuple[str, ...]:
        """The optional dependencies without which the piece cannot be made."""
        settings = self.settings(request)
        embeds = "embedder" in settings.values and settings.embedder != TOKENS
        if embeds or SIMILARITY in as_tuple(settings.values.get("scorer")):
            return ("embeddings",)
        return () if self.extra is None else (self.extra,)

    def check(self, request: Request) -> None:
        """Refuses settings that the piece does not have."""
        known = [FLAGS[name] for name in self.takes]
        known += ["--device"] if "model" in self.small else []
        flags = [FLAGS[name] for name in request.given]
        flags += ["--device"] if request.device != "auto" else []
        if wrong := [flag for flag in flags if flag not in known]:
            listed = ", ".join([*known, "--scale and --seeds"])
            raise GlauberError(
                f"{request.piece} does not take {', '.join(wrong)}: it takes {listed}."
            )
        several = len(_numbers(request.given)) > 1
        if several and not isinstance(self.small["temperature"], tuple):
            raise GlauberError(f"{request.piece} has one temperature, but several are given.")
        models = as_tuple(request.given.get("model"))
        if len(models) > 1 and not self.several_models:
            raise GlauberError(f"{request.piece} is about one model, but {len(models)} are given.")

    def check_extras(self, request: Request) -> None:
        """Refuses a piece whose optional dependency is missing, before anything is made for it."""
        for extra in self.extras(request):
            tokens = extra == "embeddings" and "embedder" in self.small
            need(extra, request.piece, otherwise="give tokens as the embedder" if tokens else None)

    def make(self, request: Request) -> "Reproduction":
        """The piece with one seed."""
        settings = self.settings(request)
        answers = Answers(**self.ask(settings), settings=settings)
        protocol = self.protocol(answers) if callable(self.protocol) else self.protocol
        published = self.claims(answers) if callable(self.claims) else self.claims
        differs, ours = self._differences(settings), self._choices(settings)
        claims = [
            entry.claim(answers) for entry in published if entry.when is None or entry.when(answers)
        ]
        model = as_tuple(settings.values.get("model", self.model))
        return Reproduction(
            request.piece,
            request.scale,
            protocol.format_map(_names(answers)),
            self.table(answers) if self.table else [],
            (request.seed,),
            self.figures(answers) if self.figures else {},
            tuple(
                replace(
                    claim,
                    differs=(*claim.differs, *differs),
                    ours=(*claim.ours, *ours),
                    seeds=(request.seed,),
                )
                for claim in claims
            ),
            ", ".join(model) or None,
            differs,
            ours,
            request.given,
        )

    def _differences(self, settings: Settings) -> tuple[str, ...]:
        """Every setting that is not the paper's, in words."""
        paper = {**self.small, **self.paper}
        paper |= ({"texts": MS_MARCO} if "texts" in paper else {}) | dict(self.published)
        own = () if settings.values.get("texts") is None else OWN  # which may be the paper's
        derived = [
            f"{name}: {_shown(name, settings.values[name])} in place of {_shown(name, value)}"
            for name, value in paper.items()
            if name not in (*self.not_in_paper, *own) and settings.values[name] != value
        ]
        return (*derived, *self.differs)

    def _choices(self, settings: Settings) -> tuple[str, ...]:
        """The settings that the paper does not give, in words."""
        chosen = [f"{name}: {_shown(name, settings.values[name])}" for name in self.not_in_paper]
        lost = [f"{', '.join(chosen)} (not in our copy of the paper)"] if chosen else []
        given = ["texts: those that were given"] if settings.values.get("texts") else []
        used = [name for value in settings.values.values() for name in _strings(value)]
        opened = [LEFT_OPEN[name] for name in used if name in LEFT_OPEN]
        return (*lost, *given, *opened, *self.choices)


@dataclass(frozen=True)
class Reproduction(Result):
    """A piece made again: the verdicts on its claims, our numbers next to the published ones."""

    name: str  # of the piece
    scale: Scale
    how: str  # the protocol in one sentence
    rows: list[Row]  # of the table, with the column names of the studies
    seeds: tuple[int, ...]
    pictures: dict[str, Any] = field(default_factory=dict)  # Plotly figures, or their JSON
    claims: tuple[Claim, ...] = ()
    model: str | None = None
    differs: tuple[str, ...] = ()  # from the paper
    ours: tuple[str, ...] = ()  # our own choices, which the paper does not give
    given: dict[str, object] = field(default_factory=dict)  # settings instead of the scale's own

    @property
    def signature(self) -> str:  # type: ignore[override]
        seeds = ",".join(map(str, self.seeds))
        return signature(
            study="paper", piece=self.name, scale=self.scale, model=self.model, seeds=seeds
        )

    def to_dict(self) -> dict[str, object]:
        from glauber.runs.spec import versions

        names = ("name", "scale", "how", "seeds", "model", "given", "differs", "ours", "rows")
        return plain(
            {name: getattr(self, name) for name in names}
            | {"claims": [claim.to_dict() for claim in by_verdict(self.claims)]}
            | {"versions": versions(), "signature": self.signature}
        )

    def stored(self) -> dict[str, object]:
        """As `from_stored` reads it: with figures, and claims in the order of the declaration."""
        claims = [claim.to_dict() for claim in self.claims]
        pictures = {
            name: parse_json(each.to_json() or "{}") for name, each in self.pictures.items()
        }
        return self.to_dict() | {"claims": claims, "pictures": pictures}

    @classmethod
    def from_stored(cls, record: Mapping[str, Any]) -> "Reproduction":
        """The answer of a file."""
        names = ("name", "scale", "how", "rows", "pictures", "given", "model")
        values = {name: record[name] for name in names}
        values |= {name: tuple(record[name]) for name in ("seeds", "differs", "ours")}
        return cls(**values, claims=tuple(map(Claim.from_dict, record["claims"])))

    def lines(self) -> Iterable[str]:
        from glauber.papers.page import claim_lines

        yield from claim_lines(self.claims)
        yield self.how
        yield from table(self.rows)

    def frame(self) -> "pandas.DataFrame":
        """One row for each row of the table."""
        import pandas

        return pandas.DataFrame(self.rows)

    def figures(self) -> "dict[str, go.Figure]":
        """The figures; of a piece without one, its table."""
        import plotly.graph_objects as go

        from glauber.interfaces.plots.chart import plot_rows

        drawn = {name: go.Figure(picture) for name, picture in self.pictures.items()}
        return drawn or {"table": plot_rows(self.name, self.how, self.rows)}


def pooled_over_seeds(answers: Sequence[Reproduction]) -> Reproduction:
    """One piece from those of several seeds: claims pooled, rows together, the first figures."""
    first = answers[0]
    if len(answers) == 1:
        return replace(first, claims=tuple(pool_claims([claim]) for claim in first.claims))
    rows = [{"seed": answer.seeds[0], **row} for answer in answers for row in answer.rows]
    claims = [
        pool_claims(same) for same in zip(*(answer.claims for answer in answers), strict=True)
    ]
    seeds = tuple(seed for answer in answers for seed in answer.seeds)
    return replace(first, rows=rows, seeds=seeds, claims=tuple(claims))


def columns(rows: Iterable[object], *names: str, **constants: object) -> list[Row]:
    """Some fields of rows (mappings or objects) under the names of the study, and constants.

    An estimate becomes a list: its value and the ends of its interval.
    """
    return [
        {
            name: _cell(row[name] if isinstance(row, Mapping) else getattr(row, name))
            for name in names
        }
        | {name: _cell(value) for name, value in constants.items()}
        for row in rows
    ]


def _cell(value: object) -> Any:
    if hasattr(value, "interval") and hasattr(value, "value"):
        return [value.value, *(value.interval or ())]
    return value


def as_tuple(value: Any) -> tuple[str, ...]:
    """The names of a setting that has one name or several."""
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _numbers(given: Mapping[str, Any]) -> tuple[float, ...]:
    """The temperatures that were given: one, several or none."""
    value = given.get("temperature", ())
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _strings(value: object) -> tuple[str, ...]:
    """The names in a setting."""
    values = value if isinstance(value, list | tuple) else (value,)
    return tuple(name for name in values if isinstance(name, str))


def _names(answers: Answers) -> dict[str, object]:
    return answers.settings.values | vars(answers)


def _shown(name: str, value: object) -> str:
    """A setting in words."""
    if name == "n_test" and value is None:
        return "all of them"
    if name == "texts" and value != MS_MARCO:
        return "the bundled passages" if value is None else "texts of your own"
    if value is None:
        return "all of them" if name == "threshold_lengths" else "the bundled one"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
