"""How long chains stay with a topic or in a basin, and how deep the texts are meanwhile.

An episode is a maximal row of snapshots with the same label: the topic with the highest score,
where that is above the baseline 1 / labels, or the basin of the run's Markov model. Paper A
(section 6.2.2) says that regions with larger local margins or fewer likely escape moves are harder
to leave. The margins of an episode are the means over its snapshots: of the mean and the smallest
gap, of the effective number of moves that leave the text, and of the probability of leaving it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.checks import OneOf, Whole
from glauber.foundation.parameters import RunDevice, RunModel, Trust
from glauber.foundation.progress import say, track
from glauber.foundation.study import Result, counted, reported, study
from glauber.models.weights import check_device
from glauber.runs.embedding import Choice, check_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots, snapshots
from glauber.sampling.reopened import drawn_from
from glauber.studies.landscape.scorers import (
    SIMILARITY,
    Scorer,
    check_scorer,
    read_labels,
    scorer_for,
    topic_scores,
)
from glauber.studies.landscape.topics import Labels
from glauber.studies.metastability.basins import basins
from glauber.studies.metastability.episodes import check_steps
from glauber.studies.metastability.traps import (
    RankCorrelation,
    TrapRanks,
    TrapSearch,
    check_kernel,
    trap_ranks,
)

SNAPSHOTS = 50  # of a chain, about, where nothing else is said
MAX_STEPS = 10**12


@study
def persistence(
    run: Annotated[Run | str | Path, "A run, or its folder."],
    *,
    of: Annotated[str, "topics or basins.", OneOf(("topics", "basins"))] = "basins",
    every: Annotated[
        int | None, "Steps between snapshots (default: 50 snapshots).", Whole(1, MAX_STEPS)
    ] = None,
    labels: Labels = "topics",
    scorer: Annotated[
        str | Scorer, "topics: similarity, or an entailment model by name."
    ] = SIMILARITY,
    embedder: Annotated[
        Choice, "A sentence-transformers model, or tokens (default: the one in the package)."
    ] = None,
    model: RunModel = None,
    device: RunDevice = None,
    trust_remote_code: Trust = False,
) -> "Persistence":
    """Rank how long chains stay with a topic or in a basin with the margins of their texts.

    Paper A, section 6.2.2. Durations are counted in snapshots times the steps between them; those
    that the end of the run cut off are lower bounds. Somers' D as for traps, over pairs of episodes
    of different chains, with intervals from leaving out each chain. Margins are computed in
    float64 for a random scan of single sites.
    """
    opened = Run.of(run)
    check_steps(opened)
    check_device(device)
    check_kernel(opened.spec)
    if not isinstance(scorer, str | Scorer):
        raise TypeError("the scorer is a name or an object with labels.")
    chosen_labels = read_labels(labels)
    if of == "topics":
        check_scorer(scorer, embedder, otherwise="give an entailment model as the scorer")
    else:
        check_embedder(embedder, opened)
    every = every or max(1, opened.steps // SNAPSHOTS)
    texts = snapshots(opened, every=every)
    if of == "topics":
        chosen = scorer_for(
            texts, scorer, chosen_labels, embedder=embedder, device=device or "auto"
        )
        scores = topic_scores(texts, chosen)
        best = scores.values.argmax(axis=2)
        label_of = np.where(scores.values.max(axis=2) > scores.baseline, best, -1)
        names = scores.labels
    else:
        found = basins(
            opened,
            embedder=embedder,
            every=every,
            device=device or "auto",
            trust_remote_code=trust_remote_code,
        )
        label_of, names = found.basin_of, tuple(f"basin {k}" for k in range(found.n_basins))
    drawn = drawn_from(
        opened, model=model, device=device, trust_remote_code=trust_remote_code, precise=True
    )
    search = TrapSearch(opened, drawn.conditionals, drawn.device)
    return Persistence(
        run=opened.name,
        of=of,
        every=every,
        stays=stays_of(search, texts, label_of, names),
        notes=drawn.notes,
    )


@dataclass(frozen=True)
class Stay:
    """A maximal row of snapshots of a chain with one label, and the means over their texts."""

    label: str
    chain: int
    first: int  # step of its first snapshot
    duration: int  # steps
    ended: bool  # not if the run ended first: the duration is a lower bound
    mean_gap: float
    min_gap: float
    escape_moves: float
    escape_rate: float  # probability of leaving the text in one step
    kind: str = "estimate"


def stays_of(
    search: TrapSearch, texts: Snapshots, label_of: NDArray[np.int64], names: tuple[str, ...]
) -> list[Stay]:
    """The stays of labels (chains, snapshots), -1 for none; without those that have no gaps."""
    rows = int(texts.run.free.sum()) * texts.tokens.shape[1]
    say(f"{label_of.size:,} snapshots: at most {rows:,} rows through the model")
    stays = []
    with track("chains", len(label_of)) as advance:
        for chain, row in enumerate(label_of):
            for label, group in groupby(range(len(row)), key=lambda i, row=row: int(row[i])):  # type: ignore[misc]
                places = list(group)
                if label < 0:
                    continue
                states = [texts.tokens[chain, i].astype(np.int64) for i in places]
                margins = [search.margins_at(chain, state) for state in states]
                known = [each for each in margins if each is not None]
                if known:
                    stays.append(
                        Stay(
                            names[label],
                            chain,
                            int(texts.steps[places[0]]),
                            len(places) * texts.every,
                            places[-1] < len(row) - 1,
                            float(np.mean([each.mean_gap for each in known])),
                            float(np.mean([each.margin for each in known])),
                            float(np.mean([each.escape_moves for each in known])),
                            float(np.mean([each.escape_rate for each in known])),
                        )
                    )
            advance()
    return stays


@dataclass(frozen=True, eq=False)
class Persistence(Result):
    """Stays with topics or in basins, and how their durations rank with the margins."""

    run: str
    of: str
    every: int  # steps between snapshots
    stays: list[Stay] = field(repr=False)
    notes: tuple[str, ...] = ()  # on the model that was loaded for the run

    FIGURES = {"stays": "glauber.interfaces.plots.landscape:plot_persistence"}

    @reported
    def ranks(self) -> TrapRanks | None:
        """Somers' D over pairs of different chains; None for fewer than four chains with a stay."""
        gaps = [
            [stay.mean_gap for stay in self.stays],
            [stay.min_gap for stay in self.stays],
            [stay.escape_moves for stay in self.stays],
        ]
        chains = [stay.chain for stay in self.stays]
        return trap_ranks(
            [stay.duration for stay in self.stays],
            [stay.ended for stay in self.stays],
            gaps,
            text=range(len(self.stays)),
            family=chains,
            chain=chains,
        )

    def lines(self) -> Iterable[str]:
        yield (
            f"{counted(len(self.stays), 'stay')} of {self.of}, one snapshot every {self.every:,} "
            f"steps; {sum(not stay.ended for stay in self.stays)} not ended"
        )
        for label in sorted({stay.label for stay in self.stays}):
            own = [stay for stay in self.stays if stay.label == label]
            yield (
                f"  {label}: {counted(len(own), 'stay')}, mean duration "
                f"{np.mean([stay.duration for stay in own]):,.0f} steps, mean gap "
                f"{np.mean([stay.mean_gap for stay in own]):.2f}, probability of leaving a text "
                f"{np.mean([stay.escape_rate for stay in own]):.3g} (estimates)"
            )
        if self.ranks is None:
            yield "rank correlations: unknown (stays of at least four chains are needed)"
        else:
            for name, rank in (
                ("mean gap", self.ranks.by_mean_gap),
                ("smallest gap", self.ranks.by_min_gap),
                ("number of escape moves", self.ranks.by_escape_moves),
            ):
                yield f"rank correlation of duration with the {name}: {_text(rank)}"
        yield from self.notes

    def table(self) -> Mapping[str, object] | list[Stay]:
        """One row per stay."""
        return self.stays or {"label": [], "chain": [], "duration": []}


def _text(rank: RankCorrelation | None) -> str:
    if rank is None:
        return "unknown"
    ends = rank.interval
    between = rank.reason if ends is None else f"95% over chains: {ends[0]:.2f} to {ends[1]:.2f}"
    return f"{rank.value:.2f} ({between}; Somers' D, estimate)"
