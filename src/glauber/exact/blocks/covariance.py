"""How uncertain are the estimates of many samples, and do larger masks help?

With one random mask per sample, sqrt(n) (estimate - theta) becomes normal with covariance
Gamma = H^-1, where H, the Hessian of the population's loss, equals the covariance of the scores
(information matrix equality). Paper B, Theorem 1: Gamma^{k+1} <= Gamma^k. Theorems 2 and 3:
Gamma <= C I^-1, with C the Poincare constant of the block dynamics of the same masks (for adaptive
ones: of functions of X alone) and I the Fisher information. Both are compared as Hessians, the
second as H - I/C >= 0: inverses would lose digits.

With m masks per sample the covariance is H^-1 (V + (S - V)/m) H^-1, where S is the covariance of
a score and V that of its mean over masks given x; m = 1 gives Gamma since S = H. All masks
averaged is m = infinity, another estimator, for which Theorem 1 says nothing.

The same formula with expectations under the law of the data, whatever it is, is the sandwich
covariance: it holds where no theta is right, too, and then S differs from H.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csc_array
from scipy.sparse.linalg import LinearOperator, eigsh, splu

from glauber.errors import GlauberError
from glauber.exact.blocks.gap import Gap, block_gap
from glauber.exact.blocks.pseudolikelihood import Pseudolikelihood, all_masks
from glauber.exact.models import Family
from glauber.exact.space import Floats


@dataclass(frozen=True, eq=False)
class Asymptotics:
    """Hessian, covariance of the scores, and of the scores averaged over masks: (d, d) each.

    All exact, up to rounding of about 1e-14 times their size.
    """

    hessian: Floats  # (d, d) of the loss
    score_covariance: Floats  # (d, d) of one sample and mask
    averaged_score_covariance: Floats  # (d, d) of one sample, over masks

    @property
    def equality_gap(self) -> float:
        """The largest difference between the Hessian and the covariance of the scores."""
        return float(np.abs(self.hessian - self.score_covariance).max())

    def covariance(self, per_sample: int | None = 1) -> Floats:
        """n times the covariance (d, d) of the estimate; None averages all masks."""
        inverse = inverted(self.hessian)
        spread = self.averaged_score_covariance
        if per_sample is not None:
            spread = spread + (self.score_covariance - spread) / per_sample
        return np.asarray(inverse @ spread @ inverse)

    def trace(self, per_sample: int | None = 1) -> float:
        """n times the mean squared error of the estimate, for large n."""
        return float(np.trace(self.covariance(per_sample)))


def asymptotics(
    problem: Pseudolikelihood, theta: Floats, *, under: Floats | None = None
) -> Asymptotics:
    """What large samples from theta (d,) itself give; or from the distribution `under` (size,).

    With the shares of the data and the estimate it is the sandwich, for masks that do not see x.
    """
    distribution, d = problem.family.distribution(theta), problem.family.n_parameters
    distribution = distribution if under is None else under
    pairs, mean = np.zeros((d, d)), np.zeros((d, distribution.size))
    for slot in range(len(problem.masks.blocks)):
        score = problem.score(theta, slot)
        chance = problem.masks.chances[slot]
        pairs += (score * (chance * distribution)) @ score.T
        mean += chance * score
    hessian = problem.hessian(theta, all_masks(distribution, problem.masks))
    return Asymptotics(hessian, pairs, (mean * distribution) @ mean.T)


def asymptotics_by_size(family: Family, theta: Floats) -> list[Asymptotics]:
    """The same for k = 1, …, N hidden sites, uniform; the last is maximum likelihood."""
    sizes = range(1, family.space.length + 1)
    return [asymptotics(Pseudolikelihood.of_size(family, k), theta) for k in sizes]


def fisher_information(family: Family, theta: Floats) -> Floats:
    """I (d, d): the covariance of the statistics."""
    distribution = family.distribution(theta)
    apart = family.statistics - (family.statistics @ distribution)[:, None]
    return np.asarray((apart * distribution) @ apart.T)


def smallest_difference(larger: Floats, smaller: Floats) -> float:
    """The smallest eigenvalue of larger - smaller: not negative if larger >= smaller."""
    return float(np.linalg.eigvalsh(larger - smaller)[0])


def inverted(matrix: Floats) -> Floats:
    """The inverse of a positive matrix (d, d); refused if a direction is undetermined."""
    values, vectors = np.linalg.eigh(matrix)
    if not values[0] > 1e-13 * values[-1]:
        raise GlauberError(
            "these masks leave a combination of the parameters undetermined, "
            "so the covariance is infinite."
        )
    return np.asarray((vectors / values) @ vectors.T)


def solver(hessian: "Floats | csc_array") -> Callable[[Floats], Floats] | None:
    """What solves H y = u for u (d,) or (d, m); None where a direction is undetermined."""
    try:
        if isinstance(hessian, np.ndarray):
            factor = cho_factor(hessian)
            return lambda u: np.asarray(cho_solve(factor, u))
        factored = splu(hessian)
        return lambda u: np.asarray(factored.solve(np.ascontiguousarray(u)))
    except (np.linalg.LinAlgError, RuntimeError):
        return None


def smallest_eigenvalue(hessian: "Floats | csc_array") -> float:
    """Of a positive matrix (d, d); 0 where it cannot be inverted."""
    if isinstance(hessian, np.ndarray) and len(hessian) <= 1000:
        return float(np.linalg.eigvalsh(hessian)[0])
    solve = solver(hessian)
    if solve is None:
        return 0.0
    inverse = LinearOperator(hessian.shape, matvec=solve, dtype=np.float64)
    start = np.random.default_rng(1).standard_normal(hessian.shape[0])
    return float(1 / eigsh(inverse, k=1, which="LA", v0=start, return_eigenvectors=False)[0])


@dataclass(frozen=True, eq=False)
class Efficiency:
    """The covariance of an estimator beside the bound; information is I (d, d). All exact."""

    asymptotics: Asymptotics
    gap: Gap
    information: Floats

    @property
    def bound_trace(self) -> float:
        """C times the trace of I^-1: an upper bound on the trace of Gamma."""
        return self.gap.poincare * float(np.trace(inverted(self.information)))

    @property
    def slack(self) -> float:
        """The smallest eigenvalue of H - I/C: not negative but for rounding."""
        return smallest_difference(self.asymptotics.hessian, self.information / self.gap.poincare)


def efficiency(problem: Pseudolikelihood, theta: Floats) -> Efficiency:
    """Covariance and bound at theta (d,)."""
    return Efficiency(
        asymptotics(problem, theta),
        block_gap(problem.family.distribution(theta), problem.masks),
        fisher_information(problem.family, theta),
    )
