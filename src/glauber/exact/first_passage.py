"""How long until a set of states is reached, and which of two sets is reached first?"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import spsolve

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.stationary import check_stochastic, stationary

Inside = NDArray[np.bool_]  # (size,): whether a state is in the set


def mean_first_passage(matrix: csr_array, target: Inside) -> Floats:
    """Mean steps (size,) until the target is first reached; 0 in the target itself.

    h = 0 in the target and h = 1 + P h elsewhere, for a chain that reaches it from every state.
    """
    sparse = _checked(matrix, target)
    found = np.zeros(len(target))
    found[~target] = _solve(sparse, ~target, np.ones(int((~target).sum())))
    return found


def mean_passage_between(matrix: csr_array, source: Inside, target: Inside) -> float:
    """Mean steps to the target from the stationary law within the source."""
    law = stationary(matrix)[source]
    return float(law @ mean_first_passage(matrix, target)[source] / law.sum())


def committor(matrix: csr_array, source: Inside, target: Inside) -> Floats:
    """Chance (size,) to reach the target before the source: 0 in one, 1 in the other.

    q = P q outside both.
    """
    sparse = _checked(matrix, source)
    _checked(matrix, target)
    if (source & target).any():
        raise GlauberError("a state is in both sets, so which comes first cannot be asked.")
    between = ~(source | target)
    found = target.astype(np.float64)
    if between.any():
        found[between] = _solve(sparse, between, sparse[between] @ target.astype(np.float64))
    return found


def _solve(matrix: csr_array, open_states: Inside, right: Floats) -> Floats:
    """The solution of (I - P) x = right over the open states."""
    inner = matrix[open_states][:, open_states]
    return np.atleast_1d(spsolve((eye_array(inner.shape[0]) - inner).tocsc(), right))


def _checked(matrix: csr_array, inside: Inside) -> csr_array:
    sparse = check_stochastic(csr_array(matrix, dtype=np.float64, copy=True))
    if inside.shape != (sparse.shape[0],):
        raise GlauberError(
            f"the set is given over {inside.shape} states, but the chain has {sparse.shape[0]}."
        )
    if not inside.any() or inside.all():
        raise GlauberError("the set must hold some states and leave some out.")
    return sparse
