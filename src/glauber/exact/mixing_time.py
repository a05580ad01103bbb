"""After how many steps is the start forgotten? Total variation against time, the mixing time.

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

from glauber.errors import GlauberError
from glauber.exact.space import Floats
from glauber.exact.stationary import Matrix, check_stationary, check_stochastic, stationary

WORST_LIMIT = 4096  # states; the distributions from every start are a matrix (size, size)


def distances(
    matrix: Matrix,
    n_steps: int,
    *,
    distribution: Floats | None = None,
    starts: ArrayLike | None = None,
) -> Floats:
    """Total variation (n_steps + 1, starts) from stationarity after 0, 1, … n_steps steps.

    starts are state numbers (k,) or distributions (k, size); every state if none are given.
    """
    step, target = chain_and_stationary(matrix, distribution)
    rows = start_distributions(step, starts)
    found = np.empty((n_steps + 1, len(rows)))
    for time in range(n_steps + 1):
        found[time] = distances_from(rows, target)
        rows = (step.T @ rows.T).T
    return found


def chain_and_stationary(
    matrix: Matrix, distribution: Floats | None
) -> tuple[csr_array | LinearOperator, Floats]:
    """The chain as a sparse matrix or an operator, and its stationary distribution (size,)."""
    step = matrix
    if not isinstance(matrix, LinearOperator):
        step = check_stochastic(csr_array(matrix, dtype=np.float64))
    return step, stationary(step) if distribution is None else check_stationary(step, distribution)


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
    given = np.asarray(starts)
    if given.ndim == 1 and np.issubdtype(given.dtype, np.integer):
        if len(given) == 0 or given.min() < 0 or given.max() >= size:
            raise GlauberError(f"the starts must be state numbers from 0 to {size - 1}.")
        rows = np.zeros((len(given), size))
        rows[np.arange(len(given)), given] = 1.0
        return rows
    if given.ndim != 2 or given.shape[1] != size or len(given) == 0:
        raise GlauberError(
            f"the starts have shape {given.shape}, but a distribution has {size} entries."
        )
    if given.min() < 0 or np.abs(given.sum(axis=1) - 1).max() > 1e-9:
        raise GlauberError("a start is no distribution: its entries must be positive and sum to 1.")
    return given.astype(np.float64)


def distances_from(rows: Floats, target: Floats) -> Floats:
    """Total variation (k,) of each row from the target."""
    return np.asarray(np.abs(rows - target).sum(axis=1) / 2)


WALK_LIMIT = 1000  # steps taken one by one before a small chain is squared
MAX_STEPS = 2**40
ROUNDING = 2.0**-53


@dataclass(frozen=True)
class MixingTime:
    """The first step at which every start asked for is within epsilon of stationarity.

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
    search = _Search(step, target, epsilon, max_steps)
    rows = start_distributions(step, starts)
    kind: Literal["exact", "lower bound"] = "exact" if starts is None else "lower bound"
    if not search.far(rows):
        return _found(search, 0, rows, rows, kind=kind)
    time, done = 0, False
    small = isinstance(step, csr_array) and len(target) <= WORST_LIMIT
    if not small or len(rows) < len(target) / 8:
        limit = min(max_steps, WALK_LIMIT) if small else max_steps
        time, rows, done = _walk(search, rows, limit)
    if not done:
        if not small:
            raise search.too_slow()
        time, rows = _search(search, rows, time)
    return _found(search, time + 1, rows, search.after(rows), kind=kind)


@dataclass(frozen=True, eq=False)
class _Search:
    """The search for the first time at which no start is further than epsilon away."""

    step: csr_array | LinearOperator
    distribution: Floats
    epsilon: float
    max_steps: int

    def after(self, rows: Floats) -> Floats:
        """The distributions (k, size) one step later."""
        return (self.step.T @ rows.T).T

    def far(self, rows: Floats) -> bool:
        """Whether some of the distributions (k, size) is still too far away."""
        return bool(distances_from(rows, self.distribution).max() > self.epsilon)

    def too_slow(self) -> GlauberError:
        return GlauberError(
            f"after {self.max_steps:,} steps some start is still further than {self.epsilon} "
            "from the stationary distribution."
        )


def _walk(search: _Search, rows: Floats, limit: int) -> tuple[int, Floats, bool]:
    """The last time at which some start is too far, the rows then, and whether it was found."""
    for time in range(limit):
        after = search.after(rows)
        if not search.far(after):
            return time, rows, True
        rows = after
    return limit, rows, False


def _search(search: _Search, rows: Floats, time: int) -> tuple[int, Floats]:
    """The same by powers of two: up, until one jump goes too far, then down again."""
    powers = [search.step.toarray()]
    while search.far(rows @ powers[-1]):
        if time + 2 ** len(powers) > search.max_steps:
            raise search.too_slow()
        square = powers[-1] @ powers[-1]
        powers.append(square / square.sum(axis=1, keepdims=True))
    for place in reversed(range(len(powers) - 1)):
        further = rows @ powers[place]
        if search.far(further):
            rows, time = further, time + 2**place
    return time, rows


def _found(
    search: _Search,
    steps: int,
    before: Floats,
    after: Floats,
    *,
    kind: Literal["exact", "lower bound"],
) -> MixingTime:
    earlier, now = (
        distances_from(before, search.distribution),
        distances_from(after, search.distribution),
    )
    error = steps * len(search.distribution) * ROUNDING
    clear = now.max() + error <= search.epsilon < earlier.max() - error or steps == 0
    return MixingTime(
        steps=steps,
        epsilon=search.epsilon,
        start=int(earlier.argmax()),
        distance=float(now.max()),
        before=float(earlier.max()),
        error=error,
        kind=kind if clear else "estimate",
    )
