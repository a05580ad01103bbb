"""Which transitions can a filler that works in one pass implement? (propositions 2 and 3)

A pass gives each hidden site its own law, so the tokens drawn are independent: product laws and
nothing else. The nearest product to a law q in KL(q || r) is the product of its marginals, at the
total correlation. In total variation there is no formula; it lies between two numbers:
    max over sets A, B of |q(A x B) - q(A) q(B)|  <=  distance  <=  TV(q, product of marginals).
The left side holds because r(A x B) - r(A) r(B) is 0 for a product, and moves by at most the
total variation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.samplers.kernels import joint_fill
from glauber.exact.samplers.masks import Block, check_block
from glauber.exact.space import Space

SETS = 12  # tokens of a site whose subsets are all tried; beyond that only single tokens
EXACT = 1e-12  # a law this near to a product is one, but for rounding


@dataclass(frozen=True)
class ProductDistance:
    """How far a law is from all product laws."""

    divergence: float  # KL to the nearest product, exact: the total correlation, in nats
    at_least: float  # total variation to the nearest product, a lower bound
    at_most: float  # the same, an upper bound: to the product of the marginals

    @property
    def is_product(self) -> bool:
        return self.at_most <= EXACT


def product_distance(law: Floats) -> ProductDistance:
    """The distance of a joint law (vocab, …, vocab), one axis per site, from the product laws."""
    if abs(float(law.sum()) - 1) > 1e-9 or law.min() < 0:
        raise GlauberError("the joint law of a block must be chances that add up to 1.")
    product = np.ones(())
    for site in range(law.ndim):
        product = np.multiply.outer(product, _marginal(law, (site,)))
    seen = law > 0
    divergence = float((law[seen] * np.log(law[seen] / product[seen])).sum())
    pairs = (_marginal(law, pair) for pair in combinations(range(law.ndim), 2))
    return ProductDistance(
        max(divergence, 0.0),
        max((_largest_rectangle(pair) for pair in pairs), default=0.0),
        float(np.abs(law - product).sum() / 2),
    )


@dataclass(frozen=True)
class BlockForm:
    """One block: the distances of its joint conditional, the worst over all contexts."""

    block: Block
    worst: ProductDistance
    mean_variation: float  # TV to the product of marginals, mean over contexts under the law

    @property
    def fillable(self) -> bool:
        """Whether one pass draws the block exactly, whatever stands around it."""
        return self.worst.is_product


def block_forms(law: Floats, space: Space, k: int) -> list[BlockForm]:
    """Every block of k sites under a joint law (size,), and what one pass costs there."""
    check_block(k, space.length)
    return [_form(law, space, block) for block in combinations(range(space.length), k)]


def _form(law: Floats, space: Space, block: Block) -> BlockForm:
    cube = law.reshape((space.vocab_size,) * space.length)
    chances = cube.sum(axis=block).reshape(-1)  # of the contexts
    found = [product_distance(one) for one in _contexts(law, space, block)]
    worst = max(found, key=lambda one: one.at_most)
    mean = sum(w * one.at_most for w, one in zip(chances.tolist(), found, strict=True))
    return BlockForm(block, worst, float(mean))


def _contexts(law: Floats, space: Space, block: Block) -> Iterator[Floats]:
    """The joint conditional (vocab, …, vocab) of the block in each context."""
    shape = (space.vocab_size,) * space.length
    fill = np.moveaxis(joint_fill(law, space, block).reshape(shape), block, range(len(block)))
    columns = fill.reshape(*shape[: len(block)], -1)
    for context in range(columns.shape[-1]):
        yield columns[..., context]


def _marginal(law: Floats, sites: Block) -> Floats:
    others = tuple(axis for axis in range(law.ndim) if axis not in sites)
    return np.asarray(law.sum(axis=others))


def _largest_rectangle(pair: Floats) -> float:
    """max over A, B of |q(A x B) - q(A) q(B)| for a law (vocab, vocab) of two sites.

    For a given A the best B is where the row sum is positive, so only A is enumerated.
    """
    apart = pair - np.outer(pair.sum(axis=1), pair.sum(axis=0))
    n = len(apart)
    sets = np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1 if n <= SETS else np.eye(n)
    sums = sets @ apart  # (sets, vocab); each adds up to 0 over B's site
    return float(np.maximum(sums, 0).sum(axis=1).max())
