"""How deep is a basin that is given as a set of states?

Basin A has margin D > 0 if for every x in A and every site i whose change can leave A, x_i is
the argmax of s_i(. | x_-i) and s_i(x_i) - s_i(v) >= D for every v that leaves A. Then
P(x, outside A) <= (|V| - 1) exp(-D / temperature) for every x in A, and the conductance of A too.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.alone import scores_alone
from glauber.conditionals.base import Conditionals, check_temperature
from glauber.errors import GlauberError
from glauber.metastability.margins import escape_bound


@dataclass(frozen=True, eq=False)
class BasinMargin:
    """The margin of a basin and what it promises, beside the exact chances of leaving."""

    margin: float  # smallest s_i(x_i) - s_i(v) over all ways out; inf if there is none. Exact
    argmax: bool  # whether x_i is the argmax wherever a change can leave
    escape_rates: NDArray[np.float64]  # (rows,): P(x, outside A). Exact
    n_tokens: int
    temperature: float

    @property
    def holds(self) -> bool:
        """Whether the theorem applies."""
        return self.argmax and self.margin > 0

    @property
    def escape_bound(self) -> float | None:
        """Upper bound on every P(x, outside A); None where the theorem does not apply."""
        if not self.holds:
            return None
        return escape_bound(self.margin, n_tokens=self.n_tokens, temperature=self.temperature)

    @property
    def mixing_time_bound(self) -> float | None:
        """Lower bound on t_mix where the stationary law gives A at most 1/2: 1 / (4 bound)."""
        bound = self.escape_bound
        if bound is None:
            return None
        return math.inf if bound == 0 else 1 / (4 * bound)


def basin_margin(
    conditionals: Conditionals, states: Tensor, *, temperature: float = 1.0
) -> BasinMargin:
    """The margin of the basin made of the states (rows, length), all of whose sites are free."""
    check_temperature(temperature)
    if states.dim() != 2 or 0 in states.shape:
        raise GlauberError("a basin needs at least one state, each a row of tokens.")
    scores = scores_alone(conditionals, states, torch.arange(states.shape[1]))
    outside = _leaves(states, conditionals.vocab_size)
    own = scores.gather(2, states[:, :, None])  # (rows, length, 1)
    ways = outside.any(-1)
    laws = torch.softmax(scores / temperature, dim=-1)
    return BasinMargin(
        margin=float((own - scores).masked_fill(~outside, torch.inf).amin()),
        argmax=bool((own[:, :, 0] >= scores.amax(-1))[ways].all()),
        escape_rates=np.asarray((laws * outside).sum(-1).mean(1).numpy()),
        n_tokens=conditionals.vocab_size,
        temperature=temperature,
    )


def _leaves(states: Tensor, vocab_size: int) -> Tensor:
    """Whether token v at site i leads out of the set: (rows, length, vocab) bool."""
    inside = set(map(tuple, states.tolist()))
    out = torch.zeros((*states.shape, vocab_size), dtype=torch.bool)
    for row, state in enumerate(states.tolist()):
        for site in range(len(state)):
            for token in range(vocab_size):
                out[row, site, token] = (*state[:site], token, *state[site + 1 :]) not in inside
    return out
