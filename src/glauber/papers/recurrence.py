"""Paper A, section 6.2: chains lose their topic and visit politics on the way (tables 3 and 4).

The paper scores nine labels and names eleven; here they are the first nine of its list. Its
temperature is lost from our text; it is 1 here. The starts are passages that no scorer was
calibrated on. Tables 3 and 4 rest on the same chains.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glauber.errors import GlauberError
from glauber.landscape.labels import held_out_passages
from glauber.landscape.recurrence import ALL, LabelRow, Recurrence, SeedRow, recurrence
from glauber.landscape.scorers import SIMILARITY, TopicScores
from glauber.landscape.topics import topics
from glauber.papers.claims import Claim
from glauber.papers.paper import Reproduction
from glauber.papers.recurrence_claims import (
    CROSSED,
    LABELS,
    OURS,
    SEEDS,
    TABLE3,
    TABLE4,
    TRACK,
    claims_of,
    model_claims,
)
from glauber.papers.settings import Chains, Piece, Scale, Settings, embeddings
from glauber.statistics import Estimate, MedianTime, mean_over_chains

LENGTH = 20


@dataclass(frozen=True)
class Conditions:
    """One scale's models, scorers and sizes."""

    models: dict[str, str]  # a model by the name of its column
    scorers: tuple[str, ...]
    steps: int
    snapshots: int  # of each chain, behind the start
    chains: int = 50  # of each model, divided among the seed topics
    temperature: float = 1.0

    @property
    def every(self) -> int:
        return max(1, self.steps // self.snapshots)


CONDITIONS: dict[Scale, Conditions] = {
    "small": Conditions({"bundled": "bundled:english"}, (SIMILARITY,), steps=300, snapshots=30),
    "paper": Conditions(
        {
            "BERT": "bert-base-uncased",
            "RoBERTa": "roberta-base",
            "ModernBERT": "answerdotai/ModernBERT-base",
        },
        ("facebook/bart-large-mnli", "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli"),
        steps=10_000,
        snapshots=50,
    ),
}


def table3(settings: Settings) -> Reproduction:
    """A row for each seed topic, for every label, and for how far each scorer can be trusted."""
    from glauber.figures.landscape import plot_crossings, plot_recurrence, plot_topic_river

    found = conditions(settings)
    model = next(iter(found.models.values()))
    scores, judged, seeds = scored(settings, model)
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    for number, each in enumerate(scores):
        table = recurrence(each, TRACK, seeds=seeds)
        rows += [_seed_row(row, table) for row in table.rows]
        rows += [_label_row(row, table) for row in table.labels]
        claims += claims_of(each, table, seeds, CROSSED[min(number, 1)])
    first = recurrence(scores[0], TRACK, seeds=seeds)
    pictures = {
        "labels": plot_crossings(first),
        "river": plot_topic_river(scores[0], first=TRACK),
        "recurrence": plot_recurrence(scores[0], TRACK, seeds=seeds),
    }
    return Reproduction.of(
        settings, _how(found), rows + [_judged_row(one) for one in judged], claims=claims,
        pictures=pictures, model=model, differs=_differs(settings, found), ours=OURS,
    )  # fmt: skip


def table4(settings: Settings) -> Reproduction:
    """A row for each seed topic, a column for each model."""
    found = conditions(settings)
    scores: dict[str, TopicScores] = {}
    seeds: list[str] = []
    for column, model in found.models.items():
        (scores[column], *_), _, seeds = scored(settings, model)
    rows = [_end_row(topic, scores, np.array(seeds) == topic) for topic in SEEDS]
    return Reproduction.of(
        settings, _how(found), rows, claims=model_claims(scores),
        model=", ".join(found.models.values()), differs=_differs(settings, found), ours=OURS,
    )  # fmt: skip


def conditions(settings: Settings) -> Conditions:
    """Those of the scale, with what was given in their place."""
    found = settings.over(CONDITIONS[settings.scale])
    if found.chains % len(SEEDS):
        raise GlauberError(
            f"{found.chains} chains cannot be divided among {len(SEEDS)} topics: give a multiple."
        )
    if settings.model is not None:
        found = replace(found, models={settings.model: settings.model})
    return replace(found, scorers=(settings.scorer,)) if settings.scorer else found


def _extras(settings: Settings) -> tuple[str, ...]:
    return embeddings(settings) if SIMILARITY in conditions(settings).scorers else ()


def _chains(settings: Settings, found: Conditions, model: str) -> Chains:
    """The same number of chains from each topic; they take its passages in turn."""
    each = found.chains // len(SEEDS)
    own = [[one.text for one in held_out_passages() if one.label == topic] for topic in SEEDS]
    texts = tuple(listed[k % len(listed)] for listed in own for k in range(each))
    return Chains(
        model, texts, steps=found.steps, length=LENGTH, temperature=found.temperature,
        seed=settings.seed,
    )  # fmt: skip


def table3_chains(settings: Settings) -> list[Chains]:
    """The chains of the first model."""
    found = conditions(settings)
    return [_chains(settings, found, next(iter(found.models.values())))]


def table4_chains(settings: Settings) -> list[Chains]:
    """The chains of every model."""
    found = conditions(settings)
    return [_chains(settings, found, model) for model in found.models.values()]


def scored(
    settings: Settings, model: str
) -> tuple[list[TopicScores], list[dict[str, Any]], list[str]]:
    """The scores of each scorer, how far it can be trusted, and each chain's seed topic."""
    found = conditions(settings)
    chains = _chains(settings, found, model)
    seeds = [topic for topic in SEEDS for _ in range(found.chains // len(SEEDS))]

    def make() -> dict[str, Any]:
        study = topics(
            settings.run(chains), track=TRACK, labels=LABELS, scorer=found.scorers, seeds=seeds,
            every=found.every, judge=True, device=settings.device,
        )  # fmt: skip
        kept = [vars(one) for one in study.scores]
        return {"scores": kept, "judged": study.judged}

    key = {"chains": chains.digest, "labels": LABELS, "scorers": found.scorers}
    part = settings.part("topics", key | {"every": found.every}, make)
    scores = [
        TopicScores(
            np.array(one["steps"]), np.array(one["values"]), tuple(one["labels"]), one["scorer"],
            one["every"],
        )
        for one in part["scores"]
    ]  # fmt: skip
    return scores, part["judged"], seeds


def _how(found: Conditions) -> str:
    return (
        f"{len(SEEDS)} topics x {found.chains // len(SEEDS)} passages of {LENGTH} tokens at "
        f"temperature {found.temperature:g}, {found.steps:,} steps, a snapshot every "
        f"{found.every}, {len(LABELS)} labels; intervals over chains, those of all labels and of "
        "all topics together"
    )


def _differs(settings: Settings, found: Conditions) -> list[str]:
    differs = ["the bundled passages in place of MS MARCO"]
    if settings.scale == "small" or settings.model:
        differs.append("another model than the paper's")
    if found.scorers != CONDITIONS["paper"].scorers:
        differs.append("a sentence embedding as the judge in place of an entailment model")
    if (found.steps, found.chains) != (10_000, 50):
        differs.append(f"{found.chains} chains of {found.steps:,} steps in place of 50 of 10,000")
    return differs


def _seed_row(row: SeedRow, table: Recurrence) -> dict[str, Any]:
    published = TABLE3.get(row.seed)
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
        "published, crossed": "46 of 50, 48 of 50" if row.seed == ALL else None,
        "crossings a chain": _mean(row.crossings),
        "highest": row.peak,
        "highest of a chain": _mean(row.mean_peak),
        "median steps above": _time(row.dwell),
        "median steps until return": _time(row.away),
        "baseline": table.baseline,
        "scorer": table.scorer,
        "kind": table.kind,
    }


def _label_row(row: LabelRow, table: Recurrence) -> dict[str, Any]:
    return {
        "label": row.label,
        "chains that crossed": f"{row.crossed} of {row.n_chains}",
        "of those that began below": _mean(row.share),
        "in random order": row.random_order,
        "p of the order": row.random_order_p,
        "next snapshot above too": _mean(row.stays),
        "the same in random order": row.stays_random,
        "less the other labels": _mean(row.against_others),
        "special": row.special,
        "p of being special": row.against_others_p,
        "median steps above": _time(row.dwell),
        "median steps until return": _time(row.away),
        "scorer": table.scorer,
        "kind": table.kind,
    }


def _judged_row(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "scorer": found["scorer"],
        "accuracy on held-out sentences": found["accuracy"],
        "interval": found["interval"],
        "chance": found["chance"],
        "log-loss": found["log_loss"]["value"],
        "log-loss of chance": found["chance_log_loss"],
        "above politics' baseline, of sentences about something else": found["above_elsewhere"].get(
            TRACK
        ),
        "sentences": found["n_texts"],
        "kind": found["kind"],
    }


def _end_row(topic: str, scores: dict[str, TopicScores], mine: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"topic": topic}
    for column, one in scores.items():
        end = one.of(TRACK)[mine, -1]
        row[f"politics at the end, {column}"] = _mean(mean_over_chains(end, bounds=(0, 1)))
    row |= {f"published, {column}": value for column, value in TABLE4[topic].items()}
    return row | {"scorer": next(iter(scores.values())).scorer, "kind": "estimate"}


def _mean(mean: Estimate) -> list[float]:
    """The mean and the ends of its interval, where there is one."""
    return [mean.value, *(mean.interval or ())]


def _time(median: MedianTime) -> list[float | None]:
    """The median and the ends of its interval; an open end is none."""
    return [median.value, *median.interval]


TAKES = ("model", "temperature", "chains", "steps", "scorer", "device")
PIECES = {
    "A-table3": Piece(
        "chains lose their seed topic and visit politics on the way",
        table3,
        TAKES,
        table3_chains,
        seconds=115,
        extras=_extras,
    ),
    "A-table4": Piece(
        "how political chains are at the end, by model",
        table4,
        TAKES,
        table4_chains,
        seconds=115,
        extras=_extras,
    ),
}
