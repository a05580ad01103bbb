"""The relative entropy that one step of block dynamics removes: constants and their bounds.

Three constants of a distribution q and masks, each the least C, over all distributions r, in
    block approximate tensorisation:  KL(r||q) <= C E_{X~r} E_K KL(r(.|X_{-K},K) || q(.|X_{-K},K)),
    modified log-Sobolev:             KL(r||q) <= C E(f, log f),  f = r/q, E the Dirichlet form,
    log-Sobolev:                      KL(r||q) <= C E(sqrt f, sqrt f).
None has a formula. The best r found gives a lower bound; linearising at q gives another one,
the Poincare constant (half of it for the second, twice for the third). There are two upper bounds,
of which the third constant has the first only. Given (x_{-K}, K), Var(sqrt f) <= Ent(f) <=
Cov(f, log f), so that modified log-Sobolev <= tensorisation <= log-Sobolev, as paper B says.

By the gap. With s the least probability of a state, Diaconis and Saloff-Coste (1996, Corollary A.4)
give E(g, g) >= a Ent(g^2) with a = gap (1 - 2s) / log(1/s - 1), or gap / 2 where s = 1/2. For g >=
0 and any distribution, Var(g) <= Ent(g^2): both sides scale alike, so let E g^2 = 1; by Jensen's
inequality under the distribution of density g^2, Ent(g^2) = -2 E[g^2 log(1/g)] >= -2 log E[g], and
-log t >= 1 - t at t = (E g)^2 gives 1 - (E g)^2, the variance. (No smaller factor serves: it is
attained by the indicator of an event whose probability goes to 1, though near a constant g half of
it would do.) Given (x_{-K}, K) this says that the other side of tensorisation is at least E(sqrt f,
sqrt f). And E(f, log f) >= 4 E(sqrt f, sqrt f). So the constants are at most 1/a for tensorisation
and 1/(4a) for log-Sobolev.

By a product. For a product distribution and masks that hide site i with probability c_i,
tensorisation holds with 1 / min c_i (Shearer's inequality). Both sides are infima over constants of
means of a function that is never negative, so a distribution with a density between a and b against
the product has at most b/a times that (Holley and Stroock), and masks that look at x count with the
least chance that they ever have. E(f, log f) is at least the other side of tensorisation, so the
same bound serves both constants. The best product is a linear programme.

Along the chain chi-square and KL never grow. After t steps, chi-square is at most (1 - gap)^(2t) of
what it was, since the chain has no negative eigenvalue, and KL at most (1 - 1/C)^t, with C the
tensorisation constant.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import linprog, minimize
from scipy.sparse import csr_array, hstack, vstack
from scipy.sparse.linalg import aslinearoperator

from glauber.exact.blocks.dynamics import (
    Gap,
    block_chain,
    block_gap,
    block_operator,
    mask_conditionals,
    possible_conditionals,
)
from glauber.exact.blocks.masks import Masks
from glauber.exact.space import Floats, Integers, Space, check_positive
from glauber.foundation.errors import GlauberError

__all__ = [
    "Constant",
    "Decay",
    "UpperBound",
    "decay",
    "entropy_constant_bound",
    "log_sobolev",
    "tensorisation",
]

# log r -> (KL, the other side, and their derivatives (size,) with respect to r)
Sides = Callable[[Floats], tuple[float, float, Floats, Floats]]
DENSE = 1024  # states; below it a matrix is faster than its operator
SMALLEST_KL = 1e-6  # nats; below it rounding spoils the ratio, and the linearisation has the answer
PROGRAM_STATES = 4096  # beyond them the product of the geometric means is taken


@dataclass(frozen=True)
class UpperBound:
    """An upper bound and the argument that proves it."""

    value: float  # the bound
    by: str  # the argument, in words
    kind: Literal["upper bound"] = "upper bound"  # what the value is


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant between two bounds, and the distribution r (size,) that attains the lower one.

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
        """How far the constant may lie above lower, relative to it: not negative, but rounding."""
        return self.upper / self.lower - 1


def tensorisation(
    distribution: Floats, masks: Masks, *, n_starts: int = 6, seed: int = 0
) -> Constant:
    """The block approximate tensorisation constant of a positive distribution (size,)."""
    check_positive(distribution, masks.space)
    gap = block_gap(distribution, masks)
    sides = tensorisation_sides(distribution, masks)
    starts = [
        *_tilts(distribution, gap),
        *_corners(distribution, sides),
        *_random(distribution, n_starts, seed),
    ]
    return _best(sides, starts, gap.poincare, entropy_constant_bound(distribution, masks, gap))


def log_sobolev(
    distribution: Floats,
    masks: Masks,
    *,
    modified: bool = True,
    n_starts: int = 6,
    seed: int = 0,
) -> Constant:
    """The log-Sobolev constant of a positive distribution (size,), modified or standard."""
    check_positive(distribution, masks.space)
    gap = block_gap(distribution, masks)
    starts = [*_tilts(distribution, gap), *_random(distribution, n_starts, seed)]
    if not modified:
        sides = roots_dissipated(distribution, masks)
        starts += _corners(distribution, sides)
        above = UpperBound(bound_by_gap(distribution, gap), "spectral gap and least probability")
        return _best(sides, starts, 2 * gap.poincare, above)
    sides = dissipation_sides(distribution, masks)
    return _best(
        sides,
        starts,
        gap.poincare / 2,
        entropy_constant_bound(distribution, masks, gap, of="log-Sobolev"),
    )


def tensorisation_sides(distribution: Floats, masks: Masks) -> Sides:
    """KL(r||q) and E_{X~r} E_K KL(r(.|X_{-K},K) || q(.|X_{-K},K)), with their derivatives."""
    logs, chances = np.log(distribution), masks.by_state
    context = _contexts(masks)
    possible = chances > 0
    known = np.log(
        mask_conditionals(distribution, masks), where=possible, out=np.zeros_like(chances)
    )

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


def dissipation_sides(distribution: Floats, masks: Masks) -> Sides:
    """KL(r||q) and E(f, log f) = sum of (r - rP) log(r/q), with their derivatives."""
    chain = block_chain(distribution, masks)
    if distribution.size <= DENSE:
        chain = aslinearoperator(chain @ np.eye(distribution.size))
    logs = np.log(distribution)

    def sides(log_r: Floats) -> tuple[float, float, Floats, Floats]:
        r, ratio = np.exp(log_r), log_r - logs
        left = r - chain.rmatvec(r)
        slope = ratio - chain.matvec(ratio) + left / r
        return float(r @ ratio), float(left @ ratio), ratio, slope

    return sides


def roots_dissipated(distribution: Floats, masks: Masks) -> Sides:
    """KL(r||q) and E(sqrt f, sqrt f) = 1 - sqrt(r) M sqrt(r), with their derivatives."""
    operator = block_operator(distribution, masks)
    if distribution.size <= DENSE:
        operator = aslinearoperator(operator @ np.eye(distribution.size))
    logs = np.log(distribution)

    def sides(log_r: Floats) -> tuple[float, float, Floats, Floats]:
        root, ratio = np.exp(log_r / 2), log_r - logs
        left = root - operator @ root
        return float(root**2 @ ratio), float(root @ left), ratio, left / root

    return sides


def _contexts(masks: Masks) -> Integers:
    """For each mask and state (masks, size) a number that states alike outside the mask share."""
    states, strides = masks.space.states().numpy(), masks.space.strides.numpy()
    seen = [states @ strides - states[:, b] @ strides[b] for b in map(list, masks.blocks)]
    return np.asarray(np.stack(seen) + np.arange(len(seen))[:, None] * masks.space.size)


def _best(sides: Sides, starts: list[Floats], at_start: float, above: UpperBound) -> Constant:
    """The largest ratio over searches from all starts."""
    ends = [_climb(sides, start) for start in starts]
    ratios = np.array([_ratio(sides, end) for end in ends])
    slot = int(ratios.argmax())
    inside = ratios[slot] > at_start
    return Constant(
        lower=float(max(ratios[slot], at_start)),
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
        if not (above > SMALLEST_KL and below > 0):
            return 0.0, np.zeros_like(weights)
        slope = slope_below / below - slope_above / above
        r = np.exp(log_r)
        return float(np.log(below / above)), r * (slope - r @ slope)

    bounds = [(-60.0, 60.0)] * len(start)
    optimum = minimize(
        downhill,
        np.clip(start - start.mean(), -60, 60),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 100, "ftol": 1e-11, "gtol": 1e-9},
    )
    return np.asarray(optimum.x)


def _ratio(sides: Sides, weights: Floats) -> float:
    above, below, *_ = sides(_normal(weights))
    return above / below if above > SMALLEST_KL and below > 0 else 0.0


def _tilts(distribution: Floats, gap: Gap) -> list[Floats]:
    """q tilted both ways along the slowest function, a little and a lot."""
    slow = gap.function / np.abs(gap.function).max()
    return [np.log(distribution) + amount * slow for amount in (0.3, -0.3, 3.0, -3.0)]


def _corners(distribution: Floats, sides: Sides) -> list[Floats]:
    """Nearly all weight on one state: the three states where that does best."""
    corners = []
    for state in np.argsort(distribution)[:64]:
        weights = np.log(distribution)
        weights[state] += 20.0
        corners.append((_ratio(sides, weights), weights))
    return [weights for _, weights in sorted(corners, key=lambda corner: -corner[0])[:3]]


def _random(distribution: Floats, count: int, seed: int) -> list[Floats]:
    generator = np.random.default_rng(seed)
    return [
        np.log(distribution) + generator.normal(size=distribution.size) * (1 + 2 * (i % 3))
        for i in range(count)
    ]


def _normal(weights: Floats) -> Floats:
    """log r (size,) of log weights."""
    peak = weights.max()
    return np.asarray(weights - peak - np.log(np.exp(weights - peak).sum()))


def entropy_constant_bound(
    distribution: Floats,
    masks: Masks,
    gap: Gap,
    *,
    of: Literal["tensorisation", "log-Sobolev"] = "tensorisation",
) -> UpperBound:
    """The smaller of the two bounds for a positive distribution (size,)."""
    if not masks.is_adaptive and set(masks.blocks) == {tuple(range(masks.space.length))}:
        return UpperBound(1.0, "every mask hides all sites")
    by_gap = bound_by_gap(distribution, gap) / (1 if of == "tensorisation" else 4)
    by_product = bound_by_product(distribution, masks)
    if by_gap <= by_product:
        return UpperBound(by_gap, "spectral gap and least probability")
    return UpperBound(by_product, "nearest product distribution")


def bound_by_gap(distribution: Floats, gap: Gap) -> float:
    """1/a, with the gap less its error."""
    least = float(distribution.min())
    lowest = gap.value - gap.error
    if lowest <= 0:
        return math.inf
    share = 0.5 if least > 0.5 - 1e-9 else (1 - 2 * least) / math.log(1 / least - 1)
    return 1 / (lowest * share)


def bound_by_product(distribution: Floats, masks: Masks) -> float:
    """b/a over the least chance of a site to be hidden."""
    chances = masks.by_state.min(axis=1)
    hidden = np.zeros(masks.space.length)
    for block, chance in zip(masks.blocks, chances, strict=True):
        hidden[list(block)] += chance
    if not hidden.min() > 0:
        return math.inf
    return math.exp(product_oscillation(distribution, masks.space)) / float(hidden.min())


def product_oscillation(distribution: Floats, space: Space) -> float:
    """The least max - min of log(p / product) that was found; 0 where p is a product itself."""
    logs = np.log(distribution)
    rows = _indicators(space)
    if space.size <= PROGRAM_STATES:
        fitted = rows @ _nearest(logs, rows)
    else:
        cube = logs.reshape((space.vocab_size,) * space.length)
        axes = range(space.length)
        means = [cube.mean(axis=tuple(a for a in axes if a != site)) for site in axes]
        fitted = rows @ np.concatenate(means)
    residual = logs - fitted
    return float(residual.max() - residual.min())


def _nearest(logs: Floats, rows: csr_array) -> Floats:
    """Log weights (N * vocab,) of the product with the least oscillation, a linear program.

    Whatever the solver returns, the oscillation is computed from it, so the bound is safe.
    """
    ones = csr_array(np.ones((rows.shape[0], 1)))
    none = csr_array((rows.shape[0], 1))
    above = hstack([-rows, -ones, none])  # logs - fitted <= high
    below = hstack([rows, none, ones])  # logs - fitted >= low
    cost = np.zeros(rows.shape[1] + 2)
    cost[-2], cost[-1] = 1.0, -1.0
    program = linprog(
        cost,
        A_ub=vstack([above, below]).tocsr(),
        b_ub=np.concatenate([-logs, logs]),
        bounds=(None, None),
        method="highs",
    )
    return np.zeros(rows.shape[1]) if program.x is None else np.asarray(program.x[:-2])


def _indicators(space: Space) -> csr_array:
    """Which token is where: (size, N * vocab)."""
    columns = space.states().numpy() + np.arange(space.length) * space.vocab_size
    starts = np.arange(space.size + 1) * space.length
    shape = (space.size, space.length * space.vocab_size)
    return csr_array((np.ones(columns.size), columns.ravel(), starts), shape=shape)


@dataclass(frozen=True, eq=False)
class Decay:
    """Chi-square and KL (n_steps + 1,) to stationarity: exact, and their upper bounds.

    tensorisation is the upper bound on the constant that kl_bound rests on.
    """

    chi_square: Floats  # (n_steps + 1,) exact
    kl: Floats  # (n_steps + 1,) exact, in nats
    chi_square_bound: Floats  # (n_steps + 1,) by the gap
    kl_bound: Floats
    tensorisation: float
    kind: Literal["exact"] = "exact"  # of both distances
    bound_kind: Literal["upper bound"] = "upper bound"  # of both bounds


def decay(distribution: Floats, masks: Masks, start: Floats, n_steps: int) -> Decay:
    """Both distances after 0, 1, … n_steps steps from a start that is a distribution (size,)."""
    check_positive(distribution, masks.space)
    if start.shape != distribution.shape or start.min() < 0 or abs(start.sum() - 1) > 1e-9:
        raise GlauberError(
            f"the start must be a distribution over the {distribution.size:,} states."
        )
    if n_steps < 1:
        raise GlauberError(f"{n_steps} steps are too few: at least one is needed.")
    chain = block_chain(distribution, masks)
    rows = [start]
    for _ in range(n_steps):
        rows.append(chain.rmatvec(rows[-1]))
    chi = np.array([float(((row - distribution) ** 2 / distribution).sum()) for row in rows])
    kl = np.array([_kl(row, distribution) for row in rows])
    gap = block_gap(distribution, masks)
    constant = entropy_constant_bound(distribution, masks, gap).value
    times = np.arange(n_steps + 1)
    rate = 1 - max(0.0, gap.value - gap.error)
    return Decay(
        chi, kl, chi[0] * rate ** (2 * times), kl[0] * (1 - 1 / constant) ** times, constant
    )


def _kl(row: Floats, distribution: Floats) -> float:
    return float(
        np.where(row > 0, row * np.log(np.where(row > 0, row, 1.0) / distribution), 0.0).sum()
    )


def excess_loss(learnt: Floats, truth: Floats, masks: Masks) -> float:
    """L(p_hat) - L(p) of the population: E_p E_K KL of the truth's conditionals to the learnt."""
    check_positive(truth, masks.space)
    occurs = masks.by_state > 0
    weight = (masks.by_state * truth)[occurs]
    return float(
        weight @ np.log(possible_conditionals(truth, masks) / possible_conditionals(learnt, masks))
    )


def population_bound(learnt: Floats, truth: Floats, masks: Masks, *, tensorisation: float) -> float:
    """sqrt(C_AT/2 * excess): a bound on TV(p_hat, p) if C_AT(p_hat) is at most tensorisation."""
    return math.sqrt(tensorisation / 2 * max(0.0, excess_loss(learnt, truth, masks)))
