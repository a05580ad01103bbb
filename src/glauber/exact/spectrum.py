"""The spectral gaps of a chain, the conductance of a set of states, and the worst bottleneck.

A reversible chain has one gap. Another one has three: the second eigenvalue modulus (the rate in
the end), the gap of the additive reversibilisation (P + P*)/2, and the pseudo-spectral gap (Paulin
2015), max over k >= 1 of gap((P*)^k P^k) / k, which bounds the mixing time as the gap does for a
reversible chain.

All are computed on the scale of the stationary distribution mu, where reversing is transposing:
with D = diag(mu), S = D^(1/2) P D^(-1/2) has the eigenvalues of P, and the reversed chain
P* = D^-1 P' D becomes S'. The vector q = sqrt(mu) belongs to the eigenvalue 1 on both sides;
without it, T = S - q q' contains everything that the chain still has to forget.

The conductance of a set A, the probability that the stationary chain leaves it with the next step,
bounds the gap of the additive reversibilisation from both sides (Cheeger's inequality).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, aslinearoperator, eigs, eigsh

from glauber.exact.space import Bools, Floats, Integers
from glauber.exact.stationary import Matrix, chain_and_stationary
from glauber.foundation.errors import GlauberError

__all__ = ["Bottleneck", "Spectrum", "best_bottleneck", "conductance", "spectrum"]

POLISH = 50  # steps that carry the accuracy of large entries of the distribution over to small ones
SYMMETRIC = 1e-9  # largest difference between S v and S' v, for normal v, of a reversible chain
DENSE_SYMMETRIC = 512  # states; all eigenvalues of a symmetric matrix, a few hundredths of a second
DENSE_GENERAL = 256  # states; all eigenvalues of any matrix cost ten times as much
DENSE_RESCUE = 4096  # states; where the sparse solver stalls, the dense one still answers
ENUMERATION_LIMIT = 20  # states; half a million sets
# Number of vectors, restarts before it counts as stalled, and the relative residual.
ARPACK = {"ncv": 40, "maxiter": 500, "tol": 1e-10}

Which = Literal["LA", "LM"]  # the largest, or the largest in modulus


@dataclass(frozen=True)
class Spectrum:
    """The gaps of a chain over its recurrent states, each known up to `error` (absolute).

    pseudo_gap was sought over k up to k_max and is reached at pseudo_k. It is "exact" where no
    larger k can do better (a term is at most 1/k), and a "lower bound" otherwise. error is the
    largest residual of the eigenpairs: for the two gaps, which are eigenvalues of symmetric
    matrices, a proved bound; for second_modulus of a chain that is not reversible, an estimate.
    """

    n_states: int  # recurrent ones
    reversible: bool
    second_modulus: float
    additive_gap: float  # of (P + P*) / 2
    pseudo_gap: float
    pseudo_k: int
    k_max: int
    pseudo_kind: Literal["exact", "lower bound"]  # of pseudo_gap
    error: float

    @property
    def absolute_gap(self) -> float:
        """1 - second_modulus."""
        return 1 - self.second_modulus

    @property
    def gap(self) -> float:
        """1 - the second largest eigenvalue, of a reversible chain."""
        if not self.reversible:
            raise GlauberError(
                "the chain is not reversible, so it has no single spectral gap: "
                "use second_modulus, additive_gap or pseudo_gap."
            )
        return self.additive_gap


def spectrum(matrix: Matrix, *, distribution: Floats | None = None, k_max: int = 10) -> Spectrum:
    """The gaps of a chain (size, size), given as an array, a sparse matrix or an operator."""
    if k_max < 1:
        raise GlauberError(f"k_max is {k_max}, but it must be at least 1.")
    chain = deflate(matrix, distribution)
    if chain.size < 2:
        raise GlauberError("a chain that stays in one state has no spectral gap.")
    reversible = chain.reversible()
    second, residual = largest_eigenvalue(chain)
    if reversible:  # the eigenvalues of P^k are powers, so the term of k = 1 is the largest
        extreme, other = largest_eigenvalue(chain, "LM")
        modulus = abs(extreme)
        pseudo, best_k, complete = 1 - modulus**2, 1, True
    else:
        modulus, other = largest_modulus(chain)
        pseudo, best_k, complete, worse = _pseudo(chain, k_max)
        other = max(other, worse)
    return Spectrum(
        n_states=chain.size,
        reversible=reversible,
        second_modulus=modulus,
        additive_gap=1 - second,
        pseudo_gap=pseudo,
        pseudo_k=best_k,
        k_max=k_max,
        pseudo_kind="exact" if complete else "lower bound",
        error=max(residual, other),
    )


@dataclass(frozen=True, eq=False)
class DeflatedChain:
    """The chain without its stationary part: T = S - q q', over the recurrent states.

    states (size,) are their numbers, root (size,) is q, scaled is S as a matrix or an operator.
    """

    states: Integers
    root: Floats
    scaled: csr_array | LinearOperator

    @property
    def size(self) -> int:
        return len(self.root)

    def forward(self, values: Floats) -> Floats:
        """T @ values (size,)."""
        return self.scaled @ values - self.root * (self.root @ values)

    def backward(self, values: Floats) -> Floats:
        """T' @ values (size,): the same for the reversed chain."""
        return self.scaled.T @ values - self.root * (self.root @ values)

    def dense(self) -> Floats:
        """T as a matrix (size, size)."""
        if isinstance(self.scaled, LinearOperator):
            scaled = self.scaled @ np.eye(self.size)
        else:
            scaled = self.scaled.toarray()
        return scaled - np.outer(self.root, self.root)

    def reversible(self) -> bool:
        """Whether T = T', tested on random vectors: an asymmetry above 1e-8 is noticed."""
        probes = np.random.default_rng(0).standard_normal((3, self.size))
        gaps = [np.abs(self.forward(probe) - self.backward(probe)).max() for probe in probes]
        return bool(max(gaps) <= SYMMETRIC)


def deflate(matrix: Matrix, distribution: Floats | None = None) -> DeflatedChain:
    """A chain without its stationary part, from its matrix or operator; mu is computed by default.

    States that are left for ever are dropped from a matrix; an operator must have none of them.
    """
    step, mu = chain_and_stationary(matrix, distribution)
    if isinstance(step, LinearOperator):
        root = _roots(step, mu)
        forward, back = aslinearoperator(diags_array(root)), aslinearoperator(diags_array(1 / root))
        return DeflatedChain(np.arange(len(mu)), root, forward @ step @ back)
    states = np.flatnonzero(mu > 0)
    inner = step[states][:, states]
    root = _roots(inner, mu[states])
    return DeflatedChain(states, root, (diags_array(root) @ inner @ diags_array(1 / root)).tocsr())


def _roots(step: csr_array | LinearOperator, distribution: Floats) -> Floats:
    """The square roots of the distribution after some steps, which settle its small entries.

    An iterative solution is accurate to 1e-12 of the whole; S divides by each entry.
    """
    for _ in range(POLISH if len(distribution) > 1 else 0):
        distribution = step.T @ distribution
    distribution = distribution / distribution.sum()
    if not distribution.min() > 0:
        raise GlauberError("a state of the chain has no stationary probability within floats.")
    return np.sqrt(distribution)


def largest_eigenvalue(chain: DeflatedChain, which: Which = "LA") -> tuple[float, float]:
    """The largest eigenvalue of (S + S')/2 but for the 1 of q, and its residual.

    With "LM" the one furthest from 0.
    """
    value, vector = second_vector(chain, which)
    residual = float(np.linalg.norm(_both_ways(chain, vector, which) - value * vector))
    return value, residual


def second_vector(chain: DeflatedChain, which: Which = "LA") -> tuple[float, Floats]:
    """The same eigenvalue and its vector (size,)."""
    if chain.size <= DENSE_SYMMETRIC:
        return _extreme(chain, which)
    both = LinearOperator(
        (chain.size,) * 2, lambda v: _both_ways(chain, v, which), dtype=np.float64
    )
    try:
        values, vectors = eigsh(both, k=1, which=which, v0=_start(chain), **ARPACK)
    except ArpackNoConvergence:
        if chain.size > DENSE_RESCUE:
            raise _stall_error(chain) from None
        return _extreme(chain, which)
    return float(values[0]), vectors[:, 0]


def largest_modulus(chain: DeflatedChain) -> tuple[float, float]:
    """The largest modulus of an eigenvalue of T, and the residual of its eigenpair."""
    if chain.size > DENSE_GENERAL:
        try:
            operator = LinearOperator((chain.size,) * 2, chain.forward, dtype=np.float64)
            values, vectors = eigs(operator, k=1, which="LM", v0=_start(chain), **ARPACK)
            return _first_modulus(chain, values, vectors)
        except ArpackNoConvergence:
            if chain.size > DENSE_RESCUE:
                raise _stall_error(chain) from None
    return _first_modulus(chain, *np.linalg.eig(chain.dense()))


def power_norm(chain: DeflatedChain, k: int) -> tuple[float, float]:
    """The largest eigenvalue of (T')^k T^k, the squared norm of T^k, and its residual."""
    if chain.size <= DENSE_GENERAL:
        power = np.linalg.matrix_power(chain.dense(), k)
        return float(np.linalg.norm(power, 2) ** 2), chain.size * 2.0**-52

    def there_and_back(values: Floats) -> Floats:
        for _ in range(k):
            values = chain.forward(values)
        for _ in range(k):
            values = chain.backward(values)
        return values

    operator = LinearOperator((chain.size,) * 2, there_and_back, dtype=np.float64)
    try:
        values, vectors = eigsh(operator, k=1, which="LA", v0=_start(chain), **ARPACK)
    except ArpackNoConvergence:
        raise _stall_error(chain) from None
    vector = vectors[:, 0]
    return float(values[0]), float(np.linalg.norm(operator @ vector - values[0] * vector))


def _both_ways(chain: DeflatedChain, values: Floats, which: Which) -> Floats:
    """(T + T')/2 @ values, where q has the eigenvalue 0; for "LA" it gets -1, the least of all."""
    applied = (chain.forward(values) + chain.backward(values)) / 2
    return applied if which == "LM" else applied - chain.root * (chain.root @ values)


def _extreme(chain: DeflatedChain, which: Which) -> tuple[float, Floats]:
    """The same eigenvalue and vector, from all eigenvalues."""
    dense = chain.dense()
    if which == "LA":
        dense -= np.outer(chain.root, chain.root)
    values, vectors = np.linalg.eigh((dense + dense.T) / 2)
    slot = int((values if which == "LA" else np.abs(values)).argmax())
    return float(values[slot]), vectors[:, slot]


def _first_modulus(chain: DeflatedChain, values: Floats, vectors: Floats) -> tuple[float, float]:
    slot = int(np.abs(values).argmax())
    value, vector = values[slot], vectors[:, slot]
    applied = chain.forward(vector.real) + 1j * chain.forward(vector.imag)
    return float(abs(value)), float(np.linalg.norm(applied - value * vector))


def _start(chain: DeflatedChain) -> Floats:
    """A fixed vector to start from, so that two calls give the same digits."""
    return np.random.default_rng(1).standard_normal(chain.size)


def _stall_error(chain: DeflatedChain) -> GlauberError:
    return GlauberError(
        f"the eigenvalues of the chain over {chain.size:,} states did not settle; "
        "it mixes too slowly for the sparse solver."
    )


def _pseudo(chain: DeflatedChain, k_max: int) -> tuple[float, int, bool, float]:
    """The largest gap((P*)^k P^k)/k, its k, whether no k beyond can beat it, and the residual."""
    best, best_k, worst = 0.0, 1, 0.0
    for k in range(1, k_max + 1):
        norm, residual = power_norm(chain, k)
        worst = max(worst, residual)
        if (1 - norm) / k > best:
            best, best_k = (1 - norm) / k, k
        if best >= 1 / (k + 1):
            return best, best_k, True, worst
    return best, best_k, False, worst


@dataclass(frozen=True, eq=False)
class Bottleneck:
    """The set (size,) of at most half the mass that is hardest to leave.

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

    The probability that the stationary chain, if it is in A, leaves it with the next step. The
    theorem on slow mixing needs mu(A) <= 1/2; here any set with some mass may be given.
    """
    flow, mu = _flow(matrix, distribution)
    if inside.shape != mu.shape or inside.dtype != np.bool_:
        raise GlauberError(f"the set must be one boolean for each of the {len(mu)} states.")
    mass = float(mu[inside].sum())
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
    flow, mu = _flow(matrix, distribution)
    states = np.flatnonzero(mu > 0)
    if len(states) < 2:
        raise GlauberError("a chain that stays in one state has no bottleneck.")
    if len(states) <= ENUMERATION_LIMIT:
        inside = _by_enumeration(flow[states][:, states].toarray(), mu[states])
        at_least = None
    else:
        inside, gap = _by_sweep(flow[states][:, states], mu[states])
        at_least = gap / 2
    inside_all = np.zeros(len(mu), dtype=np.bool_)
    inside_all[states[inside]] = True
    value = conductance(matrix, inside_all, distribution=mu)
    return Bottleneck(
        inside=inside_all,
        mass=float(mu[inside_all].sum()),
        conductance=value,
        at_least=value if at_least is None else at_least,
        kind="exact" if at_least is None else "upper bound",
    )


def _flow(matrix: ArrayLike | csr_array, distribution: Floats | None) -> tuple[csr_array, Floats]:
    """The flow mu(x) P(x, y) as a sparse matrix (size, size), and mu (size,)."""
    step, mu = chain_and_stationary(matrix, distribution)
    return (diags_array(mu) @ step).tocsr(), mu


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
    deflated = deflate(diags_array(1 / chain.sum(axis=1)) @ chain, distribution)
    second, vector = second_vector(deflated)
    rank = np.empty(len(distribution), dtype=np.int64)
    order = np.argsort(vector / deflated.root)
    rank[order] = np.arange(len(distribution))
    outflow = _cuts(flow, rank)
    mass = np.cumsum(distribution[order])[:-1]
    level = int((outflow / np.minimum(mass, 1 - mass)).argmin())
    below = rank <= level
    return (below if mass[level] <= 1 / 2 else ~below), 1 - second


def _cuts(flow: csr_array, rank: Integers) -> Floats:
    """The flow (size - 1,) from ranks up to r to ranks above r, for every r."""
    edges = flow.tocoo()
    low, high = rank[edges.row], rank[edges.col]
    up = low < high  # an edge x -> y crosses the cuts rank(x) … rank(y) - 1
    weights, size = edges.data[up], len(rank)
    starts = np.bincount(low[up], weights, minlength=size)
    ends = np.bincount(high[up], weights, minlength=size)
    return np.asarray(np.cumsum(starts - ends)[:-1])
