"""Three bits whose conditionals no joint distribution has, worked out apart in 60 digits.

The odds of a 1 at each site, given the other two bits in the order of their sites, are small
fractions. The numbers below come from the balance equations, from powers of the matrix and from
sums over pairs of states, written with mpmath and none of the code that is tested here.
"""

import numpy as np
import pytest
import torch

from glauber import exact
from glauber.models.table import Table

ODDS = {
    0: {(0, 0): 1 / 2, (0, 1): 3, (1, 0): 2, (1, 1): 1 / 5},
    1: {(0, 0): 4, (0, 1): 1 / 3, (1, 0): 1, (1, 1): 5 / 2},
    2: {(0, 0): 1 / 4, (0, 1): 2, (1, 0): 3 / 2, (1, 1): 6},
}
STATIONARY = [
    0.12426138938984517, 0.11201183459240005, 0.12533104227547941, 0.19307780275384575,
    0.076509264586166454, 0.12784268929186697, 0.085217657177731119, 0.15574831993266509,
]  # fmt: skip
BEFORE, AFTER = 0.32045842434855563, 0.23372910825998028  # worst distance after 3 and 4 steps
ENTROPY_PRODUCTION = 0.2417994934774044  # nats per step
STEPS_TO_ONES = 16.376998133318328  # from 000 to 111, mean


@pytest.fixture(scope="module")
def matrix():
    entries = torch.zeros(3, 3, 3, 3, 2, dtype=torch.float64)
    for site, contexts in ODDS.items():
        for context, odds in contexts.items():
            place = [*context[:site], 2, *context[site:]]  # 2: the site itself is hidden
            entries[(site, *place)] = torch.tensor([0.0, np.log(odds)])
    return exact.transition_matrix(Table(entries), exact.Space(2, 3))


def test_the_stationary_distribution(matrix):
    np.testing.assert_allclose(exact.stationary(matrix), STATIONARY, rtol=1e-14)


def test_the_mixing_time_at_a_quarter(matrix):
    found = exact.mixing_time(matrix, epsilon=0.25)
    assert (found.steps, found.kind) == (4, "exact")
    assert (found.before, found.distance) == pytest.approx((BEFORE, AFTER), rel=1e-13)


def test_the_entropy_production(matrix):
    assert exact.entropy_production(matrix) == pytest.approx(ENTROPY_PRODUCTION, rel=1e-13)


def test_the_steps_from_all_zeros_to_all_ones(matrix):
    found = exact.mean_hitting_times(matrix, np.arange(8) == 7)[0]
    assert found == pytest.approx(STEPS_TO_ONES, rel=1e-13)
