"""When do simulated chains arrive? The full model, site by site, beside the exact figures.

Shares no arithmetic with the lumped chains: states are numbers from 0 to 2^N - 1, a block is
redrawn by Gumbel variables over its 2^k fillings.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.exact.blocks.masks import check_block
from glauber.exact.hitting_times import Bools
from glauber.exact.models import Ising
from glauber.exact.space import Space
from glauber.statistics import standard_error

Integers = NDArray[np.int64]
Step = Callable[[Integers, np.random.Generator], Integers]


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


def simulated_gibbs(
    model: Ising, k: int, target: Bools, *, n_chains: int = 10, budget: int = 1000, seed: int = 0
) -> Arrivals:
    """First visits of k-Gibbs to the target (2**N,), from all -1."""
    check_block(k, model.n_sites)
    places = Space(2, model.n_sites).strides.numpy()
    fillings = Space(2, k).states().numpy()  # (2**k, k)

    def step(states: Integers, random: np.random.Generator) -> Integers:
        ranks = random.random((len(states), model.n_sites)).argsort(axis=1)
        strides = places[ranks[:, :k]]  # (chains, k)
        held = (states[:, None] // strides % 2 * strides).sum(axis=1)
        reached = (states - held)[:, None] + strides @ fillings.T  # (chains, 2**k)
        noise = random.gumbel(size=reached.shape)
        best = (model.log_weights[reached] + noise).argmax(axis=1)
        return np.asarray(reached[np.arange(len(states)), best])

    return _first_visits(step, target, n_chains, budget, seed)


def simulated_parallel(
    model: Ising, target: Bools, *, n_chains: int = 10, budget: int = 1000, seed: int = 0
) -> Arrivals:
    """First visits of the independent parallel sampler to the target (2**N,), from all -1."""
    places = Space(2, model.n_sites).strides.numpy()

    def step(states: Integers, random: np.random.Generator) -> Integers:
        fields = model.fields + 2 * model.spins[states] @ model.couplings
        ones = random.random(fields.shape) < np.exp(-np.logaddexp(0, -2 * fields))
        return np.asarray((ones * places).sum(axis=1))

    return _first_visits(step, target, n_chains, budget, seed)


def _first_visits(step: Step, target: Bools, n_chains: int, budget: int, seed: int) -> Arrivals:
    if n_chains < 2 or budget < 1:
        raise GlauberError(
            f"{n_chains} chains with a budget of {budget} steps were asked for, but at least 2 "
            "chains and 1 step are needed."
        )
    random = np.random.default_rng(seed)
    states = np.zeros(n_chains, dtype=np.int64)
    times = np.full(n_chains, budget)
    left = np.flatnonzero(~target[states])
    times[target[states]] = 0
    for now in range(1, budget + 1):
        states[left] = step(states[left], random)
        hit = target[states[left]]
        times[left[hit]] = now
        left = left[~hit]
        if not len(left):
            break
    arrived = np.ones(n_chains, dtype=np.bool_)
    arrived[left] = False
    return Arrivals(times, arrived, budget)
