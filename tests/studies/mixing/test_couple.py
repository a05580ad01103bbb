"""couple: what it tells of pairs, and what it refuses."""

import numpy as np
import pytest

from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.statistics import median_time
from glauber.models.masked_lm import MaskedLM
from glauber.studies.mixing.couple import couple, pairs_of_texts
from glauber.studies.mixing.meeting import meet
from glauber.texts.starts import starts


@pytest.fixture(scope="module")
def tiny(tiny_folder):
    return MaskedLM.load(str(tiny_folder), device="cpu")


SMALL = dict(pairs=6, length=5, temperature=12.0, steps=60, seed=3)


def test_the_answer_is_that_of_the_pairs(tiny, texts):
    answer = couple(tiny, texts, **SMALL)
    record = answer.to_dict()
    rows, free = starts(tiny, texts, length=5)
    chosen = pairs_of_texts(len(rows), 6, seed=3)
    expected = meet(
        tiny.conditionals(),
        rows[chosen[:, 0]],
        rows[chosen[:, 1]],
        free[chosen[:, 0]],
        temperature=12.0,
        seed=3,
        steps=60,
        every=1,
    )
    np.testing.assert_array_equal(answer.times, expected.times)
    assert [pair["time"] for pair in record["pairs"]] == expected.times.tolist()
    assert [pair["met"] for pair in record["pairs"]] == expected.met.tolist()
    assert 0 < record["share"]["value"] == expected.met.mean()
    np.testing.assert_allclose(record["meetings"]["mean_distance"], expected.mean_distance)
    assert record["contraction"] is None and record["total_variation"] is None
    assert record["pairs"][0]["left"] != record["pairs"][0]["right"]
    assert answer.frame().time.tolist() == expected.times.tolist()


def test_times_are_counted_in_sweeps_too(tiny, texts):
    """Twelve sweeps of five tokens are sixty steps, and the times are the same."""
    steps, sweeps = (couple(tiny, texts, **SMALL | options) for options in ({}, {"sweeps": 12}))
    assert sweeps.n_steps == 60 and sweeps.times.tolist() == steps.times.tolist()
    np.testing.assert_allclose(steps.frame().sweeps, steps.times / 5)
    medians = steps.to_dict()["medians"]
    expected = median_time(steps.times, steps.met).value
    assert medians["steps"]["value"] == expected
    assert medians["sweeps"]["value"] == pytest.approx(expected / 5)
    assert f"median time: {expected:,.0f} steps" in str(steps)
    none = couple(tiny, texts, **SMALL | {"temperature": 0.01, "steps": 2})
    assert "median time: beyond these steps" in str(none)


def test_a_lag_and_an_alpha_add_bounds_and_figures(tiny, texts):
    answer = couple(tiny, texts, lag=4, alpha=0.5, **SMALL | {"steps": 900})
    record = answer.to_dict()
    bound, steps = np.array(record["contraction"]), np.array(record["meetings"]["moments"])
    start = record["meetings"]["mean_distance"][0]
    np.testing.assert_allclose(bound, start * 0.9**steps)  # 1 - (1 - 0.5)/5
    variation = record["total_variation"]
    assert variation["kind"] == "estimate of an upper bound" and all(record["lagged"]["met"])
    assert variation["value"][-1] == 0 < variation["high"][-1]
    assert variation["mixing_time_high"] is None  # six pairs cannot say
    assert list(answer.figures()) == ["distance", "total_variation"]
    assert "contraction with alpha 0.5 (given): at most" in str(answer)
    assert "bound on total variation from a text drawn at random" in str(answer)


def test_an_alpha_that_is_not_below_one_says_nothing(tiny, texts):
    printed = str(couple(tiny, texts, alpha=1.0, **SMALL | {"steps": 3}))
    assert "alpha 1 (given) says nothing: alpha is not below 1" in printed
    assert "not met (censored)" in printed
    other = couple(
        tiny, texts, measure_alpha=True, coupling="gumbel-max", **SMALL | {"steps": 3}
    ).to_dict()
    assert other["alpha_kind"] == "lower bound" and other["alpha"] > 0
    assert other["contraction"] is None
    assert "about the maximal coupling" in other["contraction_statement"]


def test_two_given_texts_are_one_pair_many_times(tiny):
    pair = ["the cat sat .", "a big dog ran"]
    answer = couple(tiny, pair, pairs=3, steps=5, lag=1, temperature=3.0)
    assert answer.n_sites == [4] * 3 and answer.start == "the first text"
    assert set(answer.texts) == {("the cat sat.", "a big dog ran")}
    kind = answer.to_dict()["total_variation"]["kind"]
    assert kind.startswith("lower estimate") == (not answer.lagged.met.all())


def test_frozen_sites_are_shared_and_never_redrawn(tiny):
    """The second text takes the first's tokens there, and the answer says so."""
    answer = couple(
        tiny, ["the cat sat .", "a big dog ran"], pairs=4, steps=40, freeze=[0, 1], temperature=9.0
    )
    assert set(answer.n_sites) == {2} and (answer.meetings.initial == 2).all()
    assert answer.texts[0] == ("the cat sat.", "the cat dog ran") and answer.changed == 4
    assert "4 second texts took the tokens of the first at the frozen sites" in str(answer)
    assert answer.met.any()


@pytest.mark.parametrize(
    "texts, more, sentence",
    [
        (["the cat sat", "a dog"], {}, "have 3 and 2 tokens, but a pair needs equal lengths"),
        (["the cat sat"], {}, "a pair needs two texts"),
        ("the cat sat", {}, "a pair needs two texts"),
        (None, {"steps": 0}, "steps is 0"),
        (None, {"sweeps": 0}, "sweeps is 0"),
        (None, {"steps": 2.5}, "whole number"),
        (None, {"lag": 0}, "lag is 0"),
        (None, {"lag": 10**10}, "is not possible"),
        (None, {"pairs": 0}, "pairs is 0"),
        (["the cat", "a dog"], {"pairs": 10**9}, "GiB of memory: ask for less"),
        (None, {"coupling": "maximum"}, "did you mean maximal"),
        (None, {"epsilon": 1.0}, "epsilon is 1"),
        (None, {"alpha": -1.0}, "alpha is -1"),
        (None, {"length": 0}, "length is 0"),
        (None, {"seed": -1}, "seed is -1"),
        (None, {"seed": 10**20}, "seed is 1"),
        (None, {"batch_size": 0}, "batch size is 0"),
        (None, {"temperature": 0.0}, "temperature"),
        ([" ", " "], {}, "empty"),
    ],
)
def test_bad_pairs_are_refused(tiny, texts, more, sentence):
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
