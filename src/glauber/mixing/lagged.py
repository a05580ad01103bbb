"""How far from stationary is the chain after t steps? An estimated upper bound.

Two chains X and Y begin from the same law. X makes L steps alone, then (X_{t+L}, Y_t) move
together until they meet, at tau = the first t >= L with X_t = Y_{t-L}. Then (Biswas, Jacob and
Vanetti 2019)

    TV(law at time t, stationary law) <= E max(0, ceil((tau - L - t) / L)).

The right side is a mean over pairs: an estimate of an upper bound.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.mixing.coalescence import coalesce
from glauber.mixing.influence_matrix import check_epsilon
from glauber.mixing.pairs import joint_draw_named
from glauber.progress import check_count, track
from glauber.statistics import FEW, share_interval, student_reach

Floats = NDArray[np.float64]
CELLS = 2**22  # pairs times moments worked on at once


@dataclass(frozen=True, eq=False)
class Lagged:
    """Meeting times of L-lag couplings, and the bound on total variation that they estimate."""

    times: NDArray[
        np.int64
    ]  # (pairs,): tau, at least the lag; that of censored ones is the last step
    met: NDArray[np.bool_]  # (pairs,): False where the time is censored
    lag: int
    coupling: str

    @property
    def n_censored(self) -> int:
        return int((~self.met).sum())

    @property
    def kind(self) -> str:
        """What the bound is; with censored pairs it falls below what it estimates."""
        if self.n_censored == 0:
            return "estimate of an upper bound"
        return (
            f"lower estimate of an upper bound: {self.n_censored} of {len(self.met)} pairs "
            "did not meet within the steps and are counted as if they met at the last"
        )

    def bound(self, steps: ArrayLike) -> Floats:
        """The estimated bound (moments,) on the total variation after the given steps."""
        return self._over(steps, lambda counts: counts.mean(axis=1))

    def standard_error(self, steps: ArrayLike) -> Floats:
        """Of the bound (moments,), from the spread between pairs; nan for a single pair."""
        n = len(self.times)
        if n < 2:
            return np.full(np.shape(steps), np.nan)
        return self._over(steps, lambda counts: counts.std(axis=1, ddof=1) / np.sqrt(n))

    def band(self, steps: ArrayLike, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """The ends (moments,) of a pointwise two-sided band, by Student's t over pairs.

        The bound is at least P(tau > t + L), so neither end falls below its Clopper-Pearson
        limit: where all pairs have met, the upper end is not zero. Rare pairs that meet much
        later than any that was run would still raise the bound: a band cannot know of them. With
        censored pairs nothing holds it from above, and the upper end is infinite.
        """
        mean, error = self.bound(steps), np.nan_to_num(self.standard_error(steps))
        n = len(self.times)
        reach = student_reach(n, confidence) * error if n >= FEW else np.full(error.shape, np.inf)
        later = self._over(steps, lambda counts: (counts > 0).sum(axis=1)).astype(int)
        limits = {
            count: share_interval(count, n, confidence) for count in np.unique(later).tolist()
        }
        low, high = np.array([limits[count] for count in later.tolist()]).T
        high = np.maximum(mean + reach, np.inf if self.n_censored else high)
        return np.maximum(mean - reach, low), high

    def mixing_time(self, epsilon: float = 0.25) -> int:
        """The first step from which the estimated bound is at most epsilon.

        With censored pairs the bound is too low, and so is this: not before this step.
        """
        return self._first(lambda steps: self.bound(steps), epsilon)

    def mixing_time_high(self, epsilon: float = 0.25, *, confidence: float = 0.95) -> int | None:
        """The first step from which the band's upper end stays at most epsilon.

        None where that cannot be said: there are too few pairs, or censored ones.
        """
        if self.n_censored or share_interval(0, len(self.times), confidence)[1] > epsilon:
            return None
        return self._first(lambda steps: self.band(steps, confidence=confidence)[1], epsilon)

    def _first(self, curve: Callable[[ArrayLike], Floats], epsilon: float) -> int:
        check_epsilon(epsilon)
        steps = np.arange(int(self.times.max()) - self.lag + 1)
        above = np.flatnonzero(curve(steps) > epsilon)
        return int(above[-1]) + 1 if len(above) else 0

    def _over(self, steps: ArrayLike, summary: Callable[[Floats], Floats]) -> Floats:
        """A summary over pairs of max(0, ceil((tau - L - t) / L)), at each step t: (moments,)."""
        moments = np.asarray(steps).reshape(-1)
        size = max(1, CELLS // len(self.times))
        parts = [
            summary(np.maximum(-((self.lag + t[:, None] - self.times) // self.lag), 0.0))
            for t in np.split(moments, range(size, len(moments), size))
        ]
        return np.concatenate(parts).astype(np.float64)


def lagged(
    conditionals: Conditionals,
    left: Tensor,
    right: Tensor,
    *,
    free: Tensor,
    temperature: float | Tensor,
    seed: int | Tensor,
    steps: int | Tensor,
    lag: int,
    coupling: str = "maximal",
    pair: Tensor | None = None,
    batch_size: int | None = None,
) -> Lagged:
    """L-lag couplings from given starts: left (pairs, length) holds X_0, right holds Y_0.

    Both must be draws from one law. For a single text as the start, give it on both sides. The
    steps are those made together, after the first `lag` steps of X alone. The other arguments are
    those of `coalescence.finished`.
    """
    check_count("lag", lag)
    advanced = advance_alone(
        conditionals, left, free=free, temperature=temperature, seed=seed, n_steps=lag,
        coupling=coupling, pair=pair,
    )  # fmt: skip
    found = coalesce(
        conditionals, advanced, right, free=free, temperature=temperature, seed=seed, steps=steps,
        coupling=coupling, pair=pair, batch_size=batch_size, every=2**30, step=lag,
    )  # fmt: skip
    return Lagged(found.times + lag, found.met, lag, coupling)


def advance_alone(
    conditionals: Conditionals,
    tokens: Tensor,
    *,
    free: Tensor,
    temperature: float | Tensor,
    seed: int | Tensor,
    n_steps: int,
    coupling: str,
    pair: Tensor | None,
) -> Tensor:
    """Where single chains are n_steps later (pairs, length), with the noise of steps 0, 1, …"""
    state = start(tokens, free, temperature=temperature, chain=pair, device=tokens.device)
    seeds = torch.as_tensor(seed, dtype=torch.int64, device=tokens.device)
    kernel = glauber(conditionals, fill=joint_draw_named(coupling).alone)
    with track("steps before the pairs", n_steps) as advance:
        for after, _ in run(kernel, state, n_steps, seed=seeds):
            state = after
            advance()
    return state.tokens
