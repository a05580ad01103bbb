"""Steps that k-Gibbs and the parallel sampler need from R-1 to R1 (paper B, figure 3).

Simulated chains run on the full model and share no arithmetic with the exact ones, which are lumped
by the number of ones in the clique: states are numbers from 0 to 2^N - 1, and a block is redrawn by
Gumbel variables over its 2^k fillings.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, inf
from typing import TYPE_CHECKING, Annotated

import numpy as np

from glauber.exact.hitting_times import arrival_distribution, arrival_within, log_mean_hitting_times
from glauber.exact.models import Clique, Ising, check_block_size
from glauber.exact.space import Bools, Floats, Integers, Space
from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Seed
from glauber.foundation.progress import check_memory, say, track
from glauber.foundation.statistics import MIN_CHAINS, standard_error
from glauber.foundation.study import Result, internal, plain, study
from glauber.studies.ising.model import Delta, Field, Sites, Strength, not_empty
from glauber.studies.ising.sampler_separation import (
    gibbs_horizon,
    leaves_within,
    parallel_horizon,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

COUPLINGS = (0.5, 1.0, 2.0, 5.0, 8.0)
LARGEST = 1000  # sites; of a lumped chain the clique alone counts
LARGEST_CLIQUE = 200
SIMULATED_SITES = 20  # of the full model, which simulated chains run on

Step = Callable[[Integers, np.random.Generator], Integers]


@study
def race(
    *,
    sites: Annotated[Sites, Whole(1, LARGEST)] = 10,
    clique: Annotated[int, "Sites of the clique, all coupled alike.", Whole(1, LARGEST_CLIQUE)] = 4,
    field: Field = 5.0,
    couplings: Annotated[
        Sequence[float], "Couplings J; each pair counts twice.", not_empty, Strength
    ] = COUPLINGS,
    blocks: Annotated[Sequence[int] | None, "Block sizes k (default: 1 to N)."] = None,
    budget: Annotated[int, "Maximum steps of a simulated chain.", Whole(1, 10**7)] = 1000,
    chains: Annotated[int, "Simulated chains of each sampler; 0: none.", Whole(0)] = 10,
    delta: Delta = 0.1,
    seed: Seed = 0,
) -> "Races":
    """Steps from R-1 to R1 of k-Gibbs and the parallel sampler, exact and simulated, against J.

    Paper B, figure 3: from all -1 to all 1 in the clique. The means are exact, however long they
    are. The horizons are those of propositions 4 (k-Gibbs, an upper bound on the steps that a share
    1 - delta needs) and 5 (the parallel sampler, a lower bound), which hold for strongly
    ferromagnetic models.
    """
    models = [Clique(sites, clique, j, field) for j in couplings]
    ks = tuple(range(1, sites + 1)) if blocks is None else tuple(blocks)
    for k in ks:
        check_block_size(k, sites)
    check_memory(24.0 * budget * (clique + 2), "the chances of every step up to the budget")
    if chains and sites > SIMULATED_SITES:
        raise GlauberError(
            f"there are {sites} sites, but simulated chains run on at most {SIMULATED_SITES}: "
            "set chains to 0, the exact figures need none."
        )
    if 0 < chains < MIN_CHAINS:
        raise GlauberError(f"chains is {chains}, but at least {MIN_CHAINS} chains are needed.")
    check_memory(24.0 * chains * 2 ** max(ks, default=1), "the fillings of simulated chains")
    say(f"{len(models) * (len(ks) + 1)} samplers, {chains} chains of up to {budget:,} steps each")
    races = []
    with track("couplings", len(models)) as advance:
        for slot, model in enumerate(models):
            runners = []
            for size in (*ks, None):
                arrivals = _simulate(model, size, chains, budget, seed + slot) if chains else None
                runners.append(_runner(model, size, budget, delta, arrivals))
            races.append(Race(model, budget, delta, tuple(runners[:-1]), runners[-1]))
            advance()
    return Races(sites, clique, field, tuple(races))


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Steps (n_chains,) of the first visit, or the budget where arrived (n_chains,) is false."""

    steps: Integers
    arrived: Bools
    budget: int

    @property
    def mean(self) -> float:
        """The mean of min(time, budget)."""
        return float(self.steps.mean())

    @property
    def standard_error(self) -> float:
        return standard_error(self.steps)

    @property
    def deviation(self) -> float:
        """The standard deviation of min(time, budget) between chains."""
        return float(self.steps.std(ddof=1))


@dataclass(frozen=True)
class Runner:
    """One sampler from all -1 to R1; k is None for the independent parallel sampler.

    horizon holds for k-Gibbs as an upper bound on the steps that a share 1 - delta needs, for the
    parallel sampler as a lower bound; None where the proposition says nothing.
    """

    k: int | None
    log10_mean: float  # of the mean number of steps, exact
    within_budget: float  # chance to arrive within the budget, exact
    budget_mean: float  # mean of min(steps, budget), exact
    budget_deviation: float  # its standard deviation, exact
    horizon: int | None
    horizon_kept: bool | None  # whether the exact chain keeps the promise of the horizon
    simulated: Arrivals | None

    @property
    def name(self) -> str:
        return "parallel" if self.k is None else str(self.k)

    @property
    def mean(self) -> float:
        """The mean number of steps; inf where floats end."""
        return exp(self.log10_mean * np.log(10)) if self.log10_mean < 308 else inf

    def record(self) -> dict[str, object]:
        """The numbers as JSON, each with its kind."""
        seen = self.simulated
        simulated = seen and {
            "arrived": seen.arrived.sum(),
            "of": len(seen.steps),
            "mean_up_to_budget": seen.mean,
            "standard_error": seen.standard_error,
            "standard_deviation": seen.deviation,
            "kind": "estimate",
        }
        budget = {"value": self.budget_mean, "deviation": self.budget_deviation, "kind": "exact"}
        bound = "lower bound" if self.k is None else "upper bound"
        return {
            "k": self.k,
            "mean": {"log10": self.log10_mean, "kind": "exact"},
            "arrives_within_budget": {"value": self.within_budget, "kind": "exact"},
            "mean_up_to_budget": budget,
            "horizon": {"value": self.horizon, "kept": self.horizon_kept, "kind": bound},
            "simulated": simulated,
        }


@dataclass(frozen=True)
class Race:
    """All samplers on one model."""

    model: Clique
    budget: int
    delta: float
    gibbs: tuple[Runner, ...]
    parallel: Runner

    @property
    def runners(self) -> tuple[Runner, ...]:
        return (*self.gibbs, self.parallel)

    def record(self) -> dict[str, object]:
        """The numbers as JSON, each with its kind."""
        return {
            "coupling": self.model.coupling,
            "budget": self.budget,
            "delta": self.delta,
            "condition": self.model.ferromagnet.condition,
            "gibbs": [runner.record() for runner in self.gibbs],
            "parallel": self.parallel.record(),
        }

    def lines(self) -> Iterable[str]:
        within, simulated = f"in {self.budget:,} steps", f"simulated to {self.budget:,}"
        yield f"J = {self.model.coupling:g} ({self.model.ferromagnet.condition})"
        yield (
            f"{'k':>10}  {'mean steps':>12}  {within:>14}  {simulated:>24}  "
            f"horizon for {1 - self.delta:g}"
        )
        for runner in self.runners:
            seen, mean = runner.simulated, runner.log10_mean
            steps = f"{10**mean:,.4g}" if mean < 5 else f"{10 ** (mean % 1):.2f}e{int(mean // 1)}"
            shown = "-" if seen is None else f"{seen.mean:.4g} +- {seen.standard_error:.2g}"
            yield (
                f"{runner.name:>10}  {steps:>12}  {runner.within_budget:>14.6g}  {shown:>24}  "
                f"{'-' if runner.horizon is None else format(runner.horizon, ',')}"
            )


@dataclass(frozen=True, eq=False)
class Races(Result):
    """The samplers at each coupling: exact steps, horizons and simulated chains."""

    sites: int  # of the model
    clique: int
    field: float
    races: tuple[Race, ...] = internal()

    def to_dict(self) -> dict[str, object]:
        return super().to_dict() | {"races": plain([race.record() for race in self.races])}

    def lines(self) -> Iterable[str]:
        for race in self.races:
            yield from race.lines()
        yield "mean steps and chances are exact, simulated means are estimates, horizons are bounds"

    def table(self) -> list[dict[str, object]]:
        """One row per coupling and sampler."""
        return [
            {
                "coupling": race.model.coupling,
                "sampler": runner.name,
                "log10_mean": runner.log10_mean,
                "arrives_within_budget": runner.within_budget,
                "mean_up_to_budget": runner.budget_mean,
                "horizon": runner.horizon,
                "simulated_mean": None if runner.simulated is None else runner.simulated.mean,
            }
            for race in self.races
            for runner in race.runners
        ]

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.ising import plot_race

        budget = self.races[0].budget
        return {"race": plot_race(self.races), "budget": plot_race(self.races, up_to=2 * budget)}


def _runner(
    model: Clique, k: int | None, budget: int, delta: float, simulated: Arrivals | None
) -> Runner:
    logs = model.log_parallel() if k is None else model.log_gibbs(k)
    matrix = np.exp(logs)
    arrived = np.minimum(arrival_distribution(matrix, model.all_ones, budget)[:, 0], 1.0)
    # With m = min(steps, budget): E m = sum of late, E m^2 = sum of twice * late.
    late, twice = 1 - arrived[:-1], 2 * np.arange(budget) + 1
    horizon = parallel_horizon(model, delta) if k is None else gibbs_horizon(model, k, delta)
    return Runner(
        k,
        log10_mean=float(log_mean_hitting_times(logs, model.all_ones)[0] / np.log(10)),
        within_budget=float(arrived[-1]),
        budget_mean=float(late.sum()),
        budget_deviation=float(np.sqrt(max(twice @ late - late.sum() ** 2, 0.0))),
        horizon=horizon,
        horizon_kept=None if horizon is None else _is_kept(model, matrix, k, horizon, delta),
        simulated=simulated,
    )


def _is_kept(model: Clique, matrix: Floats, k: int | None, horizon: int, delta: float) -> bool:
    """Whether k-Gibbs arrived by then, or the parallel sampler had not left, up to delta."""
    if k is not None:
        return bool(arrival_within(matrix, model.all_ones, horizon)[0] >= 1 - delta)
    return leaves_within(model, horizon) <= delta


def _simulate(model: Clique, k: int | None, chains: int, budget: int, seed: int) -> Arrivals:
    """First visits of a sampler to R1, from all -1."""
    full = model.ising()
    target = np.asarray((full.spins[:, : model.size] > 0).all(axis=1))
    step = parallel_step(full) if k is None else gibbs_step(full, k)
    random = np.random.default_rng(1000 * seed + (k or 0))
    states = np.zeros(chains, dtype=np.int64)
    times = np.full(chains, budget)
    left = np.flatnonzero(~target[states])
    times[target[states]] = 0
    for now in range(1, budget + 1):
        states[left] = step(states[left], random)
        hit = target[states[left]]
        times[left[hit]] = now
        left = left[~hit]
        if not len(left):
            break
    arrived = np.ones(chains, dtype=np.bool_)
    arrived[left] = False
    return Arrivals(times, arrived, budget)


def gibbs_step(model: Ising, k: int) -> Step:
    """One step of k-Gibbs for many chains at once."""
    strides = Space(2, model.n_sites).strides.numpy()
    fillings = Space(2, k).states().numpy()  # (2**k, k)

    def step(states: Integers, random: np.random.Generator) -> Integers:
        ranks = random.random((len(states), model.n_sites)).argsort(axis=1)
        own = strides[ranks[:, :k]]  # (chains, k)
        contexts = states - (states[:, None] // own % 2 * own).sum(axis=1)
        reached = contexts[:, None] + own @ fillings.T  # (chains, 2**k)
        noise = random.gumbel(size=reached.shape)
        best = (model.log_weights[reached] + noise).argmax(axis=1)
        return np.asarray(reached[np.arange(len(states)), best])

    return step


def parallel_step(model: Ising) -> Step:
    """One step of the independent parallel sampler for many chains at once."""
    strides = Space(2, model.n_sites).strides.numpy()

    def step(states: Integers, random: np.random.Generator) -> Integers:
        fields = model.fields + 2 * model.spins[states] @ model.couplings
        ones = random.random(fields.shape) < np.exp(-np.logaddexp(0, -2 * fields))
        return np.asarray((ones * strides).sum(axis=1))

    return step
