"""The paths of texts in two dimensions.

These are the two directions in which the embeddings of all chains spread most (PCA): two dimensions
of several hundred, so what lies together here may lie apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError

Floats = NDArray[np.float64]
WIDE = 1000  # dimensions above which all principal directions would take too long
STILL = 1e-12  # equal embeddings differ from their mean by rounding


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Each chain's path in the plane."""

    steps: NDArray[np.int64]  # (snapshots,)
    points: Floats  # (chains, snapshots, 2)
    texts: tuple[tuple[str, ...], ...]  # chains, each of snapshots
    explained: tuple[float, float]  # share of the spread along each axis
    what: str = "its embeddings"  # or its tokens


def trajectory_in_plane(
    vectors: NDArray[np.float32],
    steps: NDArray[np.int64],
    texts: Sequence[Sequence[str]],
    *,
    what: str = "its embeddings",
) -> Trajectory:
    """The paths of embeddings (chains, snapshots, d), all chains in one plane."""
    if vectors.ndim != 3 or 0 in vectors.shape or vectors.shape[1] < 2:
        raise GlauberError("a trajectory needs at least two snapshots.")
    if vectors.shape[2] < 2:
        raise GlauberError("the embeddings have one dimension, but the picture needs two.")
    flat = vectors.reshape(-1, vectors.shape[2]).astype(np.float64)
    points, explained = _pca(flat)
    plane = points.reshape(*vectors.shape[:2], 2)
    return Trajectory(steps, plane, tuple(map(tuple, texts)), explained, what)


def _pca(flat: Floats) -> tuple[Floats, tuple[float, float]]:
    """The two principal coordinates (rows, 2), and the share of the variance along each."""
    centred = flat - flat.mean(axis=0)
    total = max(float((centred**2).sum()), np.finfo(np.float64).tiny)
    if flat.shape[1] <= WIDE:
        variances, directions = np.linalg.eigh(centred.T @ centred)  # in increasing order
        axes, along = directions[:, [-1, -2]], variances[[-1, -2]]
    else:
        axes, along = _first_two(centred)
    # An axis may point either way: its largest coordinate is made positive.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])
    first, second = (float(max(variance, 0.0)) / total for variance in along)
    return centred @ axes, (first, second)


def _first_two(centred: Floats) -> tuple[Floats, Floats]:
    """The first two directions (d, 2) of many dimensions, and the variance along each."""
    from scipy.sparse.linalg import svds

    if len(centred) == 2 or np.abs(centred).max() < STILL:  # no room for an iteration
        _, singular, rows = np.linalg.svd(centred[:2], full_matrices=False)
    else:
        begin = np.random.default_rng(0).standard_normal(min(centred.shape))
        _, singular, rows = svds(centred, k=2, v0=begin)
    order = np.argsort(-singular)
    return rows[order].T, singular[order] ** 2
