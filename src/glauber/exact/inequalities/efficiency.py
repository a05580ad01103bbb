"""How much worse than maximum likelihood can a mask law be? (Paper B, Theorems 2 and 3.)

Gamma <= C I^-1, with C the Poincare constant of the block dynamics of the same masks, checked as
H - I/C >= 0. For adaptive masks the dynamics is that of functions of X alone (chain.py).
"""

from dataclasses import dataclass

import numpy as np

from glauber.exact.inequalities.poincare import Poincare, poincare
from glauber.exact.laws import Floats
from glauber.exact.learning.covariance import (
    Asymptotics,
    asymptotics,
    fisher_information,
    inverted,
    smallest_difference,
)
from glauber.exact.learning.pseudolikelihood import Pseudolikelihood


@dataclass(frozen=True, eq=False)
class Efficiency:
    """The covariance of an estimator beside the bound; information is I (d, d). All exact."""

    asymptotics: Asymptotics
    poincare: Poincare
    information: Floats

    @property
    def bound_trace(self) -> float:
        """C times the trace of I^-1: an upper bound on the trace of Gamma."""
        return self.poincare.constant * float(np.trace(inverted(self.information)))

    @property
    def slack(self) -> float:
        """The smallest eigenvalue of H - I/C: not negative but for rounding."""
        return smallest_difference(
            self.asymptotics.hessian, self.information / self.poincare.constant
        )


def efficiency(problem: Pseudolikelihood, theta: Floats) -> Efficiency:
    """Covariance and bound at theta (d,)."""
    return Efficiency(
        asymptotics(problem, theta),
        poincare(problem.family.law(theta), problem.masks),
        fisher_information(problem.family, theta),
    )
