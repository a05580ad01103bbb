"""What does the chain look like on the scale of its own law, where reversing it is transposing?

With D = diag(law), the matrix S = D^(1/2) P D^(-1/2) has the eigenvalues of P, and the reversed
chain P* = D^-1 P' D becomes S'. The vector q = sqrt(law) belongs to the eigenvalue 1 on both
sides; without it, T = S - q q' holds everything that the chain still has to forget.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.stationary import RESIDUAL_LIMIT, check_stochastic, stationary

POLISH = 50  # steps that carry the accuracy of large entries of the law over to small ones
SYMMETRIC = 1e-9  # largest difference between S v and S' v, for normal v, of a reversible chain

Matrix: TypeAlias = ArrayLike | csr_array | LinearOperator


@dataclass(frozen=True, eq=False)
class Remainder:
    """The chain without its stationary part: T = S - q q', over the states that it keeps visiting.

    states (size,) are their numbers, root (size,) is q, scaled is S as a matrix or an operator.
    """

    states: np.ndarray[tuple[int], np.dtype[np.int64]]
    root: Floats
    scaled: csr_array | LinearOperator

    @property
    def size(self) -> int:
        return len(self.root)

    def forward(self, values: Floats) -> Floats:
        """T @ values (size,)."""
        return self.scaled @ values - self.root * (self.root @ values)

    def backward(self, values: Floats) -> Floats:
        """T' @ values (size,): the same for the reversed chain."""
        return self.scaled.T @ values - self.root * (self.root @ values)

    def dense(self) -> Floats:
        """T as a matrix (size, size)."""
        if isinstance(self.scaled, LinearOperator):
            scaled = self.scaled @ np.eye(self.size)
        else:
            scaled = self.scaled.toarray()
        return scaled - np.outer(self.root, self.root)

    def reversible(self) -> bool:
        """Whether T = T', tried on random vectors: an asymmetry above 1e-8 cannot hide."""
        probes = np.random.default_rng(0).standard_normal((3, self.size))
        gaps = [np.abs(self.forward(probe) - self.backward(probe)).max() for probe in probes]
        return bool(max(gaps) <= SYMMETRIC)


def remainder(matrix: Matrix, law: Floats | None = None) -> Remainder:
    """The remainder of a chain, from its matrix or operator; its law is found if not given.

    States that are left for ever are dropped from a matrix; an operator must have none.
    """
    found = stationary(matrix) if law is None else check_law(matrix, law)
    if isinstance(matrix, LinearOperator):
        states = np.arange(len(found))
        root = _roots(_polished(matrix, found))
        forward, back = aslinearoperator(diags_array(root)), aslinearoperator(diags_array(1 / root))
        return Remainder(states, root, forward @ matrix @ back)
    states = np.flatnonzero(found > 0)
    inner = check_stochastic(csr_array(matrix, dtype=np.float64))[states][:, states]
    root = _roots(_polished(inner, found[states]))
    return Remainder(states, root, (diags_array(root) @ inner @ diags_array(1 / root)).tocsr())


def check_law(matrix: Matrix, law: Floats) -> Floats:
    """The law given for a chain; refused unless the chain keeps it."""
    step = matrix if isinstance(matrix, LinearOperator) else csr_array(matrix)
    if law.shape != (step.shape[0],):
        raise GlauberError(f"the law has shape {law.shape}, but the chain is {step.shape}.")
    residual = float(np.abs(step.T @ law - law).sum())
    if not residual <= 100 * RESIDUAL_LIMIT:
        raise GlauberError(f"the given law is not stationary: a step moves it by {residual:.1e}.")
    return law


def _polished(matrix: csr_array | LinearOperator, law: Floats) -> Floats:
    """The law after some steps of its chain, which is itself, with its small entries settled.

    An iterative solution is accurate to 1e-12 of the whole; S divides by each entry.
    """
    for _ in range(POLISH if len(law) > 1 else 0):
        law = matrix.T @ law
    return law / law.sum()


def _roots(law: Floats) -> Floats:
    if not law.min() > 0:
        raise GlauberError("a state of the chain has no stationary probability that floats hold.")
    return np.sqrt(law)
