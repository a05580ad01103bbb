"""How fast does the chain forget, in the long run? Its spectral gaps.

For a reversible chain one number says it. For another one there are three: the second eigenvalue
modulus (the rate in the end), the gap of the additive reversibilisation (P + P*)/2, and the
pseudo-spectral gap (Paulin 2015), max over k >= 1 of gap((P*)^k P^k) / k, which bounds the mixing
time as the gap does for a reversible chain.

All are found on the scale of the stationary distribution mu, where reversing is transposing: with
D = diag(mu), S = D^(1/2) P D^(-1/2) has the eigenvalues of P, and the reversed chain
P* = D^-1 P' D becomes S'. The vector q = sqrt(mu) belongs to the eigenvalue 1 on both sides;
without it, T = S - q q' holds everything that the chain still has to forget.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, aslinearoperator, eigs, eigsh

from glauber.errors import GlauberError
from glauber.exact.space import Floats
from glauber.exact.stationary import Matrix, check_stationary, check_stochastic, stationary

POLISH = 50  # steps that carry the accuracy of large entries of the distribution over to small ones
SYMMETRIC = 1e-9  # largest difference between S v and S' v, for normal v, of a reversible chain


Which = Literal["LA", "LM"]  # the largest, or the largest in modulus

DENSE_SYMMETRIC = 512  # states; all eigenvalues of a symmetric matrix, a few hundredths of a second
DENSE_GENERAL = 256  # states; all eigenvalues of any matrix cost ten times as much
DENSE_RESCUE = 4096  # states; where the sparse solver stalls, the dense one still answers
# Vectors kept, restarts before it counts as stalled, and the relative residual asked for.
ARPACK = {"ncv": 40, "maxiter": 500, "tol": 1e-10}


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
    rest = remainder(matrix, distribution)
    if rest.size < 2:
        raise GlauberError("a chain that stays in one state has no spectral gap.")
    reversible = rest.reversible()
    second, residual = largest_eigenvalue(rest)
    if reversible:  # the eigenvalues of P^k are powers, so the term of k = 1 is the largest
        furthest, other = largest_eigenvalue(rest, "LM")
        modulus = abs(furthest)
        pseudo, best_k, complete = 1 - modulus**2, 1, True
    else:
        modulus, other = largest_modulus(rest)
        pseudo, best_k, complete, worse = _pseudo(rest, k_max)
        other = max(other, worse)
    return Spectrum(
        n_states=rest.size,
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
class Remainder:
    """The chain without its stationary part: T = S - q q', over the states that it keeps visiting.

    states (size,) are their numbers, root (size,) is q, scaled is S as a matrix or an operator.
    """

    states: np.ndarray[tuple[int], np.dtype[np.int64]]
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
        """Whether T = T', tried on random vectors: an asymmetry above 1e-8 cannot hide."""
        probes = np.random.default_rng(0).standard_normal((3, self.size))
        gaps = [np.abs(self.forward(probe) - self.backward(probe)).max() for probe in probes]
        return bool(max(gaps) <= SYMMETRIC)


def remainder(matrix: Matrix, distribution: Floats | None = None) -> Remainder:
    """The remainder of a chain, from its matrix or operator; mu is found if not given.

    States that are left for ever are dropped from a matrix; an operator must have none.
    """
    found = stationary(matrix) if distribution is None else check_stationary(matrix, distribution)
    if isinstance(matrix, LinearOperator):
        states = np.arange(len(found))
        root = _roots(_polished(matrix, found))
        forward, back = aslinearoperator(diags_array(root)), aslinearoperator(diags_array(1 / root))
        return Remainder(states, root, forward @ matrix @ back)
    states = np.flatnonzero(found > 0)
    inner = check_stochastic(csr_array(matrix, dtype=np.float64))[states][:, states]
    root = _roots(_polished(inner, found[states]))
    return Remainder(states, root, (diags_array(root) @ inner @ diags_array(1 / root)).tocsr())


def _polished(matrix: csr_array | LinearOperator, distribution: Floats) -> Floats:
    """The distribution after some steps, which is itself, with its small entries settled.

    An iterative solution is accurate to 1e-12 of the whole; S divides by each entry.
    """
    for _ in range(POLISH if len(distribution) > 1 else 0):
        distribution = matrix.T @ distribution
    return distribution / distribution.sum()


def _roots(distribution: Floats) -> Floats:
    if not distribution.min() > 0:
        raise GlauberError("a state of the chain has no stationary probability that floats hold.")
    return np.sqrt(distribution)


def largest_eigenvalue(rest: Remainder, which: Which = "LA") -> tuple[float, float]:
    """The largest eigenvalue of (S + S')/2 but for the 1 of q, and its residual.

    With "LM" the one furthest from 0.
    """
    value, vector = second_vector(rest, which)
    residual = float(np.linalg.norm(_both_ways(rest, vector, which) - value * vector))
    return value, residual


def second_vector(rest: Remainder, which: Which = "LA") -> tuple[float, Floats]:
    """The same eigenvalue and its vector (size,)."""
    if rest.size <= DENSE_SYMMETRIC:
        return _extreme(rest, which)
    both = LinearOperator((rest.size,) * 2, lambda v: _both_ways(rest, v, which), dtype=np.float64)
    try:
        values, vectors = eigsh(both, k=1, which=which, v0=_start(rest), **ARPACK)
    except ArpackNoConvergence:
        if rest.size > DENSE_RESCUE:
            raise _stalled(rest) from None
        return _extreme(rest, which)
    return float(values[0]), vectors[:, 0]


def largest_modulus(rest: Remainder) -> tuple[float, float]:
    """The largest modulus of an eigenvalue of T, and the residual of its eigenpair."""
    if rest.size > DENSE_GENERAL:
        try:
            operator = LinearOperator((rest.size,) * 2, rest.forward, dtype=np.float64)
            values, vectors = eigs(operator, k=1, which="LM", v0=_start(rest), **ARPACK)
            return _first_modulus(rest, values, vectors)
        except ArpackNoConvergence:
            if rest.size > DENSE_RESCUE:
                raise _stalled(rest) from None
    return _first_modulus(rest, *np.linalg.eig(rest.dense()))


def power_norm(rest: Remainder, k: int) -> tuple[float, float]:
    """The largest eigenvalue of (T')^k T^k, the squared norm of T^k, and its residual."""
    if rest.size <= DENSE_GENERAL:
        power = np.linalg.matrix_power(rest.dense(), k)
        return float(np.linalg.norm(power, 2) ** 2), rest.size * 2.0**-52

    def there_and_back(values: Floats) -> Floats:
        for _ in range(k):
            values = rest.forward(values)
        for _ in range(k):
            values = rest.backward(values)
        return values

    operator = LinearOperator((rest.size,) * 2, there_and_back, dtype=np.float64)
    try:
        values, vectors = eigsh(operator, k=1, which="LA", v0=_start(rest), **ARPACK)
    except ArpackNoConvergence:
        raise _stalled(rest) from None
    vector = vectors[:, 0]
    return float(values[0]), float(np.linalg.norm(operator @ vector - values[0] * vector))


def _both_ways(rest: Remainder, values: Floats, which: Which) -> Floats:
    """(T + T')/2 @ values, where q has the eigenvalue 0; for "LA" it gets -1, the least of all."""
    applied = (rest.forward(values) + rest.backward(values)) / 2
    return applied if which == "LM" else applied - rest.root * (rest.root @ values)


def _extreme(rest: Remainder, which: Which) -> tuple[float, Floats]:
    """The same eigenvalue and vector, from all eigenvalues."""
    dense = rest.dense()
    if which == "LA":
        dense -= np.outer(rest.root, rest.root)
    values, vectors = np.linalg.eigh((dense + dense.T) / 2)
    slot = int((values if which == "LA" else np.abs(values)).argmax())
    return float(values[slot]), vectors[:, slot]


def _first_modulus(rest: Remainder, values: Floats, vectors: Floats) -> tuple[float, float]:
    slot = int(np.abs(values).argmax())
    value, vector = values[slot], vectors[:, slot]
    applied = rest.forward(vector.real) + 1j * rest.forward(vector.imag)
    return float(abs(value)), float(np.linalg.norm(applied - value * vector))


def _start(rest: Remainder) -> Floats:
    """A fixed vector to start from, so that two calls give the same digits."""
    return np.random.default_rng(1).standard_normal(rest.size)


def _stalled(rest: Remainder) -> GlauberError:
    return GlauberError(
        f"the eigenvalues of the chain over {rest.size:,} states did not settle; "
        "it mixes too slowly for the sparse solver."
    )


def _pseudo(rest: Remainder, k_max: int) -> tuple[float, int, bool, float]:
    """The largest gap((P*)^k P^k)/k, its k, whether no k beyond can beat it, and the residual."""
    best, best_k, worst = 0.0, 1, 0.0
    for k in range(1, k_max + 1):
        norm, residual = power_norm(rest, k)
        worst = max(worst, residual)
        if (1 - norm) / k > best:
            best, best_k = (1 - norm) / k, k
        if best >= 1 / (k + 1):
            return best, best_k, True, worst
    return best, best_k, False, worst
