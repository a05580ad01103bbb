"""The error of the estimate against the number of samples (paper B, figures 1 and 2).

All repetitions and all sample sizes are fitted in one pass, and every k sees the same samples.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from glauber.exact.blocks.pseudolikelihood import (
    Pseudolikelihood,
    asymptotics,
    draw_counts,
    fit_pairs,
    observe_masks,
)
from glauber.exact.models import check_block_size, ising_family, ising_theta
from glauber.exact.space import Floats
from glauber.foundation.checks import Whole
from glauber.foundation.parameters import Seed
from glauber.foundation.progress import check_memory, say, track
from glauber.foundation.statistics import MIN_CHAINS
from glauber.foundation.study import Result, internal, reported, study
from glauber.studies.ising.fitting import masks_per_sample
from glauber.studies.ising.model import (
    Adaptive,
    Clique,
    Coupling,
    Field,
    Model,
    Sites,
    masks_of,
    model_of,
    not_empty,
)

SAMPLES = (500, 1000, 2000, 4000, 8000, 16_000, 32_000)


@study
def errors(
    model: Model = None,
    *,
    samples: Annotated[Sequence[int], "Numbers of samples.", not_empty, Whole()] = SAMPLES,
    blocks: Annotated[
        Sequence[int] | None, "Sites hidden together (default: 1 to N).", not_empty
    ] = None,
    masks: Annotated[int | str, "Random masks of each sample (1, 2, …), or all to average."] = 1,
    adaptive: Adaptive = False,
    repetitions: Annotated[int, "Independent data sets of each size.", Whole(2)] = 10,
    sites: Sites = 4,
    clique: Clique = None,
    coupling: Coupling = 0.05,
    field: Field = 0.0,
    seed: Seed = 0,
) -> "ErrorCurves":
    """Squared error of the k-site estimates against the number of samples.

    Paper B, figures 1 and 2: estimates from samples of a known Ising model, over repetitions,
    with the exact trace of their covariance over the number of samples, which the mean tends to.
    """
    per_sample = masks_per_sample(masks, max(samples))
    ising = model_of(model, sites=sites, clique=clique, coupling=coupling, field=field, learnt=True)
    family, theta = ising_family(ising.n_sites), ising_theta(ising)
    ks = tuple(range(1, ising.n_sites + 1)) if blocks is None else tuple(blocks)
    for k in ks:
        check_block_size(k, ising.n_sites)
    fits = len(samples) * repetitions
    check_memory(24.0 * fits * family.n_parameters * family.space.size, "these fits together")
    say(f"{fits * len(ks):,} fits of {family.n_parameters} parameters")
    generator = np.random.default_rng(seed)
    p = family.distribution(theta)
    counts = np.stack([draw_counts(p, n, repetitions, generator) for n in samples])
    squared_errors, traces, within = [], [], []
    with track("mask sizes", len(ks)) as advance:
        for k in ks:
            problem = Pseudolikelihood(family, masks_of(family.space, p, k, adaptive))
            estimate = fit_pairs(
                problem, observe_masks(counts, problem.masks, per_sample, generator)
            )
            distances = ((estimate.theta - theta) ** 2).sum(axis=-1)
            squared_errors.append(np.where(estimate.converged, distances, np.nan))
            limit = asymptotics(problem, theta)
            traces.append(limit.trace(per_sample))
            within.append(limit.share_within(per_sample=per_sample))
            advance()
    return ErrorCurves(
        ks,
        tuple(samples),
        per_sample,
        np.stack(squared_errors),
        np.array(traces),
        np.array(within),
        adaptive,
    )


@dataclass(frozen=True, eq=False)
class ErrorCurves(Result):
    """Squared errors (ks, sizes, repetitions) of the estimate; NaN where there was none.

    traces (ks,) are the exact n * error for large n. The errors are estimates; standard_error is
    that of their mean.
    """

    ks: tuple[int, ...] = internal()
    sizes: tuple[int, ...] = internal()
    per_sample: int | None = internal()  # random masks of each; None: all masks averaged
    squared_errors: Floats = internal()  # (ks, sizes, repetitions)
    traces: Floats = internal()
    within: Floats = internal()  # (ks,) chance of an error of at most trace / n, for large n
    adaptive: bool = False

    FIGURES = {"errors": "glauber.interfaces.plots.ising:plot_error_curves"}

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
        """Standard error (ks, sizes) of the mean; NaN of fewer than three repetitions."""
        count = self.squared_errors.shape[2]
        return np.asarray(
            self.spread / np.sqrt(count) if count >= MIN_CHAINS else np.nan * self.spread
        )

    @property
    def prediction(self) -> Floats:
        """trace / n (ks, sizes): what the mean becomes for large n."""
        return np.asarray(self.traces[:, None] / np.array(self.sizes))

    @property
    def within_trace(self) -> Floats:
        """Share of repetitions (ks, sizes) with a squared error of at most trace / n."""
        return np.asarray((self.squared_errors <= self.prediction[:, :, None]).mean(axis=2))

    @reported
    def masks(self) -> int | str:
        """How many random masks each sample has, or all."""
        return "all" if self.per_sample is None else self.per_sample

    @reported
    def repetitions(self) -> int:
        """Estimates of each mean."""
        return int(self.squared_errors.shape[2])

    @reported
    def rows(self) -> list[dict[str, object]]:
        """One row per mask size."""
        return [
            {
                "k": k,
                "samples": self.sizes,
                "mean_squared_error": self.mean[row],
                "standard_deviation": self.spread[row],
                "standard_error": self.standard_error[row],
                "kind": "estimate",
                "without_an_estimate": self.missing[row],
                "trace": self.traces[row],
                "trace_kind": "exact",
                "within_trace": self.within_trace[row],
                "within_trace_limit": self.within[row],
            }
            for row, k in enumerate(self.ks)
        ]

    def lines(self) -> Iterable[str]:
        kind = ", adaptive masks" * self.adaptive
        yield f"mean squared error over {self.repetitions} repetitions, an estimate{kind}"
        yield f"{'samples':>10}" + "".join(f"{f'k = {k}':>22}" for k in self.ks)
        for column, size in enumerate(self.sizes):
            cells = map(_cell, self.mean[:, column], self.standard_error[:, column])
            yield f"{size:>10,}" + "".join(f"{cell:>22}" for cell in cells)
        yield f"{'trace':>10}" + "".join(f"{trace:>22.4g}" for trace in self.traces)
        yield "trace / samples is what the mean becomes for many samples (exact)"

    def table(self) -> list[dict[str, object]]:
        """One row per mask size and number of samples."""
        return [
            {
                "k": k,
                "samples": size,
                "mean_squared_error": self.mean[row, column],
                "standard_error": self.standard_error[row, column],
                "predicted": self.prediction[row, column],
                "within_trace": self.within_trace[row, column],
                "without_an_estimate": self.missing[row, column],
            }
            for row, k in enumerate(self.ks)
            for column, size in enumerate(self.sizes)
        ]


def _cell(mean: float, error: float) -> str:
    if np.isnan(mean):
        return "none"
    return f"{mean:.3g}" if np.isnan(error) else f"{mean:.3g} +- {error:.1g}"
