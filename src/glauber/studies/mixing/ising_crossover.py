"""The crossover of the physical Ising model at the lengths of a text, to set a model's next to it.

Mean-field (Curie-Weiss): n spins, each coupled to all others by 1 / n, so that any length has one
and long ones order below temperature 1. Every pair starts from all spins down and all up, the two
states that are hardest to bring together, and moves under the maximal coupling as pairs of texts
do. Widths in log temperature do not depend on the unit of temperature, so a model's and this one's
are compared as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, log

import numpy as np
import torch
from torch import Tensor

from glauber.studies.mixing.crossover import Crossover, Ends
from glauber.studies.mixing.phase import PhaseDiagram, phase

# In units of the critical temperature of long lengths.
TEMPERATURES = tuple(np.geomspace(0.2, 3.0, 16).round(3).tolist())


@dataclass(frozen=True)
class MeanFieldIsing:
    """Spins -1 and 1 (tokens 0 and 1) with the joint distribution exp(sum_{i<j} x_i x_j / n)."""

    vocab_size: int = 2

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """x times the mean of the other spins, as sum_{j != i} x_j / n: (rows, k, 2) float64."""
        spins = (2 * tokens - 1).double().scatter(1, sites, 0.0)
        field = spins.sum(dim=1, keepdim=True) / tokens.shape[1]
        scores = torch.stack([-field, field], dim=-1).expand(-1, sites.shape[1], -1)
        return scores if candidates is None else scores.gather(-1, candidates)


def ising_phase(lengths: Sequence[int], *, pairs: int, steps: int, seed: int = 0) -> PhaseDiagram:
    """The phase diagram of the mean-field Ising model."""
    longest = max(lengths)
    return phase(
        MeanFieldIsing(),
        ["0" * longest, "1" * longest],
        temperatures=list(TEMPERATURES),
        lengths=list(lengths),
        pairs=pairs,
        steps=steps,
        seed=seed,
    )


def width_ratio(crossover: Crossover, other: Crossover) -> tuple[float | None, Ends]:
    """The ratio of two widths, with its interval: 2 if the first is twice as smooth.

    On the log scale the two intervals are put together by their squares on each side (the method
    of variance estimates recovery). An end that rests on a width of 0 or on none is open.
    """
    if not crossover.width or not other.width:
        return None, (None, None)
    own, theirs = log(crossover.width), log(other.width)
    ends: list[float | None] = []
    for side in (0, 1):
        near, far = crossover.width_interval[side], other.width_interval[1 - side]
        if not near or not far:
            ends.append(None)
            continue
        reach = hypot(log(near) - own, log(far) - theirs)
        ends.append(exp(own - theirs + (reach if side else -reach)))
    return exp(own - theirs), (ends[0], ends[1])
