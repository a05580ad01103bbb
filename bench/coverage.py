"""Do the intervals keep their level? python -m bench.coverage [TABLE ...] [--write PAGE]

Synthetic chains whose true answer is known, 2 to 30 of them: how often does the interval of
`glauber.foundation.statistics` contain the truth? Tables: intervals (the default; all kinds of
intervals),
bounded (scores, by an earlier method and the present one), labels (how often `topics` calls a label
special), exponent (of hitting times), draws (effective draws over the true number) and r-hat (how
often stationary chains are said to disagree). With --write a table replaces the one in
docs/statistics.md.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.statistics import (
    CONFIDENCE,
    Estimate,
    MedianTime,
    clustered_mean,
    clustered_median_time,
    clustered_proportion,
    difference,
    jackknife,
    median_time,
    proportion,
    rank_correlation,
    ratio_over_chains,
    t_quantile,
)
from glauber.foundation.statistics.means import bounded_ends, mean_ends, tail_probability
from glauber.studies.landscape.recurrence import exchangeable_p_values
from glauber.studies.mixing.diagnostics import diagnoses, effective_draws

Floats = NDArray[np.float64]
Generator = np.random.Generator
CHAINS = (4, 8, 16, 30)
COMPARED_CHAINS = (2, 4, 8, 30)  # of the tables that compare two methods
N_LABELS = 9
TOGETHER = 100  # samples of chains that are made at once


class Covered(NamedTuple):
    """How often intervals held the truth, among those that were given with an end."""

    share: float
    given: float  # share of samples with an interval
    n: int  # samples with an interval

    @property
    def error(self) -> float:
        """Of the simulation, one standard deviation at a true 93%."""
        return float(np.sqrt(0.93 * 0.07 / max(self.n, 1)))


class Case(NamedTuple):
    """One kind of chains and the interval that is asked for."""

    question: str
    chains: str
    measure: Callable[[Generator, int, int], Covered]  # generator, chains, repetitions


def covered(low: Floats, high: Floats, truth: float) -> Covered:
    """Ends (samples,), nan where refused."""
    given = np.isfinite(low) | np.isfinite(high)
    held = (low <= truth) & (truth <= high)
    n = int(given.sum())
    return Covered(float(held[given].mean()) if n else float("nan"), n / len(low), n)


def means(
    draw: Callable[[Generator, tuple[int, int]], Floats],
    truth: float,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> Callable[[Generator, int, int], Covered]:
    """All samples at once: the mean of (samples, chains), as mean_over_chains has it."""

    def measure(generator: Generator, n: int, repetitions: int) -> Covered:
        if np.isfinite(bounds).all():
            values = draw(generator, (repetitions, n))
            low, high = bounded_ends(values, np.ones_like(values), tail_probability(), bounds)
        else:
            low, high = mean_ends(draw(generator, (5 * repetitions, n)), tail_probability(), bounds)
        return covered(low, high, truth)

    return measure


def one_by_one(
    draw: Callable[[Generator, int], Estimate | MedianTime], truth: float, *, fewer: int = 1
) -> Callable[[Generator, int, int], Covered]:
    """One sample at a time, by the public function; `fewer` times less where one is slow."""

    def measure(generator: Generator, n: int, repetitions: int) -> Covered:
        pairs = [draw(generator, n).interval or (None, None) for _ in range(repetitions // fewer)]
        given = [pair != (None, None) for pair in pairs]
        ends = np.array([_open(pair) for pair in pairs])
        return covered(
            np.where(given, ends[:, 0], np.nan), np.where(given, ends[:, 1], np.nan), truth
        )

    return measure


def _open(pair: tuple[float | None, float | None]) -> tuple[float, float]:
    low, high = pair
    return -np.inf if low is None else low, np.inf if high is None else high


def autoregressive(generator: Generator, shape: tuple[int, int]) -> Floats:
    """Averages over 50 steps of chains that forget a tenth of their state in each, mean 0."""
    state, total = generator.normal(size=shape) / np.sqrt(1 - 0.9**2), np.zeros(shape)
    for _ in range(50):
        state = 0.9 * state + generator.normal(size=shape)
        total += state
    return total / 50


def mostly_zero(generator: Generator, shape: tuple[int, int]) -> Floats:
    """Scores of 0 to 1, three in five of them 0; mean 0.2."""
    return np.where(generator.random(shape) < 0.6, 0.0, generator.random(shape))


def rare(chance: float, far: float) -> tuple[Callable[[Generator, tuple[int, int]], Floats], float]:
    """Scores near 0.02, but this share of the chains at `far`; and their mean."""

    def draw(generator: Generator, shape: tuple[int, int]) -> Floats:
        near = 0.02 + 0.005 * generator.normal(size=shape)
        return np.where(generator.random(shape) < chance, far, near)

    return draw, chance * far + (1 - chance) * 0.02


def labels_together(generator: Generator, n: int, repetitions: int) -> Covered:
    """Five labels of the same chains: whether all five intervals hold theirs."""
    shared = generator.normal(size=(repetitions, 1, n))
    values = 0.5 * shared + generator.gamma(4, size=(repetitions, 5, n))
    low, high = mean_ends(values, tail_probability(comparisons=5))
    held = ((low <= 4) & (high >= 4)).all(axis=1)
    return Covered(float(held.mean()), 1.0, repetitions)


def trials(chance: float, alike: float = 0) -> Callable[[Generator, int], Estimate]:
    """One trial a chain, or 20 of which two of one chain are correlated by `alike`."""

    def draw(generator: Generator, n: int) -> Estimate:
        if not alike:
            return proportion(int(generator.binomial(n, chance)), n)
        size = 1 / alike - 1
        chances = generator.beta(chance * size, (1 - chance) * size, size=n)
        return clustered_proportion(generator.binomial(20, chances), np.full(n, 20))

    return draw


def shared_mean(generator: Generator, n: int) -> Estimate:
    """1 to 9 values of a chain that share half of their variance; mean 0."""
    chain = np.repeat(np.arange(n), generator.integers(1, 10, size=n))
    own = generator.normal(size=n)[chain]
    return clustered_mean(own + generator.normal(size=len(chain)), chain)


def ratio(generator: Generator, n: int) -> Estimate:
    """Correlated positive numerators (mean 4) and denominators (mean 5)."""
    above = generator.gamma(4, size=n)
    below = above / 2 + generator.gamma(3, size=n)
    return ratio_over_chains(above, below, bounds=(0, np.inf))


def groups(draw: str) -> Callable[[Generator, int], Estimate]:
    """n chains against n others whose values spread twice as far, with equal means."""

    def measured(generator: Generator, n: int) -> Estimate:
        if draw == "normal":
            return difference(generator.normal(size=n), 2 * generator.normal(size=n))
        one, other = (generator.lognormal(0, 0.5, size=n) - np.exp(0.125) for _ in range(2))
        return difference(one, 2 * other)

    return measured


def two_states(generator: Generator, n: int, repetitions: int) -> Floats:
    """Counts (samples, chains, 4) of 100 steps between two states, left with 0.05 and 0.1."""
    shape = repetitions, n
    state, counts = generator.random(shape) < 1 / 3, np.zeros((4, *shape))
    for _ in range(100):
        drawn = generator.random(shape)
        new = np.where(state, drawn >= 0.1, drawn < 0.05)
        counts += np.stack([~state, ~state & new, state, state & ~new])
        state = new
    return np.moveaxis(counts, 0, 2)


def of_two_states(
    figure: Callable[[Floats], Floats], truth: float, scale: str
) -> Callable[[Generator, int, int], Covered]:
    """A figure of the counts (4,) of all chains together."""

    def measure(generator: Generator, n: int, repetitions: int) -> Covered:
        found = iter(two_states(generator, n, repetitions))

        def draw(_: Generator, n: int) -> Estimate:
            counts = next(found)
            return jackknife(lambda weights: figure(weights @ counts), n, scale=scale).item()

        return one_by_one(draw, truth)(generator, n, repetitions)

    return measure


def timescale(counts: Floats) -> Floats:
    """-1 / log of the second eigenvalue, which is 0.85."""
    zero, left, one, back = counts
    return np.asarray(-1 / np.log(max(1 - left / zero - back / one, 1e-9)))


def leaving(counts: Floats) -> Floats:
    """The chance to leave the first state, 0.05."""
    return np.asarray(counts[1] / counts[0])


def spread(generator: Generator, n: int) -> Estimate:
    """The standard deviation of ten values of each chain that share a third of their variance."""
    values = generator.normal(size=(n, 10)) + 0.7 * generator.normal(size=(n, 1))
    sums = np.stack([values.sum(axis=1), (values**2).sum(axis=1)], axis=1)

    def figure(weights: Floats) -> Floats:
        first, second = weights @ sums / (10 * weights.sum())
        return np.asarray(np.sqrt(second - first**2))

    return jackknife(figure, n, scale="log").item()


def ranks(correlation: float, each: int) -> Callable[[Generator, int], Estimate]:
    """n chains of `each` pairs; two pairs of one chain share half of their variance."""

    def noise(generator: Generator, n: int) -> Floats:
        own = generator.normal(size=(n, each))
        return own if each == 1 else (own + generator.normal(size=(n, 1))) / np.sqrt(2)

    def draw(generator: Generator, n: int) -> Estimate:
        x = noise(generator, n)
        y = correlation * x + np.sqrt(1 - correlation**2) * noise(generator, n)
        chain = None if each == 1 else np.repeat(np.arange(n), each)
        return rank_correlation(x.ravel(), y.ravel(), chain=chain)

    return draw


def times(censoring: float, each: int) -> Callable[[Generator, int], MedianTime]:
    """Exponential times, censored at the same rate times `censoring`; `each` a chain."""

    def draw(generator: Generator, n: int) -> MedianTime:
        pace = 1.0 if each == 1 else np.exp(0.5 * generator.normal(size=(n, 1)))
        came = (pace * generator.exponential(size=(n, each))).ravel()
        ends = generator.exponential(size=n * each) / censoring if censoring else np.inf
        seen, happened = np.minimum(came, ends), came <= ends
        if each == 1:
            return median_time(seen, happened)
        return clustered_median_time(seen, happened, np.repeat(np.arange(n), each))

    return draw


def spearman(correlation: float) -> float:
    """Of two normal measures with this correlation (Pearson)."""
    return float(6 / np.pi * np.arcsin(correlation / 2))


# The median of an exponential time whose mean is itself log-normal with deviation 0.5: the root of
# E exp(-t exp(-0.5 z)) = 1/2, by quadrature.
MIXED_MEDIAN = 0.6712124
TIMESCALE = -1 / np.log(0.85)
CASES = [
    Case("mean", "normal", means(lambda g, s: g.normal(size=s), 0.0)),
    Case("mean", "averages of autoregressive chains", means(autoregressive, 0.0)),
    Case("mean", "uniform in 0 to 1", means(lambda g, s: g.random(s), 0.5, (0, 1))),
    Case("mean", "three in five are 0, the rest uniform", means(mostly_zero, 0.2, (0, 1))),
    Case("mean", "scores, 1 chain in 10 at 0.9", means(*rare(0.1, 0.9), (0, 1))),
    Case("mean", "scores, 1 chain in 25 at 0.95", means(*rare(0.04, 0.95), (0, 1))),
    Case("mean", "beta(0.15, 0.85)", means(lambda g, s: g.beta(0.15, 0.85, s), 0.15, (0, 1))),
    Case("mean", "skewness 1 (gamma)", means(lambda g, s: g.gamma(4, size=s), 4.0)),
    Case(
        "mean", "skewness 1.75 (log-normal)",
        means(lambda g, s: g.lognormal(0, 0.5, s), float(np.exp(0.125)), (0, np.inf)),
    ),
    Case("mean", "skewness 2 (exponential)", means(lambda g, s: g.exponential(size=s), 1.0)),
    Case("mean, 5 labels together", "skewness 1, correlated", labels_together),
    Case("mean, several values a chain", "1 to 9, correlated by half", one_by_one(shared_mean, 0)),
    Case("share, one trial a chain", "0.1", one_by_one(trials(0.1), 0.1)),
    Case("share, one trial a chain", "0.5", one_by_one(trials(0.5), 0.5)),
    Case("share, 20 trials a chain", "0.1, correlated by 0.3", one_by_one(trials(0.1, 0.3), 0.1)),
    Case("share, 20 trials a chain", "0.4, correlated by 0.1", one_by_one(trials(0.4, 0.1), 0.4)),
    Case("ratio of means", "correlated gammas", one_by_one(ratio, 0.8)),
    Case("difference of two groups", "normal, twice the spread", one_by_one(groups("normal"), 0)),
    Case("difference of two groups", "log-normal, twice the spread", one_by_one(groups("skew"), 0)),
    Case("any figure: timescale", "two-state chains", of_two_states(timescale, TIMESCALE, "log")),
    Case("any figure: probability", "two-state chains", of_two_states(leaving, 0.05, "logit")),
    Case("any figure: deviation", "ten values a chain", one_by_one(spread, np.sqrt(1.49))),
    Case("rank correlation", "independent pairs, 0.58", one_by_one(ranks(0.6, 1), spearman(0.6))),
    Case("rank correlation", "five pairs a chain, 0.58",
         one_by_one(ranks(0.6, 5), spearman(0.6), fewer=2)),
    Case("median time", "all seen", one_by_one(times(0, 1), np.log(2))),
    Case("median time", "a third censored", one_by_one(times(0.5, 1), np.log(2))),
    Case("median time, 5 a chain", "a third censored", one_by_one(times(0.5, 5), MIXED_MEDIAN)),
    Case("median time, 10 a chain", "all seen", one_by_one(times(0, 10), MIXED_MEDIAN, fewer=2)),
]  # fmt: skip


def percentile_bootstrap(generator: Generator, n: int, repetitions: int) -> Covered:
    """What the usual bootstrap over chains does with the deviation above: not used."""
    values = generator.normal(size=(repetitions, n, 10)) + 0.7 * generator.normal(
        size=(repetitions, n, 1)
    )
    sums = np.stack([values.sum(axis=2), (values**2).sum(axis=2)], axis=2)
    often = generator.multinomial(n, np.full(n, 1 / n), size=200).astype(np.float64)
    first, second = np.moveaxis(often @ sums / (10 * n), 2, 0)
    low, high = np.quantile(np.sqrt(second - first**2), [0.025, 0.975], axis=1)
    return covered(low, high, float(np.sqrt(1.49)))


BESIDE = [
    Case("beyond its reach: mean", "skewness 6 (log-normal, deviation 1)",
         means(lambda g, s: g.lognormal(0, 1, s), float(np.exp(0.5)), (0, np.inf))),
    Case("not used: percentile bootstrap", "deviation, as above", percentile_bootstrap),
]  # fmt: skip


def interval_table(repetitions: int, seed: int = 0) -> str:
    """The measured levels in percent; in brackets the samples that got an interval, if not all."""
    lines = _head("interval", "chains", CHAINS)
    for place, case in enumerate([*CASES, *BESIDE]):
        cells = [
            _cell(case.measure(np.random.default_rng([seed, place, n]), n, repetitions))
            for n in CHAINS
        ]
        lines.append(_line(case.question, case.chains, cells))
    return "".join(lines)


SCORES: dict[str, tuple[Callable[[Generator, tuple[int, int]], Floats], float]] = {
    "1 chain in 10 at 0.9": rare(0.1, 0.9),
    "1 chain in 25 at 0.95": rare(0.04, 0.95),
    "beta(0.15, 0.85)": (lambda g, s: g.beta(0.15, 0.85, s), 0.15),
    "uniform": (lambda g, s: g.random(s), 0.5),
    "beta(10, 10)": (lambda g, s: g.beta(10, 10, s), 0.5),
}


def bounded_table(repetitions: int, seed: int = 0) -> str:
    """How often the interval of a mean of scores contains the truth, and its mean width."""
    methods = {
        "Student, Hall (before)": lambda values: mean_ends(values, tail_probability(), (0.0, 1.0)),
        "Gaffke (now)": lambda values: bounded_ends(
            values, np.ones_like(values), tail_probability(), (0.0, 1.0)
        ),
    }
    lines = _head("scores", "interval", COMPARED_CHAINS)
    for place, (name, (draw, truth)) in enumerate(SCORES.items()):
        for method, ends in methods.items():
            cells = []
            for n in COMPARED_CHAINS:
                if n < 3:  # both methods refuse two chains
                    cells.append("refused")
                    continue
                values = draw(np.random.default_rng([seed, place, n]), (repetitions, n))
                low, high = ends(values)
                share = covered(low, high, truth).share
                cells.append(f"{share:.1%} (width {float((high - low).mean()):.2f})")
            lines.append(_line(name, method, cells))
    return "".join(lines)


LABELS = {  # chance of a chain to cross: of the first label, and of the eight others
    "nine alike, crossed by 1 chain in 10: some label is named": (0.1, 0.1),
    "nine alike, 3 in 10": (0.3, 0.3),
    "nine alike, 5 in 10": (0.5, 0.5),
    "one by 8 in 10, the others by 2 in 10: it is named": (0.8, 0.2),
    "one by 5 in 10, the others by 1 in 10": (0.5, 0.1),
}


def label_table(repetitions: int, seed: int = 0) -> str:
    """How often `topics` calls a label special: any of nine alike, or the one that is."""
    lines = _head("labels", "test", COMPARED_CHAINS)
    for place, (name, (own, other)) in enumerate(LABELS.items()):
        chances = np.array([own] + [other] * (N_LABELS - 1))
        named: dict[str, list[str]] = {"Student's intervals (before)": [], "swaps (now)": []}
        for n in COMPARED_CHAINS:
            generator = np.random.default_rng([seed, place, n])
            crossed = generator.random((repetitions, n, N_LABELS)) < chances
            counted = slice(None) if own == other else slice(1)
            for method, special in zip(named, (_by_intervals, _by_swaps), strict=True):
                named[method].append(f"{special(crossed)[:, counted].any(axis=1).mean():.1%}")
        lines += [_line(name, method, cells) for method, cells in named.items()]
    return "".join(lines)


def _by_intervals(crossed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Labels (samples, labels) whose Bonferroni interval less the others excludes 0."""
    if crossed.shape[1] < 3:
        return np.zeros((len(crossed), N_LABELS), bool)
    others = (crossed.sum(axis=2, keepdims=True) - crossed) / (N_LABELS - 1)
    differences = np.moveaxis(crossed - others, 1, 2)
    low, high = mean_ends(differences, tail_probability(comparisons=N_LABELS), (-1.0, 1.0))
    return np.asarray((low > 0) | (high < 0))


def _by_swaps(crossed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The same by the permutation test of `topics`."""
    below = np.ones(crossed.shape[1:], bool)
    p_values = [
        exchangeable_p_values(each, below, seed=place) for place, each in enumerate(crossed)
    ]
    return np.array(p_values) <= 1 - CONFIDENCE


LENGTHS = (8, 16, 32, 64)  # of texts, with so many chains each
TIMES: dict[str, Callable[[Generator, tuple[int, int]], Floats]] = {
    "exponential": lambda g, s: g.exponential(size=s),
    "gamma, shape 2": lambda g, s: g.gamma(2, size=s),
    "1 + exponential": lambda g, s: 1 + g.exponential(size=s),
    "log-normal, deviation 0.5": lambda g, s: g.lognormal(0, 0.5, s),
    "log-normal, deviation 1": lambda g, s: g.lognormal(0, 1, s),
    "log-normal, deviation 1.5": lambda g, s: g.lognormal(0, 1.5, s),
    "Weibull, shape 0.6": lambda g, s: g.weibull(0.6, s),
    "exponential, 1 in 5 eight times slower": lambda g, s: (
        g.exponential(size=s) * np.where(g.random(s) < 0.2, 8, 1)
    ),
}


def exponent_table(repetitions: int, seed: int = 0) -> str:
    """How often the interval of the exponent b of T(n) = c n^b contains it."""
    lines = _head("times", "interval", COMPARED_CHAINS)
    for place, (name, draw) in enumerate(TIMES.items()):
        coverages = [
            exponent_coverage(draw, np.random.default_rng([seed, place, n]), n, repetitions)
            for n in COMPARED_CHAINS
        ]
        methods = ("gamma (before)", "wider of two (now)")
        for method, shares in zip(methods, zip(*coverages, strict=True), strict=True):
            lines.append(_line(name, method, [f"{share:.1%}" for share in shares]))
    return "".join(lines)


def exponent_coverage(
    draw: Callable[[Generator, tuple[int, int]], Floats],
    generator: Generator,
    n_chains: int,
    repetitions: int,
) -> tuple[float, float]:
    """By the likelihood of gamma times alone, and by the wider of gamma and log-normal times."""
    logs = np.repeat(np.log(LENGTHS), n_chains)
    times = draw(generator, (repetitions, len(logs)))  # the true exponent is 0
    gamma, log_normal = GammaProfile(times, logs), LogNormalProfile(times, logs)
    either = gamma.inside(0.0) | log_normal.inside(0.0)
    between = np.sign(gamma.best) != np.sign(log_normal.best)  # the two intervals may be apart
    return float(gamma.inside(0.0).mean()), float((either | between).mean())


class GammaProfile:
    """Log-likelihood of times (samples, n) with mean c n^b over b, maximised over c and the shape.

    In closed form for times that were all seen: c is the mean of T n^-b, and the shape k solves
    log k - digamma(k) = the mean of log(c n^b / T).
    """

    def __init__(self, times: Floats, logs: Floats) -> None:
        self.times, self.logs = times, logs - logs.mean()
        self.n = len(logs)
        best = np.log(times) @ self.logs / (self.logs @ self.logs)
        for _ in range(50):  # Newton's method for a convex function of b
            weights = times * np.exp(-best[:, None] * self.logs)
            weights /= weights.sum(axis=1, keepdims=True)
            slope = weights @ self.logs
            best = best + np.clip(slope / (weights @ self.logs**2 - slope**2), -1, 1)
        self.best = best

    def log_likelihood(self, exponent: Floats) -> Floats:
        """At an exponent for each sample, up to a constant."""
        from scipy.special import digamma, gammaln, polygamma

        scaled = self.times * np.exp(-exponent[:, None] * self.logs)
        gap = np.log(scaled.mean(axis=1)) - np.log(self.times).mean(axis=1)
        shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
        for _ in range(20):
            step = (np.log(shape) - digamma(shape) - gap) / (1 / shape - polygamma(1, shape))
            shape = np.maximum(shape - step, 1e-3)
        each = shape * np.log(shape) - shape - gammaln(shape) - shape * gap
        return np.asarray(self.n * each)

    def inside(self, exponent: float) -> NDArray[np.bool_]:
        """Whether the 95% interval of each sample contains an exponent."""
        fallen = self.log_likelihood(self.best) - self.log_likelihood(self.best * 0 + exponent)
        return np.asarray(fallen <= self.drop)

    @property
    def drop(self) -> float:
        """How far the log-likelihood falls within the interval: Student's t squared over 2."""
        return t_quantile(self.n - 2) ** 2 / 2


class LogNormalProfile(GammaProfile):
    """The same for log-normal times: least squares of the logarithms."""

    def __init__(self, times: Floats, logs: Floats) -> None:
        self.times, self.logs, self.n = times, logs - logs.mean(), len(logs)
        self.best = np.log(times) @ self.logs / (self.logs @ self.logs)

    def log_likelihood(self, exponent: Floats) -> Floats:
        rest = np.log(self.times) - exponent[:, None] * self.logs
        return np.asarray(-self.n * np.log(rest.std(axis=1)))


MEMORIES = {  # correlation of neighbouring draws, and draws of a chain
    "5 autocorrelation times": (0.98, 500),
    "13 autocorrelation times": (0.95, 500),
    "26 autocorrelation times": (0.9, 500),
    "51 autocorrelation times": (0.95, 2000),
}


def stationary_samples(
    generator: Generator, correlation: float, shape: tuple[int, int, int]
) -> Iterator[Floats]:
    """Samples of autoregressive chains (chains, draws) from their stationary distribution."""
    for first in range(0, shape[0], TOGETHER):
        several = min(TOGETHER, shape[0] - first), *shape[1:]
        yield from stationary_chains(generator, correlation, several)


def stationary_chains(
    generator: Generator, correlation: float, shape: tuple[int, int, int]
) -> Floats:
    """The same (samples, chains, draws) at once."""
    values = np.empty(shape)
    values[..., 0] = generator.normal(size=shape[:2]) / np.sqrt(1 - correlation**2)
    for step in range(1, shape[2]):
        noise = generator.normal(size=shape[:2])
        values[..., step] = correlation * values[..., step - 1] + noise
    return values


def draws_table(repetitions: int, seed: int = 0) -> str:
    """The effective draws that `diagnose` reports, over the true number: mean and deviation."""
    lines = _head("length of each chain", "figure", COMPARED_CHAINS)
    for place, (name, (correlation, n_draws)) in enumerate(MEMORIES.items()):
        cells = []
        for n in COMPARED_CHAINS:
            generator = np.random.default_rng([seed, place, n])
            values = stationary_samples(generator, correlation, (repetitions, n, n_draws))
            true = n * n_draws * (1 - correlation) / (1 + correlation)
            shares = np.array([effective_draws(each) for each in values]) / true
            cells.append(f"{shares.mean():.2f} +- {shares.std():.2f}")
        lines.append(_line(name, "effective draws over true ones", cells))
    return "".join(lines)


def r_hat_table(repetitions: int, seed: int = 0) -> str:
    """How often stationary chains have an R-hat above 1.01, and one above that of chance."""
    lines = _head("length of each chain", "said to disagree by", COMPARED_CHAINS)
    for place, (name, (correlation, n_draws)) in enumerate(MEMORIES.items()):
        before, now = [], []
        for n in COMPARED_CHAINS:
            generator = np.random.default_rng([seed, place, n])
            values = stationary_samples(generator, correlation, (repetitions // 4, n, n_draws))
            rows = [diagnoses({"x": each})[0] for each in values]
            above = [row.r_hat is not None and row.r_hat > 1.01 for row in rows]
            before.append(f"{np.mean(above):.1%}")
            now.append(f"{np.mean([row.state == 'disagreeing' for row in rows]):.1%}")
        lines.append(_line(name, "R-hat above 1.01 (before)", before))
        lines.append(_line(name, "also above that of chance (now)", now))
    return "".join(lines)


def _head(first: str, second: str, chains: tuple[int, ...]) -> list[str]:
    columns = " | ".join(f"{n} chains" for n in chains)
    return [f"| {first} | {second} | {columns} |\n", "|---|---|" + "---:|" * len(chains) + "\n"]


def _line(first: str, second: str, cells: list[str]) -> str:
    line = f"| {first} | {second} | " + " | ".join(cells) + " |\n"
    print(line, end="", flush=True)
    return line


def _cell(found: Covered) -> str:
    if found.given < 0.001:
        return "refused"
    return f"{found.share:.1%}" + ("" if found.given > 0.999 else f" ({found.given:.0%} given)")


TABLES: dict[str, Callable[[int], str]] = {
    "intervals": interval_table,
    "bounded": bounded_table,
    "labels": label_table,
    "exponent": exponent_table,
    "draws": draws_table,
    "r-hat": r_hat_table,
}


def write(page: Path, name: str, rows: str) -> None:
    """Replaces a table between its two marks."""
    begin, end = f"<!-- coverage: {name} -->\n", f"<!-- end of {name} -->"
    before, mark, rest = page.read_text().partition(begin)
    if not mark:
        raise SystemExit(f"{page} has no line {begin.strip()}")
    page.write_text(f"{before}{begin}\n{rows}\n{end}{rest.partition(end)[2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--write", type=Path, help="a page whose tables are replaced")
    arguments = parser.parse_args()
    for name in arguments.tables or ["intervals"]:
        if name not in TABLES:
            parser.error(f"{name} is not a table: {', '.join(TABLES)}")
        rows = TABLES[name](arguments.repetitions)
        if arguments.write is not None:
            write(arguments.write, name, rows)


if __name__ == "__main__":
    main()
