"""When do two chains that share their randomness meet?

Two chains from different texts redraw the same site at each step, their two tokens drawn together
(see joint_draws). The first step after which all sites agree is the coalescence time. A pair that
has not met within its budget is censored: its time is the budget, and it is kept as such.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.mixing.joint_draws import joint_draw_named
from glauber.mixing.pairs import Pairs, begin, step_together
from glauber.mixing.streaming import UNKNOWN, Finished, Moments, stream

SCORES = 2**22  # scores of one side held at once: so many pairs move together, if none are named


@dataclass(frozen=True, eq=False)
class Coalescence:
    """When pairs met, and how far apart they were on the way."""

    times: NDArray[np.int64]  # (pairs,): the step at which they met, or the budget
    met: NDArray[np.bool_]  # (pairs,): False where the time is censored
    distances: NDArray[np.int16]  # (pairs, moments); -1 beyond a pair's budget
    every: int  # steps between two moments
    how: str

    @property
    def initial(self) -> NDArray[np.int16]:
        """The Hamming distance (pairs,) at the start."""
        return self.distances[:, 0]

    @property
    def share_met(self) -> float:
        """The share of pairs that met within their budget."""
        return float(self.met.mean())

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps (moments,) at which distances are kept."""
        return np.arange(self.distances.shape[1]) * self.every

    @property
    def mean_distance(self) -> NDArray[np.float64]:
        """The mean Hamming distance (moments,) over the pairs whose budget reaches so far."""
        count, total, _ = self._sums
        return total / count  # the pair with the largest budget reaches every moment

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Of the mean distance (moments,), from the spread between pairs; nan below two pairs."""
        count, total, squares = self._sums
        spread = squares - total**2 / count
        return np.sqrt(np.maximum(spread, 0) / np.where(count > 1, (count - 1) * count, np.nan))

    def contraction(self, alpha: float, n_sites: ArrayLike) -> NDArray[np.float64] | None:
        """The mean over pairs (moments,) of (1 - (1 - alpha)/n)^t times the distance at the start.

        n_sites is the number n of free sites, one for all or one per pair. Under the maximal
        coupling the expected distance does not exceed it, if alpha < 1 is the largest influence
        that a site exerts. Where alpha >= 1 it says nothing: None.
        """
        if not alpha < 1:
            return None
        rate = 1 - (1 - alpha) / np.broadcast_to(n_sites, self.times.shape)
        return np.asarray((rate ** self.steps[:, None] * self.initial).mean(axis=1))

    @property
    def _sums(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The number of known distances, their sum and the sum of their squares (moments,)."""
        known = self.distances != UNKNOWN
        values = np.where(known, self.distances, 0)
        squares = np.einsum("ij,ij->j", values, values, dtype=np.int64)
        return known.sum(axis=0), values.sum(axis=0, dtype=np.int64), squares


def coalesce(
    conditionals: Conditionals,
    left: Tensor,
    right: Tensor,
    *,
    free: Tensor,
    temperature: float | Tensor,
    seed: int | Tensor,
    budget: int | Tensor,
    how: str = "maximal",
    pair: Tensor | None = None,
    together: int | None = None,
    every: int = 1,
    step: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Coalescence:
    """Coalescence times of pairs of chains; the arguments are those of `finished`."""
    found = finished(
        conditionals, left, right, free=free, temperature=temperature, seed=seed, budget=budget,
        how=how, pair=pair, together=together, every=every, step=step, progress=progress,
    )  # fmt: skip
    rows = sorted(found, key=lambda one: one.row)
    return Coalescence(
        times=np.array([one.time for one in rows], dtype=np.int64),
        met=np.array([one.met for one in rows], dtype=np.bool_),
        distances=np.stack([one.distances for one in rows]),
        every=every,
        how=how,
    )


def finished(
    conditionals: Conditionals,
    left: Tensor,
    right: Tensor,
    *,
    free: Tensor,
    temperature: float | Tensor,
    seed: int | Tensor,
    budget: int | Tensor,
    how: str = "maximal",
    pair: Tensor | None = None,
    together: int | None = None,
    every: int = 1,
    step: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Finished]:
    """Each pair as soon as it has met or is censored.

    left, right  (pairs, length) tokens, filled with PAD behind shorter pairs
    free         (pairs, length) bool: sites that are redrawn; the same for both texts of a pair
    temperature, seed, budget   one number, or one per pair
    pair         (pairs,) numbers that key the noise, with seed and step (default: 0, 1, …)
    together     pairs that move at a time; where one is finished, the next waiting one moves in
    every        a distance is kept at each such step
    step         steps already made: the noise goes on from there, times are counted from there
    progress     called with the pairs finished and the pair-steps made, after every step

    A pair's answer depends neither on `together` nor on the other pairs.
    """
    joint = joint_draw_named(how)
    pairs = begin(left, right, free, temperature=temperature, seed=seed, pair=pair, step=step)
    budgets = torch.as_tensor(budget, device=left.device).expand(len(left))
    size = max(1, SCORES // conditionals.vocab_size) if together is None else together
    _check(budgets, size, every)
    kept = np.full((len(left), int(budgets.max()) // every + 1), UNKNOWN, dtype=np.int16)
    moments = Moments(kept, budgets.cpu().numpy(), every, step)

    def move(moving: Pairs) -> Pairs:
        return step_together(conditionals, joint, moving)

    return stream(move, pairs, moments, size, progress or (lambda finished, updates: None))


def _check(budgets: Tensor, together: int, every: int) -> None:
    """Refuses counts below one, and no pairs at all."""
    if len(budgets) == 0:
        raise GlauberError("there is no pair of texts to run.")
    if int(budgets.min()) < 1:
        raise GlauberError(f"the budget is {int(budgets.min())} steps, but it must be at least 1.")
    if together < 1 or every < 1:
        raise GlauberError(
            f"{together} pairs together and a distance every {every} steps were asked for, "
            "but both must be at least 1."
        )
