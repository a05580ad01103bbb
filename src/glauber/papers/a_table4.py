"""Paper A, table 4 (appendix B.5): how political chains are at the end, by model.

The package carries one English model, so there is one column at small scale; `glauber compare
--models` sets others beside it.
"""

from typing import Any

from glauber.landscape.recurrence import SeedRow, recurrence
from glauber.landscape.scorers import load_scorer
from glauber.landscape.topics import topic_scores
from glauber.papers.reproduction import Reproduction, Scale
from glauber.papers.topic_runs import (
    BY_MODEL,
    CONDITIONS,
    LABELS,
    SEEDS,
    TRACK,
    how,
    seeds,
    topic_run,
)


def make(scale: Scale, *, seed: int) -> Reproduction:
    """A row for each seed topic, a column for each model."""
    found = CONDITIONS[scale]
    scorer = load_scorer(found.scorers[0], LABELS)
    ends: dict[str, dict[str, SeedRow]] = {}
    for column, model in found.models.items():
        run = topic_run(model, found, seed=seed)
        table = recurrence(topic_scores(run, scorer, every=found.steps), TRACK, seeds=seeds())
        ends[column] = {row.seed: row for row in table.rows}
    rows = [_row(topic, ends) | {"scorer": scorer.name} for topic in SEEDS]
    return Reproduction("A-table4", scale, how(found), rows, seed)


def _row(topic: str, ends: dict[str, dict[str, SeedRow]]) -> dict[str, Any]:
    row: dict[str, Any] = {"topic": topic}
    for column, found in ends.items():
        mean = found[topic].tracked_end
        row[f"politics at the end, {column}"] = [mean.value, *(mean.interval or ())]
    row |= {f"published, {column}": value for column, value in BY_MODEL[topic].items()}
    return row | {"kind": "estimate"}
