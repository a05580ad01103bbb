"""The texts of each chain every so many steps: the one way to read texts along a run."""

from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import check_count, check_memory
from glauber.runs.run import Run

COUNT = 50  # snapshots of a run, about, by default
TEXT_BYTES = 200  # of one text in memory, about


@dataclass(frozen=True, eq=False)
class Snapshots:
    """The texts of a run at step 0, every, 2 every, …"""

    run: Run
    steps: NDArray[np.int64]  # (snapshots,)
    tokens: NDArray[np.int32]  # (chains, snapshots, length)
    texts: tuple[tuple[str, ...], ...]  # chains, each of snapshots
    every: int

    @property
    def n_chains(self) -> int:
        return len(self.texts)

    def __len__(self) -> int:
        """Snapshots of each chain."""
        return len(self.steps)

    def after(self, step: int) -> "Snapshots":
        """Those after a step, such as the end of the burn-in."""
        late = self.steps > step
        texts = tuple(tuple(compress(row, late)) for row in self.texts)
        return Snapshots(self.run, self.steps[late], self.tokens[:, late], texts, self.every)


def snapshots(
    run: Run, *, every: int | None = None, count: int = COUNT, free_only: bool = False
) -> Snapshots:
    """The snapshots of a stored run, one every so many steps (default: about `count` of them).

    free_only leaves a frozen prefix and frozen sites out of the texts.
    """
    every = stride(run, every, count)
    length = run.free.shape[1]
    total = run.n_chains * (1 + run.steps // every)
    check_memory(total * (4 * length + TEXT_BYTES), f"{total:,} texts of {length} tokens")
    steps, states = zip(*run.states(every), strict=True)
    tokens, decode = np.stack(states, axis=1).astype(np.int32), run.decoder()
    texts = tuple(
        tuple(decode(row[free] if free_only else row) for row in chain)
        for chain, free in zip(tokens, run.free, strict=True)
    )
    return Snapshots(run, np.array(steps), tokens, texts, every)


def stride(run: Run, every: int | None = None, count: int = COUNT) -> int:
    """The steps between snapshots, if the run has room for two; by default about `count` fit."""
    if run.steps == 0:
        raise GlauberError(f"the run {run.name} has no steps yet, so there is nothing to read.")
    check_count("number of snapshots", count)
    every = max(1, run.steps // count) if every is None else every
    check_count("number of steps between snapshots", every, most=10**12)
    if run.steps < every:
        raise GlauberError(
            f"the run {run.name} has {run.steps} steps, but the snapshots are {every} steps "
            "apart: make it longer, or take them more often."
        )
    return every
