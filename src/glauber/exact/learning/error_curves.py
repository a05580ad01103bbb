"""How fast does the error of the estimate fall with the number of samples? (Paper B, figs 1, 2.)

All repetitions and all sample sizes are fitted in one pass, and every k sees the same samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.learning.covariance import asymptotics
from glauber.exact.learning.family import Family
from glauber.exact.learning.fit import fit
from glauber.exact.learning.observations import Drawing, draw_counts, observed
from glauber.exact.learning.pseudolikelihood import Pseudolikelihood


@dataclass(frozen=True, eq=False)
class ErrorCurves:
    """Squared errors (ks, sizes, repetitions) of the estimate; NaN where there was none.

    traces (ks,) are the exact n * error for large n. The errors are estimates; standard_error is
    that of their mean.
    """

    ks: tuple[int, ...]
    sizes: tuple[int, ...]
    drawing: Drawing
    squared_errors: Floats
    traces: Floats

    @property
    def missing(self) -> Floats:
        """How many repetitions (ks, sizes) had no finite estimate."""
        return np.asarray(np.isnan(self.squared_errors).sum(axis=2))

    @property
    def mean(self) -> Floats:
        """Mean squared error (ks, sizes), NaN where any repetition had no estimate."""
        return np.asarray(self.squared_errors.mean(axis=2))

    @property
    def spread(self) -> Floats:
        """Standard deviation (ks, sizes) between repetitions."""
        return np.asarray(self.squared_errors.std(axis=2, ddof=1))

    @property
    def standard_error(self) -> Floats:
        """Standard error (ks, sizes) of the mean."""
        return np.asarray(self.spread / np.sqrt(self.squared_errors.shape[2]))

    @property
    def predicted(self) -> Floats:
        """trace / n (ks, sizes): what the mean becomes for large n."""
        return np.asarray(self.traces[:, None] / np.array(self.sizes))


def error_curves(
    family: Family,
    theta: Floats,
    ks: Sequence[int],
    *,
    sizes: Sequence[int],
    repetitions: int = 10,
    drawing: Drawing | None = None,
    seed: int = 0,
) -> ErrorCurves:
    """Errors of the k-site estimates from samples of theta (d,), one random mask per sample."""
    if repetitions < 2 or not sizes or not ks:
        raise GlauberError("an error curve needs a size, a k and at least two repetitions.")
    way = Drawing() if drawing is None else drawing
    generator = np.random.default_rng(seed)
    law = family.law(theta)
    counts = np.stack([draw_counts(law, n, repetitions, generator) for n in sizes])
    errors, traces = [], []
    for k in ks:
        problem = Pseudolikelihood.of_size(family, k)
        found = fit(problem, observed(counts, problem.masks, way, generator))
        squared = ((found.theta - theta) ** 2).sum(axis=-1)
        errors.append(np.where(found.found, squared, np.nan))
        traces.append(asymptotics(problem, theta).trace(way.per_sample))
    return ErrorCurves(tuple(ks), tuple(sizes), way, np.stack(errors), np.array(traces))
