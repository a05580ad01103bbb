"""When do two chains that share their randomness meet?

Two chains from different texts redraw the same site at each step, their two tokens drawn together
(see pairs). The first step after which all sites agree is the coalescence time. A pair that has
not met within its steps is censored: its time is that number, and it is kept as such.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.conditionals.batching import rows_at_once
from glauber.errors import GlauberError
from glauber.mixing.pairs import Pairs, begin, joint_draw_named, step_together
from glauber.progress import Advance, check_memory, track

UNKNOWN = -1  # a distance beyond the steps of a pair


@dataclass(frozen=True, eq=False)
class Coalescence:
    """When pairs met, and how far apart they were on the way."""

    times: NDArray[np.int64]  # (pairs,): the step at which they met, or the last one
    met: NDArray[np.bool_]  # (pairs,): False where the time is censored
    distances: NDArray[np.int16]  # (pairs, moments); -1 beyond a pair's steps
    every: int  # steps between two moments
    coupling: str

    @property
    def initial(self) -> NDArray[np.int16]:
        """The Hamming distance (pairs,) at the start."""
        return self.distances[:, 0]

    @property
    def moments(self) -> NDArray[np.int64]:
        """The steps (moments,) at which distances are kept."""
        return np.arange(self.distances.shape[1]) * self.every

    @property
    def mean_distance(self) -> NDArray[np.float64]:
        """The mean Hamming distance (moments,) over the pairs whose steps reach so far."""
        count, total, _ = self._sums
        return total / count  # the pair with the most steps reaches every moment

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
        return np.asarray((rate ** self.moments[:, None] * self.initial).mean(axis=1))

    @property
    def _sums(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The number of known distances, their sum and the sum of their squares (moments,)."""
        known = self.distances != UNKNOWN
        values = np.where(known, self.distances, 0)
        squares = np.einsum("ij,ij->j", values, values, dtype=np.int64)
        return known.sum(axis=0), values.sum(axis=0, dtype=np.int64), squares


class Finished(NamedTuple):
    """A pair that has met, or that has made all its steps."""

    row: int  # its place in what was given
    time: int  # the step at which it met, or the last one
    met: bool  # False: censored
    distances: NDArray[np.int16]  # (moments,): Hamming distance at step 0, every, 2 every, …


def coalesce(
    conditionals: Conditionals,
    left: Tensor,
    right: Tensor,
    *,
    free: Tensor,
    temperature: float | Tensor,
    seed: int | Tensor,
    steps: int | Tensor,
    coupling: str = "maximal",
    pair: Tensor | None = None,
    batch_size: int | None = None,
    every: int = 1,
    step: int = 0,
) -> Coalescence:
    """Coalescence times of pairs of chains; the arguments are those of `finished`."""
    total = int(torch.as_tensor(steps).expand(len(left)).sum())
    with track("steps of pairs", total) as advance:
        found = finished(
            conditionals, left, right, free=free, temperature=temperature, seed=seed, steps=steps,
            coupling=coupling, pair=pair, batch_size=batch_size, every=every, step=step,
            advance=advance,
        )  # fmt: skip
        rows = sorted(found, key=lambda one: one.row)
    return Coalescence(
        times=np.array([one.time for one in rows], dtype=np.int64),
        met=np.array([one.met for one in rows], dtype=np.bool_),
        distances=np.stack([one.distances for one in rows]),
        every=every,
        coupling=coupling,
    )


def finished(
    conditionals: Conditionals,
    left: Tensor,
    right: Tensor,
    *,
    free: Tensor,
    temperature: float | Tensor,
    seed: int | Tensor,
    steps: int | Tensor,
    coupling: str = "maximal",
    pair: Tensor | None = None,
    batch_size: int | None = None,
    every: int = 1,
    step: int = 0,
    advance: Advance | None = None,
) -> Iterator[Finished]:
    """Each pair as soon as it has met or is censored.

    left, right  (pairs, length) tokens, filled with PAD behind shorter pairs
    free         (pairs, length) bool: sites that are redrawn; the same for both texts of a pair
    temperature, seed, steps   one number, or one per pair
    pair         (pairs,) numbers that key the noise, with seed and step (default: 0, 1, …)
    batch_size   pairs that move at a time; where one is finished, the next waiting one moves in
    every        a distance is kept at each such step
    step         steps already made: the noise goes on from there, times are counted from there
    advance      counts the steps of all pairs, those that a pair that met does not need too

    A pair's answer depends neither on batch_size nor on the other pairs.
    """
    joint = joint_draw_named(coupling)
    allowed = torch.as_tensor(steps, device=left.device).expand(len(left))
    size = pairs_at_once(conditionals, left.device) if batch_size is None else batch_size
    _check(allowed, size, every)
    n_moments = int(allowed.max()) // every + 1
    scores = 2 * min(size, len(left)) * conditionals.vocab_size * 24
    check_memory(len(left) * (2 * n_moments + 200) + scores, f"{len(left):,} pairs of chains")
    pairs = begin(left, right, free, temperature=temperature, seed=seed, pair=pair, step=step)
    kept = np.full((len(left), n_moments), UNKNOWN, dtype=np.int16)
    moments = _Moments(kept, allowed.cpu().numpy(), every, step)

    def move(moving: Pairs) -> Pairs:
        return step_together(conditionals, joint, moving)

    return _stream(move, pairs, moments, size, advance or (lambda *_, **__: None))


def pairs_at_once(conditionals: Conditionals, device: torch.device | str = "cpu") -> int:
    """How many pairs move together: both sides take scores, probabilities and their coupling."""
    return rows_at_once(2 * 3 * 8 * conditionals.vocab_size, device)


class _Moments(NamedTuple):
    """Where distances are kept, and what ends a pair."""

    kept: NDArray[np.int16]  # (pairs, moments)
    steps: NDArray[np.int64]  # (pairs,) that each may make
    every: int
    first: int  # the step at which all pairs begin

    def ended(self, index: NDArray[np.int64], moving: Pairs) -> NDArray[np.bool_]:
        """Keeps the distances of the moving pairs; True (pairs,) for those that are finished."""
        distance, step = torch.stack([moving.distance, moving.step]).cpu().numpy()
        elapsed = step - self.first
        now = elapsed % self.every == 0
        self.kept[index[now], elapsed[now] // self.every] = distance[now]
        return np.asarray((distance == 0) | (elapsed >= self.steps[index]))

    def reports(self, index: NDArray[np.int64], over: Pairs) -> list[Finished]:
        """What is known of pairs that are finished; those that have met stay at distance 0."""
        times = (over.step - self.first).tolist()
        found = []
        for row, time, met in zip(
            index.tolist(), times, (over.distance == 0).tolist(), strict=True
        ):
            if met:
                last = self.steps[row] // self.every
                self.kept[row, -(-time // self.every) : last + 1] = 0
            found.append(Finished(row, time, met, self.kept[row]))
        return found


def _stream(
    move: Callable[[Pairs], Pairs], pairs: Pairs, moments: _Moments, size: int, advance: Advance
) -> Iterator[Finished]:
    """Moves at most `size` pairs at a time until all are finished.

    Where one has met or has made its steps, the next waiting one takes its place, whatever its
    temperature and length.
    """
    index = np.arange(0)  # rows of the moving pairs
    moving = pairs.rows(slice(0, 0))
    n = len(pairs.step)
    entered = n_finished = 0
    while len(index) or entered < n:
        if len(index) < size and entered < n:
            new = slice(entered, min(n, entered + size - len(index)))
            moving = Pairs(*map(torch.cat, zip(moving, pairs.rows(new), strict=True)))
            index = np.concatenate([index, np.arange(new.start, new.stop)])
            entered = new.stop
        ended = moments.ended(index, moving)
        if ended.any():
            over, stay = (torch.from_numpy(x).to(moving.step.device) for x in (ended, ~ended))
            reports = moments.reports(index[ended], moving.rows(over))
            index, moving = index[~ended], moving.rows(stay)
            n_finished += len(reports)
            advance(sum(int(moments.steps[one.row]) - one.time for one in reports))
            yield from reports
            continue
        moving = move(moving)
        advance(len(index), note=f"{n_finished:,} of {n:,} pairs finished")


def _check(steps: Tensor, batch_size: int, every: int) -> None:
    """Refuses counts below one, and no pairs at all."""
    if len(steps) == 0:
        raise GlauberError("there is no pair of texts to run.")
    if int(steps.min()) < 1:
        raise GlauberError(f"the number of steps is {int(steps.min())}, but it must be at least 1.")
    if batch_size < 1 or every < 1:
        raise GlauberError(
            f"{batch_size} pairs together and a distance every {every} steps were asked for, "
            "but both must be at least 1."
        )
