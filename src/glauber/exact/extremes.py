"""Which eigenvalue is the furthest out? Dense for small chains, sparse for large ones."""

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs, eigsh

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.reversal import Remainder

DENSE_SYMMETRIC = 1024  # states; all eigenvalues of a symmetric matrix, a tenth of a second
DENSE_GENERAL = 256  # states; all eigenvalues of any matrix cost ten times as much
DENSE_RESCUE = 4096  # states; where the sparse solver stalls, the dense one still answers


def largest_eigenvalue(rest: Remainder, sign: int) -> tuple[float, float]:
    """The largest (sign 1) or smallest (-1) eigenvalue of (T + T')/2, and its residual."""
    value, vector = second_vector(rest, sign)
    applied = (rest.forward(vector) + rest.backward(vector)) / 2
    return value, float(np.linalg.norm(applied - value * vector))


def second_vector(rest: Remainder, sign: int = 1) -> tuple[float, Floats]:
    """The largest (sign 1) or smallest (-1) eigenvalue of (T + T')/2 and its vector (size,).

    Of one state nothing remains: T = 0. In general T has the eigenvalue 0 (of q) in place of 1.
    """
    if rest.size <= DENSE_SYMMETRIC:
        return _extreme(_symmetric(rest), sign)
    both = LinearOperator(
        (rest.size,) * 2, lambda v: (rest.forward(v) + rest.backward(v)) / 2, dtype=np.float64
    )
    try:
        values, vectors = eigsh(both, k=1, which="LA" if sign > 0 else "SA", v0=_start(rest))
    except ArpackNoConvergence:
        if rest.size > DENSE_RESCUE:
            raise _stalled(rest) from None
        return _extreme(_symmetric(rest), sign)
    return float(values[0]), vectors[:, 0]


def largest_modulus(rest: Remainder) -> tuple[float, float]:
    """The largest modulus of an eigenvalue of T, and the residual of its eigenpair."""
    if rest.size > DENSE_GENERAL:
        try:
            operator = LinearOperator((rest.size,) * 2, rest.forward, dtype=np.float64)
            values, vectors = eigs(operator, k=4, which="LM", v0=_start(rest))
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
        values, vectors = eigsh(operator, k=1, which="LA", v0=_start(rest))
    except ArpackNoConvergence:
        raise _stalled(rest) from None
    vector = vectors[:, 0]
    return float(values[0]), float(np.linalg.norm(operator @ vector - values[0] * vector))


def _symmetric(rest: Remainder) -> Floats:
    dense = rest.dense()
    return (dense + dense.T) / 2


def _extreme(symmetric: Floats, sign: int) -> tuple[float, Floats]:
    """The last (sign 1) or first (-1) eigenvalue of a symmetric matrix, and its vector."""
    values, vectors = np.linalg.eigh(symmetric)
    slot = -1 if sign > 0 else 0
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
