"""Unbiased estimates against exact stationary means of a chain that is not reversible."""

import numpy as np
import pytest
import torch

from glauber.exact.space import Space
from glauber.exact.stationary import stationary
from glauber.exact.transition import transition_matrix
from glauber.foundation.errors import GlauberError
from glauber.models.table import Table
from glauber.studies.mixing.meeting import meet
from glauber.studies.mixing.unbiased import Unbiased, WindowSums, unbiased

SPACE = Space(3, 3)
TABLE = Table.random(3, 3, seed=3, strength=1.2)
N_PAIRS = 3000


def statistic(tokens):
    """How many 2s, whether the ends are equal, and the product of two sites: (rows, 3)."""
    return torch.stack(
        [(tokens == 2).sum(1), tokens[:, 0] == tokens[:, 2], tokens[:, 0] * tokens[:, 1]], dim=1
    )


def estimate(k, m, lag, n=N_PAIRS, steps=2000, coupling="maximal"):
    """H (pairs, 3), its mean and standard error, and the meetings."""
    rows, sums = SPACE.states()[[5] * n], WindowSums(statistic, n, k, m, lag)
    meetings = meet(
        TABLE,
        rows,
        rows,
        torch.ones(n, 3).bool(),
        temperature=1.0,
        seed=4,
        steps=max(steps, m - lag),
        coupling=coupling,
        lag=lag,
        at_least=m - lag,
        observe=sums.add,
    )
    values = sums.estimates
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(n), meetings


@pytest.mark.parametrize(
    "k, m, lag, how",
    [(0, 0, 1, "maximal"), (2, 9, 1, "maximal"), (3, 20, 4, "maximal"), (0, 6, 10, "inverse-cdf")],
)
def test_the_estimate_is_within_three_standard_errors_of_the_exact_mean(k, m, lag, how):
    law = stationary(transition_matrix(TABLE, SPACE))
    exact = law @ statistic(SPACE.states()).double().numpy()
    mean, error, meetings = estimate(k, m, lag, coupling=how)
    assert meetings.met.all()
    assert (np.abs(mean - exact) < 3 * error).all()
    # Without its correction the estimate is wrong by far more: the start would show.
    start = statistic(SPACE.states()[5:6])[0].double().numpy()
    if m == 0:
        assert (np.abs(start - exact) > 5 * error).any()


def test_a_longer_average_has_a_smaller_error():
    assert (estimate(10, 60, 10)[1] < estimate(2, 2, 1)[1] / 3).all()


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
    np.testing.assert_array_equal(estimate(3, 20, 4, n=200)[2].times, times)


def test_pairs_that_are_cut_off_are_reported_to_bias():
    meetings = estimate(0, 2, 1, n=200, steps=4)[2]
    censored = int((~meetings.met).sum())
    assert 0 < censored < 200 and (meetings.times[~meetings.met] == 5).all()
    answer = Unbiased("table", "", "h", np.zeros(200), meetings)
    assert answer.kind.startswith(f"biased estimate: {censored} of 200 pairs")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(first=3, last=2), "is 3, but it must not be after the last, 2"),
        (dict(first=-1), "first is -1"),
        (dict(lag=0), "lag is 0"),
        (dict(steps=0), "steps is 0"),
        (dict(pairs=10**9), "ask for less"),
        (dict(statistic="words"), "must be one of distinct"),
        (dict(statistic="token:zebra"), "not a token"),
    ],
)
def test_bad_arguments_are_refused(tiny_folder, options, message):
    options = dict(pairs=2, first=0, last=1, lag=1, device="cpu") | options
    with pytest.raises(GlauberError, match=message):
        unbiased(str(tiny_folder), "the cat sat", **options)


def test_the_study(tiny_folder):
    given = dict(pairs=6, temperature=20.0, steps=800, first=5, last=25, lag=3)
    model = str(tiny_folder)
    answer = unbiased(model, "the cat sat on it", device="cpu", **given)
    record = answer.to_dict()
    assert record["n_met"] == 6 and record["kind"] == "unbiased estimate"
    assert record["mean"]["value"] == pytest.approx(answer.frame().estimate.mean())
    assert "stationary mean of distinct" in str(answer)
    low, high = record["mean"]["interval"]
    assert low < record["mean"]["value"] < high
    own, built_in = (
        unbiased(model, "the cat sat on it", statistic=name, device="cpu", **given)
        for name in (len, "characters")
    )
    np.testing.assert_allclose(own.values, built_in.values)


@pytest.mark.parametrize("name", ["distinct", "token:cat"])
def test_statistics_by_name(tiny_folder, name):
    """Of a text that stands still: no step is averaged but the first."""
    given = dict(pairs=2, temperature=20.0, steps=500, first=0, last=0, lag=1, device="cpu")
    answer = unbiased(str(tiny_folder), "the cat sat on the mat", statistic=name, **given)
    assert answer.statistic == name and np.isfinite(answer.values).all()
    assert answer.mean.interval is None and "no interval" in str(answer)


def test_pairs_move_together_by_the_memory_of_their_device(monkeypatch):
    """The rows' device decides, as in `couple`; a CPU's share would make a GPU take many parts."""
    devices = []

    def record(conditionals, device="unknown"):
        devices.append(device)
        return 50

    monkeypatch.setattr("glauber.studies.mixing.meeting.pairs_at_once", record)
    estimate(0, 1, 1, n=60)
    assert devices == [torch.device("cpu")]
