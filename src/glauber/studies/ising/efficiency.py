"""The exact covariance of the estimate for each mask size, and its bound by the chain's speed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from glauber.exact.blocks.masks import Masks
from glauber.exact.blocks.pseudolikelihood import (
    Efficiency,
    Pseudolikelihood,
    efficiency,
    smallest_difference,
)
from glauber.exact.models import ising_family, ising_theta
from glauber.foundation.progress import say, track
from glauber.foundation.study import Result, study
from glauber.studies.ising.model import Clique, Coupling, Field, Model, Sites, model_of

if TYPE_CHECKING:
    import plotly.graph_objects as go


@study
def covariance(
    model: Model = None,
    *,
    sites: Sites = 4,
    clique: Clique = None,
    coupling: Coupling = 0.05,
    field: Field = 0.0,
    adaptive: Annotated[bool, "Also masks chosen where the present tokens are unlikely."] = False,
) -> "Covariances":
    """Covariance of the k-site estimates for every k, and its bound by the Poincare constant.

    Exact, for many samples with one random mask each: larger masks are never worse (paper B,
    Theorem 1), and none is worse than maximum likelihood by more than the Poincare constant of
    the block dynamics (Theorems 2 and 3). Both are checked as Hessians.
    """
    ising = model_of(model, sites=sites, clique=clique, coupling=coupling, field=field, learnt=True)
    family, theta = ising_family(ising.n_sites), ising_theta(ising)
    sizes = range(1, ising.n_sites + 1)
    say(f"{len(sizes)} mask sizes, {family.n_parameters} parameters, {family.space.size:,} states")
    rows, previous = [], None
    with track("mask sizes", len(sizes) * (1 + adaptive)) as advance:
        for k in sizes:
            result = efficiency(Pseudolikelihood.of_size(family, k), theta)
            rows.append(_mask_size(k, "uniform", result, previous))
            previous = result
            advance()
        for k in sizes if adaptive else ():
            masks = Masks.least_confident(family.space, ising.probabilities, k)
            result = efficiency(Pseudolikelihood(family, masks), theta)
            rows.append(_mask_size(k, "adaptive", result, None))
            advance()
    return Covariances(tuple(rows), ising.n_sites, family.n_parameters)


@dataclass(frozen=True)
class MaskSize:
    """One estimator: k sites hidden, by uniform or adaptive masks; all numbers are exact."""

    k: int
    masks: Literal["uniform", "adaptive"]
    trace: float  # n times the squared error with one random mask per sample
    trace_all_masks: float  # the same with all masks averaged
    trace_per_filling: float  # trace times the 2^k fillings that a sample costs
    within_trace: float  # chance that the squared error is at most trace / n, for large n
    divergence: float  # n times KL(p, p_hat), for large n
    poincare: float
    gap_error: float
    bound: float  # upper bound on the trace: poincare times that of maximum likelihood
    slack: float  # smallest eigenvalue of H - I/C: not negative, by Theorems 2 and 3
    growth: float | None  # smallest eigenvalue of H less that of k - 1: likewise, by Theorem 1
    equality_gap: float  # largest difference of the Hessian and the covariance of the scores
    kind: str = "exact"
    bound_kind: str = "upper bound"


def _mask_size(
    k: int,
    masks: Literal["uniform", "adaptive"],
    result: Efficiency,
    previous: Efficiency | None,
) -> MaskSize:
    here, growth = result.asymptotics, None
    if previous is not None:
        growth = smallest_difference(here.hessian, previous.asymptotics.hessian)
    return MaskSize(
        k=k,
        masks=masks,
        trace=here.trace(),
        trace_all_masks=here.trace(None),
        trace_per_filling=here.trace() * 2**k,
        within_trace=here.share_within(),
        divergence=result.divergence,
        poincare=result.gap.poincare,
        gap_error=result.gap.error,
        bound=result.bound_trace,
        slack=result.slack,
        growth=growth,
        equality_gap=here.equality_gap,
    )


@dataclass(frozen=True, eq=False)
class Covariances(Result):
    """The covariance of each estimator and its bound."""

    rows: tuple[MaskSize, ...]
    sites: int
    parameters: int  # of the model

    def lines(self) -> Iterable[str]:
        heads = ("k", "masks", "trace", "x 2^k", "all masks", "C", "bound", "H - I/C", "H - before")
        yield "".join(f"{head:>11}" for head in heads)
        for row in self.rows:
            growth = "" if row.growth is None else f"{row.growth:.1e}"
            yield (
                f"{row.k:>11}{row.masks:>11}{row.trace:>11.4g}{row.trace_per_filling:>11.4g}"
                f"{row.trace_all_masks:>11.4g}{row.poincare:>11.4g}{row.bound:>11.4g}"
                f"{row.slack:>11.1e}{growth:>11}"
            )
        yield "trace: n times the squared error with one random mask per sample, many n; exact"
        yield "x 2^k: the same at equal cost, where a sample costs the 2^k fillings of its mask"
        yield "all masks: the same with all masks averaged, another estimator"
        yield "C: Poincare constant of the block dynamics; bound: C times the trace at k = N"
        yield "the last two columns are smallest eigenvalues: not negative, but for rounding"

    def table(self) -> tuple[MaskSize, ...]:
        """One row per mask size and kind of masks."""
        return self.rows

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.ising import plot_by_size

        uniform = [row for row in self.rows if row.masks == "uniform"]
        adaptive = [row.trace for row in self.rows if row.masks == "adaptive"]
        traces = [row.trace for row in uniform]
        lines = {"uniform masks": traces} | ({"adaptive masks": adaptive} if adaptive else {})
        bound = {"bound, uniform masks": [row.bound for row in uniform]}
        averaged = [row.trace_all_masks for row in uniform]
        ks = [row.k for row in uniform]
        where = f"trace of the exact covariance, {self.sites} sites"
        return {
            "bound": plot_by_size(
                ks,
                lines | bound,
                title="The speed of the chain bounds the error of the learner",
                subtitle=f"{where}, and its bound",
            ),
            "masks": plot_by_size(
                ks,
                {"one mask per sample": traces, "all masks averaged": averaged},
                title="Larger masks learn more from a sample",
                subtitle=where,
            ),
        }
