"""How long does the chain stay in a set, exactly? Mean exit times."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.linalg import splu
from torch import Tensor

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.space import Space
from glauber.exact.stationary import check_stochastic

Bools = NDArray[np.bool_]


def exit_times(matrix: csr_array, inside: Bools) -> Floats:
    """The exact mean number of steps (size,) until the chain is first outside; 0 outside.

    Solves (I - Q) h = 1, Q being the matrix among the states of the set. The rounding of Q
    enters h with a relative error of about 1e-16 times the largest exit time.
    """
    sparse = check_stochastic(csr_array(matrix, dtype=np.float64, copy=True))
    if inside.shape != (sparse.shape[0],) or inside.dtype != np.bool_:
        raise GlauberError(f"the set must be one boolean for each of the {sparse.shape[0]} states.")
    states = np.flatnonzero(inside)
    if len(states) == 0:
        raise GlauberError("the set has no state, so it has no exit time.")
    times = np.zeros(len(inside))
    among = sparse[states][:, states]
    try:
        times[states] = splu(csc_array(eye_array(len(states)) - among)).solve(np.ones(len(states)))
    except RuntimeError as error:  # an exactly singular matrix
        raise GlauberError("the set is never left, so its exit times are infinite.") from error
    if not 1 - 1e-9 <= times[states].min() <= times[states].max() < 1e15:
        raise GlauberError("the set is never left, so its exit times are infinite.")
    return times


def hamming_ball(space: Space, centre: Tensor, radius: int) -> Bools:
    """Whether each state (size,) differs from the centre (length,) at no more than radius sites."""
    return np.asarray(((space.states() != centre).sum(dim=1) <= radius).numpy())
