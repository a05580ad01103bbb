"""How does mixing slow, and the parallel error grow, with the strength of dependency?"""

from collections.abc import Sequence
from dataclasses import dataclass

from glauber.exact.ising import Ising
from glauber.exact.samplers.block_gap import Gap, block_gap
from glauber.exact.samplers.masks import Masks
from glauber.exact.samplers.parallel_law import ParallelLaw, parallel_law
from glauber.exact.samplers.products import ProductDistance, product_distance
from glauber.exact.space import Space


@dataclass(frozen=True, eq=False)
class Dependency:
    """One strength: the gap of each block size, and what filling all sites at once does.

    The law that the parallel sampler keeps may come nearer to p again where both sit in the modes;
    the distance of p from the product laws, all that one pass can draw, does not.
    """

    coupling: float
    gaps: dict[int, Gap]  # by k
    parallel: ParallelLaw
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


def dependency(model: Ising, ks: Sequence[int], *, coupling: float = 1.0) -> Dependency:
    """Gaps and parallel error of one model; coupling names its strength in the answer."""
    space = Space(2, model.n_sites)
    gaps = {k: block_gap(model.probabilities, space, Masks.uniform(model.n_sites, k)) for k in ks}
    whole = model.probabilities.reshape((2,) * model.n_sites)
    return Dependency(coupling, gaps, parallel_law(model), product_distance(whole))


def dependency_sweep(model: Ising, factors: Sequence[float], ks: Sequence[int]) -> list[Dependency]:
    """The same with all couplings multiplied by each factor."""
    return [
        dependency(Ising(model.fields, model.couplings * factor), ks, coupling=factor)
        for factor in factors
    ]
