"""How does a batch of pairs stay full while pairs finish one by one?

At most so many pairs move at a time. Where one has met or has used up its budget, the next waiting
one takes its place, whatever its temperature and length. Every pair has its own count of steps.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.mixing.pairs import Pairs

UNKNOWN = -1  # a distance beyond the pair's budget


class Finished(NamedTuple):
    """A pair that has met, or that has used up its budget."""

    row: int  # its place in what was given
    time: int  # the step at which it met, or its budget
    met: bool  # False: censored
    distances: NDArray[np.int16]  # (moments,): Hamming distance at step 0, every, 2 every, …


class Moments(NamedTuple):
    """Where distances are kept, and what ends a pair."""

    kept: NDArray[np.int16]  # (pairs, moments)
    budgets: NDArray[np.int64]  # (pairs,)
    every: int
    first: int  # the step at which all pairs begin

    def ended(self, index: NDArray[np.int64], moving: Pairs) -> NDArray[np.bool_]:
        """Keeps the distances of the moving pairs; True (pairs,) for those that are finished."""
        distance, step = torch.stack([moving.distance, moving.step]).cpu().numpy()
        elapsed = step - self.first
        now = elapsed % self.every == 0
        self.kept[index[now], elapsed[now] // self.every] = distance[now]
        return np.asarray((distance == 0) | (elapsed >= self.budgets[index]))

    def reports(self, index: NDArray[np.int64], over: Pairs) -> list[Finished]:
        """What is known of pairs that are finished; those that have met stay at distance 0."""
        times = (over.step - self.first).tolist()
        found = []
        for row, time, met in zip(
            index.tolist(), times, (over.distance == 0).tolist(), strict=True
        ):
            if met:
                last = self.budgets[row] // self.every
                self.kept[row, -(-time // self.every) : last + 1] = 0
            found.append(Finished(row, time, met, self.kept[row]))
        return found


def stream(
    move: Callable[[Pairs], Pairs],
    pairs: Pairs,
    moments: Moments,
    size: int,
    progress: Callable[[int, int], None],
) -> Iterator[Finished]:
    """Moves at most `size` pairs at a time until all are finished."""
    index = np.arange(0)  # rows of the moving pairs
    moving = pairs.rows(slice(0, 0))
    entered = n_finished = updates = 0
    while len(index) or entered < len(pairs.step):
        if len(index) < size and entered < len(pairs.step):
            new = slice(entered, min(len(pairs.step), entered + size - len(index)))
            moving = Pairs(*map(torch.cat, zip(moving, pairs.rows(new), strict=True)))
            index = np.concatenate([index, np.arange(new.start, new.stop)])
            entered = new.stop
        ended = moments.ended(index, moving)
        if ended.any():
            over, stay = (torch.from_numpy(x).to(moving.step.device) for x in (ended, ~ended))
            reports = moments.reports(index[ended], moving.rows(over))
            index, moving = index[~ended], moving.rows(stay)
            n_finished += len(reports)
            yield from reports
            continue
        moving = move(moving)
        updates += len(index)
        progress(n_finished, updates)
