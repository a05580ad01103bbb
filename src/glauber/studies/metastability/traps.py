"""Traps: the texts in which chains stayed, for how long, how firmly, and how they left.

A trap's representative is the state in which the chain spent most steps of an episode. The theorem
speaks of that state: its gaps, whether it is perfect, the bound on its escape, and next to it its
exact holding time. The escape that happened is read from the run's events: the step that ended the
trap. For a ball it is the step that leaves it. For the rolling detector it is the step that carries
the embedding farther than the threshold from the representative's, after the last snapshot that is
nearer; a trap that had not ended when the run did has none.

Traps whose representatives are a few edits apart are one family: single linkage on the edit
distance of their free tokens, so a family may be longer than its links.

Durations are ranked with the gaps by Somers' D. Two traps are compared where it is known which
lasted longer: the shorter one must have ended. D is the share of those pairs in which the longer
one has the larger gap, less the share in which it has the smaller one (Harrell's C is half of one
plus D). A text that came back has the same gaps each time, and texts a few edits apart have nearly
the same: so a text counts once, however often it was a trap, pairs within a family are left out,
and the interval comes from leaving out each family once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from glauber.dynamics.scans import scan_named
from glauber.foundation.checks import OneOf, Real, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import RunDevice, RunModel, Trust
from glauber.foundation.progress import say, track
from glauber.foundation.statistics import (
    CONFIDENCE,
    MIN_CHAINS,
    Estimate,
    clustered_mean,
    jackknife,
    ratio_over_chains,
)
from glauber.foundation.study import Result, columns_of, counted, internal, reported, study
from glauber.models.base import Conditionals
from glauber.models.weights import check_device
from glauber.runs.embedding import Choice, Embedder, check_embedder, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots
from glauber.runs.spec import Spec, refuse_ties
from glauber.sampling.reopened import drawn_from, of_chain
from glauber.studies.metastability.episodes import (
    Episode,
    Floats,
    HoldingObservation,
    Ints,
    Sojourns,
    check_steps,
    check_window,
    hamming_episodes,
    holding_after_selection,
    rolling_drift,
    rolling_episodes,
    sojourns,
    states_by_occupancy,
)
from glauber.studies.metastability.margins import (
    LN10,
    Firmness,
    Margins,
    Neighbourhood,
    Neighbours,
    format_log,
    margins_of,
    neighbourhood_of,
)
from glauber.texts.starts import people_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

WINDOW, STRIDE, THRESHOLD = 300, 50, 0.12  # the paper's
SHORTEST = 150  # steps; the paper lists none shorter
REACH = 3  # edits between two traps of one family
FEWEST = 4  # families whose ranks are worth comparing
MAX_STEPS = 10**15  # of a setting
# Paper A, table 5: 30 chains of 10,000 steps. The longest is a row of fifteen periods.
PUBLISHED: dict[str, Any] = {
    "model": "bert-base-uncased",
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


@study
def traps(
    run: Annotated[Run | str | Path, "A run, or its folder."],
    *,
    detector: Annotated[
        str,
        "rolling (embeddings), hamming (exact) or both.",
        OneOf(("both", "rolling", "hamming")),
    ] = "both",
    window: Annotated[
        int, "rolling: steps that a snapshot is compared with.", Whole(1, MAX_STEPS)
    ] = WINDOW,
    stride: Annotated[
        int, "rolling: one snapshot every so many steps.", Whole(1, MAX_STEPS)
    ] = STRIDE,
    threshold: Annotated[
        float, "rolling: a drift below this, 1 - cosine, is a trap's.", Real(0.0, 2.0, above=True)
    ] = THRESHOLD,
    radius: Annotated[int, "hamming: tokens that may differ.", Whole(0)] = 1,
    shortest: Annotated[
        int, "Duration of the shortest trap, in steps.", Whole(1, MAX_STEPS)
    ] = SHORTEST,
    reach: Annotated[int, "Edits between two traps of a family.", Whole(0)] = REACH,
    embedder: Annotated[
        Choice, "A sentence-transformers model, or tokens (default: the one in the package)."
    ] = None,
    neighbours: Neighbours = 0,
    show: Annotated[int, "How many traps to print.", Whole(0)] = 20,
    model: RunModel = None,
    device: RunDevice = None,
    trust_remote_code: Trust = False,
) -> "Traps":
    """List the traps of a run: texts, durations, gaps, exact holding times and escapes.

    Paper A, table 5. The rolling detector is the paper's; the hamming one needs no embedding. A
    trap's text is the one in which the chain spent most of its steps; its gaps and its mean holding
    time are exact (in float64) for a random scan of single sites, so other runs are refused.
    Observed holding times leave out the steps that made the text a trap, and keep stays that were
    cut off. With neighbours, the time until two tokens differ from the text is bounded from below.
    """
    opened = Run.of(run)
    check_steps(opened)
    check_device(device)
    check_kernel(opened.spec)
    if detector != "hamming":
        check_window(opened, window, stride)
        check_embedder(embedder, opened)
    drawn = drawn_from(
        opened, model=model, device=device, trust_remote_code=trust_remote_code, precise=True
    )
    search = TrapSearch(opened, drawn.conditionals, drawn.device, neighbours)
    catalogues = []
    if detector != "hamming":
        chosen = choose_embedder(
            opened, embedder, device=device, trust_remote_code=trust_remote_code
        )
        catalogues.append(
            search.rolling(
                chosen,
                window=window,
                stride=stride,
                threshold=threshold,
                shortest=shortest,
                reach=reach,
            )
        )
    if detector != "rolling":
        catalogues.append(search.hamming(radius=radius, shortest=shortest, reach=reach))
    is_published = Path(opened.spec.model).name == PUBLISHED["model"]
    return Traps(
        run=opened.name,
        catalogues=tuple(catalogues),
        published=PUBLISHED if is_published else None,
        notes=drawn.notes,
        show=show,
    )


def default_traps(
    run: Run, conditionals: Conditionals, embedder: Choice, *, device: torch.device | str = "cpu"
) -> "TrapList":
    """By the paper's detector; by Hamming balls where that finds none, or has too few steps."""
    search = TrapSearch(run, conditionals, device)
    try:
        by_meaning = search.rolling(embedder)
        if by_meaning.traps:
            return by_meaning
    except GlauberError:  # the run is shorter than the window
        pass
    return search.hamming(shortest=min(SHORTEST, max(20, run.steps // 10)))


def check_kernel(spec: Spec) -> None:
    """Refuses runs whose steps are not draws at one random site."""
    refuse_ties(spec, "a trap's holding time")
    if spec.fill == "greedy" or not scan_named(spec.scan).is_random_scan:
        raise GlauberError(
            "a trap's holding time is known for tokens drawn at one random site a step, but this "
            f"run's scan is {spec.scan} and its fill {spec.fill}."
        )


@dataclass(frozen=True)
class WeakestSite:
    """The site with the smallest gap."""

    site: int  # as people count them, without special tokens and prefix
    token: str


@dataclass(frozen=True)
class Escape:
    """The step that ended a trap. Exact, as recorded; by the rolling detector, our reading."""

    step: int
    site: int  # as people count them, without special tokens and prefix
    old: str  # the token that was there
    new: str  # the token that was drawn
    probability: float  # of the new token, given that the site was redrawn
    at_weakest: bool | None  # whether the site had the smallest gap of the text that was left
    kind: str = "exact"


@dataclass(frozen=True)
class Entry:
    """What the embeddings show before and after a trap begins, a window on each side."""

    drift_before: float  # a window earlier
    drift_at: float
    growth_before: float  # of the distance from the start, over the window before
    growth_after: float
    kind: str = "estimate"


@dataclass(frozen=True, eq=False, kw_only=True)
class SkippedEpisode(Episode):
    """An episode that is long enough for a trap, but has no state with gaps."""

    reason: str

    def line(self) -> str:
        """The episode in one sentence."""
        return (
            f"not counted: chain {self.chain}, from step {self.first:,}, {self.at_least}"
            f"{self.duration:,} steps: {self.reason}"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Trap(Firmness, Episode):
    """An episode, its representative state and how firmly that keeps its tokens."""

    tokens: Ints = internal()  # (length,): the representative; of equally long ones, the first
    text: str
    share_in_text: float  # of the episode's steps that were spent in the representative
    observed: HoldingObservation  # of the representative, corrected for its selection
    margins: Margins = internal()  # of the representative, at the chain's temperature
    weakest: WeakestSite
    escape: Escape | None  # none if the run ended first, or if the chain came back
    entry: Entry | None = None  # by the rolling detector, a window or more after the start
    neighbourhood: Neighbourhood | None = None  # if asked for

    @reported
    def log10_looseness_by_prefactor(self) -> float | None:
        """What the bound's prefactor adds to its decimal logarithm; none without a bound."""
        parts = self.margins.log_looseness
        return None if parts is None else parts[0] / LN10

    @reported
    def log10_looseness_by_smallest_gap(self) -> float | None:
        """What the use of the smallest gap for every site adds to it."""
        parts = self.margins.log_looseness
        return None if parts is None else parts[1] / LN10

    @reported
    def temperature(self) -> float:
        return self.margins.temperature

    @reported
    def kind(self) -> str:
        """What the gaps and the holding time are: exact, or estimates."""
        return self.margins.kind

    @reported
    def perfect(self) -> bool:
        """Whether each token of the representative is the most probable one at its site."""
        return self.margins.perfect

    @reported
    def not_likeliest(self) -> int:
        """The number of tokens that are not the most probable ones at their sites."""
        return int((self.margins.gaps <= 0).sum())

    @reported
    def escape_bound(self) -> float | None:
        return self.margins.escape_bound

    @reported
    def log10_escape_bound(self) -> float | None:
        log = self.margins.log_escape_bound
        return None if log is None else log / LN10

    @reported
    def bound_kind(self) -> str:
        return self.margins.bound_kind

    @reported
    def bound_says(self) -> str:
        """What the theorem's bound says of the mean holding time."""
        log = self.margins.log_escape_bound
        if log is None:
            return "no bound: not a perfect trap"
        if self.margins.vacuous:
            return "the theorem's bound is vacuous"
        return f"theorem: at least {format_log(-log)}"

    @reported
    def holding_time(self) -> float:
        """The mean number of steps until the representative is left; infinite above 1e308."""
        return self.margins.holding_time

    @reported
    def log10_holding_time(self) -> float:
        return -self.margins.log_escape_rate / LN10

    def lines(self) -> list[str]:
        """The trap for a person: when, its text, its gaps, how long it holds, how it was left."""
        return [
            f"chain {self.chain}, from step {self.first:,}: {self.at_least}{self.duration:,} "
            f"steps, {self.type}",
            self.text,
            f"gaps: mean {self.mean_gap:.2f}, min {self.min_gap:.2f} at {self.weakest.token!r}, "
            f"site {self.weakest.site} ({self.kind})",
            f"this text ({self.share_in_text:.0%} of the steps) holds {self._holding_text()} "
            f"({self.kind}; {self.bound_says}; {self._observed_text()})",
            *self._neighbourhood_lines(),
            self._escape_line(),
        ]

    def _neighbourhood_lines(self) -> Iterable[str]:
        around = self.neighbourhood
        if around is not None:
            yield (
                f"with the texts one token away: {format_log(around.log_exit_time)} steps "
                f"({around.kind})"
            )

    def _holding_text(self) -> str:
        log = -self.margins.log_escape_rate
        if not np.isfinite(log):
            return "for ever"
        time = self.holding_time
        return f"{time:,.1f} steps" if time < 1e6 else f"{format_log(log)} steps"

    def _observed_text(self) -> str:
        steps, departures = self.observed.steps, self.observed.departures
        mean = self.observed.holding_time
        if mean is None:
            return f"seen {steps:,} steps, not left" if steps else "seen: no step beyond its choice"
        times = "once" if departures == 1 else f"{departures} times"
        return f"seen {mean:,.1f}: {steps:,} steps beyond its choice, left {times}"

    def _escape_line(self) -> str:
        escape = self.escape
        if escape is None:
            return (
                "it ended in no single step: the chain came back"
                if self.ended
                else "it was still there when the run ended"
            )
        return (
            f"left at step {escape.step:,}: {escape.old!r} became {escape.new!r} (probability "
            f"{escape.probability:.2g}) at "
            f"{'the weakest site' if escape.at_weakest else f'site {escape.site}'}"
        )


@dataclass(frozen=True)
class TypeDurations:
    """The durations of the perfect or of the approximate traps."""

    type: str
    n_traps: int
    n_unfinished: int  # whose durations are lower bounds
    mean: Estimate
    shortest: int
    longest: int


@dataclass(frozen=True)
class FamilyDuration:
    """The combined duration of traps that are close to each other, unfinished ones as they are."""

    traps: tuple[int, ...]  # numbers in the list of traps
    n_chains: int
    steps: int  # of all of them
    most_traps: int  # of one chain
    most_steps: int  # of one chain


@dataclass(frozen=True, eq=False)
class TrapList:
    """The traps that one detector found in a run."""

    detector: str
    settings: dict[str, float]
    n_chains: int
    n_steps: int
    temperatures: Floats  # (chains,)
    longest_episode: Episode | None  # of all episodes, also those too short to be a trap
    traps: tuple[Trap, ...]
    skipped: tuple[SkippedEpisode, ...] = ()  # long enough, but without a state that has gaps
    reach: int = REACH
    distance: str = "Distances are numbers of differing tokens."

    @reported
    def families(self) -> list[list[int]]:
        """Numbers of traps that are close in edit distance, the largest family first."""
        return self._families

    @cached_property
    def _families(self) -> list[list[int]]:
        rows = [[int(trap.tokens[site]) for site in trap.margins.sites] for trap in self.traps]
        return families(rows, reach=self.reach)

    @reported
    def family_durations(self) -> list[FamilyDuration]:
        """Of the families with more than one trap."""
        durations = []
        for members in self.families:
            if len(members) < 2:
                continue
            steps = [self.traps[i].duration for i in members]
            chains = [self.traps[i].chain for i in members]
            durations.append(
                FamilyDuration(
                    tuple(members),
                    len(set(chains)),
                    sum(steps),
                    int(np.bincount(chains).max()),
                    int(np.bincount(chains, weights=steps).max()),
                )
            )
        return durations

    @reported
    def by_type(self) -> list[TypeDurations]:
        """Durations of perfect and of approximate traps, where there are any."""
        durations = []
        for name in ("perfect", "approximate"):
            own = [trap for trap in self.traps if trap.type == name]
            if own:
                steps = [trap.duration for trap in own]
                bounds = (self.settings["shortest"], np.inf)
                mean = clustered_mean(steps, [trap.chain for trap in own], bounds=bounds)
                unfinished = sum(not trap.ended for trap in own)
                ends = min(steps), max(steps)
                durations.append(TypeDurations(name, len(own), unfinished, mean, *ends))
        return durations

    @reported
    def ranks(self) -> "TrapRanks | None":
        """How durations rank with the gaps; none for too few families."""
        return self._ranks

    @cached_property
    def _ranks(self) -> "TrapRanks | None":
        family = np.zeros(len(self.traps), np.int64)
        for number, members in enumerate(self.families):
            family[members] = number
        return trap_ranks(
            [trap.duration for trap in self.traps],
            [trap.ended for trap in self.traps],
            [
                [trap.mean_gap for trap in self.traps],
                [trap.min_gap for trap in self.traps],
                [trap.escape_moves for trap in self.traps],
            ],
            text=[trap.text for trap in self.traps],
            family=family,
            chain=[trap.chain for trap in self.traps],
        )

    @reported
    def n_traps(self) -> int:
        return len(self.traps)

    @reported
    def n_perfect(self) -> int:
        return sum(trap.perfect for trap in self.traps)

    @reported
    def n_unfinished(self) -> int:
        """Traps still going on when the run ended: their durations are lower bounds."""
        return sum(not trap.ended for trap in self.traps)

    @reported
    def mean_duration(self) -> Estimate | None:
        """With its interval over chains; too small where traps are unfinished."""
        if not self.traps:
            return None
        durations, chains = zip(*((trap.duration, trap.chain) for trap in self.traps), strict=True)
        return clustered_mean(durations, chains, bounds=(self.settings["shortest"], np.inf))

    @reported
    def shortest(self) -> int | None:
        """The duration of the shortest trap."""
        return min((trap.duration for trap in self.traps), default=None)

    @reported
    def longest(self) -> int | None:
        """The duration of the longest trap."""
        return max((trap.duration for trap in self.traps), default=None)

    @reported
    def share(self) -> float:
        """Of all the chains' steps, those that lie in a trap."""
        return sum(trap.duration for trap in self.traps) / (self.n_chains * (self.n_steps + 1))

    @reported
    def seen_to_exact(self) -> Estimate | None:
        """Observed holding times over exact ones, of all traps; none without a departure."""
        expected, departures = np.zeros((2, self.n_chains))
        for trap in self.traps:
            expected[trap.chain] += trap.observed.steps * trap.margins.escape_rate
            departures[trap.chain] += trap.observed.departures
        present = (expected > 0) | (departures > 0)
        if not departures.any():
            return None
        return ratio_over_chains(expected[present], departures[present], bounds=(0.0, np.inf))

    @property
    def by_duration(self) -> list[Trap]:
        """The traps, the longest first."""
        return sorted(self.traps, key=lambda trap: -trap.duration)

    @property
    def at_temperature(self) -> str:
        """The chains' temperature in words."""
        low, high = self.temperatures.min(), self.temperatures.max()
        return f"temperature {low:g}" if low == high else f"temperatures {low:g} to {high:g}"

    def none_found(self) -> str:
        """Why there is no trap: how long the longest episode was, and what could be seen."""
        minimum = int(self.settings["shortest"])
        visible = self.n_steps + 1
        if "window" in self.settings:  # no whole window follows the last snapshots
            stride = int(self.settings["stride"])
            n_windows = 1 + self.n_steps // stride - int(self.settings["window"]) // stride
            visible = n_windows * stride
        short = (
            f"; episodes of more than {visible:,} steps cannot be seen in a run of "
            f"{self.n_steps:,} steps"
            if minimum > visible
            else ""
        )
        longest = self.longest_episode
        if longest is None:
            return f"No trap: no chain stood still at any time{short}."
        return (
            f"No trap of {minimum:,} steps or more{short}. The longest episode lasted "
            f"{longest.at_least}{longest.duration:,} steps, in chain {longest.chain} from step "
            f"{longest.first:,}."
        )

    def lines(self, show: int) -> Iterable[str]:
        """The longest traps, families, and the summary, for a person."""
        settings = ", ".join(f"{name} {value:g}" for name, value in self.settings.items())
        yield (
            f"{self.detector} detector ({settings}): {counted(len(self.traps), 'trap')} in "
            f"{counted(self.n_chains, 'chain')} of {self.n_steps:,} steps at {self.at_temperature}"
        )
        if "window" in self.settings:
            yield f"  {self.distance}"
        for trap in self.by_duration[:show]:
            first, *others = trap.lines()
            yield f"  {first}"
            yield from (f"    {line}" for line in others)
        if len(self.traps) > show:
            yield f"  … and {len(self.traps) - show} shorter ones"
        yield from (episode.line() for episode in self.skipped)
        yield from self._family_lines()
        yield from self._summary_lines()

    def _family_lines(self) -> Iterable[str]:
        large = self.family_durations
        if large:
            yield "families"
        for family in large:
            longest = max(family.traps, key=lambda i: self.traps[i].duration)
            yield (
                f"  {len(family.traps)} traps of {counted(family.n_chains, 'chain')} within "
                f"{self.reach} edits of a neighbour, {family.steps:,} steps together (up to "
                f"{family.most_steps:,} in one chain): {self.traps[longest].text}"
            )

    def _summary_lines(self) -> Iterable[str]:
        mean, ranks = self.mean_duration, self.ranks
        if mean is None:
            yield self.none_found()
            return
        unfinished = f"; {self.n_unfinished} not ended" if self.n_unfinished else ""
        ends = mean.interval
        between = "" if ends is None else f" ({ends[0]:,.0f} to {ends[1]:,.0f} over chains)"
        yield (
            f"{counted(self.n_traps, 'trap')}, {self.n_perfect} perfect, mean duration "
            f"{mean.value:,.0f} steps{between}, the shortest {self.shortest:,}, the "
            f"longest {self.longest:,} (estimates{unfinished}); {self.share:.0%} of all steps"
        )
        unknown = "unknown (too few families of traps)"
        for each in self.by_type:
            yield (
                f"{each.n_traps} {each.type}: mean duration {each.mean.value:,.0f} steps, the "
                f"shortest {each.shortest:,}, the longest {each.longest:,}"
            )
        by_mean = _with_interval(ranks.by_mean_gap) if ranks else unknown
        by_min = _with_interval(ranks.by_min_gap) if ranks else unknown
        yield (
            f"rank correlation of duration with the mean gap {by_mean}, with "
            f"the min gap {by_min} (estimates: Somers' D, 95% over families)"
        )
        if ranks is not None:
            better = ranks.better
            verdict = f"the {better} ranks better" if better else "cannot tell which ranks better"
            difference = _with_interval(ranks.difference)
            yield f"{verdict}: the mean gap's less the min gap's is {difference}"
        if self.seen_to_exact is not None:
            yield (
                "seen holding times, beyond what made a text a trap, over exact ones: "
                f"{_with_interval(self.seen_to_exact)} (estimate)"
            )


def _with_interval(estimate: "RankCorrelation | Estimate") -> str:
    ends = estimate.interval
    between = estimate.reason if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
    return f"{estimate.value:.2f} ({between})"


@dataclass(frozen=True, eq=False)
class Traps(Result):
    """The traps of a run, by one detector or by two."""

    run: str
    catalogues: tuple[TrapList, ...]
    published: dict[str, Any] | None  # the paper's numbers, for a run of the paper's model
    notes: tuple[str, ...]  # what to keep in mind, as sentences
    show: int = internal()  # traps of a detector that are printed

    def lines(self) -> Iterable[str]:
        for catalogue in self.catalogues:
            yield from catalogue.lines(self.show)
        if self.published is not None:
            yield (
                "published for this model: 17 traps, 4 perfect, mean duration 671, 150 to 4,950; "
                "the mean gap predicts better"
            )
        yield from self.notes

    def table(self) -> Mapping[str, object] | list[dict[str, object]]:
        """One row per trap."""
        rows = [
            {"detector": each.detector, **columns_of(trap)}
            for each in self.catalogues
            for trap in each.traps
        ]
        for row in rows:
            for name in ("escape", "entry", "neighbourhood"):
                row.pop(name, None)  # none; else its entries are columns
        return rows or {"detector": [], "chain": [], "text": []}

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.metastability import (
            plot_gaps_against_duration,
            plot_trap_timeline,
        )

        plots = {"timeline": plot_trap_timeline, "gaps": plot_gaps_against_duration}
        return {
            f"{each.detector}-{name}": plot(each)
            for each in self.catalogues
            for name, plot in plots.items()
        }


@dataclass(frozen=True, eq=False)
class TrapSearch:
    """The search for traps in a run; a text's margins are computed once, for both detectors.

    conditionals are those that the run drew from. The holding time is that of a random scan of
    single sites, so other runs are refused.
    """

    run: Run
    conditionals: Conditionals
    device: torch.device | str = "cpu"
    neighbours: int = 0  # texts one token away, for the exit times; 0: none
    # of a state, its chain's free sites and start, and a temperature
    _margins: dict[tuple[bytes, bytes, float], Margins | None] = field(default_factory=dict)
    _around: dict[tuple[bytes, bytes, float], Neighbourhood] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_kernel(self.run.spec)

    @cached_property
    def paths(self) -> list[Sojourns]:
        """The path of each chain."""
        return list(sojourns(self.run))

    @cached_property
    def _log_probs(self) -> NDArray[Any]:
        """Of the drawn tokens: (chains, steps)."""
        return np.asarray(self.run.read("log_prob_new")[:, :, 0])

    @cached_property
    def _numbers(self) -> Sequence[int]:
        """(length,): sites as people count them, without special tokens and prefix."""
        length = self.run.free.shape[1]
        return people_of(self.run.vocabulary, range(length), prefix=self.run.spec.prefix)

    def rolling(
        self,
        embedder: Choice = None,
        *,
        window: int = WINDOW,
        stride: int = STRIDE,
        threshold: float = THRESHOLD,
        shortest: int = SHORTEST,
        reach: int = REACH,
    ) -> TrapList:
        """The traps in which the meaning stood still: the paper's detector."""
        check_window(self.run, window, stride)
        texts = snapshots(self.run, every=stride)
        chosen = choose_embedder(texts, embedder)
        chosen.check_threshold(threshold)
        vectors = chosen.vectors(texts)
        episodes = rolling_episodes(vectors, window=window, stride=stride, threshold=threshold)
        settings = {
            "window": window,
            "stride": stride,
            "threshold": threshold,
            "shortest": shortest,
        }
        found = self._list_traps("rolling", settings, episodes, reach)
        drifts, distances = rolling_drift(vectors, window // stride), _from_start(vectors)
        traps = [
            replace(
                trap,
                escape=self._escape_by_meaning(trap, chosen, settings),
                entry=_entry(
                    drifts[trap.chain],
                    distances[trap.chain],
                    trap.first // stride,
                    window // stride,
                ),
            )
            for trap in found.traps
        ]
        return replace(found, traps=tuple(traps), distance=chosen.description)

    def hamming(self, *, radius: int = 1, shortest: int = SHORTEST, reach: int = REACH) -> TrapList:
        """The traps in which the chain stayed within `radius` tokens of one state."""
        episodes = hamming_episodes(self.paths, radius=radius)
        settings: dict[str, float] = {"radius": radius, "shortest": shortest}
        return self._list_traps("hamming", settings, episodes, reach)

    def _list_traps(
        self, detector: str, settings: dict[str, float], episodes: list[Episode], reach: int
    ) -> TrapList:
        shortest, window = int(settings["shortest"]), int(settings.get("window", 0))
        long = [episode for episode in episodes if episode.duration >= shortest]
        traps, skipped = self.find_traps(long, shortest=shortest, window=window)
        return TrapList(
            detector=detector,
            settings=settings,
            n_chains=self.run.n_chains,
            n_steps=self.run.steps,
            temperatures=self.run.temperatures,
            longest_episode=max(episodes, key=lambda episode: episode.duration, default=None),
            traps=traps,
            skipped=skipped,
            reach=reach,
        )

    def find_traps(
        self, episodes: Sequence[Episode], *, shortest: int = 1, window: int = 0
    ) -> tuple[tuple[Trap, ...], tuple[SkippedEpisode, ...]]:
        """The traps of these episodes, and the episodes without one.

        A start may contain a token that is never drawn. A state with such a token has no gaps, so
        the representative is the state without one in which the chain stayed longest; an episode
        without such a state is skipped, and reported. shortest and window are what the detector
        requires of an episode: so many steps, and so many after it.
        """
        rows = sum(int(self.run.free[episode.chain].sum()) for episode in episodes)
        if episodes:
            say(f"{len(episodes):,} traps: at most {rows:,} rows through the model")
        results: list[Trap | SkippedEpisode] = []
        with track("traps", len(episodes)) as advance:
            for episode in episodes:
                results.append(self._trap(episode, shortest, window))
                advance()
        return (
            tuple(each for each in results if isinstance(each, Trap)),
            tuple(each for each in results if isinstance(each, SkippedEpisode)),
        )

    def _trap(self, episode: Episode, shortest: int, window: int) -> Trap | SkippedEpisode:
        path, spell = self.paths[episode.chain], self.run.vocabulary.spell
        touched, counts = path.between(episode.first, episode.last)
        for tokens, steps in states_by_occupancy(path.states[touched], counts):
            margins = self.margins_at(episode.chain, tokens)
            if margins is None:
                continue
            is_left = episode.ended and episode.centre is not None  # a ball, by its last step
            weakest = margins.sites[int(margins.gaps.argmin())]
            return Trap(
                **vars(episode),
                tokens=tokens,
                text=self.run.vocabulary.decode(tokens),
                share_in_text=float(steps / episode.duration),
                observed=holding_after_selection(path, episode, tokens, shortest, window),
                margins=margins,
                weakest=WeakestSite(self._numbers[weakest], spell(int(tokens[weakest]))),
                escape=self._escape(episode.chain, int(touched[-1])) if is_left else None,
                neighbourhood=self.neighbourhood(episode.chain, tokens),
            )
        reason = "every state of it holds a token of the start that is never drawn."
        return SkippedEpisode(**vars(episode), reason=reason)

    def margins_at(self, chain: int, tokens: Ints) -> Margins | None:
        """The margins of a state of a chain; none if it contains a token that is never drawn."""
        run, key = self.run, self._key(chain, tokens)
        if key not in self._margins:
            try:
                self._margins[key] = margins_of(
                    *self._state(chain, tokens), temperature=float(run.temperatures[chain])
                )
            except GlauberError:
                # Only a token of the start can be one that is never drawn.
                if not (tokens == run.tokens(0)[chain])[run.free[chain]].any():
                    raise
                self._margins[key] = None
        return self._margins[key]

    def neighbourhood(self, chain: int, tokens: Ints) -> Neighbourhood | None:
        """The texts one token away from a state, if they are asked for."""
        key = self._key(chain, tokens)
        if self.neighbours and key not in self._around:
            self._around[key] = neighbourhood_of(
                *self._state(chain, tokens),
                temperature=float(self.run.temperatures[chain]),
                neighbours=self.neighbours,
            )
        return self._around.get(key)

    def _key(self, chain: int, tokens: Ints) -> tuple[bytes, bytes, float]:
        """What the margins of a state of a chain depend on."""
        run = self.run
        # A chain's conditionals depend on its start where changes have a budget.
        start = b"" if run.spec.budget is None else run.tokens(0)[chain].tobytes()
        return tokens.tobytes() + start, run.free[chain].tobytes(), float(run.temperatures[chain])

    def _state(self, chain: int, tokens: Ints) -> tuple[Conditionals, torch.Tensor, torch.Tensor]:
        """The conditionals of a chain, with the state and its free sites where the model is."""
        rows = torch.from_numpy(tokens), torch.from_numpy(self.run.free[chain])
        on_device = [row.to(self.device) for row in rows]
        return of_chain(self.conditionals, self.run, chain), on_device[0], on_device[1]

    def _escape_by_meaning(
        self, trap: Trap, embedder: Embedder, settings: Mapping[str, float]
    ) -> Escape | None:
        """The step that carries a chain farther than the threshold from the trap's text, for good.

        After the last snapshot that is nearer, of those that the drift of the trap's end is about;
        none if that is the last of them, or if the trap had not ended.
        """
        path, stride = self.paths[trap.chain], int(settings["stride"])
        distance = self._distance_from(trap, embedder)
        end = min(trap.last + 1 + int(settings["window"]), path.n_steps)
        steps = np.arange(trap.first, end + 1, stride)
        states = np.searchsorted(path.first, steps, side="right") - 1
        near = np.flatnonzero(distance(path.states[states]) <= settings["threshold"])
        if not trap.ended or len(near) == 0 or near[-1] == len(steps) - 1:
            return None
        between = np.arange(states[near[-1]], states[near[-1] + 1] + 1)
        inside = np.flatnonzero(distance(path.states[between]) <= settings["threshold"])
        return self._escape(trap.chain, int(between[inside[-1]]))

    def _distance_from(self, trap: Trap, embedder: Embedder) -> Callable[[Ints], Floats]:
        """The distance (k,) of states (k, length) of its chain from the trap's text."""
        free, decode = self.run.free[trap.chain], self.run.decoder()
        if not embedder.reads_meaning:
            return lambda states: np.asarray((states != trap.tokens)[:, free].mean(axis=1))
        centre = embedder.embed([decode(trap.tokens)])[0]
        return lambda states: np.asarray(1 - embedder.embed([*map(decode, states)]) @ centre)

    def _escape(self, chain: int, number: int) -> Escape | None:
        """What ended that sojourn of the chain; none if the run did."""
        path = self.paths[chain]
        if number == len(path.first) - 1:
            return None
        before, after = path.states[number : number + 2]
        site = int((before != after).argmax())  # one site a step
        step = int(path.first[number + 1])
        spell = self.run.vocabulary.spell
        margins = self.margins_at(chain, before)
        weakest = None if margins is None else margins.sites[int(margins.gaps.argmin())]
        return Escape(
            step=step,
            site=self._numbers[site],
            old=spell(int(before[site])),
            new=spell(int(after[site])),
            probability=float(np.exp(np.float64(self._log_probs[chain, step - 1]))),
            at_weakest=None if weakest is None else site == weakest,
        )


def _from_start(vectors: NDArray[np.float32]) -> Floats:
    """The distance (chains, snapshots) of each snapshot from its chain's first."""
    return np.asarray(1 - np.einsum("cld,cd->cl", vectors, vectors[:, 0]), np.float64)


def _entry(drifts: Floats, distances: Floats, first: int, window: int) -> Entry | None:
    """The entry of a trap at a snapshot of a chain (snapshots,), window of them on each side."""
    if first < window:
        return None
    before, at, after = distances[[first - window, first, first + window]]
    return Entry(
        drift_before=float(drifts[first - window]),
        drift_at=float(drifts[first]),
        growth_before=float(at - before),
        growth_after=float(after - at),
    )


@dataclass(frozen=True)
class RankCorrelation:
    """Somers' D of the traps' durations and another of their numbers, from -1 to 1."""

    value: float
    interval: tuple[float, float] | None
    n_traps: int
    n_families: int  # what is independent
    n_pairs: int  # of traps of different families whose order is known
    reason: str = ""  # why there is no interval
    kind: str = "estimate"
    level: float = CONFIDENCE


@dataclass(frozen=True)
class TrapRanks:
    """How durations rank with the mean gap and with the smallest, and with which better."""

    by_mean_gap: RankCorrelation
    by_min_gap: RankCorrelation
    difference: RankCorrelation  # by the mean gap less by the smallest
    by_escape_moves: RankCorrelation | None = None

    @reported
    def better(self) -> str | None:
        """The better predictor; none where the interval of the difference contains zero."""
        ends = self.difference.interval
        if ends is None or ends[0] <= 0 <= ends[1]:
            return None
        return "mean gap" if self.difference.value > 0 else "min gap"


def trap_ranks(
    durations: ArrayLike,
    ended: ArrayLike,
    gaps: Sequence[ArrayLike],
    *,
    text: ArrayLike,
    family: ArrayLike,
    chain: ArrayLike | None = None,
) -> TrapRanks | None:
    """Somers' D of durations (traps,) with each of two gaps (traps,), and their difference.

    A third entry of gaps is the effective number of moves by which each trap's text is left.

    ended (traps,): not where the duration is a lower bound. text and family (traps,) number what
    each trap's text and family is. None for fewer than four families, or where no order is known.
    chain (traps,) says where each was seen: no interval for fewer than three chains.
    """
    steps, complete = np.asarray(durations, np.float64), np.asarray(ended, np.bool_)
    _, label = np.unique(np.asarray(family), return_inverse=True)
    n_families = int(label.max()) + 1 if len(label) else 0
    if n_families < FEWEST:
        return None
    # Whether the second trap surely lasted longer than the first: (traps, traps).
    longer = (steps[:, None] < steps) & complete[:, None] & (label[:, None] != label)
    if not longer.any():
        return None
    _, number, times = np.unique(np.asarray(text), return_inverse=True, return_counts=True)
    weight = longer / times[number][:, None] / times[number]
    members = np.eye(n_families)[label]

    def by_family(values: Floats) -> Floats:
        """Sums of (traps, traps) over pairs of families: (families, families)."""
        return np.asarray(members.T @ values @ members)

    pairs = by_family(weight)
    agreements = [by_family(weight * _rises(np.asarray(gap, np.float64))) for gap in gaps]

    def both(weights: Floats) -> Floats:
        known = weights @ pairs @ weights
        if known <= 0:
            return np.full(len(gaps), np.nan)
        return np.array([weights @ agreement @ weights / known for agreement in agreements])

    def difference(weights: Floats) -> Floats:
        values = both(weights)
        return np.asarray(values[:1] - values[1:2])

    each = jackknife(both, n_families, scale="atanh")
    between = jackknife(difference, n_families, bounds=(-2.0, 2.0))
    n_chains = MIN_CHAINS if chain is None else len(np.unique(np.asarray(chain)))
    counts = len(steps), n_families, int(longer.sum())

    def correlation(estimate: Estimate) -> RankCorrelation:
        interval, reason = estimate.interval, ""
        if n_chains < MIN_CHAINS:
            interval, reason = None, "traps of fewer than three chains"
        elif interval is None:
            reason = f"{n_families} families of traps give no interval"
        return RankCorrelation(estimate.value, interval, *counts, reason)

    return TrapRanks(
        correlation(each.item(0)),
        correlation(each.item(1)),
        correlation(between.item(0)),
        correlation(each.item(2)) if len(gaps) > 2 else None,
    )


def _rises(gaps: Floats) -> Floats:
    """1 where the second's gap is larger, -1 where it is smaller: (traps, traps)."""
    return np.asarray(np.sign(gaps - gaps[:, None]))


def families(rows: Sequence[Sequence[int]], *, reach: int = 3) -> list[list[int]]:
    """Row numbers grouped so that rows at most `reach` edits apart are together; largest first."""
    if not rows:
        return []
    near = csr_array(edit_distances(rows) <= reach)
    count, label = connected_components(near, directed=False)
    groups = [np.flatnonzero(label == number).tolist() for number in range(count)]
    return sorted(groups, key=lambda group: (-len(group), group))


def edit_distances(rows: Sequence[Sequence[int]]) -> Ints:
    """Insertions, deletions and replacements of tokens between each two rows: (rows, rows)."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), int(lengths.max())), -1)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return np.stack([_edits_from(row, padded, lengths) for row in rows])


def _edits_from(row: Sequence[int], padded: Ints, lengths: Ints) -> Ints:
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
