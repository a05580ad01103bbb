"""Hitting times against high precision, brute force, simulation and the full model."""

import mpmath
import numpy as np
import pytest

from glauber.exact import Space, hitting_times
from glauber.exact.blocks.dynamics import gibbs_matrix, parallel_block_matrix
from glauber.exact.blocks.masks import Masks
from glauber.exact.hitting_times import (
    arrival_distribution,
    arrival_within,
    log_arrival_within,
    log_mean_hitting_times,
    mean_hitting_times,
)
from glauber.exact.models import Clique
from glauber.foundation.errors import GlauberError
from glauber.studies.ising import race

FIGURE = dict(n_sites=10, size=4, field=5.0)


def by_mpmath(log_matrix: np.ndarray) -> float:
    """log10 of the mean from state 0 to the last one, solved in 200 digits."""
    with mpmath.workdps(200):
        n = len(log_matrix) - 1
        chances = mpmath.matrix(n, n + 1)
        for i in range(n):
            for j in range(n + 1):
                chances[i, j] = mpmath.exp(mpmath.mpf(float(log_matrix[i, j])))
        system = -chances[:, :n]
        for i in range(n):  # the diagonal of I - Q, free of cancellation
            system[i, i] = sum(chances[i, j] for j in range(n + 1) if j != i)
        return float(mpmath.log10(mpmath.lu_solve(system, mpmath.ones(n, 1))[0]))


@pytest.mark.parametrize("coupling", [0.5, 2.0, 5.0, 8.0])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 7, 10])
def test_means_of_the_figure_agree_with_two_hundred_digits(coupling, k):
    model = Clique(coupling=coupling, **FIGURE)
    logs = model.log_gibbs(k)
    found = log_mean_hitting_times(logs, model.all_ones)[0] / np.log(10)
    assert found == pytest.approx(by_mpmath(logs), rel=1e-11, abs=1e-11)
    assert mean_hitting_times(np.exp(logs), model.all_ones)[0] == pytest.approx(10**found, rel=1e-9)


def test_the_means_span_from_one_to_beyond_1e20_where_a_plain_solve_fails():
    logs = Clique(coupling=8.0, **FIGURE)
    one = logs.log_gibbs(1)
    assert log_mean_hitting_times(one, logs.all_ones)[0] / np.log(10) > 47
    assert mean_hitting_times(np.exp(logs.log_gibbs(10)), logs.all_ones)[0] == pytest.approx(
        1, abs=1e-6
    )
    inner = np.exp(one)[:-1, :-1]
    try:
        plain = np.linalg.solve(np.eye(4) - inner, np.ones(4))[0]
    except np.linalg.LinAlgError:
        plain = 0.0
    assert not 1e46 < plain < 1e48


@pytest.mark.parametrize("k", [1, 3, 5, 6])
def test_the_lumped_chain_is_the_full_one(k):
    model = Clique(6, 3, coupling=0.6, field=0.4, outside=-0.3)
    full, space = model.ising(), Space(2, 6)
    target = (full.spins[:, :3] > 0).all(axis=1)
    matrix = gibbs_matrix(full.probabilities, Masks.uniform(space, k))
    exact = mean_hitting_times(matrix, target)
    ones = (full.spins[:, :3] > 0).sum(axis=1)
    lumped = np.exp(log_mean_hitting_times(model.log_gibbs(k), model.all_ones))
    np.testing.assert_allclose(exact, lumped[ones], rtol=1e-10)
    plain = np.linalg.solve(
        np.eye((~target).sum()) - matrix.toarray()[np.ix_(~target, ~target)],
        np.ones((~target).sum()),
    )
    np.testing.assert_allclose(exact[~target], plain, rtol=1e-8)


def test_the_lumped_parallel_sampler_is_the_full_one():
    model = Clique(5, 4, coupling=0.3, field=0.2)
    full, space = model.ising(), Space(2, 5)
    target = (full.spins[:, :4] > 0).all(axis=1)
    matrix = parallel_block_matrix(full.joint(), space, 5)
    lumped = np.exp(model.log_parallel())
    np.testing.assert_allclose(lumped.sum(axis=1), 1, rtol=1e-12)
    assert mean_hitting_times(matrix, target)[0] == pytest.approx(
        mean_hitting_times(lumped, model.all_ones)[0], rel=1e-10
    )
    assert arrival_within(matrix, target, 7)[0] == pytest.approx(
        arrival_within(lumped, model.all_ones, 7)[0], rel=1e-10
    )


def test_the_distribution_adds_up_to_the_mean():
    model = Clique(6, 3, coupling=0.2, field=0.5)
    matrix = np.exp(model.log_gibbs(2))
    arrived = arrival_distribution(matrix, model.all_ones, 2000)
    np.testing.assert_allclose(arrived[37], arrival_within(matrix, model.all_ones, 37), rtol=1e-12)
    means = mean_hitting_times(matrix, model.all_ones)
    np.testing.assert_allclose((1 - arrived).sum(axis=0), means, rtol=1e-9)
    logs = log_arrival_within(model.log_gibbs(2), model.all_ones, 37)
    np.testing.assert_allclose(np.exp(logs), arrived[37], rtol=1e-10)


@pytest.mark.parametrize("n_steps", [1, 2, 37, 1000])
def test_squaring_in_logarithms_is_going_step_by_step(monkeypatch, n_steps):
    model = Clique(12, 12, coupling=1.5, field=0.01)
    logs, target = model.log_parallel(), model.all_ones
    steps = log_arrival_within(logs, target, n_steps)
    monkeypatch.setattr(hitting_times, "LOG_SQUARING_STEPS", 0)
    squared = log_arrival_within(logs, target, n_steps)
    np.testing.assert_allclose(squared, steps, rtol=1e-11, atol=1e-14)  # atol: chances near 1


def test_tiny_chances_keep_their_digits():
    """Two states, one way: 1 - (1 - p)^t is t p."""
    chance = 1e-200
    matrix = np.array([[1 - chance, chance], [0, 1]])
    target = np.array([False, True])
    assert mean_hitting_times(matrix, target)[0] == pytest.approx(1e200, rel=1e-14)
    assert arrival_within(matrix, target, 10**60)[0] == pytest.approx(1e-140, rel=1e-12)


@pytest.mark.parametrize("coupling", [0.5, 2.0])
def test_simulation_agrees_within_three_standard_errors(coupling):
    """min(steps, budget), so that chains that never came count as they should."""
    (found,) = race(couplings=[coupling], budget=200, chains=300, seed=5).races
    for runner in (*found.gibbs, found.parallel):
        seen = runner.simulated
        error = runner.budget_deviation / np.sqrt(len(seen.steps))  # the exact one
        assert abs(seen.mean - runner.budget_mean) < 3 * error + 1e-12, runner.k
        share = np.sqrt(runner.within_budget * (1 - runner.within_budget) / 300)
        assert abs(seen.arrived.mean() - runner.within_budget) < 3 * share + 1 / 300, runner.k


def test_figure_3_larger_k_is_faster_and_larger_j_slower():
    races = race(chains=0).races
    means = np.array([[runner.log10_mean for runner in one.gibbs] for one in races])
    assert (np.diff(means, axis=1) < 0).all()
    # With k = 9 or 10 the coupling hardly matters, and no longer in one direction.
    assert (np.diff(means[:, :8], axis=0) > -1e-12).all()
    assert abs(np.diff(means[:, 9])).max() < 1e-6
    assert means.max() > 20 and means[:, -1].max() < 1e-6
    # The exact chance of the parallel sampler to arrive within 1,000 steps.
    chances = [one.parallel.within_budget for one in races]
    assert chances[0] > 0.999 and 0.003 < chances[2] < 0.004 and chances[3] < 1e-20
    assert races[0].model.ferromagnet.condition.startswith("h_G = 20 is not above 30 outside")


def test_race_as_it_is_asked_for():
    found = race(couplings=[0.5, 8], blocks=[1, 10], chains=5)
    told = found.to_dict()
    slow, fast = told["races"][1]["gibbs"]
    assert slow["mean"]["log10"] > 20 and abs(fast["mean"]["log10"]) < 1e-6
    assert slow["simulated"]["arrived"] == 0 and fast["simulated"]["arrived"] == 5
    assert told["races"][1]["parallel"]["arrives_within_budget"]["value"] < 1e-20
    assert "not above 30" in told["races"][0]["condition"] and "1.34e47" in str(found)
    lines = [trace.name for trace in found.figure().data if trace.mode == "lines"]
    assert lines == ["k = 1", "k = 10", "parallel"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(blocks=[11]), "k must be from 1 to 10"),
        (dict(blocks=[0]), "k must be from 1 to 10"),
        (dict(couplings=[]), "couplings is empty"),
        (dict(couplings=[1e308]), "1e[+]308, but it must be .* at most 1e[+]06"),
        (dict(couplings=[float("nan")]), "is nan"),
        (dict(clique=12), "a clique has 12 sites"),
        (dict(sites=10**9), "more than 1,000 is not possible"),
        (dict(sites=30), "simulated chains run on at most 20"),
        (dict(budget=0), "budget is 0"),
        (dict(budget=10**12), "more than 10,000,000 is not possible"),
        (dict(chains=2), "at least 3 chains"),
        (dict(chains=-1), "chains is -1"),
        (dict(delta=0), "delta is 0"),
        (dict(seed=-1), "seed is -1"),
    ],
)
def test_bad_input_is_one_sentence(given, said):
    with pytest.raises(GlauberError, match=said):
        race(**given)
