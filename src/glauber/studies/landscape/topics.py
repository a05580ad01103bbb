"""Topics of a run's texts over time, and how often one of them returns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Device
from glauber.foundation.study import Result, internal, one_of, reported, study
from glauber.runs.embedding import Embed, Embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots, stride
from glauber.studies.landscape.recurrence import (
    Recurrence,
    check_several,
    recurrence,
    seeds_of,
)
from glauber.studies.landscape.scorers import (
    SIMILARITY,
    Agreement,
    Scorer,
    ScorerAccuracy,
    TopicScores,
    agreement,
    check_hypothesis,
    check_scorer,
    evaluate_scorer,
    labels_of,
    place_of,
    read_labels,
    refuse_other_languages,
    scorer_for,
    topic_scores,
)
from glauber.texts.starts import passages

if TYPE_CHECKING:
    import plotly.graph_objects as go

Labels = Annotated[
    str | Sequence[str], "Labels with commas, topics or sentiments (the bundled lists)."
]
NamedScorer = Annotated[
    str | Scorer,
    "similarity, or a classifier by name or folder: an entailment model, or any other, whose "
    "classes are then the labels.",
]
Hypothesis = Annotated[
    str | None,
    "Sentence with {} for the label, for an entailment model (default: This text is about {}.).",
]
Embeds = Annotated[
    str | Embedder | Embed | None,
    "Sentence-transformers model, by name or folder (default: the one in the package).",
]


@study
def topics(
    run: Annotated[Run | str | Path, "Folder of a run."],
    *,
    track: Annotated[str | None, "The label to follow (default: the first)."] = None,
    labels: Labels = "topics",
    scorer: Annotated[
        str | Scorer | tuple[str | Scorer, ...],
        "similarity, or a classifier by name or folder: an entailment model, or any other, whose "
        "classes are then the labels; several with commas.",
    ] = SIMILARITY,
    hypothesis: Hypothesis = None,
    embedder: Embeds = None,
    seeds: Annotated[
        str | Sequence[str] | None,
        "Topics of the starts, with commas; chains take them in turn (default: by passage).",
    ] = None,
    every: Annotated[int | None, "Steps between snapshots (default: 50 snapshots)."] = None,
    judge: Annotated[bool, "Also report the accuracy on labelled passages."] = False,
    device: Device = "auto",
) -> "TopicStudy":
    """Follow the topics of a run's texts, and count how often one of them returns.

    Paper A, section 6.2 and table 3: the scores of each label at every snapshot, and of the tracked
    one how many chains cross its baseline 1 / labels, how long they stay above it and how long
    away. Whether the label is special: the same for every label, against the other labels and
    against the snapshots in random order, corrected for the number of labels. Texts that the
    embedding cannot read (residues, another language) are refused.
    """
    topic_labels = read_labels(labels)
    scorers = _scorers(scorer)
    check_hypothesis(hypothesis, scorers)
    for choice in scorers:
        topic_labels = labels_of(choice, topic_labels)
    track = topic_labels[0] if track is None else track
    place_of(track, topic_labels)
    start_topics = None if seeds is None else _start_topics(seeds, topic_labels)
    stored_run = Run.of(run)
    stride(stored_run, every)
    if SIMILARITY in scorers and embedder is None:
        refuse_other_languages(snapshots(stored_run, count=2))  # no number of chains would help
    for choice in scorers:
        check_scorer(choice, embedder, otherwise="give an entailment model as the scorer")
    check_several(stored_run.n_chains)
    if start_topics is None:
        topics_by_chain = seeds_of(stored_run)
    else:
        topics_by_chain = list(islice(cycle(start_topics), stored_run.n_chains))
    texts = snapshots(stored_run, every=every)
    loaded = [
        scorer_for(
            texts, choice, topic_labels, embedder=embedder, hypothesis=hypothesis, device=device
        )
        for choice in scorers
    ]
    scores = [topic_scores(texts, loaded_scorer) for loaded_scorer in loaded]
    return TopicStudy(
        run=stored_run.name,
        track=track,
        seeds=topics_by_chain,
        scores=scores,
        tables=[recurrence(each, track, seeds=topics_by_chain) for each in scores],
        agreement=[agreement(scores[0], each, track) for each in scores[1:]],
        accuracy=[evaluate_scorer(loaded_scorer) for loaded_scorer in loaded] if judge else [],
    )


def _scorers(scorer: str | Scorer | Sequence[str | Scorer]) -> list[str | Scorer]:
    if isinstance(scorer, Scorer):
        return [scorer]
    scorers = scorer.split(",") if isinstance(scorer, str) else scorer
    return [name.strip() if isinstance(name, str) else name for name in scorers]


def _start_topics(listed: str | Sequence[str], labels: Sequence[str]) -> list[str]:
    """Topics of the starts: labels, or topics of the bundled passages."""
    names = [name.strip() for name in (listed.split(",") if isinstance(listed, str) else listed)]
    if not names:
        raise GlauberError("the list of the starts' topics is empty.")
    known = dict.fromkeys((*labels, *(topic for topic, _ in passages())))
    return [one_of("the topic of a start", name, known) for name in names]


@dataclass(frozen=True, eq=False)
class TopicStudy(Result):
    """Topics of a run's texts over time, by one scorer or several."""

    run: str  # its folder
    track: str
    seeds: list[str] | None  # the topic that each chain started with
    tables: list[Recurrence]  # of each scorer
    agreement: list[Agreement]  # of the first scorer with each other
    accuracy: list[ScorerAccuracy]
    scores: list[TopicScores] = internal()

    @reported
    def means(self) -> list[dict[str, object]]:
        """Mean scores over chains at each snapshot, by scorer."""
        return [_means(each) for each in self.scores]

    def lines(self) -> Iterable[str]:
        for table in self.tables:
            yield from table.lines()
        yield from (f"{accuracy.scorer}: {accuracy.line()}" for accuracy in self.accuracy)
        for each in self.agreement:
            yield (
                f"{each.scorers[0]} and {each.scorers[1]} name the same label for "
                f"{each.same_label:.0%} of the texts (estimate)"
            )

    def table(self) -> Iterable[dict[str, object]]:
        """One row for each scorer, label and snapshot: mean score and spread over chains."""
        for each in self.scores:
            for number, label in enumerate(each.labels):
                for snapshot, step in enumerate(each.steps):
                    values = each.values[:, snapshot, number]
                    yield {
                        "scorer": each.scorer,
                        "step": int(step),
                        "label": label,
                        "mean": float(values.mean()),
                        "standard_deviation": float(values.std(ddof=1)),
                    }

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.landscape import (
            plot_crossings,
            plot_recurrence,
            plot_topic_river,
        )

        figures = {}
        for number, (each, table) in enumerate(zip(self.scores, self.tables, strict=True), 1):
            suffix = f"-{number}" if number > 1 else ""
            figures[f"river{suffix}"] = plot_topic_river(each, first=self.track)
            figures[f"recurrence{suffix}"] = plot_recurrence(each, self.track, seeds=self.seeds)
            figures[f"labels{suffix}"] = plot_crossings(table)
        return figures


def _means(scores: TopicScores) -> dict[str, object]:
    means = np.asarray(scores.values.mean(axis=0))  # (snapshots, labels)
    columns = {label: means[:, number].tolist() for number, label in enumerate(scores.labels)}
    return {"scorer": scores.scorer, "steps": scores.steps.tolist(), "means": columns}
