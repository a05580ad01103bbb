"""Convergence diagnostics of a run, safe for chains that do not move.

Effective sample size, R-hat and autocorrelation time by ArviZ. With all chains frozen in one trap
ArviZ reports an effective sample size equal to the number of draws, because nothing varies and so
nothing disagrees. Here no statistic gets a number while a chain is frozen or partly frozen, and a
statistic that does not vary in some chain gets none either: the answer says what is wrong.

Whether a chain moved is read from the events, not from a statistic: a statistic of the last step
goes up and down with the site that the step chose, though the text stays as it is. A site that
never changed is not always stuck. Where the model leaves hardly a choice there (its conditional
entropy is small) and all chains have the same token, the site is settled: the distribution itself
conserves it, as the framework of an antibody.

R-hat has sampling variation of its own: of 16 half chains with 6 effective draws each it is 1.08 on
average although all of them have the same distribution. Chains are said to disagree only where
R-hat exceeds what their autocorrelation explains (`chance_r_hat`).
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtri
from scipy.stats import rankdata

from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.study import Result, counted, internal, one_of, reported, study
from glauber.runs.export import forced_steps, step_means
from glauber.runs.run import Run

if TYPE_CHECKING:
    import plotly.graph_objects as go

Floats = NDArray[np.float64]
Statistic = Callable[[str], float]  # of one text
Motion = Literal["moving", "partly frozen", "frozen"]
STATISTICS = ("unchanged", "distinct", "copies", "log_prob")
STOOD_STILL = (
    "stood still for half of the steps on end, or at most of the sites that are not settled"
)
MAX_CONSERVED_ENTROPY = 0.5  # nats: mean conditional entropy of a settled site, at most
DRAWS = 5000  # of a chain, at most; a longer window is thinned
FEWEST_DRAWS = 20
REDRAWS = 4  # of each site on average, so that all but one in fifty were chosen at all
AGREE = 1.01  # R-hat up to which chains count as agreeing (Vehtari and others 2021)
ENOUGH = 400  # effective draws for figures that are steady themselves (the same)
CHANCE = 0.99  # probability that stationary chains have an R-hat up to chance_r_hat
LONGEST_WINDOW = 0.75  # of a chain, whose autocovariances may be summed up
STEADY_LENGTH = 20  # autocorrelation times of a chain, below which effective draws are rough
VERDICTS = {
    "constant": "does not vary in half of some chain although the text moves, so it tells nothing",
    "not finite": "is infinite or missing at some step, so it tells nothing",
    "disagreeing": f"has R-hat above {AGREE} and above what chance explains: the chains still "
    "tell their starts apart",
    "short": f"has too few effective draws to judge (fewer than {ENOUGH}, or an R-hat above "
    f"{AGREE} that chance explains)",
    "alone": "has enough effective draws in its one chain, which no other chain confirms",
    "two": "agrees between two chains, which is little: both may sit in one place (take four)",
}


@study
def diagnose(
    run: Annotated[Run | str | Path, "The run's folder."],
    *,
    burn_in: Annotated[int | None, "Steps not counted (default: half).", Whole(0, 10**15)] = None,
    statistics: Annotated[
        str | Sequence[str] | Mapping[str, Statistic],
        "unchanged, distinct, copies, log_prob; in Python also functions of a text, by name.",
    ] = STATISTICS,
) -> "Diagnostics":
    """Check whether a run has mixed: R-hat and effective sample size, unless chains are frozen.

    Effective draws, R-hat and autocorrelation times of numbers of the text along the chains, all
    estimates. A chain is frozen if it never moved, and partly frozen if it stood still for half of
    the steps on end or at most of its sites; sites at which the model leaves hardly a choice, and
    all chains hold the same token, are settled and do not count. Chains of different temperatures
    are judged apart. They disagree where R-hat is above 1.01 and above the largest value that
    stationary chains with the same autocorrelation would have in 99% of runs; an R-hat between
    these two means too few draws.
    """
    statistics = _check_statistics(statistics)
    stored_run = Run.of(run)
    burn_in = stored_run.steps // 2 if burn_in is None else burn_in
    n_steps = stored_run.steps - burn_in
    _check_window(stored_run, burn_in, n_steps)
    every = -(-n_steps // DRAWS)
    motions = mobility(stored_run, burn_in)
    values = statistics_along(stored_run, statistics, first=burn_in, every=every)
    rows = tuple(
        row
        for name, chains in _groups(stored_run)
        for row in diagnoses(
            {f"{key}{name}": value[chains] for key, value in values.items()},
            state=_withholding_state([motions.chains[chain] for chain in chains]),
            every=every,
        )
    )
    return Diagnostics(
        run=stored_run.name,
        rows=rows,
        motions=motions,
        verdict=_verdict(motions, rows),
        burn_in=burn_in,
        n_steps=n_steps,
        every=every,
        values=values,
    )


@dataclass(frozen=True)
class Diagnosis:
    """One statistic: numbers only where they mean something."""

    statistic: str
    state: str  # frozen, partly frozen, constant, disagreeing, short, alone, two or agreeing
    ess: float | None  # effective draws, all chains together
    r_hat: float | None
    chance_r_hat: float | None  # largest R-hat that the autocorrelation explains, at 99%
    autocorrelation_time: float | None  # in steps
    kind: str = "estimate"


@dataclass(frozen=True, eq=False)
class Diagnostics(Result):
    """Every statistic of a run, and the verdict in words."""

    run: str
    rows: tuple[Diagnosis, ...]
    motions: "ChainMobility"
    verdict: str
    burn_in: int
    n_steps: int  # after the burn-in
    every: int  # steps between draws
    values: dict[str, Floats] = internal()  # each statistic (chains, draws)

    @reported
    def rough(self) -> tuple[str, ...]:
        """Statistics whose chains are too short for a precise number of effective draws."""
        return tuple(
            row.statistic
            for row in self.rows
            if row.autocorrelation_time is not None
            and self.n_steps < STEADY_LENGTH * row.autocorrelation_time
        )

    def lines(self) -> Iterable[str]:
        width = max(len(row.statistic) for row in self.rows)
        yield f"{'':>{width}}  effective draws    R-hat  by chance  autocorrelation (estimates)"
        for row in self.rows:
            ess = "-" if row.ess is None else f"{row.ess:,.0f}"
            r_hat = "-" if row.r_hat is None else f"{row.r_hat:.3f}"
            chance = "-" if row.chance_r_hat is None else f"<= {row.chance_r_hat:.3f}"
            time = row.autocorrelation_time
            steps = "-" if time is None else f"{time:,.1f} steps"
            yield (
                f"{row.statistic:>{width}}  {ess:>15} {r_hat:>8}  {chance:>9}  {steps:>15}  "
                f"{row.state}"
            )
        yield (
            f"{counted(len(self.motions.chains), 'chain')}, {self.n_steps:,} steps each after a "
            f"burn-in of {self.burn_in:,}"
        )
        settled = max(self.motions.sites_settled)
        if settled > 0:
            yield (
                f"up to {settled:.0%} of a chain's sites are settled: the model leaves hardly a "
                "choice there, and all chains hold the same token"
            )
        if rough := self.rough:
            yield (
                f"effective draws of {', '.join(rough)} are rough: the chains are shorter than "
                f"{STEADY_LENGTH} autocorrelation times, and the figure may be off by a quarter"
            )
        yield self.verdict

    def table(self) -> tuple[Diagnosis, ...]:
        """One row per statistic."""
        return self.rows

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.mixing import plot_statistics

        n_draws = next(iter(self.values.values())).shape[1]
        last = (self.burn_in + self.n_steps) // self.every * self.every
        steps = last - self.every * np.arange(n_draws)[::-1]
        return plot_statistics(self.values, steps)


def diagnoses(
    statistics: Mapping[str, Floats], *, state: str | None = None, every: int = 1
) -> tuple[Diagnosis, ...]:
    """A row for each statistic (chains, draws); with a state, every number is withheld."""
    return tuple(_row(name, values, state, every) for name, values in statistics.items())


def _row(name: str, values: Floats, state: str | None, every: int) -> Diagnosis:
    if state is None and not np.isfinite(values).all():
        state = "not finite"
    if state is None and any(_constant(half) for half in np.array_split(values, 2, axis=1)):
        state = "constant"
    if state is not None:
        return Diagnosis(name, state, None, None, None, None)
    ess = effective_draws(values)
    r_hat, limit = (_r_hat(values), chance_r_hat(values)) if len(values) > 1 else (None, None)
    time = every * values.size / float(_arviz().ess(values, method="mean"))
    return Diagnosis(name, _mixing_state(len(values), ess, r_hat, limit), ess, r_hat, limit, time)


def effective_draws(values: Floats) -> float:
    """ArviZ's bulk effective sample size of (chains, draws).

    Of chains shorter than about 20 autocorrelation times it is off by up to a quarter: as a rule
    too large for two chains, and too small for eight and more (docs/statistics.md).
    """
    return float(_arviz().ess(values, method="bulk"))


def _constant(values: Floats) -> bool:
    """Whether some chain's values do not vary; R-hat compares halves, so it asks this of each."""
    return bool((values == values[:, :1]).all(axis=1).any())


def _r_hat(values: Floats) -> float:
    """The larger of the rank R-hat of the values and of their distances from the median.

    The latter is not defined where all distances are equal, as for a statistic of two values.
    """
    arviz = _arviz()
    with np.errstate(divide="ignore", invalid="ignore"):
        both = [float(arviz.rhat(values, method=method)) for method in ("z_scale", "folded")]
    return float(np.nanmax(both))


def chance_r_hat(values: Floats) -> float:
    """The largest R-hat of stationary chains with the autocorrelation of these (chains, draws).

    Means of 2m half chains of h draws have the variance L / h, where L is the sum of all
    autocovariances. So R-hat^2 is 1 - 1/h + L / (h W) times chi^2 / (2m - 1) with 2m - 1 degrees of
    freedom, W being the variance within half chains. L is taken from within the chains, or chains
    in different modes would explain their distance themselves. Half of 1 - CHANCE is spent on the
    R-hat of the values and half on that of their distances from the median.
    """
    n_halves, half = 2 * len(values), values.shape[1] // 2
    spread = float(chdtri(n_halves - 1, (1 - CHANCE) / 2)) / (n_halves - 1)
    limits = []
    for scores in (_normal_scores(values), _normal_scores(np.abs(values - np.median(values)))):
        halves = np.concatenate([scores[:, :half], scores[:, -half:]])
        within = float(halves.var(axis=1, ddof=1).mean())
        if within > 0:
            limits.append(1 - 1 / half + _long_run_variance(scores) / (half * within) * spread)
    return float(np.sqrt(max(limits)))


def _normal_scores(values: Floats) -> Floats:
    """Normal quantiles of the ranks among all draws of all chains (Vehtari and others 2021)."""
    ranks = rankdata(values, method="average").reshape(values.shape)
    return np.asarray(ndtri((ranks - 0.375) / (values.size + 0.25)))


def _long_run_variance(scores: Floats) -> float:
    """The sum of the autocovariances at all lags, positive and negative, within chains.

    Over Geyer's initial monotone sequence of the mean autocovariances. Taking the mean of a chain
    of n draws from its values makes each of them too small by L / n, which is added again.
    """
    n = scores.shape[1]
    spectrum = np.fft.rfft(scores - scores.mean(axis=1, keepdims=True), 2 * n, axis=1)
    autocovariances = np.fft.irfft(np.abs(spectrum) ** 2, 2 * n, axis=1)[:, :n].mean(axis=0) / n
    pairs = np.minimum.accumulate(autocovariances[: n // 2 * 2].reshape(-1, 2).sum(axis=1))
    n_pairs = max(int((pairs > 0).argmin()) if (pairs <= 0).any() else len(pairs), 1)
    total = max(2 * float(pairs[:n_pairs].sum()) - float(autocovariances[0]), 0.0)
    return total / (1 - min((4 * n_pairs - 1) / n, LONGEST_WINDOW))


def _mixing_state(n_chains: int, ess: float, r_hat: float | None, limit: float | None) -> str:
    if r_hat is not None and limit is not None and r_hat > AGREE:
        return "disagreeing" if r_hat > limit else "short"
    if ess < ENOUGH:
        return "short"
    return {1: "alone", 2: "two"}.get(n_chains, "agreeing")


def _withholding_state(motions: Sequence[str]) -> str | None:
    """The state that withholds every number of these chains, if there is one."""
    return next((state for state in ("frozen", "partly frozen") if state in motions), None)


def _verdict(motions: "ChainMobility", rows: tuple[Diagnosis, ...]) -> str:
    """Whether the run mixed, and if not, why not."""
    if _withholding_state(motions.chains) is not None:
        return f"not mixed: {motions.summary}; no effective sample size is given for such chains"
    reasons = [
        f"{', '.join(row.statistic for row in rows if row.state == state)} {explanation}"
        for state, explanation in VERDICTS.items()
        if any(row.state == state for row in rows)
    ]
    if not reasons:
        return (
            "no sign against mixing: every chain moves, and the chains agree in every statistic "
            "(this is not a proof: all chains may share one trap larger than a state)"
        )
    return "not shown to be mixed: " + "; ".join(reasons)


def _groups(run: Run) -> list[tuple[str, NDArray[np.int64]]]:
    """The chains of each temperature, and what is added to a statistic's name for them."""
    temperatures = np.unique(run.temperatures)
    if len(temperatures) == 1:
        return [("", np.arange(run.n_chains))]
    return [(f" at {t:g}", np.flatnonzero(run.temperatures == t)) for t in temperatures]


def _check_statistics(
    statistics: str | Sequence[str] | Mapping[str, Statistic],
) -> tuple[str, ...] | Mapping[str, Statistic]:
    """Names of built-in statistics, or functions by name."""
    if isinstance(statistics, Mapping):
        if not statistics or not all(map(callable, statistics.values())):
            raise GlauberError("statistics must be functions of a text, by their names.")
        return statistics
    names = statistics.split(",") if isinstance(statistics, str) else list(statistics)
    return tuple(one_of("a statistic", str(name).strip(), STATISTICS) for name in names)


def _check_window(run: Run, burn_in: int, n_steps: int) -> None:
    if not 0 <= burn_in <= run.steps:
        raise GlauberError(
            f"the burn-in is {burn_in} steps, but the run {run.name} has {run.steps}."
        )
    if run.steps == 0:
        raise GlauberError(f"the run {run.name} has no steps yet, so there is nothing to judge.")
    slots = run.read("site", 0, 1).shape[2]
    needed = max(FEWEST_DRAWS, -(-REDRAWS * int(run.free.sum(axis=1).max()) // slots))
    if n_steps < needed:
        raise GlauberError(
            f"{n_steps} steps after the burn-in are too few to judge: texts of this length need "
            f"at least {needed}, so that each site is redrawn about {REDRAWS} times."
        )


def _arviz() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arviz announces its own next version on import
        import arviz
    return arviz


@dataclass(frozen=True)
class ChainMobility:
    """How each chain moved in a window of steps."""

    chains: tuple[Motion, ...]
    still: tuple[int, ...]  # most steps on end without a change, of each chain
    sites_moved: tuple[float, ...]  # share of its free sites that changed at least once
    sites_settled: tuple[float, ...]  # share that never did, since the model leaves no choice there
    n_states: int | None  # different texts in which frozen chains stand; None if none is frozen

    def of(self, motion: Motion) -> list[int]:
        """The numbers of the chains that moved so."""
        return [chain for chain, own in enumerate(self.chains) if own == motion]

    @property
    def summary(self) -> str:
        """What happened, in one sentence."""
        frozen, partly, total = self.of("frozen"), self.of("partly frozen"), len(self.chains)
        if len(frozen) == total:
            if total == 1:
                return "the only chain is frozen: it did not move in the steps that count"
            where = "one state" if self.n_states == 1 else f"{self.n_states} different states"
            return f"all {total} chains are frozen, in {where}: none moved in the steps that count"
        if total == 1:
            return "the only chain " + (
                "stood still for half of the steps on end, or at most of the "
                "sites that are not settled"
                if partly
                else "moves"
            )
        notes = []
        if frozen:
            notes.append(f"{len(frozen)} of {total} chains did not move (frozen: {_list(frozen)})")
        if partly:
            notes.append(
                f"{len(partly)} of {total} chains {STOOD_STILL} (partly frozen: {_list(partly)})"
            )
        return " and ".join(notes) or f"all {total} chains move"


def mobility(run: Run, first: int) -> ChainMobility:
    """How each chain moved in the steps after `first`.

    frozen: no step changed a token. Partly frozen: for at least half of the steps on end no token
    changed, or more than half of the free sites that are not settled never changed.
    """
    changed, sites = run.read("changed", first), run.read("site", first)  # (chains, steps, slots)
    n_steps = changed.shape[1]
    still = [longest_run(~row.any(axis=1)) for row in changed]
    moved = np.zeros(run.free.shape, bool)
    chain, step, slot = np.nonzero(changed)
    moved[chain, sites[chain, step, slot]] = True
    entropies = _mean_entropy(run, sites, first)
    end = run.tokens()
    settled = (
        run.free
        & ~moved
        & (entropies <= MAX_CONSERVED_ENTROPY)
        & _agreement(end, run.free & ~moved)
    )
    n_free, n_moved, n_settled = (part.sum(axis=1) for part in (run.free, moved, settled))
    motions = tuple(
        _motion(*counts, n_steps)
        for counts in zip(still, n_moved.tolist(), (n_free - n_settled).tolist(), strict=True)
    )
    frozen = {tuple(row) for row, own in zip(end, motions, strict=True) if own == "frozen"}
    share_moved, share_settled = (tuple((part / n_free).tolist()) for part in (n_moved, n_settled))
    return ChainMobility(motions, tuple(still), share_moved, share_settled, len(frozen) or None)


def longest_run(flags: NDArray[np.bool_]) -> int:
    """The most true flags on end, of (count,)."""
    edges = np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))
    begins, ends = np.nonzero(edges == 1)[0], np.nonzero(edges == -1)[0]
    return int((ends - begins).max(initial=0))


def statistics_along(
    run: Run, statistics: tuple[str, ...] | Mapping[str, Statistic], *, first: int, every: int
) -> dict[str, Floats]:
    """Statistics (chains, draws) after the steps after `first` that `every` divides.

    unchanged    share of the free sites with their starting token
    distinct     different tokens among the free sites, over their number
    copies       free sites with the run's most common token, over their number
    log_prob     log-probability that the last redraw gave to what it drew, mean over its sites

    A function receives the text of each chain.
    """
    late = [tokens for step, tokens in run.states(every=every) if step > first]
    if isinstance(statistics, Mapping):
        return {name: _own(run, statistic, late) for name, statistic in statistics.items()}
    return dict(_built_in(run, name, late, first, every) for name in statistics)


def _built_in(
    run: Run, name: str, late: list[NDArray[np.int64]], first: int, every: int
) -> tuple[str, Floats]:
    free, n_free = run.free, run.free.sum(axis=1)
    if name == "log_prob":
        steps = [step for step in range(every, run.steps + 1, every) if step > first]
        return name, _log_probs(run, steps)
    if name == "unchanged":
        start = run.tokens(0)
        counts = [((tokens == start) & free).sum(axis=1) for tokens in late]
    elif name == "distinct":
        counts = [_n_distinct(tokens, free) for tokens in late]
    else:
        common = _most_common(late, free)
        name = f"copies of {run.vocabulary.spell(common)}"
        counts = [((tokens == common) & free).sum(axis=1) for tokens in late]
    return name, np.asarray(np.stack(counts, axis=1) / n_free[:, None])


def _own(run: Run, statistic: Statistic, late: list[NDArray[np.int64]]) -> Floats:
    """The value of a function of each text, (chains, draws); once of a text that stands still."""
    known: dict[bytes, float] = {}

    def values(tokens: NDArray[np.int64]) -> Iterator[float]:
        for row in tokens:
            key = row.tobytes()
            if key not in known:
                known[key] = float(statistic(run.vocabulary.decode(row)))
            yield known[key]

    return np.stack([np.array(list(values(tokens))) for tokens in late], axis=1)


def _mean_entropy(run: Run, sites: NDArray[np.int64], first: int) -> Floats:
    """The mean entropy of each site's conditionals where it was redrawn (chains, length).

    Infinite where it never was, or only while the budget of changes was spent.
    """
    entropy = run.read("entropy", first).astype(np.float64)
    open_events = ~forced_steps(run)[:, first:, None]
    chain, step, slot = np.nonzero((sites >= 0) & open_events)
    total, count = np.zeros(run.free.shape), np.zeros(run.free.shape)
    redraw = chain, sites[chain, step, slot]
    np.add.at(total, redraw, entropy[chain, step, slot])
    np.add.at(count, redraw, 1)
    return np.where(count > 0, total / np.maximum(count, 1), np.inf)


def _agreement(tokens: NDArray[np.int64], still: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Sites (length,) at which all chains that stand still there have the same token."""
    low = np.where(still, tokens, np.iinfo(np.int64).max).min(axis=0)
    high = np.where(still, tokens, np.iinfo(np.int64).min).max(axis=0)
    return np.asarray(low >= high)


def _motion(still: int, n_moved: int, n_due: int, n_steps: int) -> Motion:
    if n_moved == 0:
        return "frozen"
    return "partly frozen" if 2 * still >= n_steps or 2 * n_moved < n_due else "moving"


def _list(chains: list[int]) -> str:
    shown = ", ".join(str(chain) for chain in chains[:8])
    return f"chain {shown}" + (f" and {len(chains) - 8} more" if len(chains) > 8 else "")


def _n_distinct(tokens: NDArray[np.int64], free: NDArray[np.bool_]) -> NDArray[np.int64]:
    rows = [len(np.unique(row[own])) for row, own in zip(tokens, free, strict=True)]
    return np.array(rows)


def _most_common(late: list[NDArray[np.int64]], free: NDArray[np.bool_]) -> int:
    values, counts = np.unique(np.stack(late)[:, free], return_counts=True)
    return int(values[counts.argmax()])


def _log_probs(run: Run, steps: list[int]) -> Floats:
    """Mean over the redrawn sites of the steps that end at `steps`, (chains, draws)."""
    return step_means(run, "log_prob_new")[:, np.array(steps) - 1]
