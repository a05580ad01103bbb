"""Above which temperature does the theorem promise fast mixing?"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from glauber.errors import GlauberError


def contraction_temperature(oscillation: NDArray[np.float64]) -> float:
    """The temperature at which max_j sum_{i != j} tanh(delta_ij / (4 temperature)) is 1.

    oscillation (n, n) holds delta_ij, the influence of j on i in column j. Above the root alpha
    is below 1, because c_ij <= tanh(delta_ij / (4 temperature)). Every term is below 1, so columns
    with fewer than two entries above zero never reach 1: then the answer is zero, as always at
    n = 2.
    """
    if not np.isfinite(oscillation).all() or oscillation.min() < 0:
        raise GlauberError("an oscillation is infinite or negative, so no threshold can be found.")
    delta = oscillation * (1 - np.eye(len(oscillation)))
    if (delta > 0).sum(axis=0).max() < 2:
        return 0.0

    def excess(temperature: float) -> float:
        return float(np.tanh(delta / (4 * temperature)).sum(axis=0).max()) - 1

    high = float(delta.sum(axis=0).max()) / 4  # tanh(x) < x, so the sum is below 1 here
    low = high
    while excess(low) <= 0:
        low /= 2
    return float(brentq(excess, low, high, xtol=1e-12 * high)) if low < high else high
