"""Which parameters predict the hidden sites best? The convex fit, with exact gradients.

Newton's method works on many data sets at once; L-BFGS on one, without a Hessian, for many
parameters. Where the data leave a parameter at infinity or undetermined, no estimate is claimed.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from glauber.errors import GlauberError
from glauber.exact.blocks.pseudolikelihood import Pseudolikelihood
from glauber.exact.space import Floats

STEPS = 60  # of Newton; from zero it needs about ten where an estimate exists
SETTLED = 1e-8  # a Newton step below this ends the search: the next one is its square
FLAT = 1e-9  # curvature below which a direction counts as undetermined


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
    n_steps: int
    method: Literal["newton", "lbfgs"]

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
