"""Has the run mixed, as far as its own statistics can tell?

Effective sample size, R-hat and autocorrelation time by ArviZ, made safe: with all chains frozen
in one trap ArviZ reports an effective sample size equal to the number of draws. Here no statistic
gets a figure while a chain is frozen or partly frozen, and a statistic that does not vary in some
chain gets none either. What is wrong is written in its place.

R-hat has sampling variation of its own: of 16 half chains with 6 effective draws each it is 1.08 on
average although all of them have the same distribution. Chains are said to disagree only where
R-hat exceeds what their autocorrelation explains (`chance_r_hat`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.mixing.motion import STATISTICS, Motions, Statistic, follow, motions
from glauber.progress import check_count
from glauber.result import Result, counted, one_of, plain, signed, study
from glauber.runs.run import Run

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

Floats = NDArray[np.float64]
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
    burn_in: Annotated[int | None, "Steps not counted (default: half)."] = None,
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
    wanted = _statistics(statistics)
    opened = Run.of(run)
    burn_in = opened.steps // 2 if burn_in is None else burn_in
    check_count("burn-in", burn_in, least=0, most=10**15)
    n_steps = opened.steps - burn_in
    _check_window(opened, burn_in, n_steps)
    every = -(-n_steps // DRAWS)
    moved = motions(opened, burn_in)
    values = follow(opened, wanted, first=burn_in, every=every)
    rows = tuple(
        row
        for name, chains in _groups(opened)
        for row in diagnoses(
            {f"{key}{name}": one[chains] for key, one in values.items()},
            state=_held([moved.chains[chain] for chain in chains]),
            every=every,
        )
    )
    return Diagnostics(
        rows=rows,
        motions=moved,
        verdict=_verdict(moved, rows),
        burn_in=burn_in,
        n_steps=n_steps,
        every=every,
        values=values,
        run=opened.name,
        signature=signed(opened.signature, burn_in=burn_in),
    )


@dataclass(frozen=True)
class Diagnosis:
    """One statistic: figures only where they mean something."""

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

    rows: tuple[Diagnosis, ...]
    motions: Motions
    verdict: str
    burn_in: int
    n_steps: int  # behind the burn-in
    every: int  # steps between draws
    values: dict[str, Floats]  # each statistic (chains, draws)
    run: str
    signature: str

    def to_dict(self) -> Record:
        record = {name: one for name, one in vars(self).items() if name != "values"}
        return dict(plain(record))

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
            f"{counted(len(self.motions.chains), 'chain')}, {self.n_steps:,} steps each behind a "
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

    @property
    def rough(self) -> tuple[str, ...]:
        """Statistics whose chains are too short for a precise number of effective draws."""
        return tuple(
            row.statistic
            for row in self.rows
            if row.autocorrelation_time is not None
            and self.n_steps < STEADY_LENGTH * row.autocorrelation_time
        )

    def frame(self) -> "pandas.DataFrame":
        """One row per statistic."""
        import pandas

        return pandas.DataFrame([vars(row) for row in self.rows])

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.mixing import plot_statistics

        n_draws = next(iter(self.values.values())).shape[1]
        last = (self.burn_in + self.n_steps) // self.every * self.every
        steps = last - self.every * np.arange(n_draws)[::-1]
        return plot_statistics(self.values, steps)


def diagnoses(
    statistics: Mapping[str, Floats], *, state: str | None = None, every: int = 1
) -> tuple[Diagnosis, ...]:
    """A row for each statistic (chains, draws); a state given here withholds every figure."""
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
    return Diagnosis(name, _mixed(len(values), ess, r_hat, limit), ess, r_hat, limit, time)


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
    from scipy.special import chdtri

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
    from scipy.special import ndtri
    from scipy.stats import rankdata

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


def _mixed(n_chains: int, ess: float, r_hat: float | None, limit: float | None) -> str:
    if r_hat is not None and limit is not None and r_hat > AGREE:
        return "disagreeing" if r_hat > limit else "short"
    if ess < ENOUGH:
        return "short"
    return {1: "alone", 2: "two"}.get(n_chains, "agreeing")


def _held(named: Sequence[str]) -> str | None:
    """The state that withholds every figure of these chains, if there is one."""
    return next((state for state in ("frozen", "partly frozen") if state in named), None)


def _verdict(moved: Motions, rows: tuple[Diagnosis, ...]) -> str:
    """Whether the run mixed, and if not, why not."""
    if _held(moved.chains) is not None:
        return f"not mixed: {moved.summary}; no effective sample size is given for such chains"
    reasons = [
        f"{', '.join(row.statistic for row in rows if row.state == state)} {words}"
        for state, words in VERDICTS.items()
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
    each = run.temperatures
    values = np.unique(each)
    if len(values) == 1:
        return [("", np.arange(run.n_chains))]
    return [(f" at {one:g}", np.flatnonzero(each == one)) for one in values]


def _statistics(given: Any) -> tuple[str, ...] | Mapping[str, Statistic]:
    """Names of built-in statistics, or functions by name."""
    if isinstance(given, Mapping):
        if not given or not all(callable(one) for one in given.values()):
            raise GlauberError("statistics must be functions of a text, by their names.")
        return given
    names = given.split(",") if isinstance(given, str) else list(given)
    found = tuple(one_of("a statistic", str(name).strip(), STATISTICS) for name in names)
    return found


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
            f"{n_steps} steps behind the burn-in are too few to judge: texts of this length need "
            f"at least {needed}, so that each site is redrawn about {REDRAWS} times."
        )


def _arviz() -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arviz announces its own next version on import
        import arviz
    return arviz
