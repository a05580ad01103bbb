"""How uncertain is the estimate of each mask size, and how does that go with the chain's speed?"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from glauber.exact.blocks.pseudolikelihood import Efficiency, efficiency, smallest_difference
from glauber.exact.blocks.masks import Masks
from glauber.exact.blocks.pseudolikelihood import Pseudolikelihood
from glauber.exact.models import ising_family, ising_theta
from glauber.ising.model import Clique, Coupling, Field, Model, Sites, model_of
from glauber.progress import say, track
from glauber.result import Result, plain, signature, study

if TYPE_CHECKING:
    import pandas
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
    chosen = model_of(
        model, sites=sites, clique=clique, coupling=coupling, field=field, learnt=True
    )
    family, theta = ising_family(chosen.n_sites), ising_theta(chosen)
    space, p = family.space, chosen.probabilities
    sizes = range(1, chosen.n_sites + 1)
    say(f"{len(sizes)} mask sizes, {family.n_parameters} parameters, {space.size:,} states")
    rows: list[MaskSize] = []
    with track("mask sizes", len(sizes) * (1 + adaptive)) as advance:
        for k in sizes:
            found = efficiency(Pseudolikelihood.of_size(family, k), theta)
            rows.append(MaskSize(k, "uniform", found, rows[-1].found if rows else None))
            advance()
        for k in sizes if adaptive else ():
            masks = Masks.least_confident(space, p, k)
            rows.append(MaskSize(k, "adaptive", efficiency(Pseudolikelihood(family, masks), theta)))
            advance()
    made = signature(
        study="ising-covariance", sites=chosen.n_sites, model="clique" if model is None else "own",
        clique=clique, coupling=coupling if model is None else None,
        field=field if model is None else None, adaptive=adaptive,
    )  # fmt: skip
    return Covariances(tuple(rows), chosen.n_sites, family.n_parameters, made)


@dataclass(frozen=True, eq=False)
class MaskSize:
    """One estimator: k sites hidden, by uniform or adaptive masks; before is that of k - 1."""

    k: int
    masks: Literal["uniform", "adaptive"]
    found: Efficiency
    before: Efficiency | None = None

    @property
    def growth(self) -> float | None:
        """The smallest eigenvalue of the Hessian less that of k - 1: not negative, by Theorem 1."""
        if self.before is None:
            return None
        return smallest_difference(self.found.asymptotics.hessian, self.before.asymptotics.hessian)

    def to_dict(self) -> dict[str, Any]:
        here = self.found.asymptotics
        return {
            "k": self.k,
            "masks": self.masks,
            "trace": here.trace(),
            "trace_all_masks": here.trace(None),
            "kind": "exact",
            "poincare": self.found.gap.poincare,
            "gap_error": self.found.gap.error,
            "bound": self.found.bound_trace,
            "bound_kind": "upper bound",
            "slack": self.found.slack,
            "growth": self.growth,
            "equality_gap": here.equality_gap,
        }


@dataclass(frozen=True, eq=False)
class Covariances(Result):
    """The covariance of each estimator beside its bound."""

    rows: tuple[MaskSize, ...]
    sites: int
    parameters: int  # of the model
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "sites": self.sites,
            "parameters": self.parameters,
            "rows": plain([row.to_dict() for row in self.rows]),
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        heads = ("k", "masks", "trace", "all masks", "C", "bound", "H - I/C", "H - H before")
        yield "".join(f"{head:>13}" for head in heads)
        for row in self.rows:
            one = row.to_dict()
            growth = "" if row.growth is None else f"{row.growth:.1e}"
            yield (
                f"{one['k']:>13}{one['masks']:>13}{one['trace']:>13.4g}"
                f"{one['trace_all_masks']:>13.4g}{one['poincare']:>13.4g}{one['bound']:>13.4g}"
                f"{one['slack']:>13.1e}{growth:>13}"
            )
        yield "trace: n times the squared error with one random mask per sample, many n; exact"
        yield "all masks: the same with all masks averaged, another estimator"
        yield "C: Poincare constant of the block dynamics; bound: C times the trace at k = N"
        yield "the last two columns are smallest eigenvalues: not negative, but for rounding"

    def frame(self) -> "pandas.DataFrame":
        """One row per mask size and kind of masks."""
        import pandas

        return pandas.DataFrame([row.to_dict() for row in self.rows])

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.ising import plot_by_size

        rows = [row.to_dict() for row in self.rows]
        ks = [row["k"] for row in rows if row["masks"] == "uniform"]
        by_masks = {
            f"{masks} masks": [row["trace"] for row in rows if row["masks"] == masks]
            for masks in ("uniform", "adaptive")
        }
        lines = {name: values for name, values in by_masks.items() if values}
        averaged = [row["trace_all_masks"] for row in rows if row["masks"] == "uniform"]
        bound = [row["bound"] for row in rows if row["masks"] == "uniform"]
        where = f"trace of the exact covariance, {self.sites} sites"
        return {
            "bound": plot_by_size(
                ks,
                lines | {"bound, uniform masks": bound},
                title="The speed of the chain bounds the error of the learner",
                subtitle=f"{where}, and its bound",
            ),
            "masks": plot_by_size(
                ks,
                {"one mask per sample": lines["uniform masks"], "all masks averaged": averaged},
                title="Larger masks learn more from a sample",
                subtitle=where,
            ),
        }
