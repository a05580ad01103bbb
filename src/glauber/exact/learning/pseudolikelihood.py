"""How well does a law predict the hidden sites? The pseudolikelihood, its slope and curvature.

L(theta) = - sum over pairs (K, x) of seen(K, x) log p_theta(x_K | x_{-K}, K), where
    p_theta(x_K | x_{-K}, K) = p_theta(x) p_K(K|x) / sum over x'_K of the same.
For fixed masks p_K cancels and this is p_theta(x_K | x_{-K}). Paper B, weighted, k-site and
adaptive pseudolikelihood. With E and Cov under that conditional law:
    gradient = - sum seen (T(x) - E[T]),     Hessian = sum seen Cov[T],    score = T(x) - E[T].
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from glauber.errors import GlauberError
from glauber.exact.blocks import log_conditional, over_block
from glauber.exact.laws import Floats
from glauber.exact.learning.family import Family
from glauber.exact.learning.masks import Masks, uniform_masks


@dataclass(frozen=True, eq=False)
class Pseudolikelihood:
    """A family and the law of the masks. theta is (…, d), seen is (…, masks, size)."""

    family: Family
    masks: Masks

    def __post_init__(self) -> None:
        if self.family.space != self.masks.space:
            raise GlauberError("the family and the masks are over different spaces.")

    @classmethod
    def of_size(cls, family: Family, k: int) -> Self:
        """The k-site pseudolikelihood; k = N is maximum likelihood."""
        return cls(family, uniform_masks(family.space, k))

    def log_conditional(self, theta: Floats, slot: int) -> Floats:
        """log p_theta(x_K | x_{-K}, K) (…, size) for the mask of that number."""
        return mask_log_conditional(self.family.log_weights(theta), self.masks, slot)

    def loss(self, theta: Floats, seen: Floats) -> Floats:
        """L (…)."""
        total = np.zeros(seen.shape[:-2])
        for slot in range(len(self.masks.hidden)):
            logs = self.log_conditional(theta, slot)
            weight = seen[..., slot, :]
            total = total - (weight * np.where(weight > 0, logs, 0.0)).sum(axis=-1)
        return np.asarray(total)

    def gradient(self, theta: Floats, seen: Floats) -> Floats:
        """The gradient (…, d): mean of T after one redraw of a mask, less its mean before."""
        space, moved = self.family.space, np.zeros((*seen.shape[:-2], self.family.space.size))
        for slot, hidden in enumerate(self.masks.hidden):
            context = over_block(seen[..., slot, :], space, hidden)
            moved = moved + context * np.exp(self.log_conditional(theta, slot))
        return np.asarray((moved - seen.sum(axis=-2)) @ self.family.statistics.T)

    def hessian(self, theta: Floats, seen: Floats) -> Floats:
        """The Hessian (…, d, d)."""
        d, space = self.family.n_parameters, self.family.space
        total = np.zeros((*seen.shape[:-2], d, d))
        for slot, hidden in enumerate(self.masks.hidden):
            law = np.exp(self.log_conditional(theta, slot))
            weight = over_block(seen[..., slot, :], space, hidden) * law
            apart = self._apart(law, hidden)
            total += (apart * weight[..., None, :]) @ apart.swapaxes(-1, -2)
        return total

    def score(self, theta: Floats, slot: int) -> Floats:
        """grad log p_theta(x_K | x_{-K}, K) (…, d, size) for the mask of that number."""
        return self._apart(np.exp(self.log_conditional(theta, slot)), self.masks.hidden[slot])

    def _apart(self, law: Floats, hidden: tuple[int, ...]) -> Floats:
        """T - E[T] (…, d, size) under a conditional law (…, size) of the hidden sites."""
        means = over_block(law[..., None, :] * self.family.statistics, self.family.space, hidden)
        return np.asarray(self.family.statistics - means)


def mask_log_conditional(log_weights: Floats, masks: Masks, slot: int) -> Floats:
    """log p(x_K | x_{-K}, K) (…, size) of any law, given as log weights (…, size)."""
    if masks.adaptive:
        with np.errstate(divide="ignore"):  # a chance of zero is a weight of zero
            log_weights = log_weights + np.log(masks.chances[slot])
    return log_conditional(log_weights, masks.space, masks.hidden[slot])
