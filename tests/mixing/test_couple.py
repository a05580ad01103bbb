"""couple: what it tells of pairs, and what it refuses."""

import numpy as np
import pytest

from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import starts
from glauber.errors import GlauberError, GlauberWarning
from glauber.mixing.couple import couple, pairs_of_texts
from glauber.mixing.meeting import meet
from glauber.statistics import median_time


@pytest.fixture(scope="module")
def tiny(tiny_folder):
    return MaskedLM.load(str(tiny_folder), device="cpu")


SMALL = dict(pairs=6, length=5, temperature=12.0, steps=60, seed=3)


def test_it_tells_what_the_pairs_do(tiny, texts):
    answer = couple(tiny, texts, **SMALL)
    told = answer.to_dict()
    rows, free = starts(tiny, texts, length=5)
    chosen = pairs_of_texts(len(rows), 6, seed=3)
    found = meet(
        tiny.conditionals(),
        rows[chosen[:, 0]],
        rows[chosen[:, 1]],
        free[chosen[:, 0]],
        temperature=12.0,
        seed=3,
        steps=60,
        every=1,
    )
    np.testing.assert_array_equal(answer.times, found.times)
    assert [pair["time"] for pair in told["pairs"]] == found.times.tolist()
    assert [pair["met"] for pair in told["pairs"]] == found.met.tolist()
    assert 0 < told["met"]["count"] == int(found.met.sum())
    np.testing.assert_allclose(told["distance"]["value"], found.mean_distance)
    assert told["distance"]["kind"] == told["met"]["kind"] == "estimate"
    assert told["contraction"] is None and told["total_variation"] is None
    assert told["pairs"][0]["left"] != told["pairs"][0]["right"]
    assert answer.frame().time.tolist() == found.times.tolist()


def test_times_are_counted_in_sweeps_too(tiny, texts):
    """Twelve sweeps of five tokens are sixty steps, and the times are the same."""
    steps, sweeps = (couple(tiny, texts, **SMALL | how) for how in ({}, {"sweeps": 12}))
    assert sweeps.n_steps == 60 and sweeps.times.tolist() == steps.times.tolist()
    np.testing.assert_allclose(steps.frame().sweeps, steps.times / 5)
    told = steps.to_dict()["median"]
    expected = median_time(steps.times, steps.met).value
    assert told["steps"]["value"] == expected
    assert told["sweeps"]["value"] == pytest.approx(expected / 5)
    assert f"median time: {expected:,.0f} steps" in str(steps)
    none = couple(tiny, texts, **SMALL | {"temperature": 0.01, "steps": 2})
    assert "median time: beyond these steps" in str(none)
    with pytest.raises(GlauberError, match="number of sweeps is 0"):
        couple(tiny, texts, sweeps=0)


def test_a_lag_and_an_alpha_add_bounds_and_pictures(tiny, texts):
    answer = couple(tiny, texts, lag=4, alpha=0.5, **SMALL | {"steps": 900})
    told = answer.to_dict()
    bound = np.array(told["contraction"]["value"])
    steps, start = np.array(told["distance"]["steps"]), told["distance"]["value"][0]
    np.testing.assert_allclose(bound, start * 0.9**steps)  # 1 - (1 - 0.5)/5
    found = told["total_variation"]
    assert found["kind"] == "estimate of an upper bound" and all(found["met"])
    assert found["value"][-1] == 0 < found["high"][-1]
    assert found["mixing_time"]["high"] is None  # six pairs cannot say
    assert list(answer.figures()) == ["distance", "total_variation"]
    assert "contraction with alpha 0.5 (given): at most" in str(answer)
    assert "bound on total variation from a text drawn at random" in str(answer)


def test_an_alpha_that_is_not_below_one_says_nothing(tiny, texts):
    said = str(couple(tiny, texts, alpha=1.0, **SMALL | {"steps": 3}))
    assert "alpha 1 (given) says nothing: alpha is not below 1" in said
    assert "not met (censored)" in said
    other = couple(
        tiny, texts, measure_alpha=True, coupling="gumbel-max", **SMALL | {"steps": 3}
    ).to_dict()["contraction"]
    assert other["alpha"]["kind"] == "lower bound" and other["alpha"]["value"] > 0
    assert other["value"] is None and "about the maximal coupling" in other["statement"]


def test_two_given_texts_are_one_pair_many_times(tiny):
    pair = ["the cat sat .", "a big dog ran"]
    told = couple(tiny, pair, pairs=3, steps=5, lag=1, temperature=3.0).to_dict()
    assert told["lengths"] == [4]
    assert {(one["left"], one["right"]) for one in told["pairs"]} == {
        ("the cat sat.", "a big dog ran")
    }
    found = told["total_variation"]
    assert found["start"] == "the first text"
    assert found["kind"].startswith("lower estimate") == (not all(found["met"]))


def test_frozen_sites_are_shared_and_never_redrawn(tiny):
    """The second text takes the first's tokens there, and that is said."""
    found = couple(
        tiny, ["the cat sat .", "a big dog ran"], pairs=4, steps=40, freeze=[0, 1], temperature=9.0
    )
    assert set(found.n_sites) == {2} and (found.meetings.initial == 2).all()
    assert found.texts[0] == ("the cat sat.", "the cat dog ran") and found.changed == 4
    assert "4 second texts took the tokens of the first at the frozen sites" in str(found)
    assert found.met.any()


@pytest.mark.parametrize(
    "texts, more, sentence",
    [
        (["the cat sat", "a dog"], {}, "have 3 and 2 tokens, but a pair needs equal lengths"),
        (["the cat sat"], {}, "a pair needs two texts"),
        ("the cat sat", {}, "a pair needs two texts"),
        (None, {"steps": 0}, "number of steps is 0"),
        (None, {"steps": 2.5}, "whole number"),
        (None, {"lag": 0}, "the lag is 0"),
        (None, {"lag": 10**14}, "cannot be done"),
        (None, {"pairs": 0}, "number of pairs is 0"),
        (["the cat", "a dog"], {"pairs": 10**9}, "GiB of memory: ask for less"),
        (None, {"coupling": "maximum"}, "did you mean maximal"),
        (None, {"epsilon": 1.0}, "epsilon is 1"),
        (None, {"alpha": -1.0}, "alpha is -1.0"),
        (None, {"length": 0}, "the length is 0"),
        (None, {"seed": -1}, "seed is -1"),
        (None, {"seed": 10**20}, "the seed is 1"),
        (None, {"batch_size": 0}, "the batch size is 0"),
        (None, {"temperature": 0.0}, "temperature"),
        ([" ", " "], {}, "empty"),
    ],
)
def test_bad_pairs_end_in_one_sentence(tiny, texts, more, sentence):
    with pytest.raises(GlauberError, match=sentence):
        couple(tiny, texts, **more)


def test_one_text_that_is_long_enough_is_no_pair(tiny):
    with (
        pytest.warns(GlauberWarning, match="left out"),
        pytest.raises(GlauberError, match="there is 1 text, but a pair needs two"),
    ):
        couple(tiny, ["the cat sat", "a dog"], length=3)


def test_int8_is_refused(tiny_folder):
    with pytest.raises(GlauberError, match="int8 is for drawing samples only"):
        couple(str(tiny_folder), ["the cat", "a dog"], dtype="int8", device="cpu")


def test_every_text_is_used_before_any_again():
    chosen = pairs_of_texts(7, 8, seed=1)
    assert chosen.shape == (8, 2) and bool((chosen[:, 0] != chosen[:, 1]).all())
    for part in (chosen[:3], chosen[3:6]):
        assert len(set(part.flatten().tolist())) == 6
    assert not bool((chosen == pairs_of_texts(7, 8, seed=2)).all())
