"""How many steps do k-Gibbs and the parallel sampler need from R-1 to R1? (figure 3 of paper B)"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glauber.errors import GlauberError
from glauber.exact.samplers.bounds import gibbs_horizon, parallel_horizon
from glauber.exact.samplers.clique import Clique
from glauber.exact.samplers.constants import Constants, constants
from glauber.exact.samplers.hitting_times import (
    arrival_distribution,
    arrival_within,
    log_mean_hitting_times,
)
from glauber.exact.samplers.simulate import Arrivals, simulated_gibbs, simulated_parallel


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
    def mean(self) -> float:
        """The mean number of steps; inf where floats end."""
        return float(np.exp(min(self.log10_mean * np.log(10), 800.0)))


@dataclass(frozen=True)
class Race:
    """All samplers on one model."""

    model: Clique
    constants: Constants
    budget: int
    delta: float
    gibbs: tuple[Runner, ...]
    parallel: Runner


def race(
    model: Clique,
    *,
    ks: Sequence[int] | None = None,
    budget: int = 1000,
    delta: float = 0.1,
    n_chains: int = 10,
    seed: int = 0,
) -> Race:
    """The race on a clique model; n_chains = 0 simulates nothing."""
    if budget < 1:
        raise GlauberError(f"the budget is {budget} steps, but it must be at least 1.")
    ks = range(1, model.n_sites + 1) if ks is None else ks
    tried = dict(budget=budget, delta=delta, n_chains=n_chains, seed=seed)
    return Race(
        model,
        constants(model),
        budget,
        delta,
        tuple(_runner(model, k, **tried) for k in ks),  # type: ignore[arg-type]
        _runner(model, None, **tried),  # type: ignore[arg-type]
    )


def _runner(
    model: Clique, k: int | None, *, budget: int, delta: float, n_chains: int, seed: int
) -> Runner:
    logs = model.log_parallel() if k is None else model.log_gibbs(k)
    matrix = np.exp(logs)
    arrived = np.minimum(arrival_distribution(matrix, model.all_ones, budget)[:, 0], 1.0)
    late, twice = (
        1 - arrived[:-1],
        2 * np.arange(budget) + 1,
    )  # E m = sum late, E m^2 = twice @ late
    horizon = parallel_horizon(model, delta) if k is None else gibbs_horizon(model, k, delta)
    return Runner(
        k,
        log10_mean=float(log_mean_hitting_times(logs, model.all_ones)[0] / np.log(10)),
        within_budget=float(arrived[-1]),
        budget_mean=float(late.sum()),
        budget_deviation=float(np.sqrt(max(twice @ late - late.sum() ** 2, 0.0))),
        horizon=horizon,
        horizon_kept=None if horizon is None else _kept(model, matrix, k, horizon, delta),
        simulated=_simulated(model, k, budget, n_chains, seed) if n_chains else None,
    )


def _kept(model: Clique, matrix: np.ndarray, k: int | None, horizon: int, delta: float) -> bool:
    """Whether k-Gibbs arrived by then, or the parallel sampler had not left, up to delta."""
    if k is not None:
        return bool(arrival_within(matrix, model.all_ones, horizon)[0] >= 1 - delta)
    left = 2 * np.arange(model.size + 1) - model.size > -2
    return bool(arrival_within(matrix, left, horizon)[~left].max() <= delta)


def _simulated(model: Clique, k: int | None, budget: int, n_chains: int, seed: int) -> Arrivals:
    full, seed = model.ising(), 1000 * seed + (k or 0)  # other chains for each sampler
    target = np.asarray((full.spins[:, : model.size] > 0).all(axis=1))
    if k is None:
        return simulated_parallel(full, target, n_chains=n_chains, budget=budget, seed=seed)
    return simulated_gibbs(full, k, target, n_chains=n_chains, budget=budget, seed=seed)
