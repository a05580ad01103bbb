"""The stationary distribution of a stochastic matrix, and its entropy production."""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, gmres, spilu

from glauber.exact.space import Floats, Integers
from glauber.foundation.errors import GlauberError

__all__ = ["entropy_production", "stationary", "total_variation"]

Matrix: TypeAlias = ArrayLike | csr_array | LinearOperator

DIRECT_LIMIT = 1024  # states; elimination takes size**3 / 3 steps, under a second here
PANEL = 32  # states eliminated between two products of matrices
RESIDUAL_LIMIT = 1e-12  # of the L1 norm of mu @ matrix - mu, mu summing to 1


def stationary(matrix: Matrix, *, direct_limit: int = DIRECT_LIMIT) -> Floats:
    """The distribution mu (size,) with mu @ matrix = mu; 0 at states that are left for ever.

    Up to direct_limit states by elimination without subtraction, which is accurate in each entry
    however slowly the chain mixes. Beyond that iteratively: then the residual is at most 1e-12,
    and the error about the residual divided by the spectral gap. An operator is always solved
    iteratively, and taken to have one stationary distribution: its entries cannot be read.
    """
    if isinstance(matrix, LinearOperator):
        mu = np.maximum(_fixed_point(matrix.T), 0.0)
        return _check_preserved(mu / mu.sum(), matrix)
    sparse = check_stochastic(csr_array(matrix, dtype=np.float64, copy=True))
    closed = closed_class(sparse)
    inner = sparse[closed][:, closed]
    mu = np.zeros(sparse.shape[0])
    mu[closed] = eliminate(inner.toarray()) if len(closed) <= direct_limit else iterate(inner)
    return _check_preserved(mu, sparse)


def _check_preserved(mu: Floats, matrix: csr_array | LinearOperator) -> Floats:
    """The distribution itself; refused unless the chain preserves it."""
    residual = float(np.abs(matrix.T @ mu - mu).sum())
    if not residual <= RESIDUAL_LIMIT:
        raise GlauberError(
            f"the stationary distribution over {len(mu):,} states was found only up to "
            f"{residual:.1e}; the chain mixes too slowly for it."
        )
    return mu


def total_variation(p: ArrayLike, q: ArrayLike) -> float:
    """Half the sum of |p - q|: the largest difference that two distributions give to one event."""
    left, right = np.asarray(p), np.asarray(q)
    if left.shape != right.shape:
        raise GlauberError(f"the two distributions have shapes {left.shape} and {right.shape}.")
    return float(np.abs(left - right).sum() / 2)


def closed_class(matrix: csr_array) -> Integers:
    """The states that the chain ends up in and never leaves; refused if there are several sets."""
    count, label = connected_components(matrix, directed=True, connection="strong")
    rows, columns = matrix.nonzero()
    left = np.unique(label[rows[label[rows] != label[columns]]])
    closed = np.setdiff1d(np.arange(count), left)
    if len(closed) > 1:
        raise GlauberError(
            f"the chain falls into {len(closed)} sets of states that it never leaves, "
            "so it has more than one stationary distribution (are all sites free, and is no "
            "temperature so low that probabilities vanish?)."
        )
    return np.flatnonzero(label == closed[0])


def eliminate(matrix: Floats) -> Floats:
    """The stationary distribution (size,) of an irreducible dense matrix, by elimination of states.

    Grassmann, Taksar and Heyman 1985: remove the last state, send its inflow on to where it goes
    next, repeat. Only additions, products and quotients of positive numbers; the diagonal, where
    a sticky state's 1 - tiny would lose its digits, is never read. What the states of one panel
    send on to the states before the panel is added up in one product of matrices.
    """
    flow = matrix.copy()
    for high in range(len(flow), 1, -PANEL):
        low = max(high - PANEL, 1)
        for last in range(high - 1, low - 1, -1):
            flow[:last, last] /= flow[last, :last].sum()
            flow[low:last, :last] += np.outer(flow[low:last, last], flow[last, :last])
            flow[:low, low:last] += np.outer(flow[:low, last], flow[last, low:last])
        flow[:low, :low] += flow[:low, low:high] @ flow[low:high, :low]
    mu = np.zeros(len(flow))
    mu[0] = 1.0
    for state in range(1, len(flow)):
        mu[state] = mu[:state] @ flow[:state, state]
        mu[: state + 1] /= mu[: state + 1].sum()  # at every state, against overflow
    return mu


def iterate(matrix: csr_array) -> Floats:
    """The stationary distribution (size,) of an irreducible sparse matrix, by GMRES.

    Solved for the jump chain J (the steps that move), which has no sticky states:
    (I - J' + u 1') y = u with u uniform has one solution, y = yJ with sum 1. The distribution of
    the chain itself is y / escape: the chain stays in a state for 1 / escape steps on average.
    """
    moves = (matrix - diags_array(matrix.diagonal())).tocsr()
    escape = moves.sum(axis=1)
    inflow = (diags_array(1 / escape) @ moves).T.tocsr()
    occupation = np.maximum(_fixed_point(inflow), 0.0) / escape
    return np.asarray(occupation / occupation.sum())


def _fixed_point(inflow: csr_array | LinearOperator) -> Floats:
    """The solution y (size,) of (I - inflow + u 1') y = u, as far as GMRES gets."""
    uniform = np.full(inflow.shape[0], 1 / inflow.shape[0])
    operator = LinearOperator(inflow.shape, lambda y: y - inflow @ y + uniform * y.sum())
    mu, inverse = uniform, None
    for _ in range(5):  # refinement: each round solves for the error of the last one
        residual = uniform - operator @ mu
        if np.abs(residual).sum() <= RESIDUAL_LIMIT / 100:
            break
        step, failed = gmres(operator, residual, M=inverse, rtol=1e-7, restart=60, maxiter=3)
        mu = mu + step
        if failed and inverse is None and not isinstance(inflow, LinearOperator):
            inverse = _incomplete_inverse(inflow)
    return mu


def _incomplete_inverse(inflow: csr_array) -> LinearOperator:
    """Roughly the inverse of I - inflow: worth its minute (100,000 states) on a slow chain only.

    The shift keeps the last pivot, which is zero in exact arithmetic, away from zero.
    """
    shifted = ((1 + 1e-9) * eye_array(inflow.shape[0]) - inflow).tocsc()
    factors = spilu(
        shifted, drop_tol=0.03, fill_factor=2, permc_spec="NATURAL", diag_pivot_thresh=0.0
    )
    return LinearOperator(inflow.shape, factors.solve)


def chain_and_stationary(
    matrix: Matrix, distribution: Floats | None
) -> tuple[csr_array | LinearOperator, Floats]:
    """The chain as a sparse matrix or an operator, and its stationary distribution (size,).

    A given distribution is refused unless it is stationary.
    """
    if isinstance(matrix, LinearOperator):
        step: csr_array | LinearOperator = matrix
    else:
        step = check_stochastic(csr_array(matrix, dtype=np.float64, copy=True))
    if distribution is None:
        return step, stationary(step)
    if distribution.shape != (step.shape[0],):
        raise GlauberError(
            f"the distribution has shape {distribution.shape}, but the chain is {step.shape}."
        )
    residual = float(np.abs(step.T @ distribution - distribution).sum())
    if not residual <= 100 * RESIDUAL_LIMIT:
        raise GlauberError(
            f"the given distribution is not stationary: a step moves it by {residual:.1e}."
        )
    return step, distribution


def check_stochastic(matrix: csr_array) -> csr_array:
    """The matrix without stored zeros; refused unless its rows are distributions."""
    matrix.eliminate_zeros()
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
    if not square or matrix.nnz == 0 or matrix.data.min() < 0:
        raise GlauberError("a stochastic matrix is square, and no entry is negative.")
    error = float(np.abs(matrix.sum(axis=1) - 1).max())
    if not error <= 1e-9:
        raise GlauberError(f"a row of the matrix misses a sum of 1 by {error:.1e}.")
    return matrix


def entropy_production(
    matrix: ArrayLike | csr_array, *, distribution: Floats | None = None
) -> float:
    """Nats per step, exact: sum over x, y of mu(x) P(x, y) log(P(x, y) / P(y, x)).

    mu is the stationary distribution (size,), computed if not given. Zero exactly when the chain
    is reversible; infinite if a possible step can never be undone. For random scan with one
    site, a move at site i has P(x, y) / P(y, x) = pi_i(y_i) / pi_i(x_i): the scan's 1/n cancels.
    """
    sparse = csr_array(matrix, dtype=np.float64, copy=True)
    sparse.eliminate_zeros()
    mu = stationary(sparse) if distribution is None else distribution
    moves = sparse.tocoo()
    possible = (mu[moves.row] > 0) & (moves.row != moves.col)
    row, column, forward = moves.row[possible], moves.col[possible], moves.data[possible]
    backward = np.asarray(sparse[column, row]).ravel()
    if (backward == 0).any():
        return float("inf")
    return float((mu[row] * forward * np.log(forward / backward)).sum())
