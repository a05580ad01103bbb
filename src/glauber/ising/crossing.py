"""How many steps do k-Gibbs and the parallel sampler need from R-1 to R1? (figure 3 of paper B)"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, inf
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from glauber.errors import GlauberError
from glauber.exact.models import Clique
from glauber.exact.models import check_block_size
from glauber.exact.hitting_times import (
    arrival_distribution,
    arrival_within,
    log_mean_hitting_times,
)
from glauber.exact.space import Floats
from glauber.ising.model import Field, Sites, check_strengths
from glauber.ising.propositions import check_delta, gibbs_horizon, parallel_horizon
from glauber.ising.simulation import Arrivals, simulated_gibbs, simulated_parallel
from glauber.parameters import Seed
from glauber.progress import check_count, check_memory, check_seed, say, track
from glauber.result import Result, plain, signature, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

COUPLINGS = (0.5, 1.0, 2.0, 5.0, 8.0)
LARGEST = 1000  # sites; of a lumped chain the clique alone counts
LARGEST_CLIQUE = 200
SIMULATED = 20  # sites of the full model, which simulated chains run on


@study
def race(
    *,
    sites: Sites = 10,
    clique: Annotated[int, "Sites of the clique, all coupled alike."] = 4,
    field: Field = 5.0,
    couplings: Annotated[Sequence[float], "Couplings J; each pair counts twice."] = COUPLINGS,
    blocks: Annotated[Sequence[int] | None, "Block sizes k (default: 1 to N)."] = None,
    budget: Annotated[int, "Steps of a simulated chain, at most."] = 1000,
    chains: Annotated[int, "Simulated chains of each sampler; 0: none."] = 10,
    delta: Annotated[float, "Chance that the horizons leave out."] = 0.1,
    seed: Seed = 0,
) -> "Races":
    """Steps from R-1 to R1 of k-Gibbs and the parallel sampler, exact and simulated, against J.

    Paper B, figure 3: from all -1 to all 1 in the clique. The means are exact, however long they
    are. The horizons are those of propositions 4 (k-Gibbs, an upper bound) and 5 (the parallel
    sampler, a lower bound), which hold for strongly ferromagnetic models.
    """
    check_seed(seed)
    check_delta(delta)
    check_count("number of sites", sites, most=LARGEST)
    check_count("number of sites of the clique", clique, most=LARGEST_CLIQUE)
    check_count("budget", budget, most=10**7)
    check_count("number of chains", chains, least=0)
    if not len(couplings):
        raise GlauberError("no coupling was given: name one at least, such as 0.5.")
    check_strengths(field, *couplings)
    models = [Clique(sites, clique, j, field) for j in couplings]
    ks = tuple(range(1, sites + 1)) if blocks is None else tuple(blocks)
    for k in ks:
        check_block_size(k, sites)
    check_memory(24.0 * budget * (clique + 2), "the chances of every step up to the budget")
    if chains:
        _check_simulation(sites, chains, max(ks, default=1))
    say(f"{len(models) * (len(ks) + 1)} samplers, {chains} chains of up to {budget:,} steps each")
    found = []
    with track("couplings", len(models)) as advance:
        for slot, model in enumerate(models):
            tried = Tried(budget, delta, chains, seed + slot)
            found.append(race_on(model, ks, tried))
            advance()
    made = signature(
        study="ising-race", sites=sites, clique=clique, field=field, couplings=list(couplings),
        blocks=list(ks), budget=budget, chains=chains, delta=delta, seed=seed,
    )  # fmt: skip
    return Races(tuple(found), seed, made)


@dataclass(frozen=True)
class Tried:
    """What every sampler is given: simulated steps and chains, and the chance left out."""

    budget: int = 1000
    delta: float = 0.1
    n_chains: int = 10
    seed: int = 0


@dataclass(frozen=True)
class Runner:
    """One sampler from all -1 to R1: exact figures, the paper's horizon, and simulated arrivals.

    k is None for the independent parallel sampler. horizon holds for k-Gibbs as an upper bound on
    the steps that a share 1 - delta needs, for the parallel sampler as a lower bound; None where
    the proposition says nothing.
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

    def to_dict(self) -> dict[str, Any]:
        seen = self.simulated
        return {
            "k": self.k,
            "mean": {"log10": self.log10_mean, "kind": "exact"},
            "arrives_within_budget": {"value": self.within_budget, "kind": "exact"},
            "mean_up_to_budget": {
                "value": self.budget_mean,
                "deviation": self.budget_deviation,
                "kind": "exact",
            },
            "horizon": {
                "value": self.horizon,
                "kept": self.horizon_kept,
                "kind": "lower bound" if self.k is None else "upper bound",
            },
            "simulated": None
            if seen is None
            else {
                "arrived": int(seen.arrived.sum()),
                "of": len(seen.steps),
                "mean_up_to_budget": seen.mean,
                "standard_error": seen.standard_error,
                "kind": "estimate",
            },
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

    def to_dict(self) -> dict[str, Any]:
        return {
            "coupling": self.model.coupling,
            "budget": self.budget,
            "delta": self.delta,
            "condition": self.model.ferromagnet.condition,
            "gibbs": [runner.to_dict() for runner in self.gibbs],
            "parallel": self.parallel.to_dict(),
        }

    def lines(self) -> Iterable[str]:
        within, drawn = f"in {self.budget:,} steps", f"simulated to {self.budget:,}"
        yield f"J = {self.model.coupling:g} ({self.model.ferromagnet.condition})"
        yield (
            f"{'k':>10}  {'mean steps':>12}  {within:>14}  {drawn:>24}  "
            f"horizon for {1 - self.delta:g}"
        )
        for one in self.runners:
            seen = one.simulated
            shown = "-" if seen is None else f"{seen.mean:.4g} +- {seen.standard_error:.2g}"
            yield (
                f"{one.name:>10}  {power(one.log10_mean):>12}  {one.within_budget:>14.6g}  "
                f"{shown:>24}  {'-' if one.horizon is None else format(one.horizon, ',')}"
            )


@dataclass(frozen=True, eq=False)
class Races(Result):
    """The samplers at each coupling: exact steps, horizons and simulated chains."""

    races: tuple[Race, ...]
    seed: int
    signature: str

    def to_dict(self) -> dict[str, Any]:
        model = self.races[0].model
        record = {"sites": model.n_sites, "clique": model.size, "field": model.field}
        races = [one.to_dict() for one in self.races]
        return dict(
            plain(record | {"seed": self.seed, "races": races, "signature": self.signature})
        )

    def lines(self) -> Iterable[str]:
        for one in self.races:
            yield from one.lines()
        yield "mean steps and chances are exact, simulated means are estimates, horizons are bounds"

    def frame(self) -> "pandas.DataFrame":
        """One row per coupling and sampler."""
        import pandas

        return pandas.DataFrame(
            [
                {
                    "coupling": one.model.coupling,
                    "sampler": runner.name,
                    "log10_mean": runner.log10_mean,
                    "arrives_within_budget": runner.within_budget,
                    "mean_up_to_budget": runner.budget_mean,
                    "horizon": runner.horizon,
                    "simulated_mean": None if runner.simulated is None else runner.simulated.mean,
                }
                for one in self.races
                for runner in one.runners
            ]
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.ising import plot_race

        budget = self.races[0].budget
        return {"race": plot_race(self.races), "budget": plot_race(self.races, up_to=2 * budget)}


def race_on(model: Clique, ks: Sequence[int], tried: Tried) -> Race:
    """All samplers on one model."""
    gibbs = tuple(_runner(model, k, tried) for k in ks)
    return Race(model, tried.budget, tried.delta, gibbs, _runner(model, None, tried))


def power(log10: float) -> str:
    """A number by its logarithm, also where floats end."""
    if log10 < 5:
        return f"{10**log10:,.4g}"
    whole = int(log10 // 1)
    return f"{10 ** (log10 - whole):.2f}e{whole}"


def _runner(model: Clique, k: int | None, tried: Tried) -> Runner:
    logs = model.log_parallel() if k is None else model.log_gibbs(k)
    matrix, budget, delta = np.exp(logs), tried.budget, tried.delta
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
        horizon_kept=None if horizon is None else _kept(model, matrix, k, horizon, delta),
        simulated=_simulated(model, k, tried) if tried.n_chains else None,
    )


def _kept(model: Clique, matrix: Floats, k: int | None, horizon: int, delta: float) -> bool:
    """Whether k-Gibbs arrived by then, or the parallel sampler had not left, up to delta."""
    if k is not None:
        return bool(arrival_within(matrix, model.all_ones, horizon)[0] >= 1 - delta)
    left = 2 * np.arange(model.size + 1) - model.size > -2
    return bool(arrival_within(matrix, left, horizon)[~left].max() <= delta)


def _simulated(model: Clique, k: int | None, tried: Tried) -> Arrivals:
    full, seed = model.ising(), 1000 * tried.seed + (k or 0)  # other chains for each sampler
    target = np.asarray((full.spins[:, : model.size] > 0).all(axis=1))
    given = dict(n_chains=tried.n_chains, budget=tried.budget, seed=seed)
    if k is None:
        return simulated_parallel(full, target, **given)
    return simulated_gibbs(full, k, target, **given)


def _check_simulation(sites: int, chains: int, k: int) -> None:
    if sites > SIMULATED:
        raise GlauberError(
            f"there are {sites} sites, but simulated chains run on at most {SIMULATED}: "
            "ask for 0 chains, the exact figures need none."
        )
    check_memory(24.0 * chains * 2**k, "the fillings that simulated chains choose from")
