"""Which chain belongs to a law and a law of masks? The weighted or adaptive block dynamics.

P(x, x') = sum over K of p_K(K|x) p(x'_K | x_{-K}, K). It is reversible with respect to p. It
forgets X given (X_{-K}, K) and draws it again, so in L2(p) it is A A* with A* f = E[f | X_{-K}, K],
and none of its eigenvalues is negative. Functions of K alone are not part of it.
"""

import numpy as np
from scipy.sparse.linalg import LinearOperator

from glauber.exact.blocks import check_law, over_block
from glauber.exact.laws import Floats
from glauber.exact.learning.masks import Masks
from glauber.exact.learning.pseudolikelihood import mask_log_conditional


def mask_laws(law: Floats, masks: Masks) -> Floats:
    """p(x_K | x_{-K}, K) (masks, size) at each state."""
    check_law(law, masks.space)
    logs = np.log(law)
    return np.exp([mask_log_conditional(logs, masks, slot) for slot in range(len(masks.hidden))])


def expectation(values: Floats, laws: Floats, masks: Masks) -> Floats:
    """E[f | X_{-K}, K] (masks, size) of values f (size,), under laws as mask_laws gives them."""
    rows = zip(laws, masks.hidden, strict=True)
    return np.stack([over_block(law * values, masks.space, hidden) for law, hidden in rows])


def block_chain(law: Floats, masks: Masks) -> LinearOperator:
    """P as an operator (size, size): P @ f is the mean of f after a step, P.T @ r the law after."""
    laws = mask_laws(law, masks)

    def mean_after(values: Floats) -> Floats:  # (size,) or (size, columns)
        total = np.zeros(values.T.shape)
        for slot, hidden in enumerate(masks.hidden):
            mean = over_block(laws[slot] * values.T, masks.space, hidden)
            total += masks.chances[slot] * mean
        return total.T

    def law_after(start: Floats) -> Floats:
        total = np.zeros(start.T.shape)
        for slot, hidden in enumerate(masks.hidden):
            there = over_block(masks.chances[slot] * start.T, masks.space, hidden)
            total += laws[slot] * there
        return total.T

    return LinearOperator(
        (masks.space.size,) * 2, matvec=mean_after, rmatvec=law_after, matmat=mean_after,
        rmatmat=law_after, dtype=np.float64,
    )  # fmt: skip
