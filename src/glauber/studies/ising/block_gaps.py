"""Spectral gaps of block dynamics and the error of the parallel sampler, by the coupling."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from glauber.exact.blocks.dynamics import Gap, block_gap
from glauber.exact.blocks.masks import Masks
from glauber.exact.blocks.products import (
    ParallelStationary,
    ProductDistance,
    parallel_stationary,
    product_distance,
)
from glauber.exact.blocks.pseudolikelihood import Pseudolikelihood, asymptotics
from glauber.exact.blocks.search import BestMasks, best_masks
from glauber.exact.models import Ising, check_block_size, ising_family, ising_theta
from glauber.foundation.checks import check_seed
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import say, track
from glauber.foundation.study import Result, internal, plain, study
from glauber.studies.ising.model import Field, Model, Sites, Strength, model_of, not_empty

if TYPE_CHECKING:
    import plotly.graph_objects as go

COUPLINGS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)
HEAVIEST = 5  # masks that are named
CRITERIA = {"gap": "spectral gap", "trace": "trace of the covariance of estimates"}


@study
def gap(
    model: Model = None,
    *,
    sites: Sites = 10,
    clique: Annotated[int, "Sites of the clique, all coupled alike."] = 4,
    field: Field = 0.0,
    couplings: Annotated[
        Sequence[float], "Couplings J; each pair counts twice.", not_empty, Strength
    ] = COUPLINGS,
    blocks: Annotated[Sequence[int], "Block sizes k.", not_empty] = (1, 2, 4),
    random: Annotated[
        int | None, "Seed of a random model; J then multiplies its couplings.", check_seed
    ] = None,
    search: Annotated[
        bool, "Find the best weights of masks at the last coupling, for both criteria (N <= 10)."
    ] = False,
) -> "Dependencies":
    """Spectral gap of k-block dynamics and the error of the parallel sampler, against J.

    Gaps are exact up to the error that is reported. The independent parallel sampler has another
    stationary distribution than p: its distance is exact. One pass can only draw product
    distributions: the distance of p from these lies between two bounds (paper B, proposition 3).
    With a model of one's own, J multiplies its couplings. The search finds the weights of masks
    with the largest gap, and those whose estimates have the smallest covariance.
    """
    if random is not None and model is not None:
        raise GlauberError("give a model or the seed of a random one, not both.")
    if random is not None:
        base, name = Ising.random(sites, seed=random, strength=1.0), f"random with seed {random}"
    else:
        base = model_of(model, sites=sites, clique=clique, coupling=1.0, field=field)
        name = f"clique of {clique}" if model is None else "own"
    for k in blocks:
        check_block_size(k, base.n_sites)
    say(f"{len(couplings) * len(blocks)} gaps over {base.space.size:,} states")
    rows, better = [], []
    with track("couplings", len(couplings)) as advance:
        for coupling in couplings:
            strong = Ising(base.fields, base.couplings * coupling)
            rows.append(dependency(strong, blocks, coupling=coupling))
            advance()
        for k in blocks if search else ():
            better += _best(strong, k, coupling)
    return Dependencies(
        sites=base.n_sites,
        model=name,
        field=field if random is None and model is None else None,
        rows=tuple(rows),
        better=better if search else None,
    )


@dataclass(frozen=True, eq=False)
class Dependency:
    """One strength: the gap of each block size, and what filling all sites at once does.

    The stationary distribution of the parallel sampler may come nearer to p again where both sit in
    the modes; the distance of p from the products, all that one pass can draw, does not.
    """

    coupling: float
    gaps: dict[int, Gap]  # by k
    parallel: ParallelStationary
    one_pass: ProductDistance  # of p itself

    @property
    def above_line(self) -> bool:
        """Whether gap_k >= k gap_1 for every k, up to the errors."""
        if 1 not in self.gaps:
            return True
        first = self.gaps[1].value - self.gaps[1].error
        return all(gap.value + gap.error >= k * first for k, gap in self.gaps.items())

    def record(self) -> dict[str, object]:
        """The numbers as JSON, each with its kind."""
        return {
            "coupling": self.coupling,
            "gaps": [
                {"k": k, "value": gap.value, "error": gap.error, "kind": gap.kind}
                for k, gap in self.gaps.items()
            ],
            "above_line": self.above_line,
            "parallel": {
                "total_variation": self.parallel.total_variation,
                "divergence": self.parallel.divergence,
                "largest_marginal": self.parallel.marginal,
                "kind": "exact",
            },
            "one_pass": {
                "total_variation": {"value": self.one_pass.at_most, "kind": "upper bound"},
                "at_least": {"value": self.one_pass.at_least, "kind": "lower bound"},
                "divergence": {"value": self.one_pass.divergence, "kind": "exact"},
            },
        }


def dependency(model: Ising, ks: Sequence[int], *, coupling: float = 1.0) -> Dependency:
    """Gaps and parallel error of one model; coupling names its strength in the answer."""
    gaps = {k: block_gap(model.probabilities, Masks.uniform(model.space, k)) for k in ks}
    cube = model.probabilities.reshape((2,) * model.n_sites)
    return Dependency(coupling, gaps, parallel_stationary(model), product_distance(cube))


@dataclass(frozen=True, eq=False)
class Better:
    """The best masks for one block size and criterion, at one coupling."""

    k: int
    coupling: float
    best: BestMasks
    other: float  # the other criterion's value at these weights, exact

    @property
    def other_criterion(self) -> str:
        """The criterion that these weights were not searched for."""
        return "trace" if self.best.criterion == "gap" else "gap"

    def heaviest(self) -> list[dict[str, object]]:
        pairs = zip(self.best.masks.chances.tolist(), self.best.masks.blocks, strict=True)
        ranked = sorted(pairs, reverse=True)[:HEAVIEST]
        return [{"sites": list(block), "weight": weight} for weight, block in ranked]

    def record(self) -> dict[str, object]:
        """The numbers as JSON; what is found is a lower bound on the best gap."""
        kinds = ["lower bound", "upper bound"]
        value, bound = kinds if self.best.criterion == "gap" else kinds[::-1]
        return {
            "k": self.k,
            "coupling": self.coupling,
            "criterion": self.best.criterion,
            "uniform": self.best.uniform,
            "found": {"value": self.best.value, "kind": value},
            "best": {"value": self.best.bound, "kind": bound},
            "other": {"criterion": self.other_criterion, "value": self.other, "kind": "exact"},
            "heaviest": self.heaviest(),
        }

    def line(self) -> str:
        heavy = ", ".join(f"{tuple(m['sites'])}: {m['weight']:.3f}" for m in self.heaviest())  # type: ignore[arg-type]
        return (
            f"k = {self.k} at J = {self.coupling:g}, {CRITERIA[self.best.criterion]}: uniform "
            f"masks {self.best.uniform:.6g}, found {self.best.value:.6g}, none better than "
            f"{self.best.bound:.6g} (bound), with {CRITERIA[self.other_criterion]} "
            f"{self.other:.6g}; heaviest {heavy}"
        )


@dataclass(frozen=True, eq=False)
class Dependencies(Result):
    """Gaps and the parallel error at each coupling."""

    sites: int
    model: str
    field: float | None
    rows: tuple[Dependency, ...] = internal()
    better: list[Better] | None = internal()  # better masks than uniform ones, where searched

    def to_dict(self) -> dict[str, object]:
        masks = None if self.better is None else [best.record() for best in self.better]
        couplings = [row.record() for row in self.rows]
        return super().to_dict() | {"couplings": plain(couplings), "masks": plain(masks)}

    def lines(self) -> Iterable[str]:
        heads = "".join(f"{f'gap k={k}':>14}" for k in self.rows[0].gaps)
        yield f"{self.sites} sites, {self.model}; gaps are exact up to the error in to_dict()"
        yield f"{'J':>6}{heads}{'parallel':>16}{'one pass':>24}"
        for row in self.rows:
            shown = "".join(
                f"{gap.value:>14.6g}" if gap.value > gap.error else f"{'< 1e-12':>14}"
                for gap in row.gaps.values()
            )
            between = f"{row.one_pass.at_least:.4f} to {row.one_pass.at_most:.4f}"
            distance = row.parallel.total_variation
            yield f"{row.coupling:>6g}{shown}{distance:>16.4f}{between:>24}"
        yield (
            "parallel: total variation from p of the parallel sampler's stationary distribution "
            "(exact); one pass: from p to the nearest product (bounds)"
        )
        yield from (better.line() for better in self.better or [])

    def table(self) -> list[dict[str, object]]:
        """One row per coupling and block size."""
        return [
            {
                "coupling": row.coupling,
                "k": k,
                "gap": gap.value,
                "gap_error": gap.error,
                "parallel_total_variation": row.parallel.total_variation,
                "one_pass_at_least": row.one_pass.at_least,
                "one_pass_at_most": row.one_pass.at_most,
            }
            for row in self.rows
            for k, gap in row.gaps.items()
        ]

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.ising import plot_dependency

        return {"dependency": plot_dependency(self.rows)}


def _best(model: Ising, k: int, coupling: float) -> list[Better]:
    """The best weights over all blocks of k sites, for the gap and for the covariance.

    Each is also measured by the other's criterion: chains that mix fast need not learn well.
    """
    space, p, family = model.space, model.probabilities, ising_family(model.n_sites)
    blocks, theta = Masks.uniform(space, k).blocks, ising_theta(model)
    fastest = best_masks(p, space, blocks)
    learning = best_masks(p, space, blocks, statistics=family.statistics)
    trace = asymptotics(Pseudolikelihood(family, fastest.masks), theta).trace()
    return [
        Better(k, coupling, fastest, trace),
        Better(k, coupling, learning, block_gap(p, learning.masks).value),
    ]
