"""How irreversible is a chain, exactly? Entropy production of a transition matrix."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from glauber.exact.laws import Floats
from glauber.exact.stationary import stationary


def entropy_production(matrix: ArrayLike | csr_array, *, law: Floats | None = None) -> float:
    """Nats per step, exact: sum over x, y of mu(x) P(x, y) log(P(x, y) / P(y, x)).

    mu is the stationary law (given as `law` (size,), or worked out). Zero exactly when the chain
    is reversible; infinite if a step that is made can never be undone. For random scan with one
    site, a move at site i has P(x, y) / P(y, x) = pi_i(y_i) / pi_i(x_i): the scan's 1/n cancels.
    """
    sparse = csr_array(matrix, dtype=np.float64, copy=True)
    sparse.eliminate_zeros()
    mu = stationary(sparse) if law is None else law
    moves = sparse.tocoo()
    made = (mu[moves.row] > 0) & (moves.row != moves.col)
    row, column, forward = moves.row[made], moves.col[made], moves.data[made]
    backward = np.asarray(sparse[column, row]).ravel()
    if (backward == 0).any():
        return float("inf")
    return float((mu[row] * forward * np.log(forward / backward)).sum())
