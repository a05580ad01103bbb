"""Total variation against time, and the mixing time.

d(t) = max over starts of the total variation between the chain after t steps and its stationary
distribution never grows with t, so the first time it is at most epsilon can be searched for: the
powers P, P^2, P^4, … bracket it.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

from glauber.exact.space import Floats
from glauber.exact.stationary import Matrix, chain_and_stationary
from glauber.foundation.errors import GlauberError

__all__ = ["MixingTime", "distances", "mixing_time"]

WORST_LIMIT = 4096  # states; the distributions from every start are a matrix (size, size)
WALK_LIMIT = 1000  # steps taken one by one before a small chain is squared
MAX_STEPS = 2**40
ROUNDING = 2.0**-53


def distances(
    matrix: Matrix,
    n_steps: int,
    *,
    distribution: Floats | None = None,
    starts: ArrayLike | None = None,
) -> Floats:
    """Total variation (n_steps + 1, starts) from stationarity after 0, 1, … n_steps steps.

    starts are state numbers (k,) or distributions (k, size); every state by default.
    """
    step, target = chain_and_stationary(matrix, distribution)
    rows = start_distributions(step, starts)
    result = np.empty((n_steps + 1, len(rows)))
    for time in range(n_steps + 1):
        result[time] = _distances_from(rows, target)
        rows = (step.T @ rows.T).T
    return result


def start_distributions(step: csr_array | LinearOperator, starts: ArrayLike | None) -> Floats:
    """The distributions (k, size) of the starts."""
    size = step.shape[0]
    if starts is None:
        if size > WORST_LIMIT:
            raise GlauberError(
                f"the worst of {size:,} starts is out of reach; the limit is {WORST_LIMIT:,} "
                "states, so name the starts."
            )
        return np.eye(size)
    rows = np.asarray(starts)
    if rows.ndim == 1 and np.issubdtype(rows.dtype, np.integer):
        if len(rows) == 0 or rows.min() < 0 or rows.max() >= size:
            raise GlauberError(f"the starts must be state numbers from 0 to {size - 1}.")
        return np.asarray((rows[:, None] == np.arange(size)).astype(np.float64))
    if rows.ndim != 2 or rows.shape[1] != size or len(rows) == 0:
        raise GlauberError(
            f"the starts have shape {rows.shape}, but a distribution has {size} entries."
        )
    if rows.min() < 0 or np.abs(rows.sum(axis=1) - 1).max() > 1e-9:
        raise GlauberError("a start is no distribution: its entries must be positive and sum to 1.")
    return rows.astype(np.float64)


def _distances_from(rows: Floats, target: Floats) -> Floats:
    """Total variation (k,) of each row from the target."""
    return np.asarray(np.abs(rows - target).sum(axis=1) / 2)


@dataclass(frozen=True)
class MixingTime:
    """The first step at which every start is within epsilon of stationarity.

    before > epsilon >= distance are the total variations one step earlier and then, known up to
    error (sums of positive numbers, so at most steps * size roundings). start is the slowest start:
    a state's number, or the row of the given starts. kind is "exact" over all states, a "lower
    bound" on the worst start's time if starts were given, and an "estimate" where rounding could
    move the step.
    """

    steps: int
    epsilon: float
    start: int
    distance: float
    before: float
    error: float
    kind: Literal["exact", "lower bound", "estimate"]


def mixing_time(
    matrix: Matrix,
    *,
    epsilon: float = 0.25,
    distribution: Floats | None = None,
    starts: ArrayLike | None = None,
    max_steps: int = MAX_STEPS,
) -> MixingTime:
    """t_mix(epsilon) over the worst start, or over the given ones (see `distances`)."""
    if not 0 < epsilon < 1:
        raise GlauberError(f"epsilon is {epsilon}, but it must lie between 0 and 1.")
    step, target = chain_and_stationary(matrix, distribution)
    before = start_distributions(step, starts)
    search = _Search(step, target, epsilon, max_steps)
    steps, after = 0, before
    if search.is_far(before):
        last_far, before = search.last_far(before)
        steps, after = last_far + 1, search.after(before)
    earlier, now = _distances_from(before, target), _distances_from(after, target)
    error = steps * len(target) * ROUNDING
    is_clear = now.max() + error <= epsilon < earlier.max() - error or steps == 0
    kind: Literal["exact", "lower bound"] = "exact" if starts is None else "lower bound"
    return MixingTime(
        steps=steps,
        epsilon=epsilon,
        start=int(earlier.argmax()),
        distance=float(now.max()),
        before=float(earlier.max()),
        error=error,
        kind=kind if is_clear else "estimate",
    )


@dataclass(frozen=True, eq=False)
class _Search:
    """The search for the last time at which some start is further than epsilon away."""

    step: csr_array | LinearOperator
    target: Floats
    epsilon: float
    max_steps: int

    def after(self, rows: Floats) -> Floats:
        """The distributions (k, size) one step later."""
        return (self.step.T @ rows.T).T

    def is_far(self, rows: Floats) -> bool:
        """Whether some of the distributions (k, size) is still too far away."""
        return bool(_distances_from(rows, self.target).max() > self.epsilon)

    def last_far(self, rows: Floats) -> tuple[int, Floats]:
        """That time and the distributions then: step by step, for small chains by squaring."""
        can_square = isinstance(self.step, csr_array) and len(self.target) <= WORST_LIMIT
        n_walked = 0
        if not can_square or len(rows) < len(self.target) / 8:
            n_walked = min(self.max_steps, WALK_LIMIT) if can_square else self.max_steps
            for time in range(n_walked):
                after = self.after(rows)
                if not self.is_far(after):
                    return time, rows
                rows = after
        if not can_square:
            raise self.too_slow()
        return self.by_squaring(rows, n_walked)

    def by_squaring(self, rows: Floats, time: int) -> tuple[int, Floats]:
        """The same by powers of two: up, until one jump goes too far, then down again."""
        powers = [self.step.toarray()]
        while self.is_far(rows @ powers[-1]):
            if time + 2 ** len(powers) > self.max_steps:
                raise self.too_slow()
            square = powers[-1] @ powers[-1]
            powers.append(square / square.sum(axis=1, keepdims=True))
        for exponent in reversed(range(len(powers) - 1)):
            further = rows @ powers[exponent]
            if self.is_far(further):
                rows, time = further, time + 2**exponent
        return time, rows

    def too_slow(self) -> GlauberError:
        return GlauberError(
            f"after {self.max_steps:,} steps some start is still further than {self.epsilon} "
            "from the stationary distribution."
        )
