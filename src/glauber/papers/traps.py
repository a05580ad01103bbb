"""Paper A, the traps: table 5, their texts with the gaps of each and how long it held."""

from dataclasses import dataclass
from typing import Any

from glauber.conditionals.masked_lm import MaskedLM
from glauber.figures.metastability import plot_gaps_against_duration, plot_trap_timeline
from glauber.metastability.catalogue import Catalogue, hamming_traps, rolling_traps
from glauber.metastability.trap_census import Trap
from glauber.metastability.traps import PUBLISHED
from glauber.papers.reproduction import Reproduction, Scale
from glauber.runs.embedding import load_embedder
from glauber.sampling.sample import reopen, sample

LONGEST = 20  # traps listed of each detector


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


def table5(scale: Scale, *, seed: int) -> Reproduction:
    """Summaries of both detectors beside the published one, their longest traps, and pictures."""
    found = CONDITIONS[scale]
    model, embedder = MaskedLM.load(found.model), load_embedder(found.embedder, **found.how)
    run = sample(
        model,
        steps=found.steps,
        chains=found.chains,
        length=found.length,
        temperature=found.temperature,
        seed=seed,
    )
    laws, device = reopen(run).laws, model.state_device
    both = (
        rolling_traps(run, laws, embedder.embed, device=device),
        hamming_traps(run, laws, device=device),
    )
    rows = [_summary_row(each) for each in both]
    rows += [_trap_row(each, trap) for each in both for trap in each.by_duration[:LONGEST]]
    how = (
        f"{found.chains} chains of {found.steps:,} steps from the bundled passages, cut to "
        f"{found.length} tokens, {found.model} at temperature {found.temperature:g}; rolling "
        f"detector of the paper on {embedder.name}, and balls of Hamming radius 1"
    )
    pictures = {
        f"{each.detector}-{name}": draw(each)
        for each in both
        for name, draw in (("timeline", plot_trap_timeline), ("gaps", plot_gaps_against_duration))
    }
    return Reproduction("A-table5", scale, how, rows, seed, pictures)


def _summary_row(found: Catalogue) -> dict[str, Any]:
    told = found.summary()
    ranks = [None if each is None else each.value for each in (told.by_mean_gap, told.by_min_gap)]
    return {
        "detector": found.detector,
        "traps": told.n_traps,
        "perfect": told.n_perfect,
        "unfinished": told.n_unfinished,
        "mean duration": told.mean_duration,
        "range": [told.shortest, told.longest],
        "rank correlation of duration with mean gap, min gap": ranks,
        "better predictor": told.better_predictor,
        "kind": told.kind,
        "published traps, perfect": [PUBLISHED["traps"], PUBLISHED["perfect"]],
        "published mean duration": PUBLISHED["mean_duration"],
        "published range": [PUBLISHED["shortest"], PUBLISHED["longest"]],
        "published better predictor": PUBLISHED["better_predictor"],
    }


def _trap_row(found: Catalogue, trap: Trap) -> dict[str, Any]:
    return {
        "detector": found.detector,
        "text": trap.text,
        "chain": trap.episode.chain,
        "first step": trap.episode.first,
        "duration": trap.duration,
        "duration is": trap.episode.kind,
        "mean gap": trap.mean_gap,
        "min gap": trap.min_gap,
        "perfect": trap.perfect,
        "exact holding time of the text": trap.margins.holding_time,
        "bound on its escape": trap.margins.escape_bound,
    }


PIECES = {
    "A-table5": ("the catalogue of traps: texts, gaps and durations", table5),
}
