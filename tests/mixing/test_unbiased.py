"""Unbiased estimates against exact stationary means of a chain that is not reversible."""

import numpy as np
import pytest
import torch

from glauber.conditionals.table import Table
from glauber.errors import GlauberError
from glauber.exact.space import Space
from glauber.exact.stationary import stationary
from glauber.exact.transition import transition_matrix
from glauber.mixing.meeting import meet, unbiased_mean
from glauber.mixing.unbiased import unbiased

SPACE = Space(3, 3)
TABLE = Table.random(3, 3, seed=3, strength=1.2)
N_PAIRS = 3000


def statistic(tokens):
    """How many 2s, whether the ends are equal, and the product of two sites: (rows, 3)."""
    return torch.stack(
        [(tokens == 2).sum(1), tokens[:, 0] == tokens[:, 2], tokens[:, 0] * tokens[:, 1]], dim=1
    )


def estimate(k, m, lag, n=N_PAIRS, budget=2000, how="maximal", **more):
    rows = SPACE.states()[[5] * n]
    return unbiased_mean(
        TABLE,
        rows,
        rows,
        torch.ones(n, 3).bool(),
        statistic=statistic,
        temperature=1.0,
        seed=4,
        steps=budget,
        first=k,
        last=m,
        lag=lag,
        coupling=how,
        **more,
    )


@pytest.mark.parametrize(
    "k, m, lag, how",
    [(0, 0, 1, "maximal"), (2, 9, 1, "maximal"), (3, 20, 4, "maximal"), (0, 6, 10, "inverse-cdf")],
)
def test_the_estimate_is_within_three_standard_errors_of_the_exact_mean(k, m, lag, how):
    law = stationary(transition_matrix(TABLE, SPACE))
    exact = law @ statistic(SPACE.states()).double().numpy()
    found = estimate(k, m, lag, how=how)
    assert found.meetings.met.all() and found.kind == "unbiased estimate"
    assert (np.abs(found.mean - exact) < 3 * found.standard_error).all()
    # Without its correction the estimate is wrong by far more: the start would show.
    start = statistic(SPACE.states()[5:6])[0].double().numpy()
    if m == 0:
        assert (np.abs(start - exact) > 5 * found.standard_error).any()


def test_a_longer_average_has_a_smaller_error():
    short, long = estimate(2, 2, 1), estimate(10, 60, 10)
    assert (long.standard_error < short.standard_error / 3).all()


def test_the_same_pairs_meet_as_in_a_lagged_coupling():
    rows = SPACE.states()[[5] * 200]
    times = meet(
        TABLE,
        rows,
        rows,
        torch.ones(200, 3).bool(),
        temperature=1.0,
        seed=4,
        steps=2000,
        lag=4,
    ).times
    np.testing.assert_array_equal(estimate(3, 20, 4, n=200).meetings.times, times)


def test_a_budget_that_cuts_pairs_off_is_said_to_bias():
    found = estimate(0, 2, 1, n=200, budget=4)
    times, met = found.meetings.times, found.meetings.met
    censored = int((~met).sum())
    assert 0 < censored < 200 and (times[~met] == 5).all()
    assert found.kind.startswith(f"biased estimate: {censored} of 200 pairs")


@pytest.mark.parametrize(
    "k, m, lag, budget, sentence",
    [
        (3, 2, 1, 9, "is 3, but it must not be after the last, 2"),
        (-1, 2, 1, 9, "first step is -1"),
        (0, 0, 0, 9, "lag is 0"),
        (0, 0, 1, 0, "number of steps is 0"),
    ],
)
def test_impossible_numbers_are_refused(k, m, lag, budget, sentence):
    with pytest.raises(GlauberError, match=sentence):
        estimate(k, m, lag, n=2, budget=budget)


def test_the_study(tiny_folder):
    given = dict(pairs=6, temperature=20.0, steps=800, first=5, last=25, lag=3)
    found = unbiased(str(tiny_folder), "the cat sat on it", device="cpu", **given)
    told = found.to_dict()
    assert told["met"] == 6 and told["mean"]["kind"] == "unbiased estimate"
    assert told["mean"]["value"] == pytest.approx(found.frame().estimate.mean())
    assert "stationary mean of distinct" in str(found)
    low, high = told["mean"]["interval"]
    assert low < told["mean"]["value"] < high
    own = unbiased(str(tiny_folder), "the cat sat on it", statistic=len, device="cpu", **given)
    built_in = unbiased(
        str(tiny_folder), "the cat sat on it", statistic="characters", device="cpu", **given
    )
    np.testing.assert_allclose(own.values, built_in.values)


def test_statistics_by_name(tiny_folder):
    """Of a text that stands still: no step is averaged but the first."""
    given = dict(pairs=2, temperature=20.0, steps=500, first=0, last=0, lag=1, device="cpu")
    model, values = str(tiny_folder), {}
    for name in ("distinct", "token:cat"):
        found = unbiased(model, "the cat sat on the mat", statistic=name, **given)
        values[name] = found
        assert found.statistic == name and np.isfinite(found.values).all()
        assert found.to_dict()["mean"]["interval"] is None and "no interval" in str(found)
    for name, why in (("words", "must be one of distinct"), ("token:zebra", "not a token")):
        with pytest.raises(GlauberError, match=why):
            unbiased(model, "the cat sat", statistic=name, **given)
    with pytest.raises(GlauberError, match="ask for less"):
        unbiased(model, "the cat sat", **given | {"pairs": 10**9})


def test_pairs_move_together_by_the_memory_of_their_device(monkeypatch):
    """The rows' device decides, as in `couple`; a CPU's share would make a GPU take many parts."""
    devices = []

    def record(conditionals, device="unknown"):
        devices.append(device)
        return 50

    monkeypatch.setattr("glauber.mixing.meeting.pairs_at_once", record)
    estimate(0, 1, 1, n=60)
    assert devices == [torch.device("cpu")]
