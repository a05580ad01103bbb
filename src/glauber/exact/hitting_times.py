"""Hitting and exit times of sets of states, committors, and arrivals within n steps.

With Q the matrix among the states outside the set, the mean times solve (I - Q) m = 1. A plain
solve subtracts nearly equal numbers and returns nonsense for means beyond 1e15. So up to a few
thousand states are eliminated one by one, in the manner of Grassmann, Taksar and Heyman: what goes
into a state is sent on to where it goes next, and the time spent there is added on the way. Only
sums, products and quotients of positive numbers; the diagonal is never read.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.linalg import splu
from scipy.special import logsumexp
from torch import Tensor

from glauber.exact.space import Bools, Floats, Integers, Space
from glauber.exact.stationary import check_stochastic, stationary
from glauber.foundation.errors import GlauberError

__all__ = [
    "arrival_distribution",
    "arrival_within",
    "committor",
    "hamming_ball",
    "log_arrival_within",
    "log_mean_hitting_times",
    "mean_exit_times",
    "mean_hitting_times",
    "mean_passage_between",
]

ELIMINATION_LIMIT = 1024  # states outside the set; beyond it a sparse solve
LONGEST_MEAN = 1e15  # steps; what a sparse solve says beyond it is rounding
LOG_SQUARING_STEPS = 2000  # steps in logarithms; beyond it products of matrices are faster
NEVER = "the set is never reached from some state, or not within floats."


def mean_hitting_times(matrix: ArrayLike | csr_array, target: Bools) -> Floats:
    """The mean number of steps (size,) to the target from each state, 0 inside it.

    By elimination each has a relative error of about size * 1e-16, however long it is; a mean too
    large for floats is inf. Beyond 1,024 states by a sparse solve, whose relative error is about
    1e-16 times the longest mean; there means above 1e15 are refused.
    """
    sparse = check_stochastic(csr_array(matrix, dtype=np.float64, copy=True))
    outside = _outside(sparse.shape[0], target)
    times = np.zeros(len(target))
    if len(outside) <= ELIMINATION_LIMIT:
        inner = sparse[outside].toarray()
        times[outside] = _eliminate(inner[:, outside], inner[:, target].sum(axis=1))
    else:
        times[outside] = _solve(sparse, outside, np.ones(len(outside)))
        if not 1 - 1e-9 <= times[outside].min() <= times[outside].max() < LONGEST_MEAN:
            raise GlauberError(NEVER)
    return times


def log_mean_hitting_times(log_matrix: Floats, target: Bools) -> Floats:
    """log of the same (size,), from log transition probabilities: for means beyond all floats."""
    outside = _outside(len(log_matrix), target)
    flow = log_matrix[np.ix_(outside, outside)].copy()
    arrive = logsumexp(log_matrix[np.ix_(outside, np.flatnonzero(target))], axis=1)
    n = len(outside)
    spent, leaving = np.zeros(n), np.zeros(n)
    for last in range(n - 1, -1, -1):
        leaving[last] = logsumexp(np.append(flow[last, :last], arrive[last]))
        if leaving[last] == -np.inf:
            raise GlauberError(NEVER)
        inflow = flow[:last, last] - leaving[last]
        flow[:last, :last] = np.logaddexp(flow[:last, :last], inflow[:, None] + flow[last, :last])
        arrive[:last] = np.logaddexp(arrive[:last], inflow + arrive[last])
        spent[:last] = np.logaddexp(spent[:last], inflow + spent[last])
    times = np.full(len(log_matrix), -np.inf)
    inner = np.zeros(n)
    for state in range(n):
        terms = np.append(flow[state, :state] + inner[:state], spent[state])
        inner[state] = logsumexp(terms) - leaving[state]
    times[outside] = inner
    return times


def mean_exit_times(matrix: ArrayLike | csr_array, inside: Bools) -> Floats:
    """The mean number of steps (size,) until the chain is first outside a set; 0 outside."""
    if inside.dtype != np.bool_ or not inside.any():
        raise GlauberError("the set has no state, so it has no exit time.")
    if inside.all():
        raise GlauberError("the set contains every state, so it is never left.")
    return mean_hitting_times(matrix, ~inside)


def mean_passage_between(matrix: ArrayLike | csr_array, source: Bools, target: Bools) -> float:
    """Mean steps to the target from the stationary distribution within the source."""
    mu = stationary(matrix)[source]
    return float(mu @ mean_hitting_times(matrix, target)[source] / mu.sum())


def committor(matrix: ArrayLike | csr_array, source: Bools, target: Bools) -> Floats:
    """Chance (size,) to reach the target before the source: 0 in one, 1 in the other.

    q = P q outside both.
    """
    sparse = check_stochastic(csr_array(matrix, dtype=np.float64, copy=True))
    for states in (source, target):
        _outside(sparse.shape[0], states)
    if (source & target).any():
        raise GlauberError("a state is in both sets, so neither comes first.")
    between = np.flatnonzero(~(source | target))
    chances = target.astype(np.float64)
    if len(between):
        chances[between] = _solve(sparse, between, (sparse @ chances)[between])
    return chances


def arrival_within(matrix: ArrayLike | csr_array, target: Bools, n_steps: int) -> Floats:
    """The chance (size,) to have reached the target after n_steps, from each state.

    By squaring the chain that stops in the target: sums of positive numbers, so that a chance of
    1e-200 keeps its digits too.
    """
    stopped = matrix.toarray() if isinstance(matrix, csr_array) else np.array(matrix, np.float64)
    _outside(len(stopped), target)
    if n_steps < 0:
        raise GlauberError(f"the number of steps is {n_steps}, but it must not be negative.")
    stopped[target] = 0.0
    stopped[target, target] = 1.0
    return np.asarray(_power(stopped, n_steps)[:, target].sum(axis=1))


def log_arrival_within(log_matrix: Floats, target: Bools, n_steps: int) -> Floats:
    """log of the same (size,), for chances below all floats: step by step, or by squaring."""
    _outside(len(log_matrix), target)
    if n_steps > LOG_SQUARING_STEPS:
        identity = np.where(np.eye(len(target)) > 0, 0.0, -np.inf)
        stopped = np.where(target[:, None], identity, log_matrix)
        return np.asarray(logsumexp(_log_power(stopped, n_steps)[:, target], axis=1))
    arrived = np.where(target, 0.0, -np.inf)
    for _ in range(n_steps):
        arrived = np.where(target, 0.0, logsumexp(log_matrix + arrived, axis=1))
    return np.asarray(arrived)


def arrival_distribution(matrix: ArrayLike, target: Bools, n_steps: int) -> Floats:
    """The same for every number of steps up to n_steps: (n_steps + 1, size)."""
    dense = np.asarray(matrix, np.float64)
    _outside(len(dense), target)
    arrived = [target.astype(np.float64)]
    for _ in range(n_steps):
        arrived.append(np.where(target, 1.0, dense @ arrived[-1]))
    return np.asarray(arrived)


def hamming_ball(space: Space, centre: Tensor, radius: int) -> Bools:
    """Whether each state (size,) differs from the centre (length,) at no more than radius sites."""
    return np.asarray(((space.states() != centre).sum(dim=1) <= radius).numpy())


def _eliminate(flow: Floats, arrive: Floats) -> Floats:
    """Mean times (n,) from chances (n, n) among the outside states and (n,) to the target."""
    flow, arrive, n = flow.copy(), arrive.copy(), len(flow)
    spent, leaving = np.ones(n), np.ones(n)
    for last in range(n - 1, -1, -1):
        leaving[last] = flow[last, :last].sum() + arrive[last]
        if leaving[last] == 0:
            raise GlauberError(NEVER)
        inflow = flow[:last, last] / leaving[last]
        flow[:last, :last] += np.outer(inflow, flow[last, :last])
        arrive[:last] += inflow * arrive[last]
        spent[:last] += inflow * spent[last]
    times = np.zeros(n)
    for state in range(n):
        times[state] = (spent[state] + flow[state, :state] @ times[:state]) / leaving[state]
    return times


def _solve(matrix: csr_array, outside: Integers, right: Floats) -> Floats:
    """The solution (n,) of (I - Q) x = right over the outside states."""
    inner = matrix[outside][:, outside]
    try:
        return np.asarray(splu(csc_array(eye_array(len(outside)) - inner)).solve(right))
    except RuntimeError:  # an exactly singular matrix
        raise GlauberError(NEVER) from None


def _power(matrix: Floats, exponent: int) -> Floats:
    """A power of a stochastic matrix, its rows brought back to a sum of 1 after each product.

    Without that a rounding of 1e-16 in the diagonal would double with each squaring.
    """
    power = np.eye(len(matrix))
    for digit in f"{exponent:b}":
        power = power @ power
        if digit == "1":
            power = power @ matrix
        power /= power.sum(axis=1, keepdims=True)
    return power


def _log_power(log_matrix: Floats, exponent: int) -> Floats:
    """log of the same, from log transition probabilities."""

    def product(left: Floats, right: Floats) -> Floats:
        rows = np.stack([logsumexp(row[:, None] + right, axis=0) for row in left])
        return np.asarray(rows - logsumexp(rows, axis=1, keepdims=True))

    power = log_matrix
    for digit in f"{exponent:b}"[1:]:
        power = product(power, power)
        power = product(power, log_matrix) if digit == "1" else power
    return power


def _outside(size: int, target: Bools) -> Integers:
    """The states (n,) outside a set; refused unless it is one boolean per state, some of each."""
    if target.dtype != np.bool_ or target.shape != (size,):
        raise GlauberError(
            f"the set is {target.shape} {target.dtype}, but it must be one boolean for "
            f"each of the {size:,} states."
        )
    if not target.any() or target.all():
        raise GlauberError("the set must contain some states and leave some out.")
    return np.flatnonzero(~target)
