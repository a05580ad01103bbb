"""What is the stationary mean of a statistic of the text, without the bias of the start?

From an L-lag coupling that meets at tau (Jacob, O'Leary and Atchade 2020; with a lag, Biswas,
Jacob and Vanetti 2019),

    H = 1/(m-k+1) * [ sum over t = k..m of h(X_t)
                      + sum over t >= k+L, t < tau of c_t (h(X_t) - h(Y_{t-L})) ]

has the stationary mean of h as its expectation, whatever k and m. Here c_t is the number of
j >= 1 with k <= t - j L <= m.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import start
from glauber.dynamics.loop import run
from glauber.errors import GlauberError
from glauber.mixing.coupling import SCORES
from glauber.mixing.joint_draws import JointDraw, joint_draw_named
from glauber.mixing.lagged import check_lag
from glauber.mixing.pairs import Pairs, begin, step_together

# tokens (rows, length) -> (rows,) or (rows, d)
Statistic = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Unbiased:
    """Independent estimates of a stationary mean, one a pair."""

    values: NDArray[np.float64]  # (pairs, d)
    times: NDArray[np.int64]  # (pairs,): tau; lag + budget where the pair is censored
    met: NDArray[np.bool_]  # (pairs,)

    @property
    def mean(self) -> NDArray[np.float64]:
        """The estimate (d,)."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Of the mean (d,), from the spread between pairs; nan for a single one."""
        n = len(self.values)
        if n < 2:
            return np.full(self.values.shape[1], np.nan)
        return np.asarray(self.values.std(axis=0, ddof=1) / np.sqrt(n))

    @property
    def kind(self) -> str:
        """An unbiased estimate, unless pairs were cut off before they met."""
        censored = int((~self.met).sum())
        if censored == 0:
            return "unbiased estimate"
        return (
            f"biased estimate: {censored} of {len(self.met)} pairs did not meet within the "
            "budget, and what they would still have added is missing"
        )


def unbiased(
    conditionals: Conditionals,
    left: Tensor,
    right: Tensor,
    *,
    statistic: Statistic,
    free: Tensor,
    temperature: float | Tensor,
    seed: int | Tensor,
    budget: int,
    k: int,
    m: int,
    lag: int = 1,
    how: str = "maximal",
) -> Unbiased:
    """Estimates of the stationary mean of a statistic; left holds X_0 and right Y_0, as in lagged.

    k and m are the first and last step of the plain average. A large k makes the correction rare,
    a large m averages more. The budget counts the steps made together.
    """
    check_lag(lag)
    _check(k, m, lag, budget)
    joint = joint_draw_named(how)
    pairs = begin(left, right, free, temperature=temperature, seed=seed)
    size = max(1, SCORES // conditionals.vocab_size)
    parts = []
    for rows in torch.arange(len(left), device=left.device).split(size):
        part = pairs.rows(rows)
        tally = _Tally(statistic, len(rows), k, m, lag)
        ahead = _alone(conditionals, joint, part, tally, lag)
        parts.append(_until_met(conditionals, joint, ahead, tally, max(m, lag + budget)))
    return Unbiased(*(np.concatenate(column) for column in zip(*parts, strict=True)))


class _Tally:
    """The sum H of each pair, added up while the chains move."""

    def __init__(self, statistic: Statistic, n_pairs: int, k: int, m: int, lag: int) -> None:
        self.statistic, self.n_pairs = statistic, n_pairs
        self.k, self.m, self.lag = k, m, lag
        self.sums: Tensor | None = None  # (pairs, d)

    def add(self, rows: Tensor, left: Tensor, right: Tensor | None, time: int) -> None:
        """Counts X_t = left, and h(X_t) - h(Y_{t-L}) with its weight where right is Y_{t-L}."""
        plain = float(self.k <= time <= self.m)
        weight = self.weight(time) if right is not None else 0
        if not plain and not weight:
            return
        value = self._ask(left)
        change = plain * value
        if right is not None and weight:
            change = change + weight * (value - self._ask(right))
        if self.sums is None:
            self.sums = value.new_zeros(self.n_pairs, value.shape[1])
        self.sums[rows] += change

    def weight(self, time: int) -> int:
        """The number of j >= 1 with k <= time - j * lag <= m."""
        first = max(1, -((self.m - time) // self.lag))
        return max(0, (time - self.k) // self.lag - first + 1)

    def _ask(self, tokens: Tensor) -> Tensor:
        return self.statistic(tokens).double().reshape(len(tokens), -1)

    def values(self) -> NDArray[np.float64]:
        """H (pairs, d)."""
        assert self.sums is not None  # step m is always counted
        return np.asarray((self.sums / (self.m - self.k + 1)).cpu().numpy())


def _alone(
    conditionals: Conditionals, joint: JointDraw, pairs: Pairs, tally: _Tally, lag: int
) -> Pairs:
    """The pairs with X a lag ahead of Y; counts X at steps 0 to lag - 1."""
    everyone = torch.arange(len(pairs.step), device=pairs.step.device)
    state = start(
        pairs.left, pairs.free, temperature=pairs.temperature, chain=pairs.pair,
        device=pairs.left.device,
    )  # fmt: skip
    kernel = glauber(conditionals, fill=joint.alone)
    for time, (after, _) in enumerate(run(kernel, state, lag, seed=pairs.seed)):
        tally.add(everyone, state.tokens, None, time)
        state = after
    return pairs._replace(left=state.tokens, step=state.step)


def _until_met(
    conditionals: Conditionals, joint: JointDraw, pairs: Pairs, tally: _Tally, last: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
    """Values, meeting times and whether they met, of pairs that go on to m and until they meet."""
    rows = torch.arange(len(pairs.step), device=pairs.step.device)
    times = torch.full_like(rows, last)
    met = torch.zeros_like(rows, dtype=torch.bool)
    time = tally.lag
    while len(rows):
        together = pairs.distance == 0
        times[rows[together & ~met[rows]]] = time
        met[rows[together]] = True
        tally.add(rows, pairs.left, pairs.right, time)
        go_on = (~together | (time < tally.m)) & (time < last)
        rows, pairs = rows[go_on], pairs.rows(go_on)
        if len(rows):
            pairs = step_together(conditionals, joint, pairs)
        time += 1
    return tally.values(), times.cpu().numpy(), met.cpu().numpy()


def _check(k: int, m: int, lag: int, budget: int) -> None:
    if not 0 <= k <= m:
        raise GlauberError(f"k is {k} and m is {m}, but 0 <= k <= m is needed.")
    if budget < 1:
        raise GlauberError(f"the budget is {budget} steps, but it must be at least 1.")
