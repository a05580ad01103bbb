"""How does a law move under a sweep or a parallel update, without the matrix in memory?

Both kernels are dense matrices, size * size numbers. As operators they take size * length numbers
(sweep) or about 2 * size**1.5 (parallel), and a step takes as many operations or size**2.
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.exact.laws import Floats, current_probabilities, free_sites, redraw_laws
from glauber.exact.space import Space

Step = Callable[[Floats], Floats]

PARALLEL_LIMIT = 2**28  # numbers kept for a parallel operator: 2 GiB


def sweep_operator(
    conditionals: Conditionals,
    space: Space,
    *,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> LinearOperator:
    """The operator (size, size) of redrawing the free sites one by one, in increasing order.

    operator @ f is the expectation (size,) of f after a sweep, operator.T @ law the law after it.
    """
    sites = free_sites(space, free)
    fills = {
        site: current_probabilities(conditionals, space, (site,), temperature=temperature)[:, 0]
        for site in sites
    }

    def expectation(values: Floats) -> Floats:
        for site in reversed(sites):
            values = _sum_over(space, site, fills[site] * values.reshape(-1))
        return values

    def law_after(law: Floats) -> Floats:
        for site in sites:
            law = fills[site] * _sum_over(space, site, law.reshape(-1))
        return law

    return _operator(space, expectation, law_after)


def parallel_operator(
    conditionals: Conditionals,
    space: Space,
    *,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> LinearOperator:
    """The operator (size, size) of redrawing all free sites at once, each given the old rest.

    The sites are cut into two halves. Given the old state x the halves are independent,
    P(x, y) = left(x, y_left) right(x, y_right), so that a step is one product of matrices with
    size rows and about sqrt(size) columns.
    """
    cut = space.length // 2
    kept = space.size * (space.vocab_size**cut + space.vocab_size ** (space.length - cut))
    if kept > PARALLEL_LIMIT:
        raise GlauberError(
            f"a parallel operator over {space.size:,} states keeps {kept:,} numbers; "
            f"the limit is {PARALLEL_LIMIT:,}."
        )
    sites = free_sites(space, free)
    laws = [_site_law(conditionals, space, s, temperature, s in sites) for s in range(space.length)]
    left, right = _outer(laws[:cut], space.size), _outer(laws[cut:], space.size)

    def expectation(values: Floats) -> Floats:
        return np.einsum("xl,xl->x", left, right @ values.reshape(left.shape[1], -1).T)

    def law_after(law: Floats) -> Floats:
        return ((left * law.reshape(-1, 1)).T @ right).reshape(-1)

    return _operator(space, expectation, law_after)


def _site_law(
    conditionals: Conditionals, space: Space, site: int, temperature: float, is_free: bool
) -> Floats:
    """The law (size, vocab) of one site's next token; a frozen site keeps the token it has."""
    if is_free:
        return redraw_laws(conditionals, space, (site,), temperature=temperature)[:, 0]
    return np.eye(space.vocab_size)[space.states()[:, site].numpy()]


def _outer(laws: list[Floats], size: int) -> Floats:
    """The law (size, vocab**k) of k sites that are independent given the old state."""
    joint = np.ones((size, 1))
    for law in laws:  # the first site becomes the slowest column index
        joint = (joint[:, :, None] * law[:, None, :]).reshape(size, -1)
    return joint


def _sum_over(space: Space, site: int, values: Floats) -> Floats:
    """At each state the sum of values (size,) over all tokens at the site."""
    cube = values.reshape(space.vocab_size**site, space.vocab_size, -1)
    return np.broadcast_to(cube.sum(axis=1, keepdims=True), cube.shape).reshape(-1)


def _operator(space: Space, expectation: Step, law_after: Step) -> LinearOperator:
    shape = (space.size, space.size)
    return LinearOperator(shape, matvec=expectation, rmatvec=law_after, dtype=np.float64)
