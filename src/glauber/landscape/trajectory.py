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

Floats = NDArray[np.float64]
Method = Literal["pca", "umap"]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Each chain's path in the plane."""

    steps: NDArray[np.int64]  # (looks,)
    points: Floats  # (chains, looks, 2)
    texts: tuple[tuple[str, ...], ...]  # chains, each of looks
    method: Method
    explained: tuple[float, float] | None  # share of the spread along each axis; PCA only


def trajectory_in_plane(
    vectors: NDArray[np.float32],
    steps: NDArray[np.int64],
    texts: Sequence[Sequence[str]],
    *,
    method: Method = "pca",
    seed: int = 0,
) -> Trajectory:
    """The paths of embeddings (chains, looks, d), all chains in one plane."""
    if method not in ("pca", "umap"):
        raise GlauberError(f"the method is {method}, but it must be pca or umap.")
    if vectors.ndim != 3 or 0 in vectors.shape or vectors.shape[1] < 2:
        raise GlauberError("a trajectory needs at least two looks.")
    if vectors.shape[2] < 2:
        raise GlauberError("the embeddings have one dimension, but the picture needs two.")
    flat = vectors.reshape(-1, vectors.shape[2]).astype(np.float64)
    points, explained = _pca(flat) if method == "pca" else (_umap(flat, seed), None)
    plane = points.reshape(*vectors.shape[:2], 2)
    return Trajectory(steps, plane, tuple(map(tuple, texts)), method, explained)


def _pca(flat: Floats) -> tuple[Floats, tuple[float, float]]:
    """The two principal coordinates (rows, 2), and the share of the variance along each."""
    centred = flat - flat.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred)  # in increasing order
    axes = directions[:, [-1, -2]]
    # An axis may point either way: its largest coordinate is made positive.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])
    total = max(float(variances.sum()), np.finfo(np.float64).tiny)
    first, second = (float(max(variances[-k], 0.0)) / total for k in (1, 2))
    return centred @ axes, (first, second)


def _umap(flat: Floats, seed: int) -> Floats:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import umap
    except ImportError as error:
        raise GlauberError(
            "this projection needs a package more: pip install 'glauber[umap]'."
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that a seed means one thread
        fitted: Any = umap.UMAP(n_components=2, metric="cosine", random_state=seed)
        return np.asarray(fitted.fit_transform(flat), np.float64)
