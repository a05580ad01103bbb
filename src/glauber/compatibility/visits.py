"""Which states did a run's chains visit, and how often?"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.errors import GlauberError
from glauber.runs.export import trajectory
from glauber.runs.run import Run


@dataclass(frozen=True, eq=False)
class Visits:
    """States in order of how long chains stayed in them, each once."""

    states: Tensor  # (states, length) int64
    free: Tensor  # (states, length) bool: the sites that were redrawn
    counts: NDArray[np.int64]  # (states,) steps spent there, all chains together
    n_visited: int  # different states in all, of which these are the most visited
    n_steps: int  # counted in all
    burn_in: int


def visits(run: Run, *, burn_in: int | None = None, most: int = 100) -> Visits:
    """The `most` states in which the chains spent most steps behind the burn-in (default: half).

    Chains that differ in their frozen tokens never share a state; neither do chains whose free
    sites differ, even where their tokens agree.
    """
    burn_in = run.steps // 2 if burn_in is None else burn_in
    if not 0 <= burn_in < run.steps:
        raise GlauberError(
            f"the burn-in is {burn_in} steps, but it must leave some of the run's {run.steps}."
        )
    if most < 2:
        raise GlauberError(f"{most} states were asked for, but a ranking needs at least 2.")
    frees = [row.tobytes() for row in run.free]
    seen: Counter[tuple[bytes, bytes]] = Counter()
    for step, tokens in trajectory(run):
        if step > burn_in:
            seen.update(zip((row.tobytes() for row in tokens), frees, strict=True))
    chosen = sorted(seen, key=lambda state: (-seen[state], state))[:most]
    return Visits(
        states=torch.from_numpy(np.stack([np.frombuffer(x, np.int64) for x, _ in chosen])),
        free=torch.from_numpy(np.stack([np.frombuffer(f, np.bool_) for _, f in chosen])),
        counts=np.array([seen[state] for state in chosen]),
        n_visited=len(seen),
        n_steps=(run.steps - burn_in) * run.n_chains,
        burn_in=burn_in,
    )
