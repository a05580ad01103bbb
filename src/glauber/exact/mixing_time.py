"""After how many steps is the start forgotten? The mixing time t_mix.

d(t) = max over starts of TV(law after t steps, stationary law) never grows with t, so the first
time it is at most epsilon can be searched for: the powers P, P^2, P^4, … bracket it.
"""

from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

from glauber.errors import GlauberError
from glauber.exact.distances import WORST_LIMIT, chain_and_law, distances_from, start_laws
from glauber.exact.laws import Floats
from glauber.exact.reversal import Matrix

WALK_LIMIT = 1000  # steps taken one by one before a small chain is squared
MAX_STEPS = 2**40
ROUNDING = 2.0**-53


@dataclass(frozen=True)
class MixingTime:
    """The first step at which every start asked for is within epsilon of the stationary law.

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
    law: Floats | None = None,
    starts: ArrayLike | None = None,
    max_steps: int = MAX_STEPS,
) -> MixingTime:
    """t_mix(epsilon) over the worst start, or over the given ones (see `distances`)."""
    if not 0 < epsilon < 1:
        raise GlauberError(f"epsilon is {epsilon}, but it must lie between 0 and 1.")
    step, target = chain_and_law(matrix, law)
    hunt = _Hunt(step, target, epsilon, max_steps)
    rows = start_laws(step, starts)
    kind: Literal["exact", "lower bound"] = "exact" if starts is None else "lower bound"
    if not hunt.far(rows):
        return _found(hunt, 0, rows, rows, kind=kind)
    time, done = 0, False
    small = isinstance(step, csr_array) and len(target) <= WORST_LIMIT
    if not small or len(rows) < len(target) / 8:
        limit = min(max_steps, WALK_LIMIT) if small else max_steps
        time, rows, done = _walk(hunt, rows, limit)
    if not done:
        if not small:
            raise hunt.too_slow()
        time, rows = _search(hunt, rows, time)
    return _found(hunt, time + 1, rows, hunt.after(rows), kind=kind)


@dataclass(frozen=True, eq=False)
class _Hunt:
    """What is hunted for: the first time at which no law is further than epsilon from `law`."""

    step: csr_array | LinearOperator
    law: Floats
    epsilon: float
    max_steps: int

    def after(self, rows: Floats) -> Floats:
        """The laws (k, size) one step later."""
        return (self.step.T @ rows.T).T

    def far(self, rows: Floats) -> bool:
        """Whether some of the laws (k, size) is still too far away."""
        return bool(distances_from(rows, self.law).max() > self.epsilon)

    def too_slow(self) -> GlauberError:
        return GlauberError(
            f"after {self.max_steps:,} steps some start is still further than {self.epsilon} "
            "from the stationary law."
        )


def _walk(hunt: _Hunt, rows: Floats, limit: int) -> tuple[int, Floats, bool]:
    """The last time at which some law is too far and the laws then; False if not by the limit."""
    for time in range(limit):
        after = hunt.after(rows)
        if not hunt.far(after):
            return time, rows, True
        rows = after
    return limit, rows, False


def _search(hunt: _Hunt, rows: Floats, time: int) -> tuple[int, Floats]:
    """The same by powers of two: up, until one jump goes too far, then down again."""
    powers = [hunt.step.toarray()]
    while hunt.far(rows @ powers[-1]):
        if time + 2 ** len(powers) > hunt.max_steps:
            raise hunt.too_slow()
        square = powers[-1] @ powers[-1]
        powers.append(square / square.sum(axis=1, keepdims=True))
    for place in reversed(range(len(powers) - 1)):
        further = rows @ powers[place]
        if hunt.far(further):
            rows, time = further, time + 2**place
    return time, rows


def _found(
    hunt: _Hunt,
    steps: int,
    before: Floats,
    after: Floats,
    *,
    kind: Literal["exact", "lower bound"],
) -> MixingTime:
    earlier, now = distances_from(before, hunt.law), distances_from(after, hunt.law)
    error = steps * len(hunt.law) * ROUNDING
    clear = now.max() + error <= hunt.epsilon < earlier.max() - error or steps == 0
    return MixingTime(
        steps=steps,
        epsilon=hunt.epsilon,
        start=int(earlier.argmax()),
        distance=float(now.max()),
        before=float(earlier.max()),
        error=error,
        kind=kind if clear else "estimate",
    )
