"""L-lag couplings against the exact total variation and the exact value of their own bound."""

import numpy as np
import pytest
import torch

from glauber.exact.mixing_time import distances, mixing_time
from glauber.exact.pair_chain import pair_matrix
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.foundation.statistics import clopper_pearson
from glauber.models.table import Table
from glauber.studies.mixing.meeting import Meetings, meet

SPACE = Space(3, 3)
TABLE = Table.random(3, 3, seed=3, strength=1.2)
START = 5
N_PAIRS, HORIZON = 4000, 120


def exact_bound(lag, how, n_steps):
    """E max(0, ceil((tau - L - t)/L)) = sum over j >= 0 of P(tau > L + t + j L), from a point."""
    pairs = pair_matrix(TABLE, SPACE, how=how)
    ahead = np.zeros(SPACE.size)
    ahead[START] = 1.0
    step = transition_matrix(TABLE, SPACE)
    for _ in range(lag):
        ahead = step.T @ ahead
    law = np.zeros((SPACE.size, SPACE.size))
    law[:, START] = ahead
    apart = ~np.eye(SPACE.size, dtype=bool)
    later, law = [], law.ravel()
    while not later or later[-1] > 1e-16:
        later.append(law[apart.ravel()].sum())
        law = pairs.T @ law
    survival = np.pad(later, (0, n_steps + lag + 1))
    return np.array([survival[t::lag].sum() for t in range(n_steps + 1)])


def estimate(lag, how="maximal", n=N_PAIRS, seed=1, budget=3000):
    rows = SPACE.states()[[START] * n]
    return meet(
        TABLE,
        rows,
        rows,
        torch.ones(n, 3).bool(),
        temperature=1.0,
        seed=seed,
        steps=budget,
        lag=lag,
        coupling=how,
    )


def lagged(times, lag, met=None):
    """Meetings with a lag at known times."""
    met = np.ones(len(times), bool) if met is None else met
    return Meetings(np.array(times), np.array(met), "maximal", lag, np.empty((len(times), 0)))


@pytest.mark.parametrize("lag, how", [(1, "maximal"), (5, "maximal"), (30, "inverse-cdf")])
def test_the_bound_lies_above_the_exact_total_variation(lag, how):
    steps = np.arange(HORIZON + 1)
    exact = distances(transition_matrix(TABLE, SPACE), HORIZON, starts=[START])[:, 0]
    due = exact_bound(lag, how, HORIZON)
    assert (due >= exact - 1e-12).all()  # the theorem, without sampling
    found = estimate(lag, how)
    assert found.met.all() and found.bound_kind == "estimate of an upper bound"
    # 121 dependent comparisons: 5 standard errors, and the band where no pair is left.
    bound = found.tv_bound(steps, 0.9999)
    reach = 5 * bound.standard_error + clopper_pearson(0, N_PAIRS, 0.9999)[1]
    assert (np.abs(bound.value - due) <= reach).all()
    assert (bound.high >= exact).all()


def test_how_tight_the_bound_is():
    """A longer lag is tighter: t_mix(1/4) from the start is 6, the bounds imply 19, 17 and 13."""
    exact = mixing_time(transition_matrix(TABLE, SPACE), starts=[START]).steps
    implied = []
    for lag in (1, 5, 30):
        due = exact_bound(lag, "maximal", HORIZON)
        implied.append(int(np.flatnonzero(due > 0.25)[-1]) + 1)
        found = estimate(lag)
        assert abs(found.mixing_time(0.25) - implied[-1]) <= 1
        # The bound falls by about an eighth a step here, and two standard errors are a fifth.
        assert exact <= found.mixing_time(0.25) <= found.mixing_time_high(0.25) <= implied[-1] + 3
    assert exact == 6 and implied == [19, 17, 13]


def test_starts_may_be_drawn_from_a_law():
    """X_0 and Y_0 uniform and independent: the bound is on the law from a uniform start."""
    n = 4000
    draws = torch.randint(SPACE.size, (2, n), generator=torch.Generator().manual_seed(0))
    left, right = SPACE.states()[draws[0]], SPACE.states()[draws[1]]
    found = meet(
        TABLE,
        left,
        right,
        torch.ones(n, 3).bool(),
        temperature=1.0,
        seed=2,
        steps=3000,
        lag=4,
    )
    uniform = np.full((1, SPACE.size), 1 / SPACE.size)
    exact = distances(transition_matrix(TABLE, SPACE), 60, starts=uniform)[:, 0]
    assert (found.tv_bound(np.arange(61), 0.9999).high >= exact).all()


def test_the_lagged_chain_does_not_reuse_the_noise_of_its_first_steps():
    """Shared noise and a lag of 1: with the same words twice, Y's first step would copy X's."""
    found = estimate(1, "inverse-cdf", n=3000)
    share = float((found.times == 1).mean())
    stay = transition_matrix(TABLE, SPACE)[START, START]
    # X_1 = Y_0 exactly if X stayed.
    assert abs(share - stay) < 4 * np.sqrt(stay * (1 - stay) / 3000)
    due = exact_bound(1, "inverse-cdf", 3)
    bound = found.tv_bound(range(4))
    assert (np.abs(bound.value - due) < 5 * bound.standard_error).all()


def test_the_mean_of_the_formula_by_hand():
    found = lagged([3, 4, 9], 3)
    # (tau - L - t)/L rounded up: t=0: 0, 1, 2; t=1: 0, 0, 2; t=3: 0, 0, 1; t=6: none
    np.testing.assert_allclose(found.tv_bound([0, 1, 3, 6]).value, [1, 2 / 3, 1 / 3, 0])
    assert found.mixing_time(0.5) == 3 and found.mixing_time(0.25) == 6
    assert found.mixing_time_high(0.25) is None  # three pairs cannot say
    bound = found.tv_bound([6])
    assert bound.low[0] == 0 and bound.high[0] == pytest.approx(1 - 0.025 ** (1 / 3))
    # Of 0, 1 and 2 the mean is 1 and its error 1 / sqrt(3); Student's reach with 2 is 4.303.
    assert found.tv_bound([0]).high[0] == pytest.approx(1 + 4.3027 / 3**0.5, rel=1e-4)
    two = lagged([4, 9], 3)
    assert np.isinf(two.tv_bound([0]).high).all()  # two pairs hold nothing from above


def test_censored_pairs_are_said_to_lower_the_bound():
    short = estimate(1, n=500, budget=5)
    assert 0 < short.n_censored < 500
    kind = f"lower estimate of an upper bound: {short.n_censored} of 500"
    assert short.bound_kind.startswith(kind)
    assert short.times.max() == 6
    assert np.isinf(short.tv_bound([0, 3]).high).all() and short.mixing_time_high() is None
    late = estimate(1, n=500).tv_bound(range(20)).value
    assert (short.tv_bound(range(20)).value <= late).all()
