"""The chain of pairs of two coupled chains, enumerated: exact meeting times and distances.

A pair of states (x, y) has the number x * size + y. One step picks a free site for both, and draws
the two tokens from a joint distribution J(a, b) whose sums are the two conditionals p and q:

maximal      J(a, b) = [a = b] min(p_a, q_a) + (p_a - min)(q_b - min) / TV(p, q)
inverse-cdf  J(a, b) = length of the overlap of a's interval under p and b's under q, the tokens
             laid out on [0, 1] by decreasing probability, equals by number
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from glauber.exact.conditionals import free_sites, redraw_probabilities
from glauber.exact.hitting_times import mean_hitting_times
from glauber.exact.space import Floats, Space
from glauber.foundation.errors import GlauberError
from glauber.models.base import Conditionals

__all__ = ["mean_distances", "mean_meeting_times", "pair_matrix"]

ENTRIES_LIMIT = 2**26  # of the matrix before equal entries are added up: about 1 GiB

# distributions p, q (rows, vocab) -> joint distributions (rows, vocab, vocab)
Joint = Callable[[Floats, Floats], Floats]


def pair_matrix(
    conditionals: Conditionals,
    space: Space,
    *,
    how: str = "maximal",
    temperature: float = 1.0,
    free: Tensor | None = None,
) -> csr_array:
    """The matrix (size**2, size**2) of one step of a pair of coupled chains."""
    joints: dict[str, Joint] = {"maximal": maximal_joint, "inverse-cdf": inverse_cdf_joint}
    if how not in joints:
        raise GlauberError(f"the coupling is {how}, but it must be one of {', '.join(joints)}.")
    sites = free_sites(space, free)
    entries = len(sites) * (space.size * space.vocab_size) ** 2
    if entries > ENTRIES_LIMIT:
        raise GlauberError(
            f"the pairs of {space.size:,} states need {entries:,} entries; "
            f"the limit is {ENTRIES_LIMIT:,}."
        )
    total = csr_array((space.size**2,) * 2, dtype=np.float64)
    for site in sites:
        fills = redraw_probabilities(conditionals, space, (site,), temperature=temperature)
        total = total + _site_matrix(space, site, fills[:, 0], joints[how])
    return total / len(sites)


def maximal_joint(p: Floats, q: Floats) -> Floats:
    """The maximal coupling (rows, vocab, vocab) whose residuals are independent."""
    common = np.minimum(p, q)
    apart = 1 - common.sum(axis=1)
    # Where p = q the residuals are rounding at most, and their product is nothing.
    over = np.where(apart > 1e-15, apart, 1.0)[:, None, None]
    joint = (p - common)[:, :, None] * (q - common)[:, None, :] / over
    token = np.arange(p.shape[1])
    joint[:, token, token] += common
    return joint


def inverse_cdf_joint(p: Floats, q: Floats) -> Floats:
    """The joint distribution (rows, vocab, vocab) of two tokens drawn with one uniform number."""
    low_p, high_p = _intervals(p)
    low_q, high_q = _intervals(q)
    low = np.maximum(low_p[:, :, None], low_q[:, None, :])
    high = np.minimum(high_p[:, :, None], high_q[:, None, :])
    return np.asarray(np.maximum(high - low, 0.0))


def mean_meeting_times(matrix: csr_array, space: Space) -> Floats:
    """The exact mean number of steps until a pair meets (size, size), 0 where x = y.

    The hitting times of the diagonal.
    """
    met = np.eye(space.size, dtype=bool).ravel()
    return mean_hitting_times(matrix, met).reshape(space.size, space.size)


def mean_distances(matrix: csr_array, space: Space, n_steps: int) -> Floats:
    """The exact mean Hamming distance (n_steps + 1, size, size) after 0, 1, … steps from (x, y)."""
    states = space.states().numpy()
    expected = (states[:, None] != states[None]).sum(axis=2).astype(np.float64).ravel()
    result = np.empty((n_steps + 1, space.size**2))
    for time in range(n_steps + 1):
        result[time] = expected
        expected = matrix @ expected
    return result.reshape(n_steps + 1, space.size, space.size)


def _intervals(distribution: Floats) -> tuple[Floats, Floats]:
    """Where each token's interval begins and ends (rows, vocab)."""
    order = np.argsort(-distribution, axis=1, kind="stable")
    ends = np.cumsum(np.take_along_axis(distribution, order, axis=1), axis=1)
    ends[:, -1] = 1.0
    starts = np.concatenate([np.zeros((len(distribution), 1)), ends[:, :-1]], axis=1)
    low, high = np.empty_like(distribution), np.empty_like(distribution)
    np.put_along_axis(low, order, starts, axis=1)
    np.put_along_axis(high, order, ends, axis=1)
    return low, high


def _site_matrix(space: Space, site: int, distributions: Floats, joint: Joint) -> csr_array:
    """The matrix (size**2, size**2) of redrawing that site in both; distributions (size, vocab)."""
    size = space.size
    after = space.contexts((site,))[:, None] + space.offsets((site,))  # (size, vocab)
    values, columns = [], []
    for x in range(size):
        present = np.broadcast_to(distributions[x], distributions.shape)
        values.append(joint(present, distributions).ravel())
        columns.append((after[x][None, :, None] * size + after[:, None, :]).ravel())
    starts = np.arange(size**2 + 1) * space.vocab_size**2
    data = (np.concatenate(values), np.concatenate(columns), starts)
    return csr_array(data, shape=(size**2, size**2))
