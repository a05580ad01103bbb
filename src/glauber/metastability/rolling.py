"""When did the meaning of a chain's text stand still?

The paper's search for traps. The text is embedded every `stride` steps. Its drift at a look is the
mean of 1 - cos to the looks within the next `window` steps; a maximal row of looks with a drift
below the threshold is a stretch. The embedding comes as an argument: texts in, unit vectors out.
"""

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.metastability.stays import Stretch, check_steps
from glauber.runs.export import trajectory
from glauber.runs.run import Run

Floats = NDArray[np.float64]
Embed = Callable[[Sequence[str]], NDArray[np.float32]]  # n texts -> (n, d) unit vectors
Listener = Callable[[int, int], None]  # looks done, looks in all
WINDOW, STRIDE, THRESHOLD = 300, 50, 0.12  # the paper's
TEXTS = 512  # texts embedded in one call, about


def rolling_stretches(
    run: Run,
    embed: Embed,
    *,
    window: int = WINDOW,
    stride: int = STRIDE,
    threshold: float = THRESHOLD,
    shortest: int = 150,
    listener: Listener | None = None,
) -> list[Stretch]:
    """The stretches of all chains, in order of chain and step.

    k looks in a row count as k strides, as the paper counts durations (multiples of 50). A look
    with less than a whole window behind it has no drift; a stretch that reaches the last look that
    has one is taken as still going on.
    """
    check_window(run, window, stride, threshold)
    drifts = rolling_drift(look_vectors(run, embed, stride, listener), window // stride)
    return [
        found
        for chain, row in enumerate(drifts < threshold)
        for found in flagged_stretches(row, stride, chain)
        if found.duration >= shortest
    ]


def rolling_drift(vectors: NDArray[np.float32], ahead: int) -> Floats:
    """Mean of 1 - cos to the next `ahead` looks: (chains, looks, d) -> (chains, looks - ahead)."""
    n = vectors.shape[1] - ahead
    total = np.zeros((len(vectors), n))
    for later in range(1, ahead + 1):
        total += 1 - np.einsum("cld,cld->cl", vectors[:, :n], vectors[:, later : later + n])
    # Rounding may put the drift of equal texts a little below zero.
    return np.asarray((total / ahead).clip(min=0))


def flagged_stretches(flags: NDArray[np.bool_], stride: int, chain: int = 0) -> list[Stretch]:
    """The maximal rows of flagged looks of one chain; flags (looks,)."""
    edges = np.diff(flags.astype(np.int8), prepend=0, append=0)
    begins, behind = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [
        Stretch(chain, int(a) * stride, int(b) * stride - 1, ended=bool(b < len(flags)))
        for a, b in zip(begins, behind, strict=True)
    ]


def look_vectors(
    run: Run, embed: Embed, stride: int, listener: Listener | None = None
) -> NDArray[np.float32]:
    """The embeddings (chains, looks, d) of a run's texts every `stride` steps."""
    looks, total, found = trajectory(run, stride), 1 + run.steps // stride, []
    while block := list(islice(looks, max(1, TEXTS // run.n_chains))):
        texts = [run.vocabulary.decode(row) for _, tokens in block for row in tokens]
        found.append(np.asarray(embed(texts)).reshape(len(block), run.n_chains, -1))
        if listener is not None:
            listener(sum(map(len, found)), total)
    return np.concatenate(found).swapaxes(0, 1)


def check_window(run: Run, window: int, stride: int, threshold: float) -> None:
    """Refuses settings that mean nothing, and runs that are too short for them."""
    check_steps(run)
    if stride < 1:
        raise GlauberError(f"the stride is {stride}, but it must be at least 1 step.")
    if window < stride:
        raise GlauberError(
            f"the window is {window} steps, but it must hold at least one stride of {stride}."
        )
    if not 0 < threshold <= 2:
        raise GlauberError(f"the threshold is {threshold}, but 1 - cosine lies between 0 and 2.")
    if run.steps < window:
        raise GlauberError(
            f"the run {run.folder} has {run.steps} steps, but the window is {window}: make it "
            "longer, or the window shorter."
        )
