"""What do simulated chains do? Arrivals in the full model, and samples of models of any size.

Arrivals share no arithmetic with the lumped chains: there states are numbers from 0 to 2^N - 1, and
a block is redrawn by Gumbel variables over its 2^k fillings.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.exact.blocks.masks import check_block
from glauber.exact.hitting_times import Bools
from glauber.exact.models import Ising
from glauber.exact.space import Floats, Space
from glauber.ising.graph import Graph
from glauber.progress import check_memory, track
from glauber.statistics import MIN_CHAINS, standard_error

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
    if n_chains < MIN_CHAINS or budget < 1:
        raise GlauberError(
            f"{n_chains} chains with a budget of {budget} steps were asked for, but at least "
            f"{MIN_CHAINS} chains and 1 step are needed."
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


def gibbs_samples(
    graph: Graph, theta: Floats, shape: tuple[int, int], *, sweeps: int, every: int, seed: int
) -> NDArray[np.int8]:
    """Spins (chains, samples of each, N) of Gibbs chains, shape = (chains, samples of each).

    All sites of a colour are redrawn at once, which is exact since none sees another. Each chain
    begins at random, makes `sweeps` sweeps and is then looked at every so many. The samples are
    those of the model but for what is left of the start; within a chain they depend on each other.
    """
    n_chains, n_looks = shape
    check_memory(2.0 * n_chains * n_looks * graph.n_sites, "these samples")
    generator = np.random.default_rng(seed)
    couplings = graph.matrix(2 * theta[graph.n_sites :])
    fields = theta[: graph.n_sites, None]
    colours = [(sites, couplings[sites], fields[sites]) for sites in graph.colours()]
    spins = generator.choice([-1.0, 1.0], (graph.n_sites, n_chains))
    looks = np.empty((n_looks, graph.n_sites, n_chains), np.int8)
    total = sweeps + every * (n_looks - 1)
    with track("sweeps", total) as advance:
        for sweep in range(1, total + 1):
            for sites, rows, field in colours:
                # P(x_i = 1) = 1 / (1 + exp(-2 F)), so x_i = 1 where a logistic draw is below 2 F.
                chance = 1 / (1 + np.exp(-2 * (field + rows @ spins)))
                spins[sites] = np.where(generator.random(chance.shape) < chance, 1.0, -1.0)
            if sweep >= sweeps and (sweep - sweeps) % every == 0:
                looks[(sweep - sweeps) // every] = spins
            advance()
    return np.ascontiguousarray(looks.transpose(2, 0, 1))
