"""How likely is each state after a step of the other scans: in order, all at once, by doubt?"""

import numpy as np
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.exact.laws import Floats, free_sites, redraw_laws
from glauber.exact.space import Space
from glauber.exact.transition import site_matrix

DENSE_LIMIT = 2**13  # states; a dense matrix of that many takes 512 MiB


def sweep_matrix(
    conditionals: Conditionals,
    space: Space,
    *,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> Floats:
    """The dense matrix (size, size) of redrawing the free sites one by one, in increasing order.

    Laws are row vectors, so it is P_first … P_last.
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
            law = redraw_laws(conditionals, space, (site,), temperature=temperature)[:, 0]
        else:
            law = np.eye(space.vocab_size)[states[:, site]]
        matrix = (matrix[:, :, None] * law[:, None, :]).reshape(space.size, -1)
    return matrix


def least_confident_matrix(
    conditionals: Conditionals,
    space: Space,
    *,
    sharpness: float = 1.0,
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> csr_array:
    """The matrix (size, size) of redrawing one site, chosen by how much its token is doubted.

    The doubt of site i is w_i = 1 - pi_i(x_i | x_{-i}), and the site is chosen with probability
    proportional to w_i ** sharpness. With sharpness infinite it is the most doubted one (ties:
    the smallest site). Where no token is doubted, the choice is uniform.
    """
    if not sharpness >= 0:
        raise GlauberError(f"the sharpness is {sharpness}, but it must not be negative.")
    sites = free_sites(space, free)
    doubts = [_doubt(conditionals, space, site, temperature) for site in sites]
    choice = choice_probabilities(np.stack(doubts, axis=1), sharpness)
    matrix = csr_array((space.size, space.size))
    for column, site in enumerate(sites):
        redraw = site_matrix(conditionals, space, site, temperature=temperature)
        matrix = matrix + diags_array(choice[:, column]) @ redraw
    return matrix


def choice_probabilities(doubts: Floats, sharpness: float) -> Floats:
    """Probability (size, sites) of choosing each site, from its doubts (size, sites)."""
    most = doubts.max(axis=1, keepdims=True)
    if np.isinf(sharpness):
        weights = np.eye(doubts.shape[1])[doubts.argmax(axis=1)]  # argmax: the first of ties
    else:
        # Relative to the largest, so that no power of a small doubt underflows to all zeros.
        weights = (doubts / np.where(most > 0, most, 1.0)) ** sharpness
    weights = np.where(most > 0, weights, 1.0)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _doubt(conditionals: Conditionals, space: Space, site: int, temperature: float) -> Floats:
    """Probability (size,) of the other tokens, summed: 1 - p would round small doubts away."""
    laws = redraw_laws(conditionals, space, (site,), temperature=temperature)[:, 0]
    tokens = space.states().numpy()[:, site, None]
    np.put_along_axis(laws, tokens, 0.0, axis=1)
    return np.asarray(laws.sum(axis=1))


def _check_dense(space: Space) -> None:
    if space.size > DENSE_LIMIT:
        raise GlauberError(
            f"a dense matrix over {space.size:,} states does not fit; "
            f"the limit is {DENSE_LIMIT:,} states."
        )
