"""What does knowing which sites were hidden tell about them?

Where masks are chosen by looking at the state, p(x_K | x_{-K}, K) differs from p(x_K | x_{-K})
(paper B, Lemma 3); only its mean over mask events K' is the same (Lemma 4). All of it works on
floats and, with object arrays of `fractions.Fraction`, without rounding.
"""

from fractions import Fraction

import numpy as np

from glauber.exact.blocks import Anything, conditional, over_block
from glauber.exact.learning.masks import Block
from glauber.exact.space import Space


def given_mask(law: Anything, chance: Anything, space: Space, hidden: Block) -> Anything:
    """p(x_K | x_{-K}, K) (size,) for a law (size,) and the chances p_K(K | x) (size,) of K."""
    return conditional(law * chance, space, hidden)


def mean_over_events(law: Anything, chances: Anything, space: Space, hidden: Block) -> Anything:
    """E over K' ~ p(. | x_{-K}) of p(x_K | x_{-K}, K') (size,): by Lemma 4 this is p(x_K | x_{-K}).

    chances (masks, size) are p_K(K' | x) of every mask; the hidden sites stay K throughout.
    """
    inside = conditional(law, space, hidden)
    total = 0 * inside
    for chance in chances:
        event = over_block(inside * chance, space, hidden)  # p(K' | x_{-K})
        possible = event != 0
        posterior = inside * chance / np.where(possible, event, 1)
        total = total + np.where(possible, event * posterior, 0)
    return total


def paper_example() -> tuple[Anything, Anything]:
    """The law (4,) of Lemma 3 over 00, 01, 10, 11, and the chances (2, 4) of hiding site 0 or 1."""
    law = _fractions("1/2", "1/3", "1/6", "0")
    first = _fractions("1/2", "1/3", "1/4", "0")
    return law, np.stack([first, 1 - first])


def _fractions(*spelled: str) -> Anything:
    return np.array([Fraction(one) for one in spelled], dtype=object)
