"""Simulated arrivals in the full model, which share no arithmetic with the lumped chains.

States are numbers from 0 to 2^N - 1, and a block is redrawn by Gumbel variables over its 2^k
fillings.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from glauber.exact.models import Ising
from glauber.exact.space import Bools, Integers, Space
from glauber.statistics import standard_error

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

    return _first_visits(step, target, n_chains, budget, seed)


def simulated_parallel(
    model: Ising, target: Bools, *, n_chains: int = 10, budget: int = 1000, seed: int = 0
) -> Arrivals:
    """First visits of the independent parallel sampler to the target (2**N,), from all -1."""
    strides = Space(2, model.n_sites).strides.numpy()

    def step(states: Integers, random: np.random.Generator) -> Integers:
        fields = model.fields + 2 * model.spins[states] @ model.couplings
        ones = random.random(fields.shape) < np.exp(-np.logaddexp(0, -2 * fields))
        return np.asarray((ones * strides).sum(axis=1))

    return _first_visits(step, target, n_chains, budget, seed)


def _first_visits(step: Step, target: Bools, n_chains: int, budget: int, seed: int) -> Arrivals:
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
