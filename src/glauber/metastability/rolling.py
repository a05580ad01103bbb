"""When did the meaning of a chain's text stand still?

The paper's search for traps. The text is embedded every `stride` steps. Its drift at a look is the
mean of 1 - cos to the looks within the next `window` steps; a maximal row of looks with a drift
below the threshold is a stretch. The embedding comes as an argument: texts in, unit vectors out.
"""

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.metastability.looks import Embed, Listener, read_looks
from glauber.metastability.stays import Stretch, check_steps
from glauber.runs.run import Run

Floats = NDArray[np.float64]
WINDOW, STRIDE, THRESHOLD = 300, 50, 0.12  # the paper's


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
    looks = read_looks(run, embed, every=stride, listener=listener)
    drifts = rolling_drift(looks.vectors, window // stride)
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
