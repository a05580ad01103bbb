"""Generalized Perron cluster analysis (GPCCA): soft metastable sets of a Markov chain.

For a transition matrix P that need not be reversible and weights eta > 0, the real Schur vectors of
D^(1/2) P D^(-1/2), D = diag(eta), that belong to the m eigenvalues of largest modulus give
vectors X (n, m) with X^T D X = 1, the first of them constant (Reuter, Weber, Fackeldey, Röblitz and
Garcia 2018; Reuter, Fackeldey and Weber 2019). Memberships are chi = X A with chi >= 0 and rows
that sum to 1. Among these A, PCCA+ (Deuflhard and Weber 2005; Röblitz and Weber 2013) maximises the
crispness

    trace(S) / m,  S = diag(A[0])^-1 A^T A,  so  trace(S) = sum_j sum_i A[i, j]^2 / A[0, j],

starting at the inner simplex. The crispness is convex in A and the A allowed are a polytope, so
it never decreases when A moves to the corner that maximises its linear approximation: a linear
program per step, and a local maximum at the end.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import schur
from scipy.optimize import linprog

from glauber.foundation.statistics import Floats

SAME_MODULUS = 1e-9  # eigenvalues whose moduli differ by less are not separated
EMPTY = 1e-9  # weight below which a set has no members
GAIN = 1e-10  # of trace(S), below which the search has ended


@dataclass(frozen=True, eq=False)
class SoftSets:
    """How far each state belongs to each set, and the chain between the sets."""

    memberships: Floats  # (n, m): not negative, each row sums to 1
    coarse_matrix: Floats  # (m, m): rows sum to 1, entries may be slightly negative
    crispness: float  # at most 1, where every state belongs to one set; a local maximum


def soft_sets(matrix: Floats, weights: Floats, number: int) -> SoftSets | None:
    """The sets of a transition matrix (n, n) under weights (n,) that sum to 1.

    None where the number splits eigenvalues of equal modulus, such as a complex pair, or where the
    crispest memberships leave a set empty.
    """
    vectors = schur_vectors(matrix, weights, number)
    if vectors is None:
        return None
    transform = _maximise(vectors, _feasible(_inner_simplex(vectors), vectors))
    if transform is None:
        return None
    memberships = (vectors @ transform).clip(min=0.0)
    memberships /= memberships.sum(axis=1, keepdims=True)
    weighted = memberships.T * weights
    coarse = np.linalg.solve(weighted @ memberships, weighted @ matrix @ memberships)
    return SoftSets(memberships, coarse, _trace(transform) / number)


def schur_vectors(matrix: Floats, weights: Floats, number: int) -> Floats | None:
    """The leading vectors X (n, number), X^T D X = 1, X[:, 0] = 1; None where a pair is split."""
    moduli = np.append(np.sort(np.abs(np.linalg.eigvals(matrix)))[::-1], -1.0)
    if moduli[number - 1] - moduli[number] < SAME_MODULUS:
        return None
    smallest = (moduli[number - 1] + moduli[number]) / 2

    def leading(real: float, imaginary: float = 0.0) -> bool:
        return bool(abs(real + 1j * imaginary) > smallest)

    root = np.sqrt(weights / weights.sum())
    try:
        _, basis, n_leading = schur(root[:, None] * matrix / root, output="real", sort=leading)
    except np.linalg.LinAlgError:  # rounding moves an eigenvalue over the border
        return None
    if n_leading != number:
        return None
    # The constant vector is in the leading space: turn the basis so that it comes first.
    basis = basis[:, :number]
    turn = np.linalg.qr((basis.T @ root)[:, None], mode="complete")[0]
    vectors = basis @ turn / root[:, None]
    vectors /= np.sign(vectors[0, 0])
    vectors[:, 0] = 1.0
    return np.asarray(vectors)


def _inner_simplex(vectors: Floats) -> Floats:
    """The inverse of the rows of X that are corners: each is farthest from the span before it."""
    apart = vectors.copy()
    corners = [int(np.linalg.norm(apart, axis=1).argmax())]
    apart -= apart[corners[0]]
    for _ in range(1, vectors.shape[1]):
        distances = np.linalg.norm(apart, axis=1)
        corners.append(int(distances.argmax()))
        direction = apart[corners[-1]] / distances.max()
        apart -= np.outer(apart @ direction, direction)
    return np.asarray(np.linalg.inv(vectors[corners]), np.float64)


def _feasible(transform: Floats, vectors: Floats) -> Floats:
    """The nearby A whose memberships sum to 1 and have a smallest value of 0 in every set."""
    filled = transform.copy()
    filled[1:, 0] = -filled[1:, 1:].sum(axis=1)
    filled[0] = -(vectors[:, 1:] @ filled[1:]).min(axis=0)
    return np.asarray(filled / filled[0].sum())


def _trace(transform: Floats) -> float:
    return float(((transform**2).sum(axis=0) / transform[0]).sum())


def _maximise(vectors: Floats, transform: Floats) -> Floats | None:
    """A local maximum of the crispness; None where it has an empty set."""
    number = vectors.shape[1]
    memberships = np.kron(vectors, np.eye(number))  # of A row by row: (n * number, number^2)
    row_sums = np.kron(np.eye(number), np.ones(number))
    first = np.eye(number)[0]
    while True:
        gradient = 2 * transform / transform[0]
        gradient[0] = 2 - (transform**2).sum(axis=0) / transform[0] ** 2
        corner = linprog(
            -gradient.ravel(),
            A_ub=-memberships,
            b_ub=np.zeros(len(memberships)),
            A_eq=row_sums,
            b_eq=first,
            bounds=(None, None),
            method="highs-ds",
        )
        if not corner.success:  # numbers too far apart for the solver
            return transform
        following = corner.x.reshape(number, number)
        if following[0].min() < EMPTY:
            return None
        if _trace(following) <= _trace(transform) + GAIN:
            return transform
        transform = following
