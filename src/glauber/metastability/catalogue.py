"""Which traps did one detector find, and what decides how long a trap holds?

The traps, their families, and the summary that the paper gives. Traps whose representatives are a
few edits apart are one family: single linkage on the edit distance of their free tokens, so a
family may be longer than its links.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import spearmanr

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.metastability.episodes import (
    STRIDE,
    THRESHOLD,
    WINDOW,
    Episode,
    Floats,
    Ints,
    check_ball,
    check_window,
    hamming_episodes,
    rolling_episodes,
    sojourns,
)
from glauber.metastability.trap_census import LeftOut, Trap, census, check_kernel
from glauber.result import plain
from glauber.runs.embedding import Choice, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots

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
    n_left_out: int  # episodes as long that have no state with gaps: in none of these figures
    kind: str = "estimate"  # of the mean duration, too small where traps are unfinished


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The traps that one detector found in a run."""

    detector: str
    settings: dict[str, float]
    traps: tuple[Trap, ...]
    n_chains: int
    n_steps: int
    temperatures: Floats  # (chains,)
    longest: Episode | None  # of all episodes, also those too short to be a trap
    left_out: tuple[LeftOut, ...] = ()  # long enough, but without a state that has gaps
    reach: int = REACH
    distance: str = "Distances are numbers of differing tokens."

    @cached_property
    def families(self) -> list[list[int]]:
        """Numbers of traps that are close in edit distance, the largest family first."""
        rows = [[int(trap.tokens[site]) for site in trap.margins.sites] for trap in self.traps]
        return families(rows, reach=self.reach)

    @property
    def by_duration(self) -> list[Trap]:
        """The traps, the longest first."""
        return sorted(self.traps, key=lambda trap: -trap.duration)

    @property
    def how(self) -> str:
        """The detector's settings in words."""
        return ", ".join(f"{name} {value:g}" for name, value in self.settings.items())

    @property
    def at_temperature(self) -> str:
        """The chains' temperature in words."""
        low, high = self.temperatures.min(), self.temperatures.max()
        return f"temperature {low:g}" if low == high else f"temperatures {low:g} to {high:g}"

    def summary(self) -> Summary:
        """Number, durations, and how durations rank with the gaps."""
        durations = [trap.duration for trap in self.traps]
        means = rank_with(durations, [trap.mean_gap for trap in self.traps])
        mins = rank_with(durations, [trap.min_gap for trap in self.traps])
        return Summary(
            n_traps=len(durations),
            n_perfect=sum(trap.perfect for trap in self.traps),
            n_unfinished=sum(not trap.episode.ended for trap in self.traps),
            mean_duration=float(np.mean(durations)) if durations else None,
            shortest=min(durations, default=None),
            longest=max(durations, default=None),
            by_mean_gap=means,
            by_min_gap=mins,
            better_predictor=_better(means, mins),
            share=sum(durations) / (self.n_chains * (self.n_steps + 1)),
            n_left_out=len(self.left_out),
        )

    def none_found(self) -> str:
        """Why there is no trap: how long the longest episode was, and what could be seen."""
        asked = int(self.settings["shortest"])
        seen = self.n_steps + 1
        if "window" in self.settings:  # the last snapshots have no whole window behind them
            stride = int(self.settings["stride"])
            seen = (1 + self.n_steps // stride - int(self.settings["window"]) // stride) * stride
        short = (
            f"; episodes of more than {seen:,} steps cannot be seen in a run of "
            f"{self.n_steps:,} steps"
            if asked > seen
            else ""
        )
        if self.longest is None:
            return f"No trap: no chain stood still at any time{short}."
        least = "" if self.longest.ended else "at least "
        return (
            f"No trap of {asked:,} steps or more{short}. The longest episode lasted {least}"
            f"{self.longest.duration:,} steps, in chain {self.longest.chain} from step "
            f"{self.longest.first:,}."
        )

    def to_dict(self) -> dict[str, Any]:
        """The catalogue as JSON holds it, each figure with its kind."""
        longest = self.longest
        return plain({
            "detector": self.detector,
            "settings": self.settings,
            "chains": self.n_chains,
            "steps": self.n_steps,
            "temperatures": self.temperatures,
            "distance": self.distance,
            "summary": self.summary(),
            "longest_episode": None if longest is None else {
                "chain": longest.chain, "first": longest.first, "last": longest.last,
                "duration": {"value": longest.duration, "kind": longest.kind},
            },
            "traps": [trap.to_dict() for trap in self.traps],
            "left_out": [
                {
                    "chain": one.episode.chain, "first": one.episode.first,
                    "last": one.episode.last, "duration": one.episode.duration,
                    "reason": one.reason,
                }
                for one in self.left_out
            ],
            "families": {"reach": self.reach, "members": self.families},
        })  # fmt: skip

    def lines(self, show: int) -> Iterable[str]:
        """The catalogue for a person: the longest traps, families, and the summary."""
        yield (
            f"{self.detector} detector ({self.how}): {_traps(len(self.traps))} in {self.n_chains} "
            f"chains of {self.n_steps:,} steps at {self.at_temperature}"
        )
        if "window" in self.settings:
            yield f"  {self.distance}"
        for trap in self.by_duration[:show]:
            first, *rest = trap.lines()
            yield f"  {first}"
            yield from (f"    {line}" for line in rest)
        if len(self.traps) > show:
            yield f"  … and {len(self.traps) - show} shorter ones"
        yield from (one.line() for one in self.left_out)
        yield from self._family_lines()
        yield from self._summary_lines()

    def _family_lines(self) -> Iterable[str]:
        large = [members for members in self.families if len(members) > 1]
        if large:
            yield "families"
        for members in large:
            longest = max(members, key=lambda i: self.traps[i].duration)
            chains = len({self.traps[i].episode.chain for i in members})
            yield (
                f"  {len(members)} traps of {chains} chain{'s' * (chains > 1)} within "
                f"{self.reach} edits of a neighbour: {self.traps[longest].text}"
            )

    def _summary_lines(self) -> Iterable[str]:
        found = self.summary()
        if found.n_traps == 0:
            yield self.none_found()
            return
        unfinished = f"; {found.n_unfinished} not ended" if found.n_unfinished else ""
        yield (
            f"{_traps(found.n_traps)}, {found.n_perfect} perfect, mean duration "
            f"{found.mean_duration:,.0f} steps, {found.shortest:,} to {found.longest:,} (an "
            f"estimate{unfinished}); {found.share:.0%} of all steps"
        )
        yield (
            f"rank correlation of duration with the mean gap {_ranked(found.by_mean_gap)}, with "
            f"the min gap {_ranked(found.by_min_gap)}"
        )


def rolling_traps(
    run: Run,
    conditionals: Conditionals,
    embedder: Choice = None,
    *,
    window: int = WINDOW,
    stride: int = STRIDE,
    threshold: float = THRESHOLD,
    shortest: int = SHORTEST,
    reach: int = REACH,
    device: torch.device | str = "cpu",
) -> Catalogue:
    """The traps in which the meaning stood still: the paper's detector."""
    check_kernel(run.spec)
    check_window(run, window, stride, threshold)
    texts = snapshots(run, every=stride)
    chosen = choose_embedder(texts, embedder)
    found = rolling_episodes(
        chosen.vectors(texts), window=window, stride=stride, threshold=threshold
    )
    settings = {"window": window, "stride": stride, "threshold": threshold, "shortest": shortest}
    made = _catalogue("rolling", settings, run, conditionals, found, reach, device)
    return replace(made, distance=chosen.description)


def hamming_traps(
    run: Run,
    conditionals: Conditionals,
    *,
    radius: int = 1,
    shortest: int = SHORTEST,
    reach: int = REACH,
    device: torch.device | str = "cpu",
) -> Catalogue:
    """The traps in which the chain stayed within `radius` tokens of one state."""
    check_kernel(run.spec)
    check_ball(radius, shortest)
    found = hamming_episodes(list(sojourns(run)), radius=radius)
    settings: dict[str, float] = {"radius": radius, "shortest": shortest}
    return _catalogue("hamming", settings, run, conditionals, found, reach, device)


def _catalogue(
    detector: str,
    settings: dict[str, float],
    run: Run,
    conditionals: Conditionals,
    found: list[Episode],
    reach: int,
    device: torch.device | str,
) -> Catalogue:
    long = [episode for episode in found if episode.duration >= settings["shortest"]]
    paths = list(sojourns(run)) if long else []
    window = int(settings.get("window", 0))
    traps, left_out = census(
        run, conditionals, long, paths, shortest=int(settings["shortest"]), window=window,
        device=device,
    )  # fmt: skip
    longest = max(found, key=lambda episode: episode.duration, default=None)
    return Catalogue(
        detector, settings, tuple(traps), run.n_chains, run.steps, run.temperatures, longest,
        tuple(left_out), reach,
    )  # fmt: skip


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


def _traps(number: int) -> str:
    return "1 trap" if number == 1 else f"{number} traps"


def _ranked(found: RankCorrelation | None) -> str:
    if found is None:
        return "unknown (too few traps)"
    return f"{found.value:.2f} (estimate, p = {found.p_value:.2g})"


def families(rows: Sequence[Sequence[int]], *, reach: int = 3) -> list[list[int]]:
    """Row numbers grouped so that rows at most `reach` edits apart are together; largest first."""
    if reach < 0:
        raise GlauberError(f"the reach is {reach}, but a number of edits cannot be negative.")
    if not rows:
        return []
    near = csr_array(edit_distances(rows) <= reach)
    count, label = connected_components(near, directed=False)
    groups = [np.flatnonzero(label == one).tolist() for one in range(count)]
    return sorted(groups, key=lambda group: (-len(group), group))


def edit_distances(rows: Sequence[Sequence[int]]) -> Ints:
    """Insertions, deletions and replacements of tokens between each two rows: (rows, rows)."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), int(lengths.max())), -1)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return np.stack([_from_one(row, padded, lengths) for row in rows])


def _from_one(row: Sequence[int], padded: Ints, lengths: Ints) -> Ints:
    """The distances (rows,) of one row to the rows padded (rows, longest)."""
    longest = padded.shape[1]
    before = np.tile(np.arange(longest + 1), (len(padded), 1))  # to each beginning of each row
    for done, token in enumerate(row, start=1):
        now = np.empty_like(before)
        now[:, 0] = done
        for place in range(1, longest + 1):
            replaced = before[:, place - 1] + (padded[:, place - 1] != token)
            moved = np.minimum(before[:, place], now[:, place - 1]) + 1
            now[:, place] = np.minimum(replaced, moved)
        before = now
    return np.asarray(before[np.arange(len(padded)), lengths])
