"""Drift against the transition matrix; the certificate against exact hitting chances."""

import numpy as np
import pytest
import torch
from scipy.stats import binom

from glauber.exact.hitting_times import mean_hitting_times
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint, Table
from glauber.studies.metastability.drift import (
    EscapeTimes,
    LevelDrift,
    certify,
    equilibrate_others,
    escape_times,
    lower_share,
    with_copies,
)
from glauber.studies.metastability.drift import drift as study
from glauber.studies.metastability.drift import expected_change as drift


def pulling(length, strength, seed=0):
    """A random table of two tokens in which token 1 is favoured."""
    table = Table.random(2, length, seed=seed, strength=0.2)
    table.entries[..., 1] += strength
    return table


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_drift_is_the_expected_change(temperature):
    law, space = Table.random(3, 4, seed=1), Space(3, 4)
    states = space.states()
    copies = (states == 2).sum(1).numpy()
    matrix = transition_matrix(law, space, temperature=temperature)
    expected = matrix @ copies - copies
    found = drift(law, states, torch.ones(4).bool(), token=2, temperature=temperature)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_frozen_sites_do_not_drift():
    law, space = Table.random(2, 4, seed=2), Space(2, 4)
    free = torch.tensor([True, True, False, True])
    copies = (space.states() == 1).sum(1).numpy()
    expected = transition_matrix(law, space, free=free) @ copies - copies
    np.testing.assert_allclose(drift(law, space.states(), free, token=1), expected, atol=1e-12)


@pytest.mark.parametrize("bottom, depth", [(1, 2), (2, 2), (2, 3)])
def test_the_certificate_bounds_the_exact_descent(bottom, depth):
    law, space = pulling(7, 2.5), Space(2, 7)
    states = space.states()
    copies = states.sum(1).numpy()
    every = drift(law, states, torch.ones(7).bool(), token=1)
    top = bottom + depth
    levels = [LevelDrift(k, every[copies == k]) for k in range(bottom, top + 1)]
    found = certify(levels, exhaustive=True)
    assert (found.kind, found.share) == ("upper bound", 1.0)
    assert found.epsilon == every[(copies >= bottom) & (copies <= top)].min() > 0
    rate = (1 - found.epsilon) / (1 + found.epsilon)
    assert found.descent == pytest.approx(rate**depth)
    down = descent(transition_matrix(law, space).toarray(), copies, bottom, top)
    assert 0 < down <= found.descent


def descent(matrix, copies, bottom, top):
    """The largest chance from level `top` to reach `bottom` before climbing above `top`."""
    between = (copies > bottom) & (copies <= top)
    inner = matrix[np.ix_(between, between)]
    out = matrix[np.ix_(between, copies == bottom)].sum(axis=1)
    chance = np.linalg.solve(np.eye(len(inner)) - inner, out)
    return chance[copies[between] == top].max()


def test_no_certificate_without_drift():
    found = certify(
        [LevelDrift(3, np.array([0.1, 0.2])), LevelDrift(4, np.array([0.1, -0.01]))],
        exhaustive=False,
    )
    assert found.descent is None and found.kind == "estimate"
    assert [level.positive for level in found.levels] == [2, 1]
    with pytest.raises(GlauberError, match="follow one another"):
        certify([LevelDrift(3, np.ones(1)), LevelDrift(5, np.ones(1))], exhaustive=False)


def test_the_confidence_is_that_of_clopper_and_pearson():
    assert lower_share(200, 200, confidence=0.95) == pytest.approx(0.05 ** (1 / 200))
    assert round(lower_share(200, 200, confidence=0.95), 3) == 0.985
    assert lower_share(0, 200, confidence=0.95) == 0
    # At the bound, 190 or more of 200 come up with chance 5%.
    from scipy.stats import binom

    share = lower_share(190, 200, confidence=0.95)
    assert binom.sf(189, 200, share) == pytest.approx(0.05, abs=1e-9)
    one = certify([LevelDrift(k, np.full(200, 0.1)) for k in (3, 4)], exhaustive=False)
    assert one.share == pytest.approx(0.025 ** (1 / 200))
    with pytest.raises(GlauberError, match="no samples"):
        lower_share(0, 0, confidence=0.95)


def test_the_share_above_the_smallest_sample_is_covered():
    """Of 2,000 samples of 50 uniforms, the minimum has too much below it in about 5%."""
    smallest = np.random.default_rng(3).random((2000, 50)).min(axis=1)
    wrong = (1 - smallest < lower_share(50, 50, confidence=0.95)).mean()
    assert abs(wrong - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 2000)


TEXTS = torch.tensor([[9, 3, 4, 7, 5, 9], [9, 7, 6, 7, 2, 9], [9, 7, 7, 7, 7, 9]])
FREE = torch.tensor([False, True, True, True, True, False])


@pytest.mark.parametrize("count", [1, 2, 4])
def test_states_hold_exactly_that_many_copies(count):
    states = with_copies(TEXTS, FREE, token=7, count=count, samples=400, seed=1)
    assert states.shape == (400, 6)
    assert ((states[:, 1:5] == 7).sum(1) == count).all()
    assert (states[:, [0, 5]] == 9).all()
    held = (states[:, 1:5] == 7).double().mean(0)
    assert ((held - count / 4).abs() <= 4.5 * (0.25 / 400) ** 0.5).all()  # any site, evenly
    from_first = torch.isin(states[:, 1:5], torch.tensor([3, 4, 5, 7])).all(1)
    from_second = torch.isin(states[:, 1:5], torch.tensor([6, 2, 7])).all(1)
    assert (from_first | from_second).all()
    again = with_copies(TEXTS, FREE, token=7, count=count, samples=400, seed=1)
    assert torch.equal(states, again)


def test_settled_states_keep_their_copies_and_move_the_rest():
    law = Table.random(3, 4, seed=3)
    free = torch.ones(4).bool()
    before = with_copies(torch.tensor([[0, 0, 0, 0]]), free, token=2, count=2, samples=50)
    after = equilibrate_others(law, before, free, token=2, n_steps=20, temperature=2.0)
    assert torch.equal(after == 2, before == 2)
    assert (after != before).any()
    assert torch.equal(equilibrate_others(law, before, free, token=2, n_steps=0), before)


@pytest.mark.parametrize("count, samples, word", [(0, 5, "0"), (5, 5, "5"), (2, 0, "samples")])
def test_impossible_numbers_are_refused(count, samples, word):
    with pytest.raises(GlauberError, match=word):
        with_copies(TEXTS, FREE, token=7, count=count, samples=samples)


def asked(tiny_folder, texts, **how):
    how = {"token": "!", "count": 1, "length": 5, "samples": 6, "device": "cpu"} | how
    return study(str(tiny_folder), texts, **how)


def test_the_study_samples_every_level(tiny_folder, texts):
    found = asked(tiny_folder, texts, settle=3)
    answer = found.to_dict()
    assert [level["count"] for level in answer["levels"]] == [1, 2, 3]
    assert answer["kind"] == "estimate"
    assert answer["others"] == "3 chain steps from texts"
    assert answer["epsilon"] == min(one["smallest"] for one in answer["levels"])
    assert "other sites from 3 chain steps" in str(found)
    assert len(found.frame()) == 18
    shown = np.concatenate([one.y for one in found.figure().data[:3]])
    np.testing.assert_array_equal(shown, found.frame()["drift"])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (dict(token="zebra"), "'zebra' is not a single token"),
        (dict(token="the cat"), "'the cat' is not a single token"),
        (dict(token="[MASK]"), r"'\[MASK\]' is not a single token"),
        (dict(token="\udcff"), "not UTF-8"),
        (dict(token=""), "'' is not a single token"),
        (dict(count=0), "count is 0"),
        (dict(count=6), "the count is 6"),
        (dict(samples=0), "samples is 0"),
        (dict(samples=10**9), "is not possible"),
        (dict(levels=19), "19 levels above 1"),
        (dict(settle=-1), "at least 0"),
        (dict(settle=10**15), "is not possible"),
        (dict(seed=-1), "seed is -1"),
        (dict(temperature=1e-320), "at least 1e-300"),
    ],
)
def test_the_study_refuses_in_one_sentence(tiny_folder, texts, how, said):
    with pytest.raises(GlauberError, match=said):
        asked(tiny_folder, texts, **how)


def test_escape_times_are_those_of_the_exact_chain():
    """Mean times from copies alone against hitting times, and every column against the paths."""
    law, space = Joint.random(3, 4, seed=1, strength=0.5), Space(3, 4)
    matrix = transition_matrix(law, space)
    copies = (space.states() == 2).sum(1).numpy()
    begin = int(space.index(torch.full((1, 4), 2)))
    begin_at, free = torch.full((200, 4), 2), torch.ones(4).bool()
    found = escape_times(law, begin_at, free, token=2, n_steps=2000)
    assert found.escaped.all()
    for depth, mean in enumerate(found.mean_times, start=1):
        exact = mean_hitting_times(matrix, copies < 4 - depth + 1)[begin]
        error = found.times[:, depth - 1].std() / np.sqrt(200)
        assert mean.value == pytest.approx(exact, abs=4 * error)
    # Cut off: as many steps per escape, since the first escape has no memory.
    cut = escape_times(law, begin_at, free, token=2, n_steps=3)
    assert 0 < cut.n_escaped[0] < 200 and (cut.times <= 3).all()
    stay = matrix.toarray()[begin, begin]
    assert cut.mean_times[0].value == pytest.approx(1 / (1 - stay), rel=0.3)
    np.testing.assert_array_equal(cut.escaped, found.times <= 3)


@pytest.mark.parametrize("rate", [0.5, 0.0])
def test_exponential_and_linear_times_are_told_apart(rate):
    rng, depths = np.random.default_rng(0), np.arange(1, 9)
    means = 50 * np.exp(rate * depths) if rate else 50 * depths
    times = (means * rng.exponential(size=(4000, 1)).clip(0.05)).astype(int)
    found = EscapeTimes(10**6, times, np.ones_like(times, bool))
    if rate:
        assert found.growth.value == pytest.approx(rate, abs=0.01)
        assert found.exponential_less_power.interval[0] > 0
    else:
        assert found.exponential_less_power.interval[1] < 0
    few = EscapeTimes(10**6, times, times < 0)
    assert np.isnan(few.growth.value) and "0 depths" in few.growth.reason


def test_the_study_measures_escape_times(tiny_folder, texts):
    assert asked(tiny_folder, texts).escapes is None
    found = asked(tiny_folder, texts, chains=5, steps=60, temperature=2.0)
    answer = found.to_dict()["escapes"]
    assert len(answer["mean_times"]) == 5 and answer["n_steps"] == 60
    assert answer["n_escaped"] == sorted(answer["n_escaped"], reverse=True)
    assert answer["n_escaped"][0] == 5
    assert "escapes of 5 chains of 60 steps" in str(found)
    cold = asked(tiny_folder, texts, chains=2, steps=1, temperature=1e-3)
    assert "growth with the depth: not known" in str(cold)


def test_the_interval_of_a_median_is_that_of_its_order_statistics():
    level = LevelDrift(1, np.random.default_rng(0).normal(size=200))
    low, high = level.median_interval
    below = (level.drifts < low).sum(), (level.drifts <= high).sum()
    assert low < level.median < high
    assert binom.cdf(below[0] - 1, 200, 0.5) <= 0.025 and binom.sf(below[1] - 1, 200, 0.5) <= 0.025
    hits = 0
    for seed in range(300):
        low, high = LevelDrift(1, np.random.default_rng(seed).exponential(size=50)).median_interval
        hits += low < np.log(2) < high
    assert 0.93 <= hits / 300 <= 0.995
    assert LevelDrift(1, np.zeros(3)).median_interval is None
