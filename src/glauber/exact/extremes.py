"""Which eigenvalue is the furthest out? Dense for small chains, sparse for large ones."""

from typing import Literal

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs, eigsh

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.reversal import Remainder

Which = Literal["LA", "LM"]  # the largest, or the largest in modulus

DENSE_SYMMETRIC = 512  # states; all eigenvalues of a symmetric matrix, a few hundredths of a second
DENSE_GENERAL = 256  # states; all eigenvalues of any matrix cost ten times as much
DENSE_RESCUE = 4096  # states; where the sparse solver stalls, the dense one still answers
# Vectors kept, restarts before it counts as stalled, and the relative residual asked for.
ARPACK = {"ncv": 40, "maxiter": 500, "tol": 1e-10}


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
