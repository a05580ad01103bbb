"""What one pass can draw, product distributions, and what repeated passes end in.

One pass gives each hidden site its own distribution, so the tokens are independent: products and
nothing else (paper B, proposition 3; proposition 2, that networks for deterministic chains exist,
has nothing to compute). The nearest product to a distribution q in KL(q || r) is the product of its
marginals, at the total correlation. In total variation there is no formula; it lies between two
numbers:
    max over sets A, B of |q(A x B) - q(A) q(B)|  <=  distance  <=  TV(q, product of marginals).
The left side holds because r(A x B) - r(A) r(B) is 0 for a product, and moves by at most the
total variation.

Repeated, it is the independent parallel sampler. For an Ising model its stationary distribution has
a closed form: with f_i(x) = h_i + 2 sum_j J_ij x_j,
    q(x) ~ exp(sum_i h_i x_i) prod_i 2 cosh f_i(x),
because exp(h x) prod_i 2 cosh f_i(x) P(x, y) = exp(h x + h y + 2 y J x) is symmetric in x and y.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import logsumexp

from glauber.exact.blocks.masks import Block
from glauber.exact.models import Ising, check_block_size
from glauber.exact.space import Floats, Space, check_size, conditional
from glauber.exact.stationary import stationary, total_variation
from glauber.exact.transition import parallel_operator
from glauber.foundation.errors import GlauberError
from glauber.models.base import Conditionals

__all__ = [
    "ParallelStationary",
    "ProductDistance",
    "block_forms",
    "parallel_stationary",
    "parallel_stationary_of",
    "product_distance",
]

SUBSET_TOKENS = 12  # tokens of a site whose subsets are all tried; beyond that only single tokens
EXACT = 1e-12  # a distribution this near to a product is one, but for rounding


@dataclass(frozen=True)
class ProductDistance:
    """How far a distribution is from all product distributions."""

    divergence: float  # KL to the nearest product, exact: the total correlation, in nats
    at_least: float  # total variation to the nearest product, a lower bound
    at_most: float  # the same, an upper bound: to the product of the marginals

    @property
    def is_product(self) -> bool:
        """Whether it is one, but for rounding."""
        return self.at_most <= EXACT


def product_distance(distribution: Floats) -> ProductDistance:
    """The distance of a joint distribution (vocab, …, vocab), one axis per site, from products."""
    if abs(float(distribution.sum()) - 1) > 1e-9 or distribution.min() < 0:
        raise GlauberError("the joint distribution of a block must be chances that add up to 1.")
    product = np.ones(())
    for site in range(distribution.ndim):
        product = np.multiply.outer(product, _marginal(distribution, (site,)))
    seen = distribution > 0
    divergence = float((distribution[seen] * np.log(distribution[seen] / product[seen])).sum())
    pairs = (_marginal(distribution, pair) for pair in combinations(range(distribution.ndim), 2))
    return ProductDistance(
        max(divergence, 0.0),
        max((_largest_rectangle(pair) for pair in pairs), default=0.0),
        float(np.abs(distribution - product).sum() / 2),
    )


@dataclass(frozen=True)
class BlockForm:
    """One block: the distances of its joint conditional, the worst over all contexts."""

    block: Block
    worst: ProductDistance
    mean_variation: float  # TV to the product of marginals, mean over contexts under p

    @property
    def fillable(self) -> bool:
        """Whether one pass draws the block exactly, whatever the context."""
        return self.worst.is_product


def block_forms(distribution: Floats, space: Space, k: int) -> list[BlockForm]:
    """Every block of k sites under a joint distribution (size,), and what one pass costs there."""
    check_block_size(k, space.length)
    return [_form(distribution, space, block) for block in combinations(range(space.length), k)]


def _form(distribution: Floats, space: Space, block: Block) -> BlockForm:
    cube = distribution.reshape((space.vocab_size,) * space.length)
    chances = cube.sum(axis=block).reshape(-1)  # of the contexts
    # The joint conditional (vocab, …, vocab, contexts) of the block in each context.
    fills = conditional(distribution, space, block).reshape(cube.shape)
    fills = np.moveaxis(fills, block, range(len(block))).reshape(*cube.shape[: len(block)], -1)
    distances = [product_distance(fill) for fill in np.moveaxis(fills, -1, 0)]
    worst = max(distances, key=lambda distance: distance.at_most)
    mean = sum(w * d.at_most for w, d in zip(chances.tolist(), distances, strict=True))
    return BlockForm(block, worst, float(mean))


def _marginal(distribution: Floats, sites: Block) -> Floats:
    others = tuple(axis for axis in range(distribution.ndim) if axis not in sites)
    return np.asarray(distribution.sum(axis=others))


def _largest_rectangle(pair: Floats) -> float:
    """max over A, B of |q(A x B) - q(A) q(B)| for a distribution (vocab, vocab) of two sites.

    For a given A the best B is where the row sum is positive, so only A is enumerated.
    """
    apart = pair - np.outer(pair.sum(axis=1), pair.sum(axis=0))
    n = len(apart)
    sets = np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1 if n <= SUBSET_TOKENS else np.eye(n)
    sums = sets @ apart  # (sets, vocab); each adds up to 0 over B's site
    return float(np.maximum(sums, 0).sum(axis=1).max())


@dataclass(frozen=True, eq=False)
class ParallelStationary:
    """The stationary distribution (size,) of the sampler, and its distances from p: all exact."""

    distribution: Floats
    total_variation: float  # between p and distribution
    divergence: float  # KL(p || distribution), in nats
    marginal: float  # the largest total variation between the distributions of one site


def parallel_stationary(model: Ising) -> ParallelStationary:
    """The stationary distribution of the independent parallel sampler of an Ising model."""
    fields = model.fields + 2 * model.spins @ model.couplings
    log_weights = model.spins @ model.fields + np.logaddexp(fields, -fields).sum(axis=1)
    distribution = np.exp(log_weights - logsumexp(log_weights))
    return _distances_from(distribution, model.probabilities, Space(2, model.n_sites))


def parallel_stationary_of(
    conditionals: Conditionals, distribution: Floats, space: Space
) -> ParallelStationary:
    """The same for any conditionals of a joint distribution (size,), by solving for it."""
    check_size(distribution, space)
    return _distances_from(stationary(parallel_operator(conditionals, space)), distribution, space)


def _distances_from(limit: Floats, distribution: Floats, space: Space) -> ParallelStationary:
    """A stationary distribution with its distances from p."""
    seen = distribution > 0
    ratio = np.log(distribution[seen]) - np.log(np.maximum(limit[seen], np.finfo(float).tiny))
    cubes = [
        (limit - distribution).reshape(space.vocab_size**site, space.vocab_size, -1)
        for site in range(space.length)
    ]
    return ParallelStationary(
        limit,
        total_variation(limit, distribution),
        max(float((distribution[seen] * ratio).sum()), 0.0),
        max(float(np.abs(cube.sum(axis=(0, 2))).sum() / 2) for cube in cubes),
    )
