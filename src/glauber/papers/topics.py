"""Paper A on what the texts are about: tables 3 and 4, appendix C.4, figures 1 and 4.

The paper scores nine labels and names eleven; here they are the first nine of its list. Its
temperature is lost from our text; it is 1 in the tables and 0.7 in the pictures. The starts are
passages that no scorer was calibrated on (the paper: MS MARCO). Of the trajectories the text gives
the protocol (appendix B.6) and what is seen, neither the temperature nor the starts.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

from glauber.landscape.labels import held_out_passages
from glauber.landscape.prefix_contrast import Contrast
from glauber.landscape.prefixes import PREFIXES, prefixes
from glauber.landscape.recurrence import Recurrence, SeedRow
from glauber.landscape.scorers import SIMILARITY, Judgement
from glauber.landscape.topics import TopicStudy, topics
from glauber.landscape.trajectory import Trajectory, trajectory_in_plane
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Piece, Scale, Settings
from glauber.runs.embedding import Embedder, load_embedder
from glauber.runs.snapshots import snapshots
from glauber.sampling.sample import sample
from glauber.statistics import Mean, MedianTime

TRACK = "politics"
SEEDS = ("health", "sport", "science", "food", "technology")
LABELS = (
    "politics", "health", "pop culture", "sport", "food", "science", "technology", "finance",
    "education",
)  # fmt: skip
EACH = 10  # chains of each seed topic
LENGTH = 20
ALONE = 1  # chains of figure 1
SEVERAL = 3  # chains of figure 4


@dataclass(frozen=True)
class Conditions:
    """One scale's models, scorers and sizes of tables 3 and 4."""

    models: dict[str, str]  # a model by the name of its column
    scorers: tuple[str, ...]
    steps: int
    every: int


CONDITIONS: dict[Scale, Conditions] = {
    "small": Conditions({"bundled": "bundled:english"}, (SIMILARITY,), steps=300, every=10),
    "paper": Conditions(
        {
            "BERT": "bert-base-uncased",
            "RoBERTa": "roberta-base",
            "ModernBERT": "answerdotai/ModernBERT-base",
        },
        ("facebook/bart-large-mnli", "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli"),
        steps=10_000,
        every=200,
    ),
}
# Of bert-base-uncased under bart-large-mnli, paper A, table 3: politics at 0 and at 10,000 steps,
# then the seed topic at both.
TABLE3 = {
    "health": (0.008, 0.044, 0.631, 0.116),
    "sport": (0.011, 0.036, 0.763, 0.204),
    "science": (0.003, 0.056, 0.682, 0.068),
    "food": (0.003, 0.174, 0.834, 0.037),
    "technology": (0.004, 0.038, 0.846, 0.152),
}
CROSSED = "46 of 50 with bart-large-mnli, 48 of 50 with DeBERTa-v3"
# Politics at 10,000 steps by model, paper A, appendix B.5.
TABLE4 = {
    "health": {"BERT": 0.044, "RoBERTa": 0.112, "ModernBERT": 0.026},
    "sport": {"BERT": 0.036, "RoBERTa": 0.042, "ModernBERT": 0.052},
    "science": {"BERT": 0.056, "RoBERTa": 0.062, "ModernBERT": 0.037},
    "food": {"BERT": 0.174, "RoBERTa": 0.052, "ModernBERT": 0.038},
    "technology": {"BERT": 0.038, "RoBERTa": 0.198, "ModernBERT": 0.033},
}
# What the paper's example texts, or its words about them, are about.
PULLS = {
    PREFIXES[0]: "good work and opinions; general relativity",
    PREFIXES[1]: "a press conference, time spent together",
    PREFIXES[2]: "games and playing time",
    PREFIXES[3]: "political almost immediately",
    PREFIXES[4]: "recordings, terrorists planning an attack: politics and crime",
}
PULL_SIZES: dict[Scale, dict[str, Any]] = {
    "small": dict(
        model="bundled:english", chains=10, steps=128, length=16, every=16, scorer=SIMILARITY
    ),
    "paper": dict(
        model="bert-base-uncased", chains=100, steps=10_000, length=20, every=200,
        scorer="facebook/bart-large-mnli",
    ),
}  # fmt: skip


def table3(settings: Settings) -> Reproduction:
    """A row for each seed topic and scorer, and how far each scorer can be trusted."""
    found = CONDITIONS[settings.scale]
    study = _topics(next(iter(found.models.values())), settings.scale, settings.seed)
    rows = [_recurrence_row(row, table) for table in study.tables for row in table.rows]
    rows += [_judged(verdict) for verdict in study.judged]
    return Reproduction.of(settings, _how(found), rows, pictures=study.figures())


def table4(settings: Settings) -> Reproduction:
    """A row for each seed topic, a column for each model."""
    found = CONDITIONS[settings.scale]
    tables = {
        column: _topics(model, settings.scale, settings.seed).tables[0]
        for column, model in found.models.items()
    }
    ends = {column: {row.seed: row for row in table.rows} for column, table in tables.items()}
    scorer = next(iter(tables.values())).scorer
    rows = [_end_row(topic, ends) | {"scorer": scorer} for topic in SEEDS]
    return Reproduction.of(settings, _how(found), rows)


@lru_cache(maxsize=4)
def _topics(model: str, scale: Scale, seed: int) -> TopicStudy:
    """Tables 3 and 4 rest on the same chains."""
    found = CONDITIONS[scale]
    texts = [
        text
        for topic in SEEDS
        for text in [each.text for each in held_out_passages() if each.label == topic][:EACH]
    ]
    run = sample(model, texts, steps=found.steps, length=LENGTH, seed=seed)
    begun = [topic for topic in SEEDS for _ in range(EACH)]
    return topics(
        run, track=TRACK, labels=LABELS, scorer=found.scorers, seeds=begun, every=found.every,
        judge=True,
    )  # fmt: skip


def _how(found: Conditions) -> str:
    return (
        f"{len(SEEDS)} topics x {EACH} bundled passages of {LENGTH} tokens (the paper: MS MARCO) "
        f"at temperature 1, {found.steps:,} steps (the paper: 10,000), a snapshot every "
        f"{found.every}, {len(LABELS)} labels"
    )


def _recurrence_row(row: SeedRow, table: Recurrence) -> dict[str, Any]:
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


def _judged(verdict: Judgement) -> dict[str, Any]:
    return {
        "scorer": verdict.scorer,
        "accuracy on held-out sentences": verdict.accuracy,
        "interval": list(verdict.interval),
        "chance": verdict.chance,
        "log-loss": verdict.log_loss.value,
        "log-loss of chance": verdict.chance_log_loss,
        "sentences": verdict.n_texts,
        "kind": verdict.kind,
    }


def _end_row(topic: str, ends: dict[str, dict[str, SeedRow]]) -> dict[str, Any]:
    row: dict[str, Any] = {"topic": topic}
    for column, found in ends.items():
        row[f"politics at the end, {column}"] = _mean(found[topic].tracked_end)
    row |= {f"published, {column}": value for column, value in TABLE4[topic].items()}
    return row | {"kind": "estimate"}


def _mean(mean: Mean) -> list[float]:
    """The mean and the ends of its interval."""
    return [mean.value, *(mean.interval or ())]


def _time(median: MedianTime) -> list[float | None]:
    """The median and the ends of its interval; an open end is none."""
    return [median.value, *median.interval]


def pulls(settings: Settings) -> Reproduction:
    """A row for each prefix: topics and words against the chains without one.

    The paper shows texts and no figures: they are its published part.
    """
    sizes = PULL_SIZES[settings.scale]
    found = prefixes(**sizes, prefixes=PREFIXES, against="none", seed=settings.seed)
    how = (
        f"{sizes['chains']} chains of {sizes['length']} free tokens behind each prefix and "
        f"without one, {sizes['steps']:,} steps at temperature 1, the later half counted; "
        f"{found.correction}"
    )
    rows = [_pull(one) | {"scorer": found.scorer, "kind": found.kind} for one in found.contrasts]
    return Reproduction.of(settings, how, rows, pictures=found.figures())


def _pull(one: Contrast) -> dict[str, Any]:
    means = {label: means[2] for label, means in one.topics.items()}
    sure = one.differing()
    return {
        "prefix": one.first,
        "topics pulled towards": [label for label in sure if means[label].value > 0],
        "topics pushed away from": [label for label in sure if means[label].value < 0],
        "pull": {label: _mean(mean) for label, mean in means.items()},
        "words (log-odds, standard error)": [
            f"{word.word} {word.log_odds:+.2f} +- {word.standard_error:.2f}"
            for word in one.more[:8]
        ],
        "surely distinctive words": [word.word for word in one.more if word.sure],
        "words of the chains without it": [word.word for word in one.less[:8]],
        "published": PULLS[one.first],
        "texts": one.texts[0],
    }


@dataclass(frozen=True)
class PathConditions:
    """One scale's model, embedding and sizes of figures 1 and 4."""

    model: str
    embedder: str | None  # none: the one in the package
    length: int | None
    steps: int
    every: int
    temperature: float = 0.7
    trust_remote_code: bool = False


PATHS: dict[Scale, PathConditions] = {
    "small": PathConditions("bundled:english", None, 12, 600, 10),
    "paper": PathConditions(
        "bert-base-uncased", "jinaai/jina-embeddings-v4?task=text-matching", None, 10_000, 50,
        trust_remote_code=True,
    ),
}  # fmt: skip
SEEN = "clear clusters of points, which are one sentence repeated; no number in our text"
HOW = "two-dimensional PCA of sentence embeddings, joined in time order from warm to cool"


def figure1(settings: Settings) -> Reproduction:
    """The path of a single chain."""
    from glauber.figures.trajectory import plot_trajectory

    plane, rows = _paths(settings.scale, ALONE, settings.seed)
    return Reproduction.of(settings, HOW, rows, pictures={"trajectory": plot_trajectory(plane)})


def figure4(settings: Settings) -> Reproduction:
    """The paths of three chains in one plane, a picture each."""
    from glauber.figures.trajectory import plot_trajectory

    plane, rows = _paths(settings.scale, SEVERAL, settings.seed)
    pictures = {f"chain-{chain}": plot_trajectory(plane, chain=chain) for chain in range(SEVERAL)}
    return Reproduction.of(settings, HOW, rows, pictures=pictures)


def _paths(scale: Scale, n_chains: int, seed: int) -> tuple[Trajectory, list[dict[str, Any]]]:
    """The chains in one plane, and a row of figures for each."""
    found = PATHS[scale]
    run = sample(
        found.model, steps=found.steps, chains=n_chains, length=found.length,
        temperature=found.temperature, seed=seed,
    )  # fmt: skip
    embedder = _embedder(found)
    read = snapshots(run, every=found.every)
    plane = trajectory_in_plane(embedder.vectors(read), read.steps, read.texts)
    rows = [
        {
            "chain": chain,
            "snapshots": len(own),
            "different texts": len(set(own)),
            "longest repeat in steps": _longest(own) * found.every,
            "shown spread": sum(plane.explained or ()),
            "kind": "exact",
            "temperature": found.temperature,
            "model": found.model,
            "embedder": embedder.name,
            "published": SEEN,
        }
        for chain, own in enumerate(read.texts)
    ]
    return plane, rows


def _embedder(found: PathConditions) -> Embedder:
    return load_embedder(found.embedder, trust_remote_code=found.trust_remote_code)


def _longest(texts: tuple[str, ...]) -> int:
    """The most snapshots in a row that show one text, less one."""
    return max(len(list(same)) for _, same in groupby(texts)) - 1


PIECES = {
    "A-fig1": Piece("one chain's trajectory in the plane", figure1),
    "A-fig4": Piece("further trajectories in the plane", figure4),
    "A-prefixes": Piece("what a frozen prefix pulls the chain towards", pulls),
    "A-table3": Piece("chains lose their seed topic and visit politics on the way", table3),
    "A-table4": Piece("how political chains are at the end, by model", table4),
}
