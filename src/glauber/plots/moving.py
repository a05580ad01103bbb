"""What was the mean over the last so many steps?"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOMENTS = 500  # more points than this no screen shows


def window_of(n_steps: int) -> int:
    """A twentieth of a run, but not so few steps that the mean is mostly noise."""
    return min(n_steps, max(20, n_steps // 20))


def moving_mean(values: NDArray[Any], window: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Steps (moments,) and the mean over the window that ends at each, (chains, moments).

    values (chains, steps) holds one number per step, the first for step 1. Only whole windows
    count, so the first moment is at step `window`.
    """
    n_steps = values.shape[1]
    sums = np.cumsum(np.pad(values.astype(np.float64), ((0, 0), (1, 0))), axis=1)
    ends = np.unique(np.linspace(window, n_steps, MOMENTS).round().astype(np.int64))
    return ends, (sums[:, ends] - sums[:, ends - window]) / window
