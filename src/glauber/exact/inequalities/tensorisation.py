"""How much relative entropy does one step of block dynamics remove at least?

Two constants of a law q and masks, both the least C, over all laws r, in
    block approximate tensorisation:  KL(r||q) <= C E_{X~r} E_K KL(r(.|X_{-K},K) || q(.|X_{-K},K)),
    modified log-Sobolev:             KL(r||q) <= C E(f, log f),  f = r/q, E the Dirichlet form.
Neither has a formula. The best r found gives a lower bound; linearising at q gives another one,
the Poincare constant (half of it for the second). ceilings.py has what is proved from above.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse.linalg import aslinearoperator

from glauber.exact.blocks import check_law
from glauber.exact.inequalities.ceilings import Ceiling, ceiling
from glauber.exact.inequalities.chain import block_chain, mask_laws
from glauber.exact.inequalities.poincare import Poincare, poincare
from glauber.exact.laws import Floats
from glauber.exact.learning.masks import Masks

# log r -> (KL, the other side, and their derivatives (size,) with respect to r)
Sides = Callable[[Floats], tuple[float, float, Floats, Floats]]
DENSE = 1024  # states; below it a matrix is faster than its operator
LEAST = 1e-6  # KL; below it rounding spoils the ratio, and the linearisation has the answer


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant between two bounds, and the law r (size,) that attains the lower one.

    lower is a "lower bound": the ratio at `attained_by`, or its limit at q itself (None). upper is
    an "upper bound", proved in the way that `upper_by` names. restarts (n,) are the ratios that
    the separate searches ended with: their agreement is the only sign that lower is the constant.
    """

    lower: float
    upper: float
    upper_by: str
    attained_by: Floats | None
    restarts: Floats

    @property
    def accuracy(self) -> float:
        """How far the constant may lie above lower, relative to it."""
        return max(0.0, self.upper / self.lower - 1)


def tensorisation(law: Floats, masks: Masks, *, n_starts: int = 6, seed: int = 0) -> Constant:
    """The block approximate tensorisation constant of a positive law (size,)."""
    check_law(law, masks.space)
    gap = poincare(law, masks)
    sides = tensorised(law, masks)
    starts = [*_tilts(law, gap), *_corners(law, sides), *_random(law, n_starts, seed)]
    return _best(sides, starts, gap.constant, ceiling(law, masks, gap))


def log_sobolev(law: Floats, masks: Masks, *, n_starts: int = 6, seed: int = 0) -> Constant:
    """The modified log-Sobolev constant of a positive law (size,)."""
    check_law(law, masks.space)
    gap = poincare(law, masks)
    starts = [*_tilts(law, gap), *_random(law, n_starts, seed)]
    sides = dissipated(law, masks)
    return _best(sides, starts, gap.constant / 2, ceiling(law, masks, gap, of="log-Sobolev"))


def tensorised(law: Floats, masks: Masks) -> Sides:
    """KL(r||q) and E_{X~r} E_K KL(r(.|X_{-K},K) || q(.|X_{-K},K)), with their derivatives."""
    logs, chances = np.log(law), masks.per_state
    context = _contexts(masks)
    possible = chances > 0
    known = np.log(mask_laws(law, masks), where=possible, out=np.zeros_like(chances))

    def sides(log_r: Floats) -> tuple[float, float, Floats, Floats]:
        r = np.exp(log_r)
        weight = chances * r
        total = np.bincount(context.ravel(), weights=weight.ravel())[context]
        share = np.divide(weight, total, where=possible, out=np.ones_like(known))
        inside = np.log(share)  # 0 where a mask cannot occur: it has no share in the mean
        slope = (chances * (inside - known)).sum(axis=0)
        ratio = log_r - logs
        return float(r @ ratio), float(r @ slope), ratio, slope

    return sides


def dissipated(law: Floats, masks: Masks) -> Sides:
    """KL(r||q) and E(f, log f) = sum of (r - rP) log(r/q), with their derivatives."""
    chain = block_chain(law, masks)
    if law.size <= DENSE:
        chain = aslinearoperator(chain @ np.eye(law.size))
    logs = np.log(law)

    def sides(log_r: Floats) -> tuple[float, float, Floats, Floats]:
        r, ratio = np.exp(log_r), log_r - logs
        left = r - chain.rmatvec(r)
        slope = ratio - chain.matvec(ratio) + left / r
        return float(r @ ratio), float(left @ ratio), ratio, slope

    return sides


def _contexts(masks: Masks) -> NDArray[np.int64]:
    """For each mask and state (masks, size) a number that states alike outside the mask share."""
    states, strides = masks.space.states().numpy(), masks.space.strides.numpy()
    seen = [states @ strides - states[:, b] @ strides[b] for b in map(list, masks.hidden)]
    return np.asarray(np.stack(seen) + np.arange(len(seen))[:, None] * masks.space.size)


def _best(sides: Sides, starts: list[Floats], at_law: float, above: Ceiling) -> Constant:
    """The largest ratio over searches from all starts."""
    ends = [_climb(sides, start) for start in starts]
    ratios = np.array([_ratio(sides, end) for end in ends])
    slot = int(ratios.argmax())
    inside = ratios[slot] > at_law
    return Constant(
        lower=float(max(ratios[slot], at_law)),
        upper=above.value,
        upper_by=above.by,
        attained_by=np.exp(_normal(ends[slot])) if inside else None,
        restarts=np.sort(ratios)[::-1],
    )


def _climb(sides: Sides, start: Floats) -> Floats:
    """Where L-BFGS ends, in log weights (size,), going up log KL - log of the other side."""

    def downhill(weights: Floats) -> tuple[float, Floats]:
        log_r = _normal(weights)
        above, below, slope_above, slope_below = sides(log_r)
        if not (above > LEAST and below > 0):
            return 0.0, np.zeros_like(weights)
        slope = slope_below / below - slope_above / above
        r = np.exp(log_r)
        return float(np.log(below / above)), r * (slope - r @ slope)

    bounds = [(-60.0, 60.0)] * len(start)
    found = minimize(
        downhill, np.clip(start - start.mean(), -60, 60), jac=True, method="L-BFGS-B",
        bounds=bounds, options={"maxiter": 100, "ftol": 1e-11, "gtol": 1e-9},
    )  # fmt: skip
    return np.asarray(found.x)


def _ratio(sides: Sides, weights: Floats) -> float:
    above, below, *_ = sides(_normal(weights))
    return above / below if above > LEAST and below > 0 else 0.0


def _tilts(law: Floats, gap: Poincare) -> list[Floats]:
    """q tilted both ways along the slowest function, a little and a lot."""
    slow = gap.function / np.abs(gap.function).max()
    return [np.log(law) + amount * slow for amount in (0.3, -0.3, 3.0, -3.0)]


def _corners(law: Floats, sides: Sides) -> list[Floats]:
    """Nearly all weight on one state: the three states where that does best."""
    found = []
    for state in np.argsort(law)[:64]:
        weights = np.log(law)
        weights[state] += 20.0
        found.append((_ratio(sides, weights), weights))
    return [weights for _, weights in sorted(found, key=lambda one: -one[0])[:3]]


def _random(law: Floats, count: int, seed: int) -> list[Floats]:
    generator = np.random.default_rng(seed)
    return [np.log(law) + generator.normal(size=law.size) * (1 + 2 * (i % 3)) for i in range(count)]


def _normal(weights: Floats) -> Floats:
    """log r (size,) of log weights."""
    peak = weights.max()
    return np.asarray(weights - peak - np.log(np.exp(weights - peak).sum()))
