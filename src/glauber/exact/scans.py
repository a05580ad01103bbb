"""How likely is each state after a step of the other scans: in order, all at once, by the state?

The sweep and the parallel update are dense matrices, size * size numbers. As operators, which move
a distribution without the matrix in memory, they take size * length numbers (sweep) or about
2 * size**1.5 (parallel), and a step takes as many operations or size**2.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.exact.conditionals import current_probabilities, free_sites, redraw_probabilities
from glauber.exact.space import Floats, Space, over_block
from glauber.exact.transition import block_matrix, site_matrix

Redraw = Literal["naive", "adaptive", "conditioned"]
Measure = Literal["confidence", "entropy"]
DENSE_LIMIT = 2**13  # states; a dense matrix of that many takes 512 MiB


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


def parallel_matrix(
    conditionals: Conditionals,
    space: Space,
    *,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> Floats:
    """The dense matrix (size, size) of redrawing all free sites at once, each given the old rest.

    P(x, y) = product over free i of pi_i(y_i | x_{-i}), if y holds x's tokens at the other sites.
    Each site is hidden alone: this is not the product-form block of all sites.
    """
    _check_dense(space)
    sites = free_sites(space, free)
    states = space.states().numpy()
    matrix = np.ones((space.size, 1))
    for site in range(space.length):  # site 0 first, so that it becomes the slowest column index
        if site in sites:
            distribution = redraw_probabilities(
                conditionals, space, (site,), temperature=temperature
            )[:, 0]
        else:
            distribution = np.eye(space.vocab_size)[states[:, site]]
        matrix = (matrix[:, :, None] * distribution[:, None, :]).reshape(space.size, -1)
    return matrix


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
    `uncertainties` and `choice_probabilities`. Then, with pi_i the conditional of the site,

    naive        v ~ pi_i(. | x_-i); a joint law is not kept
    adaptive     v ~ pi_i(. | x_-i) is accepted with chance min(1, c_i(x with v) / c_i(x))
    conditioned  v ~ pi_i(v | x_-i) c_i(x with v), normalised (paper B, Definition 8)

    The last two are reversible with respect to the joint law of conditionals that have one.
    """
    chosen = site_choice(
        conditionals, space, measure=measure, sharpness=sharpness, temperature=temperature,
        free=free,
    )  # fmt: skip
    matrix = csr_array((space.size, space.size))
    for choice, site in zip(chosen.T, free_sites(space, free), strict=True):
        fill = current_probabilities(conditionals, space, (site,), temperature=temperature)[:, 0]
        matrix = matrix + _site_step(space, site, fill, choice, redraw)
    return matrix


def least_confident_matrix(
    conditionals: Conditionals,
    space: Space,
    *,
    sharpness: float = 1.0,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> csr_array:
    """The naive matrix (size, size) by confidence: no joint law is kept."""
    return adaptive_matrix(
        conditionals, space, redraw="naive", sharpness=sharpness, temperature=temperature, free=free
    )


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
    found = {"confidence": _uncertainty, "entropy": _entropy}
    if measure not in found:
        raise GlauberError(f"the measure is {measure}, but it must be confidence or entropy.")
    sites = free_sites(space, free)
    unsure = [found[measure](conditionals, space, site, temperature) for site in sites]
    return choice_probabilities(np.stack(unsure, axis=1), sharpness)


def _site_step(space: Space, site: int, fill: Floats, choice: Floats, redraw: Redraw) -> csr_array:
    """The part of the matrix that redraws this site; its rows sum to choice (size,)."""
    if redraw == "naive":
        return diags_array(choice) @ block_matrix(space, (site,), fill)
    if redraw == "conditioned":
        weights = fill * choice
        total = over_block(weights, space, (site,))
        given = np.divide(weights, total, out=fill.copy(), where=total > 0)
        return diags_array(choice) @ block_matrix(space, (site,), given)
    if redraw != "adaptive":
        raise GlauberError(
            f"the redraw is {redraw}, but it must be naive, adaptive or conditioned."
        )
    moves = block_matrix(space, (site,), fill)
    row = np.repeat(np.arange(space.size), np.diff(moves.indptr))
    # fill(y) c(x) min(1, c(y) / c(x)), without the quotient
    moves.data = moves.data * np.minimum(choice[row], choice[moves.indices])
    moves.data[row == moves.indices] = 0.0
    return moves + diags_array(np.maximum(choice - moves.sum(axis=1), 0.0))


def choice_probabilities(uncertainties: Floats, sharpness: float) -> Floats:
    """Probability (size, sites) of choosing each site, from its uncertainties (size, sites)."""
    most = uncertainties.max(axis=1, keepdims=True)
    if np.isinf(sharpness):
        first = uncertainties.argmax(axis=1)  # of ties
        weights = np.eye(uncertainties.shape[1])[first]
    else:
        # Relative to the largest, so that no power of a small number underflows to all zeros.
        weights = (uncertainties / np.where(most > 0, most, 1.0)) ** sharpness
    weights = np.where(most > 0, weights, 1.0)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _uncertainty(conditionals: Conditionals, space: Space, site: int, temperature: float) -> Floats:
    """Probability (size,) of the other tokens, summed: 1 - p would round small ones away."""
    distributions = redraw_probabilities(conditionals, space, (site,), temperature=temperature)[
        :, 0
    ]
    tokens = space.states().numpy()[:, site, None]
    np.put_along_axis(distributions, tokens, 0.0, axis=1)
    return np.asarray(distributions.sum(axis=1))


def _entropy(conditionals: Conditionals, space: Space, site: int, temperature: float) -> Floats:
    """Entropy (size,) of the site's conditional, in nats."""
    given = redraw_probabilities(conditionals, space, (site,), temperature=temperature)[:, 0]
    logs = np.log(np.where(given > 0, given, 1.0))
    return np.asarray(np.maximum(-(given * logs).sum(axis=1), 0.0))


def _check_dense(space: Space) -> None:
    if space.size > DENSE_LIMIT:
        raise GlauberError(
            f"a dense matrix over {space.size:,} states does not fit; "
            f"the limit is {DENSE_LIMIT:,} states."
        )


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

    operator @ f is the expectation (size,) of f after a sweep, operator.T @ mu is mu a sweep later.
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

    def distribution_after(distribution: Floats) -> Floats:
        for site in sites:
            distribution = fills[site] * _sum_over(space, site, distribution.reshape(-1))
        return distribution

    return _operator(space, expectation, distribution_after)


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
    distributions = [
        _site_probabilities(conditionals, space, s, temperature, s in sites)
        for s in range(space.length)
    ]
    left, right = _outer(distributions[:cut], space.size), _outer(distributions[cut:], space.size)

    def expectation(values: Floats) -> Floats:
        return np.einsum("xl,xl->x", left, right @ values.reshape(left.shape[1], -1).T)

    def distribution_after(distribution: Floats) -> Floats:
        return ((left * distribution.reshape(-1, 1)).T @ right).reshape(-1)

    return _operator(space, expectation, distribution_after)


def _site_probabilities(
    conditionals: Conditionals, space: Space, site: int, temperature: float, is_free: bool
) -> Floats:
    """Probabilities (size, vocab) of one site's next token; a frozen site keeps its token."""
    if is_free:
        return redraw_probabilities(conditionals, space, (site,), temperature=temperature)[:, 0]
    return np.eye(space.vocab_size)[space.states()[:, site].numpy()]


def _outer(distributions: list[Floats], size: int) -> Floats:
    """The distribution (size, vocab**k) of k sites that are independent given the old state."""
    joint = np.ones((size, 1))
    for distribution in distributions:  # the first site becomes the slowest column index
        joint = (joint[:, :, None] * distribution[:, None, :]).reshape(size, -1)
    return joint


def _sum_over(space: Space, site: int, values: Floats) -> Floats:
    """At each state the sum of values (size,) over all tokens at the site."""
    cube = values.reshape(space.vocab_size**site, space.vocab_size, -1)
    return np.broadcast_to(cube.sum(axis=1, keepdims=True), cube.shape).reshape(-1)


def _operator(space: Space, expectation: Step, distribution_after: Step) -> LinearOperator:
    shape = (space.size, space.size)
    return LinearOperator(shape, matvec=expectation, rmatvec=distribution_after, dtype=np.float64)
