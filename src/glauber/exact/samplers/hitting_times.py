"""How long until the chain first reaches a set, however long that is?

A plain solve of (I - Q) m = 1 subtracts nearly equal numbers and returns nonsense for means beyond
1e15. Here states are eliminated one by one, in the manner of Grassmann, Taksar and Heyman: what
goes into a state is sent on to where it goes next, and the time spent there is added on the way.
Only sums, products and quotients of positive numbers; the diagonal is never read.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.special import logsumexp

from glauber.errors import GlauberError
from glauber.exact.laws import Floats

Bools = NDArray[np.bool_]


def mean_hitting_times(matrix: ArrayLike | csr_array, target: Bools) -> Floats:
    """The mean number of steps (size,) to the target from each state, 0 inside it.

    Each to a relative error of about size * 1e-16; a mean too large for floats is inf.
    """
    dense = matrix.toarray() if isinstance(matrix, csr_array) else np.asarray(matrix, np.float64)
    outside = _outside(dense, target)
    flow = np.column_stack([dense[outside][:, outside], dense[outside][:, target].sum(axis=1)])
    n = len(outside)
    arrive = flow[:, n].copy()
    spent, leaving = np.ones(n), np.ones(n)
    for last in range(n - 1, -1, -1):
        leaving[last] = flow[last, :last].sum() + arrive[last]
        if leaving[last] == 0:
            raise GlauberError("the set is never reached from some state, or not within floats.")
        sent = flow[:last, last] / leaving[last]
        flow[:last, :last] += np.outer(sent, flow[last, :last])
        arrive[:last] += sent * arrive[last]
        spent[:last] += sent * spent[last]
    times = np.zeros(len(dense))
    inner = np.zeros(n)
    for state in range(n):
        inner[state] = (spent[state] + flow[state, :state] @ inner[:state]) / leaving[state]
    times[outside] = inner
    return times


def log_mean_hitting_times(log_matrix: Floats, target: Bools) -> Floats:
    """log of the same (size,), from log transition probabilities: for means beyond all floats."""
    outside = _outside(log_matrix, target)
    flow = log_matrix[np.ix_(outside, outside)].copy()
    arrive = logsumexp(log_matrix[np.ix_(outside, np.flatnonzero(target))], axis=1)
    n = len(outside)
    spent, leaving = np.zeros(n), np.zeros(n)
    for last in range(n - 1, -1, -1):
        leaving[last] = logsumexp(np.append(flow[last, :last], arrive[last]))
        if leaving[last] == -np.inf:
            raise GlauberError("the set is never reached from some state.")
        sent = flow[:last, last] - leaving[last]
        flow[:last, :last] = np.logaddexp(flow[:last, :last], sent[:, None] + flow[last, :last])
        arrive[:last] = np.logaddexp(arrive[:last], sent + arrive[last])
        spent[:last] = np.logaddexp(spent[:last], sent + spent[last])
    times = np.full(len(log_matrix), -np.inf)
    inner = np.zeros(n)
    for state in range(n):
        terms = np.append(flow[state, :state] + inner[:state], spent[state])
        inner[state] = logsumexp(terms) - leaving[state]
    times[outside] = inner
    return times


def arrival_within(matrix: ArrayLike | csr_array, target: Bools, n_steps: int) -> Floats:
    """The chance (size,) to have reached the target after n_steps, from each state.

    By squaring the chain that stops in the target: sums of positive numbers, so that a chance of
    1e-200 keeps its digits too.
    """
    stopped = matrix.toarray() if isinstance(matrix, csr_array) else np.array(matrix, np.float64)
    _outside(stopped, target)
    if n_steps < 0:
        raise GlauberError(f"the number of steps is {n_steps}, but it must not be negative.")
    stopped[target] = 0.0
    stopped[target, target] = 1.0
    return np.asarray(_power(stopped, n_steps)[:, target].sum(axis=1))


def log_arrival_within(log_matrix: Floats, target: Bools, n_steps: int) -> Floats:
    """log of the same (size,), step by step: for chances below all floats."""
    _outside(log_matrix, target)
    arrived = np.where(target, 0.0, -np.inf)
    for _ in range(n_steps):
        arrived = np.where(target, 0.0, logsumexp(log_matrix + arrived, axis=1))
    return np.asarray(arrived)


def arrival_distribution(matrix: ArrayLike, target: Bools, n_steps: int) -> Floats:
    """The same for every number of steps up to n_steps: (n_steps + 1, size)."""
    dense = np.asarray(matrix, np.float64)
    _outside(dense, target)
    arrived = [target.astype(np.float64)]
    for _ in range(n_steps):
        arrived.append(np.where(target, 1.0, dense @ arrived[-1]))
    return np.asarray(arrived)


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


def _outside(matrix: Floats, target: Bools) -> NDArray[np.int64]:
    if target.dtype != np.bool_ or target.shape != (len(matrix),) or not target.any():
        raise GlauberError(
            f"the set must be one boolean for each of the {len(matrix)} states, not all false."
        )
    return np.flatnonzero(~target)
