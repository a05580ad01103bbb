"""Comparison of models from the same starts, with the same seed and budget.

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
from typing import Annotated, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Seed, Temperature, Texts, Where
from glauber.foundation.progress import quiet, say, track
from glauber.foundation.statistics import Estimate, Floats, clustered_mean, mean_over_chains
from glauber.foundation.study import Result, counted, internal, report_skipped, reported, study
from glauber.models.base import Conditionals, Model
from glauber.models.load import load
from glauber.models.weights import reachable
from glauber.runs.embedding import TOKENS
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots
from glauber.sampling.sample import sample
from glauber.studies.compatibility.entropy_production import EntropyProduction, entropy_production
from glauber.studies.compatibility.rectangles import TOP
from glauber.studies.compatibility.rectangles import rectangles as rectangle_study
from glauber.studies.landscape.kinds import KINDS, text_kinds
from glauber.studies.landscape.scorers import (
    NO_TOPICS,
    SIMILARITY,
    Scorer,
    TopicScores,
    check_hypothesis,
    check_scorer,
    read_labels,
    scorer_for,
    topic_scores,
)
from glauber.studies.landscape.topics import Embeds, Hypothesis, Labels, NamedScorer
from glauber.studies.metastability.traps import TrapSearch
from glauber.texts.read import Corpus
from glauber.texts.starts import bundled_texts, legible, read_texts, skip

PLOTS = "glauber.interfaces.plots.landscape"
EXAMPLES = 3  # texts shown of each model
SHOWN_TOPICS = 3  # differences of topics shown of each model
DELTA, PRODUCTION, CHANGED = "mean rectangle Delta", "entropy production", "steps that changed"
AT_THE_END = "at the end"  # after the name of a topic


@study
def compare(
    models: Annotated[Sequence[str | Conditionals], "A model; give it for each, at least twice."],
    texts: Texts = None,
    *,
    chains: Annotated[int, "Number of chains of each model.", Whole(2, 10**6)] = 20,
    length: Annotated[int, "Tokens of each text, in each model's own.", Whole()] = 20,
    steps: Annotated[int, "Steps of each chain.", Whole(2)] = 200,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    rectangles: Annotated[int, "Random rectangles of each model.", Whole(1, 10**7)] = 100,
    top: Annotated[int, "Replacements are among this many most probable tokens.", Whole(2)] = TOP,
    labels: Labels = "topics",
    scorer: NamedScorer = SIMILARITY,
    hypothesis: Hypothesis = None,
    embedder: Embeds = None,
    every: Annotated[int, "Steps between snapshots.", Whole()] = 20,
    shortest: Annotated[int, "Steps within one token of a text that make a trap.", Whole()] = 50,
    **where: Unpack[Where],
) -> "Comparison":
    """Compare models: incompatibility, entropy production, moves, traps and topics, same starts.

    Every model is loaded and given its starts before the first one runs. A model that cannot be
    run as a chain (an autoregressive one scores candidates only) has rectangles alone. Topics are
    left out where no embedding reads the texts of a model. Every other model is also compared with
    the first one start by start, by the mean of the paired differences with its interval.
    """
    names = [model for model in models if isinstance(model, str)]
    if isinstance(models, str) or len(models) < 2 or len(set(names)) < len(names):
        raise GlauberError("a comparison needs at least two models, each of them named once.")
    Whole(1, steps)("every", every)
    topic_labels = read_labels(labels)
    check_scorer(scorer, embedder, otherwise=NO_TOPICS)
    check_hypothesis(hypothesis, [scorer])
    for name in names:  # one that cannot be found is refused before any other model is read
        if not name.startswith("bundled:") and not reachable(name):
            load(name)
    loaded_models = [load(model, **where) for model in models]
    settings = ComparisonSettings(
        texts=_shared_texts(loaded_models, texts, length),
        sampling=SamplingOptions(
            steps=steps, temperature=temperature, seed=seed, chains=chains, length=length
        ),
        rectangles=rectangles,
        top=top,
        scorer=scorer,
        hypothesis=hypothesis,
        labels=topic_labels,
        embedder=embedder,
        every=every,
        shortest=shortest,
        device=where.get("device", "auto"),
    )
    n_chains = counted(chains, "chain")
    say(f"{len(loaded_models)} models: {n_chains} of {steps:,} steps, {rectangles:,} rectangles")
    rows = []
    with track("models", len(loaded_models)) as advance:
        for name, model in zip(_names(loaded_models), loaded_models, strict=True):
            with quiet():
                rows.append(_row(name, model, settings))
            advance(note=name)
    return Comparison(_with_differences(rows), chains, steps)


class SamplingOptions(TypedDict):
    """What `sample` takes for every model alike."""

    steps: int
    temperature: float
    seed: int
    chains: int
    length: int


class ComparisonSettings(NamedTuple):
    """What is measured of every model."""

    texts: Corpus  # long enough for every model
    sampling: SamplingOptions
    rectangles: int
    top: int
    scorer: str | Scorer
    hypothesis: str | None
    labels: tuple[str, ...]
    embedder: Embeds
    every: int
    shortest: int
    device: str


@dataclass(frozen=True, eq=False)
class ModelRow:
    """Estimates of one model; None where a model has none."""

    model: str
    delta: Estimate  # mean over rectangles, with the interval over passages
    certified: float  # share of the rectangles
    signature: str
    seconds: float
    entropy_production: EntropyProduction | None = None
    changed: Estimate | None = None  # share of a chain's steps that changed a token
    topics_start: dict[str, Estimate] | None = None  # mean score of each label, over chains
    topics_end: dict[str, Estimate] | None = None
    traps: dict[str, object] | None = None
    kinds: dict[str, Estimate] | None = None  # of the texts where the chains ended
    texts: tuple[str, ...] = ()  # where a few chains ended
    notes: tuple[str, ...] = ()  # what is left out, and why
    less_first: dict[str, Estimate] | None = None  # paired differences from the first model
    deltas: Floats = internal(default=None)  # of each rectangle
    passages: NDArray[np.int64] = internal(default=None)  # that each rectangle is of
    changed_by_chain: Floats | None = internal(default=None)  # (chains,)
    topics: TopicScores | None = internal(default=None)

    @reported
    def scorer(self) -> str | None:
        return None if self.topics is None else self.topics.scorer

    @property
    def production(self) -> Estimate | None:
        """Nats per step, with the interval over chains."""
        return None if self.entropy_production is None else self.entropy_production.rate

    def cells(self) -> dict[str, str]:
        """The estimates as text, by name."""
        cells = {DELTA: f"{interval_text(self.delta)}, {self.certified:.0%} certified"}
        if self.production is not None:
            cells[PRODUCTION] = f"{interval_text(self.production)} nats a step"
        if self.changed is not None:
            cells[CHANGED] = interval_text(self.changed, ".1%")
        if self.topics_end is not None:
            ends = sorted(self.topics_end.items(), key=lambda pair: -pair[1].value)[:3]
            highest = ", ".join(f"{label} {mean.value:.2f}" for label, mean in ends)
            cells[f"topics {AT_THE_END}"] = highest
        if self.kinds is not None:
            shares = (f"{name} {share.value:.1%}" for name, share in self.kinds.items())
            cells[f"texts {AT_THE_END}"] = ", ".join(shares)
        if self.traps is not None:
            cells["traps"] = ", ".join(f"{name} {value}" for name, value in self.traps.items())
        return cells

    def differences(self) -> dict[str, str]:
        """The paired differences from the first model as text, by name."""
        estimates = self.less_first or {}
        topics = sorted(
            (name for name in estimates if name.endswith(AT_THE_END)),
            key=lambda name: -abs(estimates[name].value),
        )
        figures = [name for name in (DELTA, PRODUCTION, CHANGED) if name in estimates]
        return {
            name: interval_text(estimates[name], "+.1%" if name == CHANGED else "+.3f")
            for name in (*figures, *topics[:SHOWN_TOPICS])
        }


@dataclass(frozen=True)
class Comparison(Result):
    """Models side by side, from the same starts."""

    models: list[ModelRow]
    n_chains: int  # of each model
    n_steps: int  # of each chain

    FIGURES = {
        "comparison": (f"{PLOTS}:plot_comparison", "models"),
        "topics": (f"{PLOTS}:plot_topics_by_model", "models_with_topics"),
        "table": (f"{PLOTS}:comparison_table", "models"),
    }

    @property
    def models_with_topics(self) -> list[ModelRow] | None:
        """The models whose texts a scorer of topics could read; None without any."""
        return [row for row in self.models if row.topics_end] or None

    def lines(self) -> Iterable[str]:
        for row in self.models:
            yield row.model
            yield from (f"{name:>24}  {value}" for name, value in row.cells().items())
            yield from (f"{'left out':>24}  {note}" for note in row.notes)
            yield from (f"{'a text at the end':>24}  {text}" for text in row.texts[:1])
        for row in self.models[1:]:
            yield (
                f"{row.model} less {self.models[0].model}, start by start (paired differences, 95%"
                f"{' together' if len(self.models) > 2 else ''})"
            )
            yield from (f"{name:>24}  {value}" for name, value in row.differences().items())

    def table(self) -> Iterable[dict[str, object]]:
        """One row per model; columns `…_less_first` are paired differences from the first one."""
        for row in self.models:
            less_first = row.less_first or {}
            yield {
                "model": row.model,
                "delta": row.delta,
                "certified": row.certified,
                "entropy_production": row.production or MISSING,
                "changed": row.changed or MISSING,
                "traps": np.nan if row.traps is None else row.traps["found"],
                **{name: (row.kinds or {}).get(name, MISSING) for name in KINDS},
                "delta_less_first": less_first.get(DELTA, MISSING),
                "entropy_production_less_first": less_first.get(PRODUCTION, MISSING),
                "changed_less_first": less_first.get(CHANGED, MISSING),
            }


MISSING = Estimate(np.nan, None, reason="not measured")


def interval_text(estimate: Estimate, style: str = ".3f") -> str:
    """A value with its interval, in that format."""
    if estimate.interval is None:
        return f"{estimate.value:{style}} (no interval)"
    low, high = estimate.interval
    return f"{estimate.value:{style}} ({low:{style}} to {high:{style}})"


def _row(name: str, model: Model, settings: ComparisonSettings) -> ModelRow:
    start = time.perf_counter()
    test = rectangle_study(
        model,
        settings.texts[: settings.sampling["chains"]],
        count=settings.rectangles,
        length=settings.sampling["length"],
        top=settings.top,
        seed=settings.sampling["seed"],
    )
    row = ModelRow(
        model=name,
        delta=test.mean,
        certified=float(test.rectangles.certified.mean()),
        signature=test.signature,
        seconds=0.0,
        deltas=test.delta,
        passages=np.asarray(test.rectangles.passages.cpu()),
        notes=("it scores candidates only, so no chain was run",),
    )
    if model.whole_vocabulary:
        row = _with_run(row, model, sample(model, settings.texts, **settings.sampling), settings)
    return replace(row, seconds=time.perf_counter() - start)


def _with_run(row: ModelRow, model: Model, run: Run, settings: ComparisonSettings) -> ModelRow:
    """The row with the estimates of the model's chains."""
    changed = run.read("changed").any(axis=2).mean(axis=1)
    ends = [run.text(chain) for chain in range(run.n_chains)]
    row = replace(
        row,
        entropy_production=entropy_production(run),
        changed=mean_over_chains(changed, bounds=(0, 1)),
        changed_by_chain=changed,
        traps=_traps(model, run, settings.shortest),
        kinds=None if model.vocabulary.text.letters else text_kinds(ends),
        texts=tuple(ends[:EXAMPLES]),
        signature=run.signature,
        notes=(),
    )
    texts = snapshots(run, every=settings.every)
    try:
        scorer = scorer_for(
            texts,
            settings.scorer,
            settings.labels,
            embedder=settings.embedder,
            hypothesis=settings.hypothesis,
            device=settings.device,
        )
    except GlauberError as error:
        if settings.scorer != SIMILARITY or settings.embedder not in (None, TOKENS):
            raise
        return replace(row, notes=(f"topics: {error}",))
    scores = topic_scores(texts, scorer)
    return replace(
        row, topics=scores, topics_start=_means(scores, 0), topics_end=_means(scores, -1)
    )


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
    if row.entropy_production is not None and first.entropy_production is not None:
        own, other = (
            {chain.chain: chain.rate.value for chain in each.entropy_production.chains}
            for each in (row, first)
            if each.entropy_production is not None
        )
        paired = [own[chain] - other[chain] for chain in own if chain in other]
        differences[PRODUCTION] = mean_over_chains(paired, comparisons=comparisons)
    if row.changed_by_chain is not None and first.changed_by_chain is not None:
        differences[CHANGED] = mean_over_chains(
            row.changed_by_chain - first.changed_by_chain,
            bounds=(-1, 1),
            student=True,
            comparisons=comparisons,
        )
    if row.topics is not None and first.topics is not None:
        for label in first.topics.labels:
            differences[f"{label} {AT_THE_END}"] = mean_over_chains(
                row.topics.of(label)[:, -1] - first.topics.of(label)[:, -1],
                bounds=(-1, 1),
                comparisons=comparisons * len(first.topics.labels),
            )
    return differences


def _less_delta(row: ModelRow, first: ModelRow, comparisons: int) -> Estimate:
    """The rectangles of both models are of the same passages, as a rule one by one."""
    if np.array_equal(row.passages, first.passages):
        return clustered_mean(row.deltas - first.deltas, first.passages, comparisons=comparisons)
    common = np.intersect1d(row.passages, first.passages)
    own, other = (
        np.array([each.deltas[each.passages == passage].mean() for passage in common])
        for each in (row, first)
    )
    return mean_over_chains(own - other, comparisons=comparisons)


def _traps(model: Model, run: Run, shortest: int) -> dict[str, object]:
    """Traps by Hamming balls of radius 1, in figures."""
    search = TrapSearch(run, model.conditionals(), model.state_device)
    traps = search.hamming(shortest=shortest)
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


def _names(models: Sequence[Model]) -> list[str]:
    """A name for each model; equal ones are numbered."""
    names = [str(model.name) for model in models]
    return [
        f"{name} ({names[: number + 1].count(name)})" if names.count(name) > 1 else name
        for number, name in enumerate(names)
    ]
