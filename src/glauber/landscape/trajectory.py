"""Where did the text go, seen in two dimensions?

The two directions in which the embeddings of all chains spread most (PCA), or, as an extra, a
map that keeps neighbours together (UMAP), whose distances mean less. Two dimensions of several
hundred: what lies together here may lie apart.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.extras import need

Floats = NDArray[np.float64]
Method = Literal["pca", "umap"]
WIDE = 1000  # dimensions above which all principal directions would take too long


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Each chain's path in the plane."""

    steps: NDArray[np.int64]  # (snapshots,)
    points: Floats  # (chains, snapshots, 2)
    texts: tuple[tuple[str, ...], ...]  # chains, each of snapshots
    method: Method
    explained: tuple[float, float] | None  # share of the spread along each axis; PCA only
    what: str = "its embeddings"  # or its tokens


def trajectory_in_plane(
    vectors: NDArray[np.float32],
    steps: NDArray[np.int64],
    texts: Sequence[Sequence[str]],
    *,
    method: Method = "pca",
    seed: int = 0,
    what: str = "its embeddings",
) -> Trajectory:
    """The paths of embeddings (chains, snapshots, d), all chains in one plane."""
    if method not in ("pca", "umap"):
        raise GlauberError(f"the method is {method}, but it must be pca or umap.")
    if vectors.ndim != 3 or 0 in vectors.shape or vectors.shape[1] < 2:
        raise GlauberError("a trajectory needs at least two snapshots.")
    if vectors.shape[2] < 2:
        raise GlauberError("the embeddings have one dimension, but the picture needs two.")
    flat = vectors.reshape(-1, vectors.shape[2]).astype(np.float64)
    points, explained = _pca(flat) if method == "pca" else (_umap(flat, seed), None)
    plane = points.reshape(*vectors.shape[:2], 2)
    return Trajectory(steps, plane, tuple(map(tuple, texts)), method, explained, what)


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

    begin = np.random.default_rng(0).standard_normal(min(centred.shape))
    _, singular, rows = svds(centred, k=2, v0=begin)
    order = np.argsort(-singular)
    return rows[order].T, singular[order] ** 2


def _umap(flat: Floats, seed: int) -> Floats:
    need("umap", "the projection umap", otherwise="take pca")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that a seed means one thread
        import umap

        fitted: Any = umap.UMAP(n_components=2, metric="cosine", random_state=seed)
        return np.asarray(fitted.fit_transform(flat), np.float64)
