"""Pseudolikelihood of hidden sites: loss, convex fit, and the covariance of its estimate.

L(theta) = - sum over pairs (K, x) of seen(K, x) log p_theta(x_K | x_{-K}, K), where
    p_theta(x_K | x_{-K}, K) = p_theta(x) p_K(K|x) / sum over x'_K of the same.
For fixed masks p_K cancels and this is p_theta(x_K | x_{-K}). Paper B, weighted, k-site and
adaptive pseudolikelihood. With E and Cov under that conditional distribution:
    gradient = - sum seen (T(x) - E[T]),     Hessian = sum seen Cov[T],    score = T(x) - E[T].

`seen` is a weight for each pair of a mask and a state (…, masks, size), summing to 1: the
population, data with random masks for each sample, and data with all masks averaged are three such
weights.

The fit is convex, with exact gradients. Newton's method works on many data sets at once; L-BFGS on
one, without a Hessian, for many parameters. Where the data leave a parameter at infinity or
undetermined, no estimate is claimed.

With one random mask per sample, sqrt(n) (estimate - theta) becomes normal with covariance
Gamma = H^-1, where H, the Hessian of the population's loss, equals the covariance of the scores
(information matrix equality). Paper B, Theorem 1: Gamma^{k+1} <= Gamma^k. Theorems 2 and 3:
Gamma <= C I^-1, with C the Poincare constant of the block dynamics of the same masks (for adaptive
ones: of functions of X alone) and I the Fisher information. Both are compared as Hessians, the
second as H - I/C >= 0: inverses would lose digits.

With m masks per sample the covariance is H^-1 (V + (S - V)/m) H^-1, where S is the covariance of
a score and V that of its mean over masks given x; m = 1 gives Gamma since S = H. All masks
averaged is m = infinity, another estimator, for which Theorem 1 says nothing.

The same formula with expectations under the distribution of the data, whatever it is, is the
sandwich covariance: it holds where no theta is right, too, and then S differs from H.
"""

from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import comb
from typing import Literal, Self

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq, minimize

from glauber.exact.blocks.dynamics import Gap, block_gap
from glauber.exact.blocks.masks import Masks, log_given_mask
from glauber.exact.models import Family, check_block_size, check_fits
from glauber.exact.space import Bools, Floats, conditional, over_block
from glauber.foundation.errors import GlauberError

__all__ = [
    "Asymptotics",
    "Efficiency",
    "Fit",
    "Pseudolikelihood",
    "added_information",
    "all_masks",
    "asymptotics",
    "draw_counts",
    "efficiency",
    "fisher_information",
    "fit_pairs",
    "observe_masks",
    "random_masks",
]

NEWTON_STEPS = 60  # of Newton; from zero it needs about ten where an estimate exists
CONVERGED_STEP = 1e-8  # a Newton step below this ends the search: the next one is its square
NODES = 18  # of the contour; with more, rounding grows
LARGEST_TERM = 10.0  # its logarithm
FEW_WEIGHTS = 15  # equal ones
FLAT = 1e-9  # curvature below which a direction counts as undetermined


def all_masks(weights: Floats, masks: Masks) -> Floats:
    """Pairs (…, masks, size) of a distribution or of counts (…, size), averaged over all masks.

    Of the true distribution it is the population.
    """
    shares = weights / weights.sum(axis=-1, keepdims=True)
    return np.asarray(shares[..., None, :] * masks.by_state)


def random_masks(
    counts: Floats, masks: Masks, generator: np.random.Generator, per_sample: int = 1
) -> Floats:
    """Pairs (…, masks, size) of counts (…, size), each sample with its own random masks."""
    chances = masks.by_state.T  # (size, masks)
    drawn = generator.multinomial(counts.astype(np.int64) * per_sample, chances)
    pairs = np.moveaxis(drawn.astype(np.float64), -1, -2)
    return np.asarray(pairs / pairs.sum(axis=(-2, -1), keepdims=True))


def observe_masks(
    counts: Floats, masks: Masks, per_sample: int | None, generator: np.random.Generator
) -> Floats:
    """Pairs (…, masks, size) of counts (…, size): some random masks each, or all (None)."""
    if per_sample is None:
        return all_masks(counts, masks)
    if per_sample < 1:
        raise GlauberError(f"a sample has {per_sample} masks, but it must have at least one.")
    return random_masks(counts, masks, generator, per_sample)


def draw_counts(
    distribution: Floats, n_samples: int, repetitions: int, generator: np.random.Generator
) -> Floats:
    """Counts (repetitions, size) of n_samples independent draws from a distribution (size,)."""
    if n_samples < 1 or repetitions < 1:
        raise GlauberError(
            f"at least one sample and one repetition are needed, but there are {n_samples} and "
            f"{repetitions}."
        )
    return generator.multinomial(n_samples, distribution, size=repetitions).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Pseudolikelihood:
    """A family and the distribution of the masks. theta is (…, d), seen is (…, masks, size)."""

    family: Family
    masks: Masks

    def __post_init__(self) -> None:
        space, n_masks = self.masks.space, len(self.masks.blocks)
        if self.family.space != space:
            raise GlauberError("the family and the masks are over different spaces.")
        check_fits(space.vocab_size, space.length, lambda n: n_masks, f"{n_masks:,} masks")

    @classmethod
    def of_size(cls, family: Family, k: int) -> Self:
        """The k-site pseudolikelihood; k = N is maximum likelihood."""
        n, vocab = family.space.length, family.space.vocab_size
        check_block_size(k, n)
        check_fits(vocab, n, lambda sites: comb(sites, k), f"masks of {k} sites")
        return cls(family, Masks.uniform(family.space, k))

    def log_conditional(self, theta: Floats, slot: int) -> Floats:
        """log p_theta(x_K | x_{-K}, K) (…, size) for the mask of that number."""
        return log_given_mask(self.family.log_weights(theta), self.masks, slot)

    def loss(self, theta: Floats, seen: Floats) -> Floats:
        """L (…)."""
        total = np.zeros(seen.shape[:-2])
        for slot in range(len(self.masks.blocks)):
            logs = self.log_conditional(theta, slot)
            weight = seen[..., slot, :]
            total = total - (weight * np.where(weight > 0, logs, 0.0)).sum(axis=-1)
        return np.asarray(total)

    def gradient(self, theta: Floats, seen: Floats) -> Floats:
        """The gradient (…, d): mean of T after one redraw of a mask, less its mean before."""
        space, moved = self.family.space, np.zeros((*seen.shape[:-2], self.family.space.size))
        for slot, hidden in enumerate(self.masks.blocks):
            context = over_block(seen[..., slot, :], space, hidden)
            moved = moved + context * np.exp(self.log_conditional(theta, slot))
        return np.asarray((moved - seen.sum(axis=-2)) @ self.family.statistics.T)

    def hessian(self, theta: Floats, seen: Floats) -> Floats:
        """The Hessian (…, d, d)."""
        d, space = self.family.n_parameters, self.family.space
        total = np.zeros((*seen.shape[:-2], d, d))
        for slot, hidden in enumerate(self.masks.blocks):
            distribution = np.exp(self.log_conditional(theta, slot))
            weight = over_block(seen[..., slot, :], space, hidden) * distribution
            apart = self._apart(distribution, hidden)
            total += (apart * weight[..., None, :]) @ apart.swapaxes(-1, -2)
        return total

    def score(self, theta: Floats, slot: int) -> Floats:
        """grad log p_theta(x_K | x_{-K}, K) (…, d, size) for the mask of that number."""
        return self._apart(np.exp(self.log_conditional(theta, slot)), self.masks.blocks[slot])

    def _apart(self, distribution: Floats, hidden: tuple[int, ...]) -> Floats:
        """T - E[T] (…, d, size) under a conditional distribution (…, size) of the hidden sites."""
        means = over_block(
            distribution[..., None, :] * self.family.statistics, self.family.space, hidden
        )
        return np.asarray(self.family.statistics - means)


@dataclass(frozen=True, eq=False)
class Fit:
    """Estimates theta (…, d), the loss (…) there, and what certifies them.

    slope (…) is the largest entry of the gradient, curvature (…) the smallest eigenvalue of the
    Hessian. found (…) says where a finite, unique estimate exists. error (…) bounds the distance
    to the exact minimiser, to first order.
    """

    theta: Floats
    loss: Floats
    max_gradient: Floats
    curvature: Floats
    converged: Bools
    n_iterations: int  # of the optimiser
    method: Literal["newton", "lbfgs"]  # the optimiser

    @property
    def error(self) -> Floats:
        """max_gradient * sqrt(d) / curvature (…), an estimate."""
        count = np.sqrt(self.theta.shape[-1])
        return np.asarray(self.max_gradient * count / np.maximum(self.curvature, FLAT))


def fit_pairs(
    problem: Pseudolikelihood, seen: Floats, *, method: Literal["newton", "lbfgs"] = "newton"
) -> Fit:
    """The estimates (…, d) from pairs seen (…, masks, size)."""
    shape = (len(problem.masks.blocks), problem.family.space.size)
    if seen.shape[-2:] != shape:
        raise GlauberError(f"the pairs have shape {seen.shape}, but they must end in {shape}.")
    if method == "newton":
        return _newton(problem, seen)
    if method != "lbfgs":
        raise GlauberError(f"the method is {method}, but it must be newton or lbfgs.")
    if seen.ndim > 2:
        raise GlauberError("L-BFGS fits one data set at a time; Newton fits many.")
    return _lbfgs(problem, seen)


def _newton(problem: Pseudolikelihood, seen: Floats) -> Fit:
    theta = np.zeros((*seen.shape[:-2], problem.family.n_parameters))
    loss = problem.loss(theta, seen)
    settled = np.zeros(loss.shape, bool)
    for n_steps in range(1, NEWTON_STEPS + 1):  # noqa: B007
        step = _direction(problem, theta, seen)
        short = np.abs(step).max(axis=-1) <= CONVERGED_STEP * (1 + np.abs(theta).max(axis=-1))
        theta, loss = _descend(problem, theta, loss, np.where(settled[..., None], 0.0, step), seen)
        settled |= short
        if settled.all():
            break
    return _fit(problem, theta, seen, settled, n_steps, "newton")


def _direction(problem: Pseudolikelihood, theta: Floats, seen: Floats) -> Floats:
    """The Newton step (…, d); flat directions are left alone."""
    slope = problem.gradient(theta, seen)
    values, vectors = np.linalg.eigh(problem.hessian(theta, seen))
    along = (vectors.swapaxes(-1, -2) @ slope[..., None])[..., 0]
    steep = values > 1e-13 * np.maximum(values[..., -1:], 1e-300)
    scaled = np.where(steep, along / np.where(steep, values, 1.0), 0.0)
    return np.asarray(-(vectors @ scaled[..., None])[..., 0])


def _descend(
    problem: Pseudolikelihood, theta: Floats, loss: Floats, step: Floats, seen: Floats
) -> tuple[Floats, Floats]:
    """theta moved by the step, halved for each data set until its loss no longer grows."""
    size = np.ones(loss.shape)
    for _ in range(40):
        target = theta + size[..., None] * step
        reached = problem.loss(target, seen)
        worse = ~(reached <= loss + 1e-14 * (1 + np.abs(loss)))
        if not worse.any():
            return target, reached
        size = np.where(worse, size / 2, size)
    return np.where(worse[..., None], theta, target), np.where(worse, loss, reached)


def _lbfgs(problem: Pseudolikelihood, seen: Floats) -> Fit:
    optimum = minimize(
        lambda theta: (float(problem.loss(theta, seen)), problem.gradient(theta, seen)),
        np.zeros(problem.family.n_parameters),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-16, "gtol": 1e-9, "maxcor": 30},
    )
    theta = optimum.x
    step = np.abs(_direction(problem, theta, seen)).max()
    # Its last digits are those of the loss, so the parameters are known to half as many.
    settled = np.asarray(step <= 1e-5 * (1 + np.abs(theta).max()))
    return _fit(problem, theta, seen, settled, int(optimum.nit), "lbfgs")


def _fit(
    problem: Pseudolikelihood,
    theta: Floats,
    seen: Floats,
    settled: Bools,
    n_steps: int,
    method: Literal["newton", "lbfgs"],
) -> Fit:
    curvature = np.asarray(np.linalg.eigvalsh(problem.hessian(theta, seen))[..., 0], np.float64)
    return Fit(
        theta=theta,
        loss=problem.loss(theta, seen),
        max_gradient=np.abs(problem.gradient(theta, seen)).max(axis=-1),
        curvature=curvature,
        converged=np.asarray(settled & (curvature > FLAT)),
        n_iterations=n_steps,
        method=method,
    )


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
        inverse = invert(self.hessian)
        spread = self.averaged_score_covariance
        if per_sample is not None:
            spread = spread + (self.score_covariance - spread) / per_sample
        return np.asarray(inverse @ spread @ inverse)

    def trace(self, per_sample: int | None = 1) -> float:
        """n times the mean squared error of the estimate, for large n."""
        return float(np.trace(self.covariance(per_sample)))

    def share_within(self, multiple: float = 1.0, per_sample: int | None = 1) -> float:
        """The chance, for large n, that the squared error is at most a multiple of trace / n.

        The error is a sum of independent Z_i^2 with the eigenvalues of the covariance as weights w.
        Talbot's contour inverts its Laplace transform, prod (1 + 2 w_i s)^(-1/2) / s (Abate and
        Valko 2004); with many weights alike it loses digits, and Imhof's (1961) integral falls
        fast. Exact up to about 1e-7.
        """
        weights = np.linalg.eigvalsh(self.covariance(per_sample))
        weights = np.maximum(weights / weights.sum(), 0.0)
        angles = np.arange(1, NODES) * np.pi / NODES
        scale, cot = 2 * NODES / (5 * multiple), 1 / np.tan(angles)
        nodes = np.append(scale, scale * angles * (cot + 1j))
        slopes = np.append(0.5, 1 + 1j * (angles + (angles * cot - 1) * cot))
        logs = multiple * nodes - np.log1p(2 * weights * nodes[:, None]).sum(axis=1) / 2
        if logs.real.max() < LARGEST_TERM and (weights**2).sum() > 1 / FEW_WEIGHTS:
            return float(scale / NODES * (np.exp(logs) / nodes * slopes).real.sum())

        def integrand(u: float) -> float:
            angle = (np.arctan(weights * u).sum() - multiple * u) / 2
            return float(np.sin(angle) * np.exp(-np.log1p((weights * u) ** 2).sum() / 4) / u)

        return float(0.5 - quad(integrand, 0, np.inf, limit=500)[0] / np.pi)

    def quantile(self, level: float, per_sample: int | None = 1) -> float:
        """The quantile of the squared error for large n, in multiples of trace / n."""
        reached = partial(self.share_within, per_sample=per_sample)
        return float(brentq(lambda multiple: reached(multiple) - level, 0.1, 8.0, xtol=1e-9))


def asymptotics(
    problem: Pseudolikelihood, theta: Floats, *, under: Floats | None = None
) -> Asymptotics:
    """What large samples from theta (d,) itself give; or from the distribution `under` (size,).

    With the shares of the data and the estimate it is the sandwich, for masks that ignore x.
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


def added_information(family: Family, theta: Floats, k: int) -> Floats:
    """C (d, d) with H of k + 1 = H of k + C: what one more hidden site adds (paper B, (B.16)).

    C = E over blocks S of k sites and a site a outside of Cov(grad log p(x_a | all but S and a)),
    where that score is E[T | x_{-S}] - E[T | x_{-S - a}]; so C is never negative. For k = N - 1 its
    rank is at most N (tokens - 1), so with more parameters the increase is not strict.
    """
    space, distribution = family.space, family.distribution(theta)
    check_block_size(k + 1, space.length)

    def mean_without(block: tuple[int, ...]) -> Floats:
        inside = conditional(distribution, space, block)
        return over_block(inside * family.statistics, space, block)

    total, count = np.zeros((family.n_parameters,) * 2), 0
    for block in combinations(range(space.length), k):
        own = mean_without(block)
        for site in sorted(set(range(space.length)) - set(block)):
            score = own - mean_without(tuple(sorted((*block, site))))
            total += (score * distribution) @ score.T
            count += 1
    return total / count


def fisher_information(family: Family, theta: Floats) -> Floats:
    """I (d, d): the covariance of the statistics."""
    distribution = family.distribution(theta)
    apart = family.statistics - (family.statistics @ distribution)[:, None]
    return np.asarray((apart * distribution) @ apart.T)


def smallest_difference(larger: Floats, smaller: Floats) -> float:
    """The smallest eigenvalue of larger - smaller: not negative if larger >= smaller."""
    return float(np.linalg.eigvalsh(larger - smaller)[0])


def invert(matrix: Floats) -> Floats:
    """The inverse of a positive matrix (d, d); refused if a direction is undetermined."""
    values, vectors = np.linalg.eigh(matrix)
    if not values[0] > 1e-13 * values[-1]:
        raise GlauberError(
            "these masks leave a combination of the parameters undetermined, "
            "so the covariance is infinite."
        )
    return np.asarray((vectors / values) @ vectors.T)


@dataclass(frozen=True, eq=False)
class Efficiency:
    """The covariance of an estimator and its bound; information is I (d, d). All exact."""

    asymptotics: Asymptotics
    gap: Gap
    information: Floats

    @property
    def bound_trace(self) -> float:
        """C times the trace of I^-1: an upper bound on the trace of Gamma."""
        return self.gap.poincare * float(np.trace(invert(self.information)))

    @property
    def divergence(self) -> float:
        """n times KL(p, p_hat) for large n: the trace of I Gamma / 2, at least d / 2."""
        return float(np.trace(self.information @ self.asymptotics.covariance())) / 2

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
