"""Meeting times of coupled chains, and what they bound.

How far apart the two chains of a pair are on the way, and how far a chain is from its stationary
distribution after t steps.

With a lag L, two chains X and Y start from the same distribution and X makes L steps alone; then
(X_{t+L}, Y_t) move together until they meet, at tau = the first t >= L with X_t = Y_{t-L}. Without
a lag, the two start together from any two texts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from glauber.dynamics.coupled import (
    coupled,
    distance,
    pairs_at_once,
    run_until_met,
    sides,
    start_pairs,
)
from glauber.dynamics.kernel import State, run
from glauber.foundation.progress import Advance, check_memory, track
from glauber.foundation.statistics import (
    CONFIDENCE,
    MIN_CHAINS,
    Floats,
    clopper_pearson,
    t_quantile,
)
from glauber.foundation.study import internal, reported
from glauber.models.base import Conditionals

UNKNOWN = -1  # a distance after the last step of a pair
CELLS = 2**22  # pairs times moments worked on at once
# Receives places among the pairs, times (pairs,), left and right texts (pairs, length); right is
# None while the left chains move alone.
Observer = Callable[[NDArray[np.int64], NDArray[np.int64], Tensor, Tensor | None], None]


class TotalVariationBound(NamedTuple):
    """An estimated upper bound on the total variation after some steps, (moments,) each."""

    value: Floats
    standard_error: Floats  # from the spread between pairs; nan for a single one
    low: Floats  # of a pointwise band
    high: Floats


@dataclass(frozen=True, eq=False)
class Meetings:
    """When pairs met, and how far apart they were on the way."""

    times: NDArray[np.int64]  # (pairs,): steps of the left chain until they met, or all of them
    met: NDArray[np.bool_]  # (pairs,): False where the time is censored
    coupling: str
    lag: int  # steps that the left chain is ahead of the right one
    distances: NDArray[np.int16] = internal()  # (pairs, moments), Hamming; UNKNOWN after its steps
    every: int = 1  # steps between two moments

    @property
    def n_censored(self) -> int:
        """Pairs that did not meet within their steps."""
        return int((~self.met).sum())

    @property
    def initial(self) -> NDArray[np.int16]:
        """The distance (pairs,) at the start."""
        return self.distances[:, 0]

    @reported
    def moments(self) -> NDArray[np.int64]:
        """The steps (moments,) whose distances are known."""
        return np.arange(self.distances.shape[1]) * self.every

    @reported
    def mean_distance(self) -> Floats:
        """The mean distance (moments,) over the pairs whose steps reach so far."""
        count, total, _ = self._sums
        return np.asarray(total / count)  # the pair with the most steps reaches every moment

    @reported
    def standard_error(self) -> Floats:
        """Of the mean distance (moments,), from the spread between pairs; nan below two pairs."""
        count, total, squares = self._sums
        spread = squares - total**2 / count
        return np.sqrt(np.maximum(spread, 0) / np.where(count > 1, (count - 1) * count, np.nan))

    @property
    def _sums(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The number of known distances, their sum and the sum of their squares (moments,)."""
        known = self.distances != UNKNOWN
        values = np.where(known, self.distances, 0)
        squares = np.einsum("ij,ij->j", values, values, dtype=np.int64)
        return known.sum(axis=0), values.sum(axis=0, dtype=np.int64), squares

    def contraction(self, alpha: float, n_sites: ArrayLike) -> Floats | None:
        """The mean over pairs (moments,) of (1 - (1 - alpha)/n)^t times the initial distance.

        Bounds the expected distance under the maximal coupling if alpha < 1 is the largest
        influence that a site exerts (paper A, Theorem 5); None where alpha >= 1. n_sites is the
        number n of free sites, one for all or one a pair.
        """
        if not alpha < 1:
            return None
        rate = 1 - (1 - alpha) / np.broadcast_to(n_sites, self.times.shape)
        return np.asarray((rate ** self.moments[:, None] * self.initial).mean(axis=1))

    def tv_bound(self, steps: ArrayLike, level: float = CONFIDENCE) -> TotalVariationBound:
        """The bound on the total variation after the steps, from couplings with a lag L.

        TV(distribution at t, stationary) <= E max(0, ceil((tau - L - t) / L)) (Biswas, Jacob and
        Vanetti 2019); the right side is estimated by its mean over pairs. The band is Student's t
        over pairs. The bound is at least P(tau > t + L), so neither end is below the Clopper and
        Pearson limit of that: where all pairs have met, the upper end is not zero. A band cannot
        know of rare pairs that meet much later than any that was run. With censored pairs the
        value is too low, and the upper end is infinite.
        """
        n, moments = len(self.times), np.asarray(steps).reshape(-1)
        size = max(1, CELLS // n)
        columns = []
        for t in np.split(moments, range(size, len(moments), size)):
            counts = np.maximum(-((self.lag + t[:, None] - self.times) // self.lag), 0.0)
            spread = counts.std(axis=1, ddof=1) if n > 1 else np.full(len(t), np.nan)
            columns.append((counts.mean(axis=1), spread / np.sqrt(n), (counts > 0).sum(axis=1)))
        value, error, later = (np.concatenate(column) for column in zip(*columns, strict=True))
        limits = {count: clopper_pearson(count, n, level) for count in np.unique(later).tolist()}
        low, high = np.array([limits[count] for count in later.tolist()]).T
        reach = t_quantile(n, level) * error if n >= MIN_CHAINS else np.full(error.shape, np.inf)
        high = np.maximum(value + reach, np.inf if self.n_censored else high)
        return TotalVariationBound(value, error, np.maximum(value - reach, low), high)

    @property
    def bound_kind(self) -> str:
        """What the bound is; with censored pairs it falls below what it estimates."""
        if self.n_censored == 0:
            return "estimate of an upper bound"
        return (
            f"lower estimate of an upper bound: {self.n_censored} of {len(self.met)} pairs "
            "did not meet within the steps and are counted as if they met at the last"
        )

    def mixing_time(self, epsilon: float = 0.25) -> int:
        """The first step from which the estimated bound is at most epsilon.

        With censored pairs the bound is too low, and so is this: not before this step.
        """
        return self._first_below(self.tv_bound(self._steps).value, epsilon)

    def mixing_time_high(self, epsilon: float = 0.25, level: float = CONFIDENCE) -> int | None:
        """The first step from which the upper end of the band is at most epsilon.

        None where that cannot be said: there are too few pairs, or censored ones.
        """
        if self.n_censored or clopper_pearson(0, len(self.times), level)[1] > epsilon:
            return None
        return self._first_below(self.tv_bound(self._steps, level).high, epsilon)

    @property
    def _steps(self) -> NDArray[np.int64]:
        return np.arange(int(self.times.max()) - self.lag + 1)

    def _first_below(self, curve: Floats, epsilon: float) -> int:
        above = np.flatnonzero(curve > epsilon)
        return int(above[-1]) + 1 if len(above) else 0


def meet(
    conditionals: Conditionals,
    left: Tensor,
    right: Tensor,
    free: Tensor,
    *,
    temperature: float | Tensor,
    seed: int | Tensor,
    steps: int | Tensor,
    coupling: str = "maximal",
    lag: int = 0,
    pair: Tensor | None = None,
    batch_size: int | None = None,
    every: int | None = None,
    at_least: int = 0,
    observe: Observer | None = None,
) -> Meetings:
    """Runs pairs of chains until they meet.

    left, right  (pairs, length) tokens, filled with PAD after shorter pairs
    free         (pairs, length) bool: sites that are redrawn; the same for both texts of a pair
    temperature, seed, steps   one number, or one a pair; steps are those made together
    lag          steps that the left chain makes alone first; with a lag both sides must be draws
                 from one distribution, or the same text
    pair         (pairs,) numbers that key the noise, with seed and step (default: 0, 1, …)
    batch_size   pairs that move at a time (default: by the memory of the device)
    every        steps between two moments whose distances are kept (default: none are kept)
    at_least     steps that are made together even if the two meet before
    """
    pairs = start_pairs(left, right, free, temperature=temperature, pair=pair)
    n = len(left)
    size = pairs_at_once(conditionals, left.device) if batch_size is None else batch_size
    limits = torch.as_tensor(steps).expand(n).cpu().numpy()
    n_moments = 0 if every is None else int(limits.max()) // every + 1
    scores = 2 * min(size, n) * conditionals.vocab_size * 24
    check_memory(n * (2 * n_moments + 200) + scores, f"{n:,} pairs of chains")
    distances = np.full((n, n_moments), UNKNOWN, np.int16)
    seeds = torch.as_tensor(seed, dtype=torch.int64, device=left.device).expand(n)
    kernel = coupled(conditionals, coupling)

    def observe_pairs(places: NDArray[np.int64], elapsed: NDArray[np.int64], now: State) -> None:
        if every is not None:
            due = elapsed % every == 0
            distances[places[due], elapsed[due] // every] = distance(now).cpu().numpy()[due]
        if observe is not None:
            observe(places, elapsed + lag, *sides(now.tokens))

    def move_alone(places: Tensor, advance: Advance) -> Tensor:
        """Left texts after the lag: a chain that is paired with itself moves as a single chain."""
        state = pairs.rows((2 * places).repeat_interleave(2))
        keys = seeds[places].repeat_interleave(2)
        for time, (after, _) in enumerate(run(kernel, state, lag, seed=keys)):
            if observe is not None:
                numbers = places.cpu().numpy()
                observe(numbers, np.full(len(numbers), time), sides(state.tokens)[0], None)
            state = after
            advance(len(places))
        return sides(state.tokens)[0]

    with track("steps of pairs", float(limits.sum()) + lag * n) as advance:
        if lag:
            batches = torch.arange(n, device=left.device).split(size)
            ahead = torch.cat([move_alone(places, advance) for places in batches])
            tokens = torch.stack([ahead, right.long()], dim=1).flatten(0, 1)
            pairs = pairs._replace(tokens=tokens, step=pairs.step + lag)
        meetings = sorted(
            run_until_met(
                kernel,
                pairs,
                steps,
                seed=seed,
                batch_size=size,
                at_least=at_least,
                observe=observe_pairs,
                advance=advance,
            )
        )
    for pair_number, time, met in meetings:
        if every is not None and met:
            distances[pair_number, -(-time // every) : limits[pair_number] // every + 1] = 0
    times = np.array([meeting.time + lag for meeting in meetings])
    all_met = np.array([meeting.met for meeting in meetings])
    return Meetings(times, all_met, coupling, lag, distances, every or 1)
