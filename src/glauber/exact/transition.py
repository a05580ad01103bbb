"""The matrix of one step of each scan: random, in order, all sites at once, chosen by the state.

A block of sites is hidden and filled again. Whatever the order of filling, the outcome depends
on the old state only through what stayed visible. So a block has one number per new state y,
    fill(y) = probability of drawing y's tokens in the block, given y's tokens outside it,
and P(x, y) = fill(y) where x and y agree outside the block, 0 elsewhere.

The sweep and the parallel update are dense matrices, size * size numbers. As operators, which move
a distribution without the matrix in memory, they take size * length numbers (sweep) or about
2 * size**1.5 (parallel), and a step takes as many operations or size**2.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import combinations
from operator import add
from typing import Literal

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from glauber.exact.conditionals import current_probabilities, free_sites, redraw_probabilities
from glauber.exact.space import Floats, Integers, Space, over_block
from glauber.foundation.errors import GlauberError
from glauber.models.base import Conditionals

__all__ = [
    "adaptive_matrix",
    "parallel_matrix",
    "parallel_operator",
    "site_matrix",
    "sweep_matrix",
    "sweep_operator",
    "transition_matrix",
]

Block = tuple[int, ...]
Redraw = Literal["naive", "adaptive", "conditioned"]
Measure = Literal["confidence", "entropy"]
DENSE_LIMIT = 2**13  # states; a dense matrix of that many takes 512 MiB
PARALLEL_LIMIT = 2**28  # numbers in a parallel operator: 2 GiB


def site_matrix(
    conditionals: Conditionals,
    space: Space,
    site: int,
    *,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> csr_array:
    """The matrix (size, size) of redrawing one site from its conditional; rows sum to 1."""
    if site not in free_sites(space, free):
        raise GlauberError(f"site {site} is not one of the free sites.")
    return block_matrix(space, (site,), _fill(conditionals, space, site, temperature))


def transition_matrix(
    conditionals: Conditionals,
    space: Space,
    *,
    block: int = 1,
    within: Literal["sequential", "product"] = "sequential",
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> csr_array:
    """The matrix (size, size) of redrawing a uniformly random block of free sites.

    The block's sites are hidden together. "sequential" fills them in a uniformly random order,
    each given the visible tokens and those filled before it; "product" draws them independently
    from one evaluation with all of them hidden. For block = 1 both are the chain of the paper.
    """
    sites = free_sites(space, free)
    if not 1 <= block <= len(sites):
        raise GlauberError(f"the block has {block} sites, but {len(sites)} sites are free.")
    if within not in ("sequential", "product"):
        raise GlauberError(f'within is "{within}", but it must be "sequential" or "product".')

    def current(hidden: Block) -> Floats:
        return current_probabilities(conditionals, space, hidden, temperature=temperature)

    block_fills = sequential_fills if within == "sequential" else product_fills
    fills = block_fills(current, sites, block)
    return reduce(add, (block_matrix(space, *item) for item in fills.items())) / len(fills)


def sequential_fills(
    current: Callable[[Block], Floats], sites: Sequence[int], block: int
) -> dict[Block, Floats]:
    """For every block of sites, fill (size,) with the sites drawn one after the other.

    current gives the `current_probabilities` (size, k) of hidden sites. Which of k hidden sites is
    drawn first is uniform, and the rest is a block of k - 1:
        fill_H(y) = 1/k * sum over i in H of  pi_i(y_i | y outside H) * fill_{H without i}(y).
    """
    fills: dict[Block, Floats] = {(): np.ones(())}
    for k in range(1, block + 1):
        shorter, fills = fills, {}
        for hidden in combinations(sites, k):
            others = [shorter[hidden[:slot] + hidden[slot + 1 :]] for slot in range(k)]
            terms = [first * later for first, later in zip(current(hidden).T, others, strict=True)]
            fills[hidden] = sum(terms[1:], terms[0]) / k
    return fills


def product_fills(
    current: Callable[[Block], Floats], sites: Sequence[int], block: int
) -> dict[Block, Floats]:
    """For every block of sites, fill (size,) with the sites drawn independently at once."""
    return {hidden: current(hidden).prod(axis=1) for hidden in combinations(sites, block)}


def block_matrix(space: Space, block: Block, fill: Floats) -> csr_array:
    """The matrix (size, size) whose entry x, y is fill[y] where both agree outside the block."""
    columns = space.contexts(block)[:, None] + space.offsets(block)
    starts = np.arange(space.size + 1) * columns.shape[1]
    return csr_array((fill[columns].ravel(), columns.ravel(), starts), shape=(space.size,) * 2)


def sweep_matrix(
    conditionals: Conditionals,
    space: Space,
    *,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> Floats:
    """The dense matrix (size, size) of redrawing the free sites one by one, in increasing order.

    Distributions are row vectors, so it is P_first … P_last.
    """
    _check_dense(space)
    product = np.eye(space.size)
    for site in free_sites(space, free):
        product = product @ site_matrix(conditionals, space, site, temperature=temperature)
    return product


def sweep_operator(
    conditionals: Conditionals,
    space: Space,
    *,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> LinearOperator:
    """The operator (size, size) of redrawing the free sites one by one, in increasing order.

    operator @ f is the expectation (size,) of f after a sweep, operator.T @ mu is mu a sweep later.
    """
    sites = free_sites(space, free)
    fills = {site: _fill(conditionals, space, site, temperature) for site in sites}

    def expectation(values: Floats) -> Floats:
        for site in reversed(sites):
            values = over_block(fills[site] * values.reshape(-1), space, (site,))
        return values

    def distribution_after(distribution: Floats) -> Floats:
        for site in sites:
            distribution = fills[site] * over_block(distribution.reshape(-1), space, (site,))
        return distribution

    return LinearOperator(
        (space.size,) * 2, matvec=expectation, rmatvec=distribution_after, dtype=np.float64
    )


def parallel_matrix(
    conditionals: Conditionals,
    space: Space,
    *,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> Floats:
    """The dense matrix (size, size) of redrawing all free sites at once, each given the old rest.

    P(x, y) = product over free i of pi_i(y_i | x_{-i}), if y has x's tokens at the other sites.
    Each site is hidden alone: this is not the product-form block of all sites.
    """
    _check_dense(space)
    return independent_fills(_next_tokens(conditionals, space, temperature, free), space.size)


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
    count = space.size * (space.vocab_size**cut + space.vocab_size ** (space.length - cut))
    if count > PARALLEL_LIMIT:
        raise GlauberError(
            f"a parallel operator over {space.size:,} states contains {count:,} numbers; "
            f"the limit is {PARALLEL_LIMIT:,}."
        )
    distributions = _next_tokens(conditionals, space, temperature, free)
    left = independent_fills(distributions[:cut], space.size)
    right = independent_fills(distributions[cut:], space.size)

    def expectation(values: Floats) -> Floats:
        return np.einsum("xl,xl->x", left, right @ values.reshape(left.shape[1], -1).T)

    def distribution_after(distribution: Floats) -> Floats:
        return ((left * distribution.reshape(-1, 1)).T @ right).reshape(-1)

    return LinearOperator(
        (space.size,) * 2, matvec=expectation, rmatvec=distribution_after, dtype=np.float64
    )


def independent_fills(distributions: Sequence[Floats], size: int) -> Floats:
    """The distribution (size, vocab**k) of k sites that are independent given the old state."""
    joint = np.ones((size, 1))
    for distribution in distributions:  # the first site becomes the slowest column index
        joint = (joint[:, :, None] * distribution[:, None, :]).reshape(size, -1)
    return joint


def adaptive_matrix(
    conditionals: Conditionals,
    space: Space,
    *,
    redraw: Redraw = "conditioned",
    measure: Measure = "confidence",
    sharpness: float = 1.0,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> csr_array:
    """The matrix (size, size) of redrawing one site that the state x chooses.

    Site i is chosen with c_i(x), its uncertainty to the power of sharpness, normalised: see
    `site_choice`. Then, with pi_i the conditional of the site,

    naive        v ~ pi_i(. | x_-i); a joint distribution is not preserved
    adaptive     v ~ pi_i(. | x_-i) is accepted with probability min(1, c_i(x with v) / c_i(x))
    conditioned  v ~ pi_i(v | x_-i) c_i(x with v), normalised (paper B, Definition 8)

    The last two are reversible with respect to the joint distribution of conditionals that have
    one.
    """
    if redraw not in ("naive", "adaptive", "conditioned"):
        raise GlauberError(
            f"the redraw is {redraw}, but it must be naive, adaptive or conditioned."
        )
    choices = site_choice(
        conditionals,
        space,
        measure=measure,
        sharpness=sharpness,
        temperature=temperature,
        free=free,
    )
    matrix = csr_array((space.size, space.size))
    for choice, site in zip(choices.T, free_sites(space, free), strict=True):
        fill = _fill(conditionals, space, site, temperature)
        matrix = matrix + _chosen_redraw(space, site, fill, choice, redraw)
    return matrix


def site_choice(
    conditionals: Conditionals,
    space: Space,
    *,
    measure: Measure = "confidence",
    sharpness: float = 1.0,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> Floats:
    """c_i(x) (size, free sites): the probability that each free site is the one redrawn."""
    if not sharpness >= 0:
        raise GlauberError(f"the sharpness is {sharpness}, but it must not be negative.")
    measures = {"confidence": _uncertainty, "entropy": _entropy}
    if measure not in measures:
        raise GlauberError(f"the measure is {measure}, but it must be confidence or entropy.")
    uncertainties = [
        measures[measure](
            redraw_probabilities(conditionals, space, (site,), temperature=temperature)[:, 0],
            space.states().numpy()[:, site, None],
        )
        for site in free_sites(space, free)
    ]
    return choice_probabilities(np.stack(uncertainties, axis=1), sharpness)


def choice_probabilities(uncertainties: Floats, sharpness: float) -> Floats:
    """Probability (size, sites) of choosing each site, from its uncertainties (size, sites)."""
    largest = uncertainties.max(axis=1, keepdims=True)
    if np.isinf(sharpness):
        weights = np.eye(uncertainties.shape[1])[uncertainties.argmax(axis=1)]  # first of ties
    else:
        # Relative to the largest, so that no power of a small number underflows to all zeros.
        weights = (uncertainties / np.where(largest > 0, largest, 1.0)) ** sharpness
    weights = np.where(largest > 0, weights, 1.0)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _chosen_redraw(
    space: Space, site: int, fill: Floats, choice: Floats, redraw: Redraw
) -> csr_array:
    """The part of the matrix that redraws this site; its rows sum to choice (size,)."""
    if redraw == "conditioned":
        weights = fill * choice
        total = over_block(weights, space, (site,))
        fill = np.divide(weights, total, out=fill.copy(), where=total > 0)
    moves = block_matrix(space, (site,), fill)
    if redraw != "adaptive":
        return diags_array(choice) @ moves
    row = np.repeat(np.arange(space.size), np.diff(moves.indptr))
    # fill(y) c(x) min(1, c(y) / c(x)), without the quotient
    moves.data = moves.data * np.minimum(choice[row], choice[moves.indices])
    moves.data[row == moves.indices] = 0.0
    return moves + diags_array(np.maximum(choice - moves.sum(axis=1), 0.0))


def _uncertainty(distributions: Floats, tokens: Integers) -> Floats:
    """Probability (size,) of the other tokens, summed: 1 - p would round small ones away."""
    np.put_along_axis(distributions, tokens, 0.0, axis=1)
    return np.asarray(distributions.sum(axis=1))


def _entropy(distributions: Floats, tokens: Integers) -> Floats:
    """Entropy (size,) of the site's conditional, in nats, whatever its token."""
    logs = np.log(np.where(distributions > 0, distributions, 1.0))
    return np.asarray(np.maximum(-(distributions * logs).sum(axis=1), 0.0))


def _fill(conditionals: Conditionals, space: Space, site: int, temperature: float) -> Floats:
    return current_probabilities(conditionals, space, (site,), temperature=temperature)[:, 0]


def _next_tokens(
    conditionals: Conditionals, space: Space, temperature: float, free: Tensor | None
) -> list[Floats]:
    """Probabilities (size, vocab) of each site's next token; a frozen site stays as it is."""
    sites, states = free_sites(space, free), space.states().numpy()
    return [
        redraw_probabilities(conditionals, space, (site,), temperature=temperature)[:, 0]
        if site in sites
        else np.eye(space.vocab_size)[states[:, site]]
        for site in range(space.length)
    ]


def _check_dense(space: Space) -> None:
    if space.size > DENSE_LIMIT:
        raise GlauberError(
            f"a dense matrix over {space.size:,} states does not fit; "
            f"the limit is {DENSE_LIMIT:,} states."
        )
