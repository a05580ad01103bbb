"""What is the text about, along the run, and does a topic come back?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from glauber.conditionals.starts import passages
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.landscape.recurrence import (
    Recurrence,
    check_several,
    recurrence,
    seeds_of,
)
from glauber.landscape.scorers import (
    SIMILARITY,
    Agreement,
    Judgement,
    Scorer,
    TopicScores,
    agreement,
    check_scorer,
    place_of,
    read_labels,
    refuse_other_languages,
    scorer_for,
    topic_scores,
)
from glauber.landscape.scorers import judge as judged
from glauber.parameters import Device
from glauber.result import Result, one_of, plain, signed, study
from glauber.runs.embedding import Embed, Embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots, stride

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

Labels = Annotated[
    str | Sequence[str], "Labels with commas, topics or sentiments (the bundled lists)."
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
        "similarity, or an entailment model by name; several with commas.",
    ] = SIMILARITY,
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

    Paper A, section 5 and table 3: the scores of each label at every snapshot, and of the tracked
    one how many chains cross its baseline 1 / labels, how long they stay above it and how long
    away. Whether the label is special: the same for every label, against the other labels and
    against the snapshots in random order, corrected for the number of labels. Texts that the
    embedding cannot read (residues, another language) are refused.
    """
    listed = read_labels(labels)
    scorers = _several(scorer)
    own = next((one.labels for one in scorers if isinstance(one, Scorer)), listed)
    followed = own[0] if track is None else track
    place_of(followed, own)
    start_topics = None if seeds is None else _seed_topics(seeds, own)
    opened = Run.of(run)
    stride(opened, every)
    if SIMILARITY in scorers and embedder is None:
        refuse_other_languages(snapshots(opened, count=2))  # no number of chains would help
    for one in scorers:
        check_scorer(one, embedder, otherwise="give an entailment model as the scorer")
    check_several(opened.n_chains)
    begun = seeds_of(opened) if start_topics is None else _in_turn(start_topics, opened.n_chains)
    found = snapshots(opened, every=every)
    loaded = [scorer_for(found, one, own, embedder=embedder, device=device) for one in scorers]
    scores = [topic_scores(found, one) for one in loaded]
    return TopicStudy(
        run=opened.name,
        track=followed,
        seeds=begun,
        scores=scores,
        tables=[recurrence(each, followed, seeds=begun) for each in scores],
        agreement=[agreement(scores[0], each, followed) for each in scores[1:]],
        judged=[judged(one) for one in loaded] if judge else [],
        signature=signed(
            opened.signature,
            track=followed,
            labels=labels,
            scorer=[one if isinstance(one, str) else one.name for one in scorers],
            every=found.every,
        ),
    )


def _several(scorer: str | Scorer | Sequence[str | Scorer]) -> list[str | Scorer]:
    if isinstance(scorer, Scorer):
        return [scorer]
    listed = scorer.split(",") if isinstance(scorer, str) else scorer
    return [one.strip() if isinstance(one, str) else one for one in listed]


def _seed_topics(listed: str | Sequence[str], labels: Sequence[str]) -> list[str]:
    """The topics of the starts: labels, or topics of the bundled passages."""
    names = [name.strip() for name in (listed.split(",") if isinstance(listed, str) else listed)]
    if not names:
        raise GlauberError("the list of the starts' topics is empty.")
    known = dict.fromkeys((*labels, *(topic for topic, _ in passages())))
    return [one_of("the topic of a start", name, known) for name in names]


def _in_turn(names: Sequence[str], n_chains: int) -> list[str]:
    return [names[chain % len(names)] for chain in range(n_chains)]


@dataclass(frozen=True, eq=False)
class TopicStudy(Result):
    """What the texts of a run are about over time, by one scorer or several."""

    run: str  # its folder
    track: str
    seeds: list[str] | None  # the topic that each chain began with
    scores: list[TopicScores]
    tables: list[Recurrence]  # of each scorer
    agreement: list[Agreement]  # of the first scorer with each other
    judged: list[Judgement]
    signature: str

    def to_dict(self) -> Record:
        return {
            "tables": plain(self.tables),
            "judged": plain(self.judged),
            "agreement": plain(self.agreement),
            "scores": [_means(each) for each in self.scores],
            "run": str(self.run),
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        for table in self.tables:
            yield from table.lines()
        yield from (f"{one.scorer}: {one.line()}" for one in self.judged)
        for each in self.agreement:
            yield (
                f"{each.scorers[0]} and {each.scorers[1]} name the same label for "
                f"{each.same_label:.0%} of the texts (estimate)"
            )

    def frame(self) -> "pandas.DataFrame":
        """One row for each scorer, label and snapshot: mean score and spread over chains."""
        import pandas

        return pandas.DataFrame(
            [
                {
                    "scorer": each.scorer,
                    "step": int(step),
                    "label": label,
                    "mean": float(each.values[:, place, which].mean()),
                    "standard_deviation": float(each.values[:, place, which].std(ddof=1)),
                }
                for each in self.scores
                for which, label in enumerate(each.labels)
                for place, step in enumerate(each.steps)
            ]
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.landscape import plot_crossings, plot_recurrence, plot_topic_river

        found = {}
        for number, (each, table) in enumerate(zip(self.scores, self.tables, strict=True), 1):
            behind = f"-{number}" if number > 1 else ""
            found[f"river{behind}"] = plot_topic_river(each, first=self.track)
            found[f"recurrence{behind}"] = plot_recurrence(each, self.track, seeds=self.seeds)
            found[f"labels{behind}"] = plot_crossings(table)
        return found


def _means(found: TopicScores) -> Record:
    """Mean scores over chains at each snapshot; the scores of each chain would be long."""
    means = np.asarray(found.values.mean(axis=0))  # (snapshots, labels)
    columns = {label: means[:, place].tolist() for place, label in enumerate(found.labels)}
    return {"scorer": found.scorer, "steps": found.steps.tolist(), "means": columns}
