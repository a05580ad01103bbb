"""Paper A, where chains get stuck: table 2, drift of the copies of '!'; table 5, the traps.

The text of the paper that we have lost table 2's two temperatures and its k, so both are ours; the
published figures stand beside them and are not to be matched.
"""

from dataclasses import dataclass
from typing import Any

from glauber.conditionals.load import Model, load
from glauber.metastability.catalogue import Catalogue
from glauber.metastability.drift import drift
from glauber.metastability.trap_census import Trap
from glauber.metastability.traps import PUBLISHED, traps
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Piece, Scale, Settings
from glauber.sampling.sample import sample

LONGEST = 20  # traps listed of each detector
TEMPERATURES = (0.5, 1.0)  # of table 2
BOUNDARY = ((0.042, 0.080), (0.024, 0.066))  # min and median, 200 of 200 positive
LENGTH, COUNT, LEVELS, SAMPLES = 20, 14, 2, 200
DRIFT = (
    f"{SAMPLES} states of {LENGTH} tokens with exactly k = {COUNT} to {COUNT + LEVELS} "
    "copies of '!' at random places, the others from passages; the temperatures and k are ours, "
    "because the paper's are lost, so the published figures are not to be matched"
)


@dataclass(frozen=True)
class Conditions:
    """One scale's model, embedding and sizes."""

    model: str
    embedder: str | None  # none: the one in the package
    length: int
    chains: int
    steps: int
    temperature: float
    how: dict[str, Any]  # what the embedding model asks for beside its name


CONDITIONS: dict[Scale, Conditions] = {
    # 0.5: there texts of 12 tokens hold for one to nine sweeps, and their neighbourhoods for
    # hundreds of steps; at 1 they hold for less than a sweep, and no trap is found.
    "small": Conditions("bundled:english", None, 12, 8, 1500, temperature=0.5, how={}),
    # The text of the paper that we have does not say at which temperature it found its traps;
    # at 1 it has the chain wander among basins.
    "paper": Conditions(
        "bert-base-uncased",
        "jinaai/jina-embeddings-v4",
        20,
        30,
        10_000,
        temperature=1.0,
        how={"trust_remote_code": True, "task": "text-matching"},
    ),
}


def table5(settings: Settings) -> Reproduction:
    """Summaries of both detectors beside the published one, their longest traps, and pictures."""
    from glauber.runs.embedding import load_embedder

    found = CONDITIONS[settings.scale]
    embedder = load_embedder(found.embedder, **found.how)
    run = sample(
        found.model,
        steps=found.steps,
        chains=found.chains,
        length=found.length,
        temperature=found.temperature,
        seed=settings.seed,
    )
    study = traps(run, embedder=embedder)
    rows = [_summary_row(each) for each in study.catalogues]
    rows += [
        _trap_row(each, trap) for each in study.catalogues for trap in each.by_duration[:LONGEST]
    ]
    how = (
        f"{found.chains} chains of {found.steps:,} steps from the bundled passages, cut to "
        f"{found.length} tokens, {found.model} at temperature {found.temperature:g} (the paper "
        f"does not say at which it found its traps); rolling detector of the paper on "
        f"{embedder.name}, and balls of Hamming radius 1. {_verdict(rows[0])}"
    )
    return Reproduction.of(settings, how, rows, pictures=study.figures())


def _verdict(row: dict[str, Any]) -> str:
    """Whether the detector of the paper finds here what the paper says of the two gaps."""
    better, published = row["better predictor"], row["published better predictor"]
    if better is None:
        return "Too few traps to compare the two gaps."
    agrees = "agrees with" if better == published else "disagrees with"
    return (
        f"By the paper's detector the {better} ranks durations better, which {agrees} the paper "
        f"({published}); no test that the two differ."
    )


def _summary_row(found: Catalogue) -> dict[str, Any]:
    summary = found.summary()
    correlations = (summary.by_mean_gap, summary.by_min_gap)
    ranks = [None if each is None else each.value for each in correlations]
    return {
        "detector": found.detector,
        "traps": summary.n_traps,
        "perfect": summary.n_perfect,
        "unfinished": summary.n_unfinished,
        "mean duration": summary.mean_duration,
        "range": [summary.shortest, summary.longest],
        "rank correlation of duration with mean gap, min gap": ranks,
        "better predictor": summary.better_predictor,
        "kind": summary.kind,
        "published traps, perfect": [PUBLISHED["traps"], PUBLISHED["perfect"]],
        "published mean duration": PUBLISHED["mean_duration"],
        "published range": [PUBLISHED["shortest"], PUBLISHED["longest"]],
        "published better predictor": PUBLISHED["better_predictor"],
    }


def _trap_row(found: Catalogue, trap: Trap) -> dict[str, Any]:
    own = trap.row()
    return {
        "detector": found.detector,
        "trap": f"chain {own['chain']} from step {own['first']:,}",
        "text": own["text"],
        "duration": own["duration"],
        "duration is": own["duration_kind"],
        "mean gap": own["mean_gap"],
        "min gap": own["min_gap"],
        "perfect": own["perfect"],
        "exact holding time of the text": own["holding_time"],
        "bound on its escape": own["escape_bound"],
        "steps it holds by the bound": own["bound_says"],
    }


def table_2(settings: Settings) -> Reproduction:
    """Boundary statistic and certificate at two temperatures."""
    model = load("bundled:english" if settings.scale == "small" else "bert-base-uncased")
    rows = [
        _drift_row(model, *pair, settings.seed) for pair in zip(TEMPERATURES, BOUNDARY, strict=True)
    ]
    return Reproduction.of(settings, DRIFT, rows)


def _drift_row(
    model: Model, temperature: float, published: tuple[float, float], seed: int
) -> dict[str, Any]:
    found = drift(
        model,
        token="!",
        count=COUNT,
        levels=LEVELS,
        samples=SAMPLES,
        length=LENGTH,
        temperature=temperature,
        seed=seed,
    )
    edge = found.levels[0]
    return {
        "model": model.name,
        "temperature": temperature,
        "min": edge.smallest,
        "median": edge.median,
        "positive": f"{edge.positive} of {SAMPLES}",
        "published min, median": list(published),
        "chance to descend": found.descent,
        "kind": found.kind,
    }


PIECES = {
    "A-table2": Piece("drift of the copies of '!' at the boundary of its basin", table_2),
    "A-table5": Piece("the catalogue of traps: texts, gaps and durations", table5),
}
