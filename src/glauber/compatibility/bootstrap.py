"""How sure is a mean? Resample the sample."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
RESAMPLES = 10_000


def bootstrap_mean(
    values: NDArray[Any], *, seed: int = 0, level: float = LEVEL
) -> tuple[float, float]:
    """The percentile bootstrap interval of the mean of independent values (count,)."""
    generator = np.random.Generator(np.random.Philox(seed))
    # A resample draws each value multinomially often: one row of counts a resample.
    weights = np.full(len(values), 1 / len(values))
    means = np.concatenate(
        [
            generator.multinomial(len(values), weights, size=RESAMPLES // 10) @ values
            for _ in range(10)  # in ten parts, so that many values still fit the memory
        ]
    ) / len(values)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
