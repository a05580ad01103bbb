"""What differs between models that get the same starts, seed and budget?

Lengths are counted in each model's own tokens, so texts are the same up to where they are cut. A
text that is too short for one of the models is left out for all, so that chain i begins from the
same text everywhere. Each later model is compared with the first one start by start: what the
starts have in common cancels, so that the interval of such a difference is as a rule narrower than
two separate intervals suggest.
"""

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glauber.compatibility.entropy_production import EntropyProduction, entropy_production
from glauber.compatibility.rectangles import TOP
from glauber.compatibility.rectangles import rectangles as rectangle_study
from glauber.conditionals.base import Conditionals, Model, check_temperature
from glauber.conditionals.load import load
from glauber.conditionals.starts import bundled_texts, legible, read_texts, skip
from glauber.conditionals.texts import Corpus
from glauber.conditionals.weights import reachable
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.landscape.scorers import (
    NO_TOPICS,
    SIMILARITY,
    Scorer,
    TopicScores,
    check_scorer,
    read_labels,
    scorer_for,
)
from glauber.landscape.scorers import topic_scores as scored
from glauber.landscape.topics import Embeds, Labels
from glauber.metastability.catalogue import hamming_traps
from glauber.parameters import Device, Seed, Temperature, Texts, Trust
from glauber.progress import check_count, check_seed, quiet, say, track
from glauber.result import Result, counted, model_parts, plain, report_skipped, study
from glauber.result import signature as signed
from glauber.runs.embedding import TOKENS
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots
from glauber.runs.spec import signature
from glauber.sampling.sample import sample
from glauber.statistics import Estimate, Floats, clustered_mean, mean_over_chains

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

EXAMPLES = 3  # texts shown of each model
SHOWN_TOPICS = 3  # differences of topics shown of each model
DELTA, PRODUCTION, CHANGED = "mean rectangle Delta", "entropy production", "steps that changed"
AT_THE_END = "at the end"  # after the name of a topic


@study
def compare(
    models: Annotated[Sequence[str | Conditionals], "A model; give it for each, at least twice."],
    texts: Texts = None,
    *,
    chains: Annotated[int, "Chains of each model."] = 20,
    length: Annotated[int, "Tokens of each text, in each model's own."] = 20,
    steps: Annotated[int, "Steps of each chain."] = 200,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    rectangles: Annotated[int, "Random rectangles of each model."] = 100,
    top: Annotated[int, "Replacements come from so many most probable tokens."] = TOP,
    labels: Labels = "topics",
    scorer: Annotated[str | Scorer, "similarity, or an entailment model by name."] = SIMILARITY,
    embedder: Embeds = None,
    every: Annotated[int, "Steps between snapshots."] = 20,
    shortest: Annotated[int, "Steps within one token of a text that make a trap."] = 50,
    device: Device = "auto",
    trust_remote_code: Trust = False,
) -> "Comparison":
    """Compare models: incompatibility, entropy production, moves, traps and topics, same starts.

    Every model is loaded and given its starts before the first one runs. A model that cannot be
    run as a chain (an autoregressive one scores candidates only) has rectangles alone. Topics are
    left out where no embedding reads the texts of a model. Every other model is also compared with
    the first one start by start, by the mean of the paired differences with its interval.
    """
    listed = read_labels(labels)
    _check(models, chains, steps, every, rectangles, shortest)
    check_seed(seed)
    check_temperature(temperature)
    check_count("length", length)
    check_count("number of first choices", top, least=2)
    check_scorer(scorer, embedder, otherwise=NO_TOPICS)
    how: dict[str, Any] = dict(
        steps=steps, temperature=temperature, seed=seed, chains=chains, length=length
    )
    for one in models:  # a name that is nowhere is refused before any other model is read
        if isinstance(one, str) and not one.startswith("bundled:") and not reachable(one):
            load(one)
    opened = [load(one, device=device, trust_remote_code=trust_remote_code) for one in models]
    shared = _shared_texts(opened, texts, length)
    many = counted(chains, "chain")
    say(f"{len(opened)} models: {many} of {steps:,} steps, {rectangles:,} rectangles")
    settings = Settings(
        shared, how, rectangles, top, scorer, listed, embedder, every, shortest, device
    )
    rows = []
    with track("models", len(opened)) as advance:
        for name, model in zip(_names(opened), opened, strict=True):
            with quiet():
                rows.append(_row(name, model, settings))
            advance(note=name)
    made = signed(models=len(rows), chains=chains, steps=steps, temperature=temperature, seed=seed)
    return Comparison(_with_differences(rows), chains, steps, made)


class Settings(NamedTuple):
    """What every model is asked."""

    texts: Corpus  # long enough for every model
    how: dict[str, Any]  # for sampling
    rectangles: int
    top: int
    scorer: str | Scorer
    labels: tuple[str, ...]
    embedder: Any
    every: int
    shortest: int
    device: str


@dataclass(frozen=True, eq=False)
class ModelRow:
    """One model's figures, each with its error; none where there is none."""

    model: str
    rectangles: dict[str, Any]  # mean Delta, its interval, noise floor, share certified
    delta: Floats  # of each rectangle
    passages: NDArray[np.int64]  # that each rectangle is of
    signature: str
    seconds: float
    entropy_production: EntropyProduction | None = None
    changed: Estimate | None = None  # share of a chain's steps that changed a token
    changed_by_chain: Floats | None = None  # (chains,)
    topics: TopicScores | None = None
    topics_start: dict[str, Estimate] | None = None  # mean score of each label, over chains
    topics_end: dict[str, Estimate] | None = None
    traps: dict[str, Any] | None = None
    texts: tuple[str, ...] = ()  # where a few chains ended
    notes: tuple[str, ...] = ()  # what is left out, and why
    less_first: dict[str, Estimate] | None = None  # paired differences from the first model

    def to_dict(self) -> Record:
        left = ("topics", "entropy_production", "delta", "passages", "changed_by_chain")
        names = [name for name in self.__dataclass_fields__ if name not in left]
        made = self.entropy_production
        return {name: plain(getattr(self, name)) for name in names} | {
            "entropy_production": None if made is None else made.to_dict(),
            "scorer": None if self.topics is None else self.topics.scorer,
        }

    def written(self) -> dict[str, str]:
        """The figures, each with its error, as they are shown."""
        certified = self.rectangles["share_certified"]
        found = {DELTA: f"{_written(delta_of(self))}, {certified:.0%} certified"}
        if (made := production_of(self)) is not None:
            found[PRODUCTION] = f"{_written(made)} nats a step"
        if (changed := interval_of(self.changed)) is not None:
            found[CHANGED] = _written(changed, ".1%")
        if self.topics_end is not None:
            ends = sorted(self.topics_end.items(), key=lambda pair: -pair[1].value)[:3]
            highest = ", ".join(f"{label} {mean.value:.2f}" for label, mean in ends)
            found[f"topics {AT_THE_END}"] = highest
        if self.traps is not None:
            found["traps"] = ", ".join(f"{name} {value}" for name, value in self.traps.items())
        return found

    def written_differences(self) -> dict[str, str]:
        """The paired differences from the first model, as they are shown."""
        every = self.less_first or {}
        topics = sorted(
            (name for name in every if name.endswith(AT_THE_END)),
            key=lambda name: -abs(every[name].value),
        )
        figures = [name for name in (DELTA, PRODUCTION, CHANGED) if name in every]
        return {
            name: _written(_triple(every[name]), "+.1%" if name == CHANGED else "+.3f")
            for name in (*figures, *topics[:SHOWN_TOPICS])
        }


@dataclass(frozen=True)
class Comparison(Result):
    """The models side by side."""

    rows: list[ModelRow]
    n_chains: int  # of each model
    n_steps: int  # of each chain
    signature: str
    kind: str = "estimate"  # of every number

    def to_dict(self) -> Record:
        return {
            "models": [row.to_dict() for row in self.rows],
            "chains": self.n_chains,
            "steps": self.n_steps,
            "kind": self.kind,
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        for row in self.rows:
            yield row.model
            yield from (f"{name:>24}  {value}" for name, value in row.written().items())
            yield from (f"{'left out':>24}  {note}" for note in row.notes)
            yield from (f"{'a text at the end':>24}  {text}" for text in row.texts[:1])
        for row in self.rows[1:]:
            yield (
                f"{row.model} less {self.rows[0].model}, start by start (paired differences, 95%"
                f"{' together' if len(self.rows) > 2 else ''})"
            )
            yield from (f"{name:>24}  {value}" for name, value in row.written_differences().items())

    def frame(self) -> "pandas.DataFrame":
        """One row per model; columns `…_less_first` are paired differences from the first one."""
        import pandas

        return pandas.DataFrame(
            {
                "model": row.model,
                **_columns("delta", delta_of(row)),
                "certified": row.rectangles["share_certified"],
                **_columns("entropy_production", production_of(row)),
                **_columns("changed", interval_of(row.changed)),
                "traps": np.nan if row.traps is None else row.traps["found"],
                **{
                    column: value
                    for name, figure in FRAME_FIGURES.items()
                    for column, value in _columns(
                        f"{name}_less_first", interval_of((row.less_first or {}).get(figure))
                    ).items()
                },
            }
            for row in self.rows
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.landscape import (
            comparison_table,
            plot_comparison,
            plot_topics_by_model,
        )

        found = {"comparison": plot_comparison(self.rows)}
        if any(row.topics_end for row in self.rows):
            found["topics"] = plot_topics_by_model(self.rows)
        return found | {"table": comparison_table(self.rows)}


Triple = tuple[float, float, float]  # a figure and the ends of its interval, nan without one
FRAME_FIGURES = {"delta": DELTA, "entropy_production": PRODUCTION, "changed": CHANGED}


def interval_of(mean: Estimate | None) -> Triple | None:
    return None if mean is None else _triple(mean)


def _triple(mean: Estimate) -> Triple:
    low, high = mean.interval or (np.nan, np.nan)
    return mean.value, low, high


def production_of(row: ModelRow) -> Triple | None:
    """Nats a step, with the interval over chains."""
    if row.entropy_production is None:
        return None
    low, high = row.entropy_production.interval or (np.nan, np.nan)
    return row.entropy_production.rate, low, high


def delta_of(row: ModelRow) -> Triple:
    """The mean Delta, with the interval over passages."""
    low, high = row.rectangles["interval"] or (np.nan, np.nan)
    return row.rectangles["mean"], low, high


def _written(found: Triple, how: str = ".3f") -> str:
    value, low, high = found
    ends = "no interval" if np.isnan(low) else f"{low:{how}} to {high:{how}}"
    return f"{value:{how}} ({ends})"


def _columns(name: str, found: Triple | None) -> dict[str, float]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), found or (np.nan,) * 3, strict=True))


def _row(name: str, model: Model, asked: Settings) -> ModelRow:
    begun = time.perf_counter()
    found = rectangle_study(
        model,
        asked.texts[: asked.how["chains"]],
        count=asked.rectangles,
        length=asked.how["length"],
        top=asked.top,
        seed=asked.how["seed"],
    )
    row: dict[str, Any] = {"signature": signed(**model_parts(model), **asked.how)}
    if model.whole_vocabulary:
        row |= _of_run(model, sample(model, asked.texts, **asked.how), asked)
    else:
        row |= {"notes": ("it scores candidates only, so no chain was run",)}
    spent = time.perf_counter() - begun
    return ModelRow(
        model=name,
        rectangles={
            "mean": found.mean.value,
            "interval": found.mean.interval,
            "share_certified": float(found.rectangles.certified.mean()),
        },
        delta=found.delta,
        passages=np.asarray(found.rectangles.passages.cpu()),
        seconds=spent,
        **row,
    )


def _of_run(model: Model, run: Run, asked: Settings) -> Record:
    """The figures of one model's chains."""
    changed = run.read("changed").any(axis=2).mean(axis=1)
    row: dict[str, Any] = {
        "entropy_production": entropy_production(run),
        "changed": mean_over_chains(changed, bounds=(0, 1)),
        "changed_by_chain": changed,
        "traps": _traps(model, run, asked.shortest),
        "texts": tuple(run.text(chain) for chain in range(min(EXAMPLES, run.n_chains))),
        "signature": signature(run.spec),
    }
    found = snapshots(run, every=asked.every)
    try:
        chosen = scorer_for(
            found, asked.scorer, asked.labels, embedder=asked.embedder, device=asked.device
        )
    except GlauberError as error:
        if asked.scorer != SIMILARITY or asked.embedder not in (None, TOKENS):
            raise
        return row | {"notes": (f"topics: {error}",)}
    scores = scored(found, chosen)
    starts_ends = {"topics_start": _means(scores, 0), "topics_end": _means(scores, -1)}
    return row | {"topics": scores} | starts_ends


def _shared_texts(models: Sequence[Model], texts: Texts, length: int) -> Corpus:
    """The texts that every model can begin from, in one order for all; the others are reported."""
    bundled = texts is None
    if bundled:
        lists = [bundled_texts(model) for model in models]
        known = set.intersection(*map(set, lists))
        texts = [text for text in lists[0] if text in known]
    corpus = read_texts(texts)
    rows, skipped = corpus.rows, []
    for model in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what was repaired is said when the starts are made
            legible_rows, illegible = legible(
                model.vocabulary, Corpus(rows, unknown=corpus.unknown)
            )
        short = {
            row.number for row in legible_rows if len(model.vocabulary.pieces(row.text)) < length
        }
        reason = f"has fewer than {length} tokens of {model.name}"
        skipped += [*illegible, *(skip(row, reason) for row in rows if row.number in short)]
        left_out = {text.number for text in skipped}
        rows = tuple(row for row in rows if row.number not in left_out)
    if not bundled or not rows:
        report_skipped(skipped, len(corpus))
    return Corpus(rows, unknown=corpus.unknown)


def _with_differences(rows: list[ModelRow]) -> list[ModelRow]:
    """The rows, each later one with its paired differences from the first."""
    first, *others = rows
    return [first, *(replace(row, less_first=_less(row, first, len(others))) for row in others)]


def _less(row: ModelRow, first: ModelRow, comparisons: int) -> dict[str, Estimate]:
    """Each figure of a model less that of the first, start by start.

    The intervals of one figure hold together for all models, those of topics for all labels too.
    Scores of topics may be far from all others in a rare chain, so their interval is the one that
    holds for any distribution.
    """
    differences = {DELTA: _less_delta(row, first, comparisons)}
    productions = [
        {chain.chain: chain.rate for chain in each.entropy_production.chains}
        for each in (row, first)
        if each.entropy_production is not None
    ]
    if len(productions) == 2:
        own, other = productions
        apart = [own[chain] - other[chain] for chain in own if chain in other]
        differences[PRODUCTION] = mean_over_chains(apart, comparisons=comparisons)
    if row.changed_by_chain is not None and first.changed_by_chain is not None:
        differences[CHANGED] = mean_over_chains(
            row.changed_by_chain - first.changed_by_chain,
            bounds=(-1, 1), student=True, comparisons=comparisons,
        )  # fmt: skip
    if row.topics is not None and first.topics is not None:
        for label in first.topics.labels:
            differences[f"{label} {AT_THE_END}"] = mean_over_chains(
                row.topics.of(label)[:, -1] - first.topics.of(label)[:, -1],
                bounds=(-1, 1), comparisons=comparisons * len(first.topics.labels),
            )  # fmt: skip
    return differences


def _less_delta(row: ModelRow, first: ModelRow, comparisons: int) -> Estimate:
    """The rectangles of both models are of the same passages, as a rule one by one."""
    if np.array_equal(row.passages, first.passages):
        return clustered_mean(row.delta - first.delta, first.passages, comparisons=comparisons)
    common = np.intersect1d(row.passages, first.passages)
    own, other = (
        np.array([each.delta[each.passages == passage].mean() for passage in common])
        for each in (row, first)
    )
    return mean_over_chains(own - other, comparisons=comparisons)


def _traps(model: Model, run: Run, shortest: int) -> Record:
    """Traps by Hamming balls of radius 1, in figures."""
    traps = hamming_traps(
        run, model.conditionals(), shortest=shortest, device=model.state_device
    ).summary()
    share = f"{traps.share:.0%}"
    return {"found": traps.n_traps, "perfect": traps.n_perfect, "share of steps": share}


def _means(scores: TopicScores, snapshot: int) -> dict[str, Estimate]:
    """Mean scores over chains; the intervals of all labels hold together."""
    return {
        label: mean_over_chains(
            scores.of(label)[:, snapshot], bounds=(0, 1), comparisons=len(scores.labels)
        )
        for label in scores.labels
    }


def _names(opened: Sequence[Model]) -> list[str]:
    """A name for each model; equal ones are numbered."""
    names = [str(one.name) for one in opened]
    return [
        f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def _check(
    models: Sequence[str | Conditionals],
    chains: int,
    steps: int,
    every: int,
    rectangles: int,
    shortest: int,
) -> None:
    named = [one for one in models if isinstance(one, str)]
    if isinstance(models, str) or len(models) < 2 or len(set(named)) < len(named):
        raise GlauberError("a comparison needs at least two models, each of them named once.")
    if chains == 1:
        raise GlauberError("there is one chain only, but a comparison needs several.")
    check_count("number of chains", chains, least=2, most=10**6)
    check_count("number of steps", steps, least=2)
    check_count("number of steps between snapshots", every, most=steps)
    check_count("number of rectangles", rectangles, most=10**7)
    check_count("shortest trap", shortest)
