"""Which texts count as the same state? Clusters of their embeddings."""

import warnings

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError

Labels = NDArray[np.int64]  # (chains, looks): a state for each look
MISSING = "basins need packages more: pip install 'glauber[basins]'."
MOST = 40  # clusters, where nothing else is said


def usual_clusters(n_texts: int) -> int:
    """Half the square root of the number of texts, from 2 to 40: each then holds enough looks."""
    return int(np.clip(round(n_texts**0.5 / 2), 2, MOST))


def cluster(
    vectors: NDArray[np.float32], n_clusters: int | None = None, *, seed: int = 0
) -> Labels:
    """The cluster (chains, looks) of each embedding (chains, looks, d), by k-means."""
    flat = vectors.reshape(-1, vectors.shape[-1])
    different = len(np.unique(flat, axis=0))
    asked = n_clusters is not None
    n_clusters = usual_clusters(len(flat)) if n_clusters is None else n_clusters
    if n_clusters < 2:
        raise GlauberError(f"the number of clusters is {n_clusters}, but it must be at least 2.")
    if different < 2:
        raise GlauberError("every look shows the same text, so there are no basins to tell apart.")
    if asked and different < n_clusters:
        raise GlauberError(
            f"{n_clusters} clusters are asked for, but the looks show only {different} texts."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from sklearn.cluster import KMeans
    except ImportError as error:
        raise GlauberError(MISSING) from error
    found = KMeans(min(n_clusters, different), n_init=4, random_state=seed).fit(flat)
    return np.asarray(found.labels_, np.int64).reshape(vectors.shape[:2])
