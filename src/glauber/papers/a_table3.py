"""Paper A, table 3: chains lose their seed topic, and visit politics on the way."""

from typing import Any

from glauber.landscape.judgement import Judgement, judge
from glauber.landscape.recurrence import Recurrence, SeedRow, recurrence
from glauber.landscape.scorers import load_scorer
from glauber.landscape.topics import topic_scores
from glauber.papers.reproduction import Reproduction, Scale
from glauber.papers.topic_runs import (
    CONDITIONS,
    CROSSED,
    LABELS,
    PUBLISHED,
    TRACK,
    how,
    seeds,
    topic_run,
)
from glauber.plots.recurrence import plot_recurrence
from glauber.plots.topic_river import plot_topic_river
from glauber.statistics import Mean, MedianTime


def make(scale: Scale, *, seed: int) -> Reproduction:
    """A row for each seed topic and scorer, and how far each scorer can be trusted."""
    found = CONDITIONS[scale]
    run = topic_run(next(iter(found.models.values())), found, seed=seed)
    rows, pictures = [], {}
    for name in found.scorers:
        scorer = load_scorer(name, LABELS)
        scores = topic_scores(run, scorer, every=found.every)
        table = recurrence(scores, TRACK, seeds=seeds())
        rows += [_row(row, table) for row in table.rows]
        rows.append(_judged(judge(scorer), scorer.name))
        tail = name.rsplit("/", 1)[-1]
        pictures[f"river-{tail}"] = plot_topic_river(scores, first=TRACK)
        pictures[f"politics-{tail}"] = plot_recurrence(scores, TRACK, seeds=seeds())
    return Reproduction("A-table3", scale, how(found), rows, seed, pictures)


def _row(row: SeedRow, table: Recurrence) -> dict[str, Any]:
    published = PUBLISHED.get(row.seed)
    own = [_mean(mean) if mean else None for mean in (row.seed_start, row.seed_end)]
    return {
        "topic": row.seed,
        "politics at 0": _mean(row.tracked_start),
        "politics at the end": _mean(row.tracked_end),
        "rise": _mean(row.rise),
        "seed topic at 0": own[0],
        "seed topic at the end": own[1],
        "published (pol 0, pol 10k, seed 0, seed 10k)": list(published) if published else None,
        "chains that crossed": f"{row.crossed} of {row.n_chains}",
        "share crossed, interval": list(row.crossed_interval),
        "published, crossed": CROSSED if row.seed == "all" else None,
        "crossings a chain": _mean(row.crossings),
        "highest": row.peak,
        "highest of a chain": _mean(row.mean_peak),
        "median steps above": _time(row.dwell),
        "median steps until return": _time(row.away),
        "baseline": table.baseline,
        "scorer": table.scorer,
        "kind": table.kind,
    }


def _judged(verdict: Judgement, scorer: str) -> dict[str, Any]:
    return {
        "scorer": scorer,
        "accuracy on held-out sentences": verdict.accuracy,
        "interval": list(verdict.interval),
        "chance": verdict.chance,
        "log-loss": verdict.log_loss.value,
        "log-loss of chance": verdict.chance_log_loss,
        "sentences": verdict.n_texts,
        "kind": verdict.kind,
    }


def _mean(mean: Mean) -> list[float]:
    """The mean and the ends of its interval."""
    return [mean.value, *(mean.interval or ())]


def _time(median: MedianTime) -> list[float | None]:
    """The median and the ends of its interval; an open end is none."""
    return [median.value, *median.interval]
