"""How does mixing slow, and the parallel error grow, with the strength of dependency?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from glauber.errors import GlauberError
from glauber.exact.blocks.dynamics import (
    BestMasks,
    Gap,
    best_adaptive_masks,
    best_masks,
    block_gap,
)
from glauber.exact.blocks.masks import Masks, check_block
from glauber.exact.blocks.products import (
    ParallelStationary,
    ProductDistance,
    parallel_stationary,
    product_distance,
)
from glauber.exact.models import Ising
from glauber.ising.model import Field, Model, Sites, check_strengths, model_of
from glauber.progress import check_seed, say, track
from glauber.result import Result, plain, signature, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

COUPLINGS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)
HEAVIEST = 5  # masks that are named


@study
def gap(
    model: Model = None,
    *,
    sites: Sites = 10,
    clique: Annotated[int, "Sites of the clique, all coupled alike."] = 4,
    field: Field = 0.0,
    couplings: Annotated[Sequence[float], "Couplings J; each pair counts twice."] = COUPLINGS,
    blocks: Annotated[Sequence[int], "Block sizes k."] = (1, 2, 4),
    random: Annotated[
        int | None, "Seed of a random model; J then multiplies its couplings."
    ] = None,
    search: Annotated[bool, "Look for better masks than uniform ones (N <= 10)."] = False,
    adaptive: Annotated[bool, "With search: masks that see the state (N <= 7)."] = False,
) -> "Dependencies":
    """Spectral gap of k-block dynamics and the error of the parallel sampler, against J.

    Gaps are exact up to the error that is given. The independent parallel sampler has another
    stationary distribution than p: its distance is exact. One pass can only draw product
    distributions: the distance of p from these lies between two bounds (paper B, propositions 2
    and 3). With a model of one's own, J multiplies its couplings.
    """
    if not len(couplings):
        raise GlauberError("no coupling was given: name one at least, such as 0.5.")
    check_strengths(*couplings)
    if adaptive and not search:
        raise GlauberError("adaptive masks are looked for with search only: switch it on too.")
    if random is not None:
        check_seed(random)
        if model is not None:
            raise GlauberError("give a model or the seed of a random one, not both.")
    chosen, name = _chosen(model, sites, clique, field=field, random=random)
    for k in blocks:
        check_block_size(k, chosen.n_sites)
    say(f"{len(couplings) * len(blocks)} gaps over {chosen.space.size:,} states")
    found = []
    with track("couplings", len(couplings)) as advance:
        for j in couplings:
            strong = Ising(chosen.fields, chosen.couplings * j)
            found.append(dependency(strong, blocks, coupling=j))
            advance()
        better = [_better(strong, k, found[-1].coupling, adaptive) for k in blocks if search]
    made = signature(
        study="ising-gap", sites=chosen.n_sites, model=name, field=field if model is None else None,
        couplings=list(couplings), blocks=list(blocks), search=search, adaptive=adaptive,
    )  # fmt: skip
    return Dependencies(
        tuple(found),
        better if search else None,
        sites=chosen.n_sites,
        model=name,
        field=field if random is None and model is None else None,
        signature=made,
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
        """Whether gap_k >= k gap_1 for every k found, up to the errors."""
        if 1 not in self.gaps:
            return True
        first = self.gaps[1]
        return all(
            gap.value + gap.error >= k * (first.value - first.error) for k, gap in self.gaps.items()
        )

    def to_dict(self) -> dict[str, Any]:
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
    whole = model.probabilities.reshape((2,) * model.n_sites)
    return Dependency(coupling, gaps, parallel_stationary(model), product_distance(whole))


@dataclass(frozen=True, eq=False)
class Better:
    """The best masks found for one block size, at one coupling."""

    k: int
    coupling: float
    best: BestMasks
    adaptive: float | None  # the gap of the best adaptive masks found, a lower bound on the best

    def to_dict(self) -> dict[str, Any]:
        drawn = zip(self.best.masks.chances.tolist(), self.best.masks.blocks, strict=True)
        ranked = sorted(drawn, reverse=True)[:HEAVIEST]
        return {
            "k": self.k,
            "coupling": self.coupling,
            "uniform": self.best.uniform.value,
            "found": {"value": self.best.gap.value, "kind": "lower bound"},
            "best": {"value": self.best.at_most, "kind": "upper bound"},
            "adaptive": {"value": self.adaptive, "kind": "lower bound"},
            "heaviest": [{"sites": list(block), "weight": weight} for weight, block in ranked],
        }

    def lines(self) -> Iterable[str]:
        one = self.to_dict()
        heavy = ", ".join(f"{tuple(m['sites'])}: {m['weight']:.3f}" for m in one["heaviest"])
        yield (
            f"k = {self.k} at J = {self.coupling:g}: uniform masks {one['uniform']:.6g}, found "
            f"{one['found']['value']:.6g} (lower bound on the best), none above "
            f"{one['best']['value']:.6g} (upper bound); heaviest {heavy}"
        )
        if self.adaptive is not None:
            yield (
                f"k = {self.k}, masks that see the state: {self.adaptive:.6g} (lower bound on the "
                "best of these)"
            )


@dataclass(frozen=True, eq=False)
class Dependencies(Result):
    """Gaps and the parallel error at each coupling."""

    found: tuple[Dependency, ...]
    better: list[Better] | None  # better masks than uniform ones, if they were looked for
    sites: int
    model: str
    field: float | None
    signature: str

    def to_dict(self) -> dict[str, Any]:
        record = {
            "sites": self.sites,
            "model": self.model,
            "field": self.field,
            "couplings": [one.to_dict() for one in self.found],
            "masks": None if self.better is None else [one.to_dict() for one in self.better],
            "signature": self.signature,
        }
        return dict(plain(record))

    def lines(self) -> Iterable[str]:
        heads = "".join(f"{f'gap k={k}':>14}" for k in self.found[0].gaps)
        yield f"{self.sites} sites, {self.model}; gaps are exact up to the error in to_dict()"
        yield f"{'J':>6}{heads}{'parallel':>16}{'one pass':>24}"
        for one in self.found:
            shown = "".join(
                f"{gap.value:>14.6g}" if gap.value > gap.error else f"{'< 1e-12':>14}"
                for gap in one.gaps.values()
            )
            between = f"{one.one_pass.at_least:.4f} to {one.one_pass.at_most:.4f}"
            far = one.parallel.total_variation
            yield f"{one.coupling:>6g}{shown}{far:>16.4f}{between:>24}"
        yield (
            "parallel: total variation from p of the parallel sampler's stationary distribution "
            "(exact); one pass: from p to the nearest product (bounds)"
        )
        for better in self.better or []:
            yield from better.lines()

    def frame(self) -> "pandas.DataFrame":
        """One row per coupling and block size."""
        import pandas

        return pandas.DataFrame(
            [
                {
                    "coupling": one.coupling,
                    "k": k,
                    "gap": gap.value,
                    "gap_error": gap.error,
                    "parallel_total_variation": one.parallel.total_variation,
                    "one_pass_at_least": one.one_pass.at_least,
                    "one_pass_at_most": one.one_pass.at_most,
                }
                for one in self.found
                for k, gap in one.gaps.items()
            ]
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.ising import plot_dependency

        return {"dependency": plot_dependency(self.found)}


def _chosen(
    model: Any, sites: int, clique: int, *, field: float, random: int | None
) -> tuple[Ising, str]:
    """The model with J = 1, and what it is called."""
    if random is not None:
        return Ising.random(sites, seed=random, strength=1.0), f"random with seed {random}"
    chosen = model_of(model, sites=sites, clique=clique, coupling=1.0, field=field)
    return chosen, f"clique of {clique}" if model is None else "own"


def _better(model: Ising, k: int, coupling: float, adaptive: bool) -> Better:
    """The best weights over all blocks of k sites."""
    p, space = model.probabilities, model.space
    best = best_masks(p, space, Masks.uniform(space, k).blocks)
    seeing = best_adaptive_masks(p, best.masks).gap.value if adaptive else None
    return Better(k, coupling, best, seeing)
