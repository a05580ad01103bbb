"""Which traps did a run's chains fall into, and what decides how long a trap holds?

The catalogue of one detector: its traps, their families, and the summary that the paper gives.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from glauber.conditionals.base import Conditionals
from glauber.metastability.census import Trap, census, check_kernel
from glauber.metastability.families import families
from glauber.metastability.hamming import hamming_stretches
from glauber.metastability.looks import Embed
from glauber.metastability.looks import Listener as Heard
from glauber.metastability.rolling import STRIDE, THRESHOLD, WINDOW, rolling_stretches
from glauber.runs.run import Run

# Paper A: 30 chains of 10,000 steps. The longest is a row of fifteen periods.
PUBLISHED: dict[str, Any] = {
    "chains": 30,
    "steps": 10_000,
    "traps": 17,
    "perfect": 4,
    "mean_duration": 671,
    "shortest": 150,
    "longest": 4950,
    "better_predictor": "mean gap",
    "fifteen_periods": {"mean_gap": 9.14, "min_gap": 7.46, "duration": 4950},
}
SHORTEST = 150  # steps; the paper lists none shorter
REACH = 3  # edits between two traps of one family
FEWEST = 4  # traps whose ranks are worth comparing


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's correlation of the traps' durations with another of their figures."""

    value: float
    p_value: float  # the chance of one at least as far from zero, were there no relation
    n_traps: int
    kind: str = "estimate"


@dataclass(frozen=True)
class Summary:
    """A catalogue in a few figures."""

    n_traps: int
    n_perfect: int
    n_unfinished: int  # still going on when the run ended: their durations are lower bounds
    mean_duration: float | None
    shortest: int | None
    longest: int | None
    by_mean_gap: RankCorrelation | None  # none for too few traps, or where all are alike
    by_min_gap: RankCorrelation | None
    better_predictor: str | None
    share: float  # of all the chains' steps that lie in a trap
    kind: str = "estimate"  # of the mean duration, too small where traps are unfinished


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The traps that one detector found in a run."""

    detector: str
    settings: dict[str, float]
    traps: tuple[Trap, ...]
    n_chains: int
    n_steps: int
    temperature: float
    reach: int = REACH

    @cached_property
    def families(self) -> list[list[int]]:
        """Numbers of traps that are close in edit distance, the largest family first."""
        rows = [[int(trap.tokens[site]) for site in trap.margins.sites] for trap in self.traps]
        return families(rows, reach=self.reach)

    def summary(self) -> Summary:
        """Number, durations, and how durations rank with the gaps."""
        durations = [trap.duration for trap in self.traps]
        means = rank_with(durations, [trap.mean_gap for trap in self.traps])
        mins = rank_with(durations, [trap.min_gap for trap in self.traps])
        return Summary(
            n_traps=len(durations),
            n_perfect=sum(trap.perfect for trap in self.traps),
            n_unfinished=sum(not trap.stretch.ended for trap in self.traps),
            mean_duration=float(np.mean(durations)) if durations else None,
            shortest=min(durations, default=None),
            longest=max(durations, default=None),
            by_mean_gap=means,
            by_min_gap=mins,
            better_predictor=_better(means, mins),
            share=sum(durations) / (self.n_chains * (self.n_steps + 1)),
        )


def rolling_traps(
    run: Run,
    laws: Conditionals,
    embed: Embed,
    *,
    window: int = WINDOW,
    stride: int = STRIDE,
    threshold: float = THRESHOLD,
    shortest: int = SHORTEST,
    reach: int = REACH,
    device: torch.device | str = "cpu",
    listener: Heard | None = None,
) -> Catalogue:
    """The traps in which the meaning stood still: the paper's detector."""
    check_kernel(run.spec)
    found = rolling_stretches(
        run,
        embed,
        window=window,
        stride=stride,
        threshold=threshold,
        shortest=shortest,
        listener=listener,
    )
    settings = {"window": window, "stride": stride, "threshold": threshold}
    traps = census(run, laws, found, device=device)
    return _catalogue("rolling", settings | {"shortest": shortest}, run, traps, reach)


def hamming_traps(
    run: Run,
    laws: Conditionals,
    *,
    radius: int = 1,
    shortest: int = SHORTEST,
    reach: int = REACH,
    device: torch.device | str = "cpu",
) -> Catalogue:
    """The traps in which the chain stayed within `radius` tokens of one state."""
    check_kernel(run.spec)
    found = hamming_stretches(run, radius=radius, shortest=shortest)
    traps = census(run, laws, found, device=device)
    return _catalogue("hamming", {"radius": radius, "shortest": shortest}, run, traps, reach)


def _catalogue(
    detector: str, settings: dict[str, float], run: Run, traps: list[Trap], reach: int
) -> Catalogue:
    return Catalogue(
        detector, settings, tuple(traps), run.n_chains, run.steps, run.spec.temperature, reach
    )


def rank_with(durations: Sequence[float], figures: Sequence[float]) -> RankCorrelation | None:
    """Their rank correlation; none for fewer than four traps, or where all are equal."""
    if len(durations) < FEWEST or len(set(durations)) == 1 or len(set(figures)) == 1:
        return None
    found = spearmanr(durations, figures)
    return RankCorrelation(float(found.statistic), float(found.pvalue), len(durations))


def _better(means: RankCorrelation | None, mins: RankCorrelation | None) -> str | None:
    """Which gap ranks durations better. On one catalogue; no test that the two differ."""
    if means is None or mins is None:
        return None
    return "mean gap" if means.value >= mins.value else "min gap"
