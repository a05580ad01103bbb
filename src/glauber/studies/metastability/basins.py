"""Among which kinds of text do a run's chains stay, for how long, and where do they go next?"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import Record
from glauber.foundation.parameters import Device, Seed, Trust
from glauber.foundation.progress import check_count, check_memory, check_seed, say
from glauber.foundation.statistics import Estimates
from glauber.foundation.study import Result, counted, plain, sign_run, study
from glauber.models.weights import check_device
from glauber.runs.embedding import Choice, check_embedder, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots, snapshots
from glauber.runs.snapshots import stride as stride_of
from glauber.studies.metastability.basin_model import LAG, BasinModel, basin_model
from glauber.studies.metastability.clusters import Readable, cluster, letters_at_sites, readable
from glauber.studies.metastability.state_model import check_basins

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

SNAPSHOTS = 200  # of a chain, about, where nothing else is said
TIMESCALES = 5  # of the model, in the answer
TABLES = 16  # of transition counts that are held at a time, at most


@study
def basins(
    run: Annotated[Run | str | Path, "A run, or its folder."],
    *,
    embedder: Annotated[
        Choice, "A sentence-transformers model, or tokens (default: the one in the package)."
    ] = None,
    clusters: Annotated[
        int | None, "States of the model (default: half the root of the texts, 2 to 40)."
    ] = None,
    lag: Annotated[
        int | None, "Lag of the Markov model, in steps (default: five snapshots)."
    ] = None,
    every: Annotated[
        int | None, "One snapshot every so many steps (default: about 200 snapshots)."
    ] = None,
    sets: Annotated[int | None, "Basins (default: by the largest eigenvalue gap)."] = None,
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
    opened = Run.of(run)
    check_seed(seed)
    check_device(device)
    step = stride_of(opened, every, SNAPSHOTS)
    lag_snapshots = _lag_in_snapshots(lag, step)
    if sets is not None:
        check_count("number of basins", sets, least=2)
    if clusters is not None:
        check_count("number of clusters", clusters, least=2)
        needed = 8.0 * TABLES * opened.n_chains * clusters**2
        check_memory(needed, f"counting the transitions of {clusters:,} clusters")
    check_embedder(embedder, opened)
    texts = snapshots(opened, every=step)
    say(f"{texts.n_chains * len(texts):,} texts to embed and to cluster")
    chosen = choose_embedder(texts, embedder, device=device, trust_remote_code=trust_remote_code)
    vectors = chosen.vectors(texts)
    labels = cluster(vectors, clusters, seed=seed)
    found = basin_model(labels, every=step, lag=lag_snapshots, n_sets=sets)
    own = vars(found) | {"notes": (*found.notes, chosen.description)}
    return Basins(
        **own,
        readable=readable(texts.texts, vectors, found.basin_of, letters_at_sites(texts)),
        snapshots=texts,
        vectors=vectors,
        n_clusters=int(labels.max()) + 1,
        embedder=chosen.name,
        signature=sign_run(opened.signature, embedder=chosen.name, lag=found.model.lag_steps),
    )


def _lag_in_snapshots(lag: int | None, every: int) -> int:
    if lag is None:
        return LAG
    check_count("lag", lag, most=10**15)
    if lag % every:
        raise GlauberError(
            f"the lag is {lag} steps, but it must be a multiple of the {every} steps between "
            "snapshots."
        )
    return lag // every


@dataclass(frozen=True, eq=False)
class Basins(BasinModel, Result):
    """The basins of a run, with their texts."""

    readable: tuple[Readable, ...]  # each basin in words
    snapshots: Snapshots
    vectors: NDArray[np.float32]  # (chains, snapshots, d)
    n_clusters: int  # of snapshots, before they are joined to basins
    embedder: str
    signature: str

    def to_dict(self) -> Record:
        return plain(
            {
                "run": self.snapshots.run.name,
                "chains": self.snapshots.n_chains,
                "every": self.snapshots.every,
                "embedder": self.embedder,
                "clusters": self.n_clusters,
                "lag": self.model.lag_steps,
                "states": len(self.model.states),
                "connected_share": self.model.share,
                "basins": [self._basin(k) for k in range(self.n_basins)],
                "timescales": self.slow.at(slice(TIMESCALES)),
                "implied_timescales": {
                    "lags": self.timescales.lags,
                    **plain(self.timescales.steps),
                },
                "passage_times": self.passages,
                "transitions": [
                    {
                        "source": t.source,
                        "target": t.target,
                        "flux": t.flux,
                        "kind": t.kind,
                        "paths": [{"basins": p.basins, "share": p.share} for p in t.paths],
                    }
                    for t in self.transitions
                ],
                "chapman_kolmogorov": None
                if self.check is None
                else {
                    **plain(self.check),
                    "holds": self.check.holds,
                    "worst": self.check.worst,
                    "unseen": self.check.unseen,
                },
                "notes": self.notes,
                "signature": self.signature,
            }
        )

    def _basin(self, k: int) -> Record:
        """One basin: its words, and its share of the connected part."""
        figures = {"share": self.shares.at(k), "staying": self.staying.at(k)}
        return {"basin": k, **asdict(self.readable[k]), **figures}

    def lines(self) -> Iterable[str]:
        yield (
            f"{len(self.model.states)} connected states of {self.n_clusters} clusters, lag "
            f"{self.model.lag_steps:,} steps (all figures estimates, in brackets 95% intervals)"
        )
        called = "sites" if self.snapshots.run.vocabulary.letters else "words"
        for k, own in enumerate(self.readable):
            share, staying = (
                estimate_text(each.at(k), ".2f") for each in (self.shares, self.staying)
            )
            yield (
                f"basin {k}: {share} of the stationary distribution of the connected part, "
                f"{staying} to be in it one lag later, seen in {own.n_chains} of "
                f"{counted(self.snapshots.n_chains, 'chain')}"
            )
            yield f"    {called}  {', '.join(own.words)}"
            yield from (f"    text   {text}" for text in own.texts)
        shown = range(min(len(self.slow.value), max(2, self.n_basins - 1)))
        slow = ", ".join(estimate_text(self.slow.at(k), ",.0f") for k in shown)
        yield f"timescales {slow} steps"
        yield "mean first-passage times in steps, from the row to the column"
        for a in range(self.n_basins):
            row = [
                estimate_text(self.passages.at((a, b)), ",.0f") if a != b else "-"
                for b in range(self.n_basins)
            ]
            yield f"    {a}  " + "  ".join(f"{cell:>24}" for cell in row)
        yield from self.notes

    def frame(self) -> "pandas.DataFrame":
        """One row per basin."""
        import pandas

        return pandas.DataFrame(
            [
                {
                    "basin": k,
                    "share": float(self.shares.value[k]),
                    "staying": float(self.staying.value[k]),
                    "n_snapshots": own.n_snapshots,
                    "n_chains": own.n_chains,
                    "words": ", ".join(own.words),
                    "text": own.texts[0] if own.texts else "",
                }
                for k, own in enumerate(self.readable)
            ]
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.metastability import (
            plot_basin_network,
            plot_basin_trajectory,
            plot_implied_timescales,
        )

        return {
            "network": plot_basin_network(self, self.readable),
            "timescales": plot_implied_timescales(self.timescales, lag=self.model.lag_steps),
            "trajectory": plot_basin_trajectory(self.snapshots, self.vectors, self.basin_of),
        }


def estimate_text(found: Estimates, style: str) -> str:
    """One figure with its interval, if it has one."""
    value, ends = float(found.value), found.item().interval
    if not np.isfinite(value):
        return "unknown"
    between = "" if ends is None else f" ({ends[0]:{style}} to {ends[1]:{style}})"
    return f"{value:{style}}{between}"
