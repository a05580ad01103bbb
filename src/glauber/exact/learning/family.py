"""Which laws may be fitted? Exponential families over a small space.

log p_theta(x) = base(x) + theta . T(x) - log Z. Every pseudolikelihood of such a family is convex
in theta: log p(x_K | x_{-K}) is a linear function less a log-sum-exp.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch

from glauber.errors import GlauberError
from glauber.exact.ising import Ising
from glauber.exact.laws import Floats
from glauber.exact.potts import Potts
from glauber.exact.space import Space

MEMORY = 2**30  # bytes that one array may take


@dataclass(frozen=True, eq=False)
class Family:
    """Statistics T (d, size) and a base (size,), both in the order of the states."""

    space: Space
    statistics: Floats
    base: Floats
    names: tuple[str, ...]

    @property
    def n_parameters(self) -> int:
        return len(self.statistics)

    def log_weights(self, theta: Floats) -> Floats:
        """The exponent (…, size) for parameters theta (…, d)."""
        if theta.shape[-1:] != (self.n_parameters,):
            raise GlauberError(
                f"theta has shape {theta.shape}, but there are {self.n_parameters} parameters."
            )
        return np.asarray(theta @ self.statistics + self.base)

    def law(self, theta: Floats) -> Floats:
        """The law (…, size)."""
        exponent = self.log_weights(theta)
        weights = np.exp(exponent - exponent.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def ising_family(n_sites: int) -> Family:
    """All Ising models: theta = (h_i; J_ij for i < j), T = (x_i; 2 x_i x_j)."""
    space = Space(2, n_sites)
    pairs = list(combinations(range(n_sites), 2))
    check_memory(space, n_sites + len(pairs), "statistics")
    spins = space.states().numpy().T * 2.0 - 1.0  # (N, size)
    rows = [*spins, *(2 * spins[i] * spins[j] for i, j in pairs)]
    names = [*(f"h{i}" for i in range(n_sites)), *(f"J{i},{j}" for i, j in pairs)]
    return Family(space, np.stack(rows), np.zeros(space.size), tuple(names))


def ising_theta(model: Ising) -> Floats:
    """theta (d,) of a model."""
    return np.concatenate([model.fields, model.couplings[np.triu_indices(model.n_sites, 1)]])


def ising_model(theta: Floats, n_sites: int) -> Ising:
    """The model of theta (d,)."""
    couplings = np.zeros((n_sites, n_sites))
    couplings[np.triu_indices(n_sites, 1)] = theta[n_sites:]
    return Ising(theta[:n_sites], couplings + couplings.T)


def potts_family(n_sites: int, colours: int) -> Family:
    """All Potts models, the fields of colour 0 held at zero: they would say nothing new."""
    space = Space(colours, n_sites)
    pairs = list(combinations(range(n_sites), 2))
    check_memory(space, n_sites * (colours - 1) + len(pairs), "statistics")
    states = space.states().numpy().T
    singles = [(i, c) for i in range(n_sites) for c in range(1, colours)]
    rows = [
        *(states[i] == c for i, c in singles),
        *(2 * (states[i] == states[j]) for i, j in pairs),
    ]
    names = [*(f"h{i}({c})" for i, c in singles), *(f"J{i},{j}" for i, j in pairs)]
    return Family(space, np.stack(rows).astype(np.float64), np.zeros(space.size), tuple(names))


def potts_theta(model: Potts) -> Floats:
    """theta (d,) of a model, its fields taken relative to colour 0."""
    fields = (model.fields - model.fields[:, :1])[:, 1:].ravel()
    return np.concatenate([fields, model.couplings[np.triu_indices(model.n_sites, 1)]])


def tilted_family(law: Floats, space: Space, statistics: Floats) -> Family:
    """Any explicit law (size,), tilted by statistics (d, size); it has theta = 0 itself."""
    if law.shape != (space.size,) or not law.min() > 0:
        raise GlauberError("a law to be tilted gives every state a positive probability.")
    if statistics.ndim != 2 or statistics.shape[1] != space.size:
        raise GlauberError(
            f"the statistics have shape {statistics.shape}, but they must be (d, {space.size})."
        )
    names = tuple(f"theta{i}" for i in range(len(statistics)))
    return Family(space, statistics, np.log(law), names)


def state_counts(space: Space, tokens: Sequence[Sequence[int]]) -> Floats:
    """How often each state (size,) occurs in rows of tokens (n, length)."""
    numbers = space.index(torch.as_tensor(np.asarray(tokens, np.int64)))
    return np.bincount(numbers.numpy(), minlength=space.size).astype(np.float64)


def check_memory(space: Space, rows: int, what: str) -> None:
    """Refuses an array (rows, size) that is too large, and says what would fit."""
    if 8 * rows * space.size <= MEMORY:
        return
    fits = max(0, int(np.log(MEMORY / 8 / rows) / np.log(max(2, space.vocab_size)) + 1e-9))
    raise GlauberError(
        f"{space.size:,} states times {rows:,} {what} take {8 * rows * space.size / 1e9:.1f} GB, "
        f"but an array may take {MEMORY / 1e9:.1f} GB; with as many {what}, {fits} sites would fit."
    )
