"""Marginals and conditionals of blocks against sums written out by hand."""

import itertools

import numpy as np
import pytest

from glauber.conditionals.table import Joint
from glauber.errors import GlauberError
from glauber.exact.space import Space, conditional, log_conditional, marginal, over_block

SPACE = Space(3, 3)
LAW = Joint.random(3, 3, seed=2).probabilities().numpy()
STATES = list(itertools.product(range(3), repeat=3))


@pytest.mark.parametrize("hidden", [(0,), (2,), (0, 2), (0, 1, 2)])
def test_conditionals(hidden):
    seen = [s for s in range(3) if s not in hidden]
    for number, state in enumerate(STATES):
        alike = [LAW[m] for m, x in enumerate(STATES) if all(x[s] == state[s] for s in seen)]
        assert conditional(LAW, SPACE, hidden)[number] == pytest.approx(LAW[number] / sum(alike))
    logs = np.log(LAW) + 800  # weights that overflow if they are not kept as logarithms
    np.testing.assert_allclose(
        np.exp(log_conditional(logs, SPACE, hidden)), conditional(LAW, SPACE, hidden), rtol=1e-12
    )


def test_a_weight_of_zero_and_many_laws_at_once():
    logs = np.log(LAW)
    logs[:9] = -np.inf  # all states with token 0 at site 0
    found = log_conditional(np.stack([logs, np.log(LAW)]), SPACE, (1, 2))
    assert np.isneginf(found[0, :9]).all()
    np.testing.assert_allclose(np.exp(found[0, 9:18]).sum(), 1)
    np.testing.assert_allclose(found[1], log_conditional(np.log(LAW), SPACE, (1, 2)))
    assert over_block(LAW, SPACE, (1,), np.maximum)[4] == max(LAW[1], LAW[4], LAW[7])


def test_marginals_keep_the_order_of_the_sites():
    found = marginal(LAW, SPACE, (2, 0)).reshape(3, 3)
    for a, b in itertools.product(range(3), repeat=2):
        by_hand = sum(LAW[m] for m, x in enumerate(STATES) if (x[2], x[0]) == (a, b))
        assert found[a, b] == pytest.approx(by_hand)
    with pytest.raises(GlauberError, match="outside 0 to 2"):
        marginal(LAW, SPACE, (3,))
    with pytest.raises(GlauberError, match="each one once"):
        marginal(LAW, SPACE, (1, 1))
