"""How far from its stationary law is the chain after t steps? Total variation against time."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.reversal import Matrix, check_law
from glauber.exact.stationary import check_stochastic, stationary

WORST_LIMIT = 4096  # states; the laws from every start are a matrix (size, size)


def distances(
    matrix: Matrix, n_steps: int, *, law: Floats | None = None, starts: ArrayLike | None = None
) -> Floats:
    """Total variation (n_steps + 1, starts) from the stationary law after 0, 1, … n_steps steps.

    starts are state numbers (k,) or laws (k, size); every state if none are given.
    """
    step, target = chain_and_law(matrix, law)
    rows = start_laws(step, starts)
    found = np.empty((n_steps + 1, len(rows)))
    for time in range(n_steps + 1):
        found[time] = distances_from(rows, target)
        rows = (step.T @ rows.T).T
    return found


def chain_and_law(matrix: Matrix, law: Floats | None) -> tuple[csr_array | LinearOperator, Floats]:
    """The chain as a sparse matrix or an operator, and its stationary law (size,)."""
    step = matrix
    if not isinstance(matrix, LinearOperator):
        step = check_stochastic(csr_array(matrix, dtype=np.float64))
    return step, stationary(step) if law is None else check_law(step, law)


def start_laws(step: csr_array | LinearOperator, starts: ArrayLike | None) -> Floats:
    """The laws (k, size) of the starts."""
    size = step.shape[0]
    if starts is None:
        if size > WORST_LIMIT:
            raise GlauberError(
                f"the worst of {size:,} starts is out of reach; the limit is {WORST_LIMIT:,} "
                "states, so name the starts."
            )
        return np.eye(size)
    given = np.asarray(starts)
    if given.ndim == 1 and np.issubdtype(given.dtype, np.integer):
        if len(given) == 0 or given.min() < 0 or given.max() >= size:
            raise GlauberError(f"the starts must be state numbers from 0 to {size - 1}.")
        rows = np.zeros((len(given), size))
        rows[np.arange(len(given)), given] = 1.0
        return rows
    if given.ndim != 2 or given.shape[1] != size or len(given) == 0:
        raise GlauberError(f"the starts have shape {given.shape}, but a law has {size} entries.")
    if given.min() < 0 or np.abs(given.sum(axis=1) - 1).max() > 1e-9:
        raise GlauberError("a start is no law: its entries must be positive and sum to 1.")
    return given.astype(np.float64)


def distances_from(rows: Floats, target: Floats) -> Floats:
    """Total variation (k,) of each row from the target."""
    return np.asarray(np.abs(rows - target).sum(axis=1) / 2)
