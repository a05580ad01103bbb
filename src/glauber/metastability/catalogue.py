"""Which traps did one detector find, and what decides how long a trap holds?

The traps, their families, and the summary that the paper gives. Traps whose representatives are a
few edits apart are one family: single linkage on the edit distance of their free tokens, so a
family may be longer than its links.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from glauber.conditionals.base import Conditionals
from glauber.json_text import Record
from glauber.metastability.episodes import (
    STRIDE,
    THRESHOLD,
    WINDOW,
    Episode,
    Floats,
    check_ball,
    check_window,
    hamming_episodes,
    rolling_episodes,
    sojourns,
)
from glauber.metastability.margins import Margins
from glauber.metastability.trap_census import Key, LeftOut, Trap, census, check_kernel
from glauber.metastability.trap_ranks import RankCorrelation, Ranks, families, trap_ranks
from glauber.result import counted, plain
from glauber.runs.embedding import Choice, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots
from glauber.statistics import Estimate, clustered_mean, ratio_over_chains

SHORTEST = 150  # steps; the paper lists none shorter
REACH = 3  # edits between two traps of one family


@dataclass(frozen=True)
class Summary:
    """A catalogue in a few figures."""

    n_traps: int
    n_perfect: int
    n_unfinished: int  # still going on when the run ended: their durations are lower bounds
    mean_duration: float | None
    duration_interval: tuple[float, float] | None  # of the mean, over chains
    shortest: int | None
    longest: int | None
    by_mean_gap: RankCorrelation | None  # none for too few families of traps
    by_min_gap: RankCorrelation | None
    gap_difference: RankCorrelation | None  # by the mean gap less by the smallest
    better_predictor: str | None  # none where the difference cannot be told from zero
    seen_to_exact: Estimate | None  # seen holding times over exact ones; none if none was left
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

    @cached_property
    def ranks(self) -> Ranks | None:
        """How durations rank with the gaps; none for too few families."""
        family = np.zeros(len(self.traps), np.int64)
        for number, members in enumerate(self.families):
            family[members] = number
        return trap_ranks(
            [trap.duration for trap in self.traps],
            [trap.episode.ended for trap in self.traps],
            [[trap.mean_gap for trap in self.traps], [trap.min_gap for trap in self.traps]],
            text=[trap.text for trap in self.traps],
            family=family,
            chain=[trap.episode.chain for trap in self.traps],
        )

    @property
    def seen_to_exact(self) -> Estimate | None:
        """How long texts were seen to hold over how long they do, all traps and their chains."""
        expected, departures = np.zeros((2, self.n_chains))
        for trap in self.traps:
            expected[trap.episode.chain] += trap.seen.steps * trap.margins.escape_rate
            departures[trap.episode.chain] += trap.seen.departures
        there = (expected > 0) | (departures > 0)
        if not departures.any():
            return None
        return ratio_over_chains(expected[there], departures[there], bounds=(0.0, np.inf))

    def summary(self) -> Summary:
        """Number, durations, and how durations rank with the gaps."""
        durations, ranks = [trap.duration for trap in self.traps], self.ranks
        chains = [trap.episode.chain for trap in self.traps]
        least = self.settings["shortest"]
        mean = clustered_mean(durations, chains, bounds=(least, np.inf)) if chains else None
        return Summary(
            n_traps=len(durations),
            n_perfect=sum(trap.perfect for trap in self.traps),
            n_unfinished=sum(not trap.episode.ended for trap in self.traps),
            mean_duration=None if mean is None else mean.value,
            duration_interval=None if mean is None else mean.interval,
            shortest=min(durations, default=None),
            longest=max(durations, default=None),
            by_mean_gap=None if ranks is None else ranks.by_mean_gap,
            by_min_gap=None if ranks is None else ranks.by_min_gap,
            gap_difference=None if ranks is None else ranks.difference,
            better_predictor=None if ranks is None else ranks.better,
            seen_to_exact=self.seen_to_exact,
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

    def to_dict(self) -> Record:
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
            f"{self.detector} detector ({self.how}): {counted(len(self.traps), 'trap')} in "
            f"{counted(self.n_chains, 'chain')} of {self.n_steps:,} steps at {self.at_temperature}"
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
        ends = found.duration_interval
        between = "" if ends is None else f" ({ends[0]:,.0f} to {ends[1]:,.0f} over chains)"
        yield (
            f"{counted(found.n_traps, 'trap')}, {found.n_perfect} perfect, mean duration "
            f"{found.mean_duration:,.0f} steps{between}, the shortest {found.shortest:,}, the "
            f"longest {found.longest:,} (estimates{unfinished}); {found.share:.0%} of all steps"
        )
        yield (
            f"rank correlation of duration with the mean gap {_ranked(found.by_mean_gap)}, with "
            f"the min gap {_ranked(found.by_min_gap)} (estimates: Somers' D, 95% over families)"
        )
        yield from self._comparison_lines(found)

    def _comparison_lines(self, found: Summary) -> Iterable[str]:
        if found.gap_difference is not None:
            better = found.better_predictor
            said = f"the {better} ranks better" if better else "cannot tell which ranks better"
            yield f"{said}: the mean gap's less the min gap's is {_between(found.gap_difference)}"
        if found.seen_to_exact is not None:
            yield (
                "seen holding times, beyond what made a text a trap, over exact ones: "
                f"{_between(found.seen_to_exact)} (estimate)"
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
    known: dict[Key, Margins | None] | None = None,
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
    made = _catalogue("rolling", settings, run, conditionals, found, reach, device, known)
    return replace(made, distance=chosen.description)


def hamming_traps(
    run: Run,
    conditionals: Conditionals,
    *,
    radius: int = 1,
    shortest: int = SHORTEST,
    reach: int = REACH,
    device: torch.device | str = "cpu",
    known: dict[Key, Margins | None] | None = None,
) -> Catalogue:
    """The traps in which the chain stayed within `radius` tokens of one state."""
    check_kernel(run.spec)
    check_ball(radius, shortest)
    found = hamming_episodes(list(sojourns(run)), radius=radius)
    settings: dict[str, float] = {"radius": radius, "shortest": shortest}
    return _catalogue("hamming", settings, run, conditionals, found, reach, device, known)


def _catalogue(
    detector: str,
    settings: dict[str, float],
    run: Run,
    conditionals: Conditionals,
    found: list[Episode],
    reach: int,
    device: torch.device | str,
    known: dict[Key, Margins | None] | None,
) -> Catalogue:
    long = [episode for episode in found if episode.duration >= settings["shortest"]]
    paths = list(sojourns(run)) if long else []
    window = int(settings.get("window", 0))
    traps, left_out = census(
        run, conditionals, long, paths, shortest=int(settings["shortest"]), window=window,
        device=device, known=known,
    )  # fmt: skip
    longest = max(found, key=lambda episode: episode.duration, default=None)
    return Catalogue(
        detector, settings, tuple(traps), run.n_chains, run.steps, run.temperatures, longest,
        tuple(left_out), reach,
    )  # fmt: skip


def _ranked(found: RankCorrelation | None) -> str:
    return "unknown (too few families of traps)" if found is None else _between(found)


def _between(found: RankCorrelation | Estimate) -> str:
    ends = found.interval
    said = found.reason if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
    return f"{found.value:.2f} ({said})"
