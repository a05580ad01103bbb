"""How fast does the error of the estimate fall with the number of samples? (Paper B, figs 1, 2.)

All repetitions and all sample sizes are fitted in one pass, and every k sees the same samples.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from glauber.errors import GlauberError
from glauber.exact.blocks.covariance import asymptotics
from glauber.exact.blocks.masks import check_block
from glauber.exact.blocks.pseudolikelihood import (
    Drawing,
    Pseudolikelihood,
    draw_counts,
    fit_pairs,
    observed,
)
from glauber.exact.models import ising_family, ising_theta
from glauber.exact.space import Floats
from glauber.ising.estimation import drawing_of
from glauber.ising.model import Clique, Coupling, Field, Model, Sites, model_of
from glauber.parameters import Seed
from glauber.progress import check_count, check_memory, check_seed, say, track
from glauber.result import Result, plain, signature, study
from glauber.statistics import MIN_CHAINS

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

SAMPLES = (500, 1000, 2000, 4000, 8000, 16_000, 32_000)


@study
def errors(
    model: Model = None,
    *,
    samples: Annotated[Sequence[int], "Numbers of samples."] = SAMPLES,
    blocks: Annotated[Sequence[int] | None, "Sites hidden together (default: 1 to N)."] = None,
    masks: Annotated[int | str, "Random masks of each sample (1, 2, …), or all to average."] = 1,
    repetitions: Annotated[int, "Independent data sets of each size."] = 10,
    sites: Sites = 4,
    clique: Clique = None,
    coupling: Coupling = 0.05,
    field: Field = 0.0,
    seed: Seed = 0,
) -> "ErrorCurves":
    """Squared error of the k-site estimates against the number of samples.

    Paper B, figures 1 and 2: estimates from samples of a known Ising model, over repetitions,
    beside the exact trace of their covariance over the number of samples, which the mean tends to.
    """
    check_seed(seed)
    check_count("number of repetitions", repetitions, least=2)
    if not len(samples):
        raise GlauberError("no number of samples was given: name one at least, such as 1000.")
    for size in samples:
        check_count("number of samples", size)
    drawing = drawing_of(masks, max(samples))
    chosen = model_of(
        model, sites=sites, clique=clique, coupling=coupling, field=field, learnt=True
    )
    family, theta = ising_family(chosen.n_sites), ising_theta(chosen)
    ks = tuple(range(1, chosen.n_sites + 1)) if blocks is None else tuple(blocks)
    if not ks:
        raise GlauberError("no block size was given: name one at least, such as 1.")
    for k in ks:
        check_block(k, chosen.n_sites)
    fits = len(samples) * repetitions
    check_memory(24.0 * fits * family.n_parameters * family.space.size, "these fits together")
    say(f"{fits * len(ks):,} fits of {family.n_parameters} parameters")
    generator = np.random.default_rng(seed)
    p = family.distribution(theta)
    counts = np.stack([draw_counts(p, n, repetitions, generator) for n in samples])
    squared, traces = [], []
    with track("mask sizes", len(ks)) as advance:
        for k in ks:
            problem = Pseudolikelihood.of_size(family, k)
            found = fit_pairs(problem, observed(counts, problem.masks, drawing, generator))
            apart = ((found.theta - theta) ** 2).sum(axis=-1)
            squared.append(np.where(found.found, apart, np.nan))
            traces.append(asymptotics(problem, theta).trace(drawing.per_sample))
            advance()
    made = signature(
        study="ising-errors", sites=chosen.n_sites, model="clique" if model is None else "own",
        clique=clique, coupling=coupling if model is None else None,
        field=field if model is None else None, samples=list(samples), masks=masks,
        repetitions=repetitions, seed=seed,
    )  # fmt: skip
    return ErrorCurves(ks, tuple(samples), drawing, np.stack(squared), np.array(traces), made)


@dataclass(frozen=True, eq=False)
class ErrorCurves(Result):
    """Squared errors (ks, sizes, repetitions) of the estimate; NaN where there was none.

    traces (ks,) are the exact n * error for large n. The errors are estimates; standard_error is
    that of their mean.
    """

    ks: tuple[int, ...]
    sizes: tuple[int, ...]
    drawing: Drawing
    squared_errors: Floats  # (ks, sizes, repetitions)
    traces: Floats
    signature: str = ""

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
    def predicted(self) -> Floats:
        """trace / n (ks, sizes): what the mean becomes for large n."""
        return np.asarray(self.traces[:, None] / np.array(self.sizes))

    @property
    def masks(self) -> int | str:
        """How many random masks each sample has, or all."""
        return "all" if self.drawing.per_sample is None else self.drawing.per_sample

    def to_dict(self) -> dict[str, Any]:
        rows = [
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
            }
            for row, k in enumerate(self.ks)
        ]
        repetitions = self.squared_errors.shape[2]
        record = {"masks": self.masks, "repetitions": repetitions, "rows": rows}
        return dict(plain(record | {"signature": self.signature}))

    def lines(self) -> Iterable[str]:
        yield f"mean squared error over {self.squared_errors.shape[2]} repetitions, an estimate"
        yield f"{'samples':>10}" + "".join(f"{f'k = {k}':>22}" for k in self.ks)
        for column, size in enumerate(self.sizes):
            cells = zip(self.mean[:, column], self.standard_error[:, column], strict=True)
            shown = (_cell(mean, error) for mean, error in cells)
            yield f"{size:>10,}" + "".join(f"{one:>22}" for one in shown)
        yield f"{'trace':>10}" + "".join(f"{trace:>22.4g}" for trace in self.traces)
        yield "trace / samples is what the mean becomes for many samples (exact)"

    def frame(self) -> "pandas.DataFrame":
        """One row per mask size and number of samples."""
        import pandas

        return pandas.DataFrame(
            [
                {
                    "k": k,
                    "samples": size,
                    "mean_squared_error": self.mean[row, column],
                    "standard_error": self.standard_error[row, column],
                    "predicted": self.predicted[row, column],
                    "without_an_estimate": self.missing[row, column],
                }
                for row, k in enumerate(self.ks)
                for column, size in enumerate(self.sizes)
            ]
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.ising import plot_error_curves

        return {"errors": plot_error_curves(self)}


def _cell(mean: float, error: float) -> str:
    if np.isnan(mean):
        return "none"
    return f"{mean:.3g}" if np.isnan(error) else f"{mean:.3g} +- {error:.1g}"
