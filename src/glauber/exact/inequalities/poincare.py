"""How much variance does one step of block dynamics remove at least? The Poincare constant.

The least C with Var(f) <= C E(f, f) for all f: one over the spectral gap. It bounds how much worse
than maximum likelihood the pseudolikelihood is (paper B, Theorems 2 and 3).
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse.linalg import LinearOperator

from glauber.exact.extremes import second_vector
from glauber.exact.inequalities.chain import block_chain
from glauber.exact.laws import Floats
from glauber.exact.learning.masks import Masks
from glauber.exact.reversal import Remainder

CLOSED = 1e-12  # a gap below this is rounding: the chain cannot get everywhere


@dataclass(frozen=True, eq=False)
class Poincare:
    """The spectral gap, known up to `error`, and a function f (size,) that attains it.

    The error is the residual of the eigenpair, a proved bound for symmetric matrices.
    """

    gap: float
    error: float
    function: Floats
    kind: Literal["exact"] = "exact"

    @property
    def constant(self) -> float:
        """1 / gap; infinite where the chain cannot get everywhere."""
        return 1 / self.gap if self.gap > CLOSED else math.inf


def poincare(law: Floats, masks: Masks) -> Poincare:
    """The constant of a positive law (size,): all eigenvalues if small, a sparse solver if not."""
    rest = _remainder(law, masks)
    value, vector = second_vector(rest)
    applied = rest.forward(vector) - rest.root * (rest.root @ vector)
    error = float(np.linalg.norm(applied - value * vector)) + law.size * 2.0**-52
    return Poincare(gap=max(0.0, 1 - value), error=error, function=vector / rest.root)


def _remainder(law: Floats, masks: Masks) -> Remainder:
    """The chain on the scale of its law, which is known here: reversing it changes nothing."""
    chain, root = block_chain(law, masks), np.sqrt(law)

    def scaled(values: Floats) -> Floats:  # (size,) or (size, columns)
        return np.asarray((root * (chain @ (values.T / root).T).T).T)

    shape = (law.size, law.size)
    operator = LinearOperator(
        shape, matvec=scaled, rmatvec=scaled, matmat=scaled, rmatmat=scaled, dtype=np.float64
    )
    return Remainder(np.arange(law.size), root, operator)
