"""How well does a distribution predict the hidden sites, and which parameters do so best?

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
"""

from dataclasses import dataclass
from math import comb
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from glauber.errors import GlauberError
from glauber.exact.blocks.masks import Masks, check_block, log_given_mask
from glauber.exact.models import Family, check_fits
from glauber.exact.space import Floats, over_block

STEPS = 60  # of Newton; from zero it needs about ten where an estimate exists
SETTLED = 1e-8  # a Newton step below this ends the search: the next one is its square
FLAT = 1e-9  # curvature below which a direction counts as undetermined


@dataclass(frozen=True)
class Drawing:
    """How samples meet masks: each with `per_sample` random masks, or with all of them (None)."""

    per_sample: int | None = 1

    def __post_init__(self) -> None:
        if self.per_sample is not None and self.per_sample < 1:
            raise GlauberError(
                f"a sample has {self.per_sample} masks, but it must have at least one."
            )


def all_masks(weights: Floats, masks: Masks) -> Floats:
    """Pairs (…, masks, size) of a distribution or of counts (…, size), averaged over all masks.

    Of the true distribution it is the population.
    """
    shares = weights / weights.sum(axis=-1, keepdims=True)
    return np.asarray(shares[..., None, :] * masks.per_state)


def random_masks(
    counts: Floats, masks: Masks, generator: np.random.Generator, per_sample: int = 1
) -> Floats:
    """Pairs (…, masks, size) of counts (…, size), each sample with its own random masks."""
    chances = masks.per_state.T  # (size, masks)
    drawn = generator.multinomial(counts.astype(np.int64) * per_sample, chances)
    pairs = np.moveaxis(drawn.astype(np.float64), -1, -2)
    return np.asarray(pairs / pairs.sum(axis=(-2, -1), keepdims=True))


def observed(
    counts: Floats, masks: Masks, drawing: Drawing, generator: np.random.Generator
) -> Floats:
    """Pairs (…, masks, size) of counts (…, size), in the given way."""
    if drawing.per_sample is None:
        return all_masks(counts, masks)
    return random_masks(counts, masks, generator, drawing.per_sample)


def draw_counts(
    distribution: Floats, n_samples: int, repetitions: int, generator: np.random.Generator
) -> Floats:
    """Counts (repetitions, size) of n_samples independent draws from a distribution (size,)."""
    if n_samples < 1 or repetitions < 1:
        raise GlauberError(
            f"{n_samples} samples and {repetitions} repetitions were asked for, "
            "but at least one of each is needed."
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
        check_block(k, n)
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
    slope: Floats
    curvature: Floats
    found: NDArray[np.bool_]
    n_steps: int  # of the optimiser
    method: Literal["newton", "lbfgs"]  # the optimiser

    @property
    def error(self) -> Floats:
        """slope * sqrt(d) / curvature (…), an estimate."""
        count = np.sqrt(self.theta.shape[-1])
        return np.asarray(self.slope * count / np.maximum(self.curvature, FLAT))


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
    for n_steps in range(1, STEPS + 1):  # noqa: B007
        step = _direction(problem, theta, seen)
        short = np.abs(step).max(axis=-1) <= SETTLED * (1 + np.abs(theta).max(axis=-1))
        theta, loss = _descend(problem, theta, loss, np.where(settled[..., None], 0.0, step), seen)
        settled |= short
        if settled.all():
            break
    return _judged(problem, theta, seen, settled, n_steps, "newton")


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
        there = theta + size[..., None] * step
        reached = problem.loss(there, seen)
        worse = ~(reached <= loss + 1e-14 * (1 + np.abs(loss)))
        if not worse.any():
            return there, reached
        size = np.where(worse, size / 2, size)
    keep = worse
    return np.where(keep[..., None], theta, there), np.where(keep, loss, reached)


def _lbfgs(problem: Pseudolikelihood, seen: Floats) -> Fit:
    found = minimize(
        lambda theta: (float(problem.loss(theta, seen)), problem.gradient(theta, seen)),
        np.zeros(problem.family.n_parameters),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-16, "gtol": 1e-9, "maxcor": 30},
    )
    step = np.abs(_direction(problem, found.x, seen)).max()
    # Its last digits are those of the loss, so the parameters are known to half as many.
    settled = np.asarray(step <= 1e-5 * (1 + np.abs(found.x).max()))
    return _judged(problem, found.x, seen, settled, int(found.nit), "lbfgs")


def _judged(
    problem: Pseudolikelihood,
    theta: Floats,
    seen: Floats,
    settled: NDArray[np.bool_],
    n_steps: int,
    method: Literal["newton", "lbfgs"],
) -> Fit:
    curvature = np.asarray(np.linalg.eigvalsh(problem.hessian(theta, seen))[..., 0], np.float64)
    return Fit(
        theta=theta,
        loss=problem.loss(theta, seen),
        slope=np.abs(problem.gradient(theta, seen)).max(axis=-1),
        curvature=curvature,
        found=np.asarray(settled & (curvature > FLAT)),
        n_steps=n_steps,
        method=method,
    )
