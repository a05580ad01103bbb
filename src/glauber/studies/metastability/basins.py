"""Basins of a run: among which kinds of text its chains stay, for how long, and where they go."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Device, Seed, Trust
from glauber.foundation.progress import check_memory, say
from glauber.foundation.statistics import Estimate
from glauber.foundation.study import Result, counted, internal, reported, study
from glauber.models.weights import check_device
from glauber.runs.embedding import Choice, check_embedder, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots, snapshots
from glauber.runs.snapshots import stride as stride_of
from glauber.studies.metastability.basin_model import LAG, BasinModel, basin_model
from glauber.studies.metastability.clusters import Readable, cluster, letters_at_sites, readable
from glauber.studies.metastability.state_model import check_basins

SNAPSHOTS = 200  # of a chain, about, where nothing else is said
TABLES = 16  # of transition counts that are held at a time, at most
PLOTS = "glauber.interfaces.plots.metastability"


@study
def basins(
    run: Annotated[Run | str | Path, "A run, or its folder."],
    *,
    embedder: Annotated[
        Choice, "A sentence-transformers model, or tokens (default: the one in the package)."
    ] = None,
    clusters: Annotated[
        int | None,
        "States of the model (default: half the root of the texts, 2 to 40).",
        Whole(2),
    ] = None,
    lag: Annotated[
        int | None, "Lag of the Markov model, in steps (default: five snapshots).", Whole(1, 10**15)
    ] = None,
    every: Annotated[
        int | None, "One snapshot every so many steps (default: about 200 snapshots)."
    ] = None,
    sets: Annotated[
        int | None, "Basins (default: by the largest eigenvalue gap).", Whole(2)
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    trust_remote_code: Trust = False,
) -> "Basins":
    """Find the basins of a run: their texts, their timescales and the passages between them.

    Paper A's semantic basins, as the metastable sets (GPCCA) of a Markov state model of the texts'
    clusters, which need not be reversible. All figures are estimates, with 95% intervals over
    chains from three on. They are those of the connected part: the clusters that all lead
    to each other.
    """
    check_basins()
    stored = Run.of(run)
    check_device(device)
    step = stride_of(stored, every, SNAPSHOTS)
    if lag is not None and lag % step:
        raise GlauberError(
            f"the lag is {lag} steps, but it must be a multiple of the {step} steps between "
            "snapshots."
        )
    if clusters is not None:
        size = 8.0 * TABLES * stored.n_chains * clusters**2
        check_memory(size, f"counting the transitions of {clusters:,} clusters")
    check_embedder(embedder, stored)
    texts = snapshots(stored, every=step)
    say(f"{texts.n_chains * len(texts):,} texts to embed and to cluster")
    chosen = choose_embedder(texts, embedder, device=device, trust_remote_code=trust_remote_code)
    vectors = chosen.vectors(texts)
    labels = cluster(vectors, clusters, seed=seed)
    model = basin_model(labels, every=step, lag=lag // step if lag else LAG, n_sets=sets)
    in_words = readable(texts.texts, vectors, model.basin_of, letters_at_sites(texts))
    return Basins(
        **vars(model) | {"notes": (*model.notes, chosen.description)},
        snapshots=texts,
        vectors=vectors,
        embedder=chosen.name,
        clusters=int(labels.max()) + 1,
        basins=[
            Basin(**vars(own), basin=k, share=model.shares.item(k), staying=model.staying.item(k))
            for k, own in enumerate(in_words)
        ],
    )


@dataclass(frozen=True)
class Basin(Readable):
    """A basin in words, and how large and how lasting it is."""

    basin: int
    share: Estimate  # of the stationary distribution of the connected part
    staying: Estimate  # chance to be in the same basin one lag later


@dataclass(frozen=True, eq=False, kw_only=True)
class Basins(BasinModel, Result):
    """The basins of a run, with their texts."""

    snapshots: Snapshots = internal()
    vectors: NDArray[np.float32] = internal()  # (chains, snapshots, d)
    embedder: str
    clusters: int  # of snapshots, before they are joined to basins
    basins: list[Basin]

    FIGURES = {
        "network": f"{PLOTS}:plot_basins",
        "timescales": (f"{PLOTS}:plot_implied_timescales", "implied_timescales", "lag"),
        "trajectory": (f"{PLOTS}:plot_basin_trajectory", "snapshots", "vectors", "basin_of"),
    }

    @reported
    def run(self) -> str:
        """The name of the run."""
        return self.snapshots.run.name

    @reported
    def chains(self) -> int:
        """Chains of the run."""
        return self.snapshots.n_chains

    @reported
    def every(self) -> int:
        """Steps between two snapshots."""
        return self.snapshots.every

    def lines(self) -> Iterable[str]:
        yield (
            f"{self.states} connected states of {self.clusters} clusters, lag {self.lag:,} steps "
            "(all figures estimates, in brackets 95% intervals)"
        )
        noun = "sites" if self.snapshots.run.vocabulary.letters else "words"
        for own in self.basins:
            share, staying = (estimate_text(each, ".2f") for each in (own.share, own.staying))
            yield (
                f"basin {own.basin}: {share} of the stationary distribution of the connected part, "
                f"{staying} to be in it one lag later, seen in {own.n_chains} of "
                f"{counted(self.chains, 'chain')}"
            )
            yield f"    {noun}  {', '.join(own.words)}"
            yield from (f"    text   {text}" for text in own.texts)
        shown = range(min(len(self.slow.value), max(2, self.n_basins - 1)))
        slow = ", ".join(estimate_text(self.slow.item(k), ",.0f") for k in shown)
        yield f"timescales {slow} steps"
        yield "mean first-passage times in steps, from the row to the column"
        for a in range(self.n_basins):
            row = [
                estimate_text(self.passage_times.item((a, b)), ",.0f") if a != b else "-"
                for b in range(self.n_basins)
            ]
            yield f"    {a}  " + "  ".join(f"{cell:>24}" for cell in row)
        yield from self.notes

    def table(self) -> Iterable[dict[str, object]]:
        """One row per basin."""
        for own in self.basins:
            yield {
                "basin": own.basin,
                "share": own.share,
                "staying": own.staying,
                "n_snapshots": own.n_snapshots,
                "n_chains": own.n_chains,
                "words": ", ".join(own.words),
                "text": own.texts[0] if own.texts else "",
            }


def estimate_text(estimate: Estimate, style: str) -> str:
    """A value with its interval, if it has one."""
    if not np.isfinite(estimate.value):
        return "unknown"
    if estimate.interval is None:
        return f"{estimate.value:{style}}"
    low, high = estimate.interval
    return f"{estimate.value:{style}} ({low:{style}} to {high:{style}})"
