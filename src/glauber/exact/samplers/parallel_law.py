"""Which law does the independent parallel sampler keep, and how far is it from p?

For an Ising model there is a closed form: with f_i(x) = h_i + 2 sum_j J_ij x_j,
    q(x) ~ exp(sum_i h_i x_i) prod_i 2 cosh f_i(x),
because exp(h x) prod_i 2 cosh f_i(x) P(x, y) = exp(h x + h y + 2 y J x) is symmetric in x and y.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.exact.ising import Ising
from glauber.exact.laws import Floats
from glauber.exact.operators import parallel_operator
from glauber.exact.space import Space
from glauber.exact.stationary import stationary, total_variation


@dataclass(frozen=True, eq=False)
class ParallelLaw:
    """The law (size,) that the sampler keeps, and its distances from p: all exact."""

    law: Floats
    total_variation: float
    divergence: float  # KL(p || law), in nats
    marginal: float  # the largest total variation between the laws of one site


def parallel_law(model: Ising) -> ParallelLaw:
    """The stationary law of the independent parallel sampler of an Ising model."""
    fields = model.fields + 2 * model.spins @ model.couplings
    log_weights = model.spins @ model.fields + np.logaddexp(fields, -fields).sum(axis=1)
    law = np.exp(log_weights - logsumexp(log_weights))
    return compared(law, model.probabilities, Space(2, model.n_sites))


def parallel_law_of(conditionals: Conditionals, law: Floats, space: Space) -> ParallelLaw:
    """The same for any conditionals of a joint law (size,), by solving for it."""
    if law.shape != (space.size,):
        raise GlauberError(f"the law has shape {law.shape}, but there are {space.size:,} states.")
    return compared(stationary(parallel_operator(conditionals, space)), law, space)


def compared(found: Floats, law: Floats, space: Space) -> ParallelLaw:
    """A law beside the one that was wanted."""
    seen = law > 0
    ratio = np.log(law[seen]) - np.log(np.maximum(found[seen], np.finfo(float).tiny))
    return ParallelLaw(
        found,
        total_variation(found, law),
        max(float((law[seen] * ratio).sum()), 0.0),
        max(_site_variation(found - law, space, site) for site in range(space.length)),
    )


def _site_variation(difference: Floats, space: Space, site: int) -> float:
    cube = difference.reshape(space.vocab_size**site, space.vocab_size, -1)
    return float(np.abs(cube.sum(axis=(0, 2))).sum() / 2)
