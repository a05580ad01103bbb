"""Where does the chain get stuck? The conductance of a set, and the worst set."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, diags_array

from glauber.errors import GlauberError
from glauber.exact.space import Floats
from glauber.exact.spectrum import remainder, second_vector
from glauber.exact.stationary import check_stationary, check_stochastic, stationary

ENUMERATION_LIMIT = 20  # states; half a million sets

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Bottleneck:
    """The set (size,) of at most half the mass that found it hardest to leave.

    conductance is its own, exactly. As the best over all sets it is "exact" after enumeration,
    and an "upper bound" from a sweep; no set has less than at_least (half the gap of the
    additive reversibilisation, by Cheeger's inequality).
    """

    inside: Bools  # (size,) the states of the set
    mass: float
    conductance: float
    at_least: float
    kind: Literal["exact", "upper bound"]  # as the best of all sets

    @property
    def mixing_time_at_least(self) -> float:
        """A lower bound on t_mix(1/4): 1 / (4 conductance)."""
        return 1 / (4 * self.conductance)


def conductance(
    matrix: ArrayLike | csr_array, inside: Bools, *, distribution: Floats | None = None
) -> float:
    """Phi(A) = sum over x in A, y not in A of mu(x) P(x, y), divided by mu(A).

    The probability that the stationary chain, found in A, leaves it with the next step. The
    theorem on slow mixing wants mu(A) <= 1/2; here any set with some mass may be asked about.
    """
    flow, found = _flow(matrix, distribution)
    if inside.shape != found.shape or inside.dtype != np.bool_:
        raise GlauberError(f"the set must be one boolean for each of the {len(found)} states.")
    mass = float(found[inside].sum())
    if mass == 0:
        raise GlauberError("the set is never visited, so its conductance is not defined.")
    return float(flow[inside][:, ~inside].sum() / mass)


def best_bottleneck(
    matrix: ArrayLike | csr_array, *, distribution: Floats | None = None
) -> Bottleneck:
    """The set with the least conductance among those with at most half the mass.

    Up to 20 recurrent states every set is tried. Beyond that, only the sets {x: f(x) <= c},
    where f is the second eigenvector of the additive reversibilisation.
    """
    flow, found = _flow(matrix, distribution)
    states = np.flatnonzero(found > 0)
    if len(states) < 2:
        raise GlauberError("a chain that stays in one state has no bottleneck.")
    if len(states) <= ENUMERATION_LIMIT:
        inside = _by_enumeration(flow[states][:, states].toarray(), found[states])
        at_least = None
    else:
        inside, gap = _by_sweep(flow[states][:, states], found[states])
        at_least = gap / 2
    whole = np.zeros(len(found), dtype=np.bool_)
    whole[states[inside]] = True
    value = conductance(matrix, whole, distribution=found)
    return Bottleneck(
        inside=whole,
        mass=float(found[whole].sum()),
        conductance=value,
        at_least=value if at_least is None else at_least,
        kind="exact" if at_least is None else "upper bound",
    )


def _flow(matrix: ArrayLike | csr_array, distribution: Floats | None) -> tuple[csr_array, Floats]:
    """The flow mu(x) P(x, y) as a sparse matrix (size, size), and mu (size,)."""
    sparse = check_stochastic(csr_array(matrix, dtype=np.float64, copy=True))
    found = stationary(sparse) if distribution is None else check_stationary(sparse, distribution)
    return (diags_array(found) @ sparse).tocsr(), found


def _by_enumeration(flow: Floats, distribution: Floats) -> Bools:
    """The best set (size,). Its complement has the same outflow, so the last state stays out."""
    size = len(distribution)
    sets = (np.arange(1, 2 ** (size - 1))[:, None] >> np.arange(size)) & 1  # (sets, size)
    mass = sets @ distribution
    # Summed over pairs of states, one leaving the set at a time: no differences, so that a tiny
    # outflow keeps its digits.
    outflow = np.einsum("sx,sx->s", sets @ flow, 1 - sets)
    best = int((outflow / np.minimum(mass, 1 - mass)).argmin())
    inside = sets[best].astype(np.bool_)
    return inside if mass[best] <= 1 / 2 else ~inside


def _by_sweep(flow: csr_array, distribution: Floats) -> tuple[Bools, float]:
    """The best of the sets below a level of the second eigenvector, and the additive gap."""
    chain = (diags_array(1 / distribution) @ flow).tocsr()
    rest = remainder(diags_array(1 / chain.sum(axis=1)) @ chain, distribution)
    second, vector = second_vector(rest)
    rank = np.empty(len(distribution), dtype=np.int64)
    order = np.argsort(vector / rest.root)
    rank[order] = np.arange(len(distribution))
    outflow = _cuts(flow, rank)
    mass = np.cumsum(distribution[order])[:-1]
    level = int((outflow / np.minimum(mass, 1 - mass)).argmin())
    below = rank <= level
    return (below if mass[level] <= 1 / 2 else ~below), 1 - second


def _cuts(flow: csr_array, rank: NDArray[np.int64]) -> Floats:
    """The flow (size - 1,) from ranks up to r to ranks above r, for every r."""
    edges = flow.tocoo()
    low, high = rank[edges.row], rank[edges.col]
    up = low < high  # an edge x -> y crosses the cuts rank(x) … rank(y) - 1
    weights, size = edges.data[up], len(rank)
    begun = np.bincount(low[up], weights, minlength=size)
    ended = np.bincount(high[up], weights, minlength=size)
    return np.asarray(np.cumsum(begun - ended)[:-1])
