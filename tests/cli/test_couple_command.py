"""`glauber couple`: the figures are those of the library, and bad input ends in one sentence."""

import json

import numpy as np
import pytest

from glauber.conditionals.base import Restricted
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import starts
from glauber.mixing.coupling import coalesce
from glauber.mixing.passages import passage_pairs


@pytest.fixture
def words(tiny_folder, source):
    return [
        "couple", "--model", tiny_folder, "--from", source, "--pairs", 6, "--length", 5,
        "--temperature", 12, "--steps", 60, "--seed", 3,
    ]  # fmt: skip


def test_it_tells_what_the_library_finds(glauber, tiny_folder, texts, words):
    code, out, err = glauber(*words, "--json")
    assert code == 0 and err == ""
    told = json.loads(out)
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    rows, free = starts(model, texts, length=5)
    chosen = passage_pairs(len(rows), 6, seed=3)
    found = coalesce(
        Restricted(model, model.vocabulary.proposable()), rows[chosen[:, 0]], rows[chosen[:, 1]],
        free=free[chosen[:, 0]], temperature=12.0, seed=3, budget=60,
    )  # fmt: skip
    assert [pair["time"] for pair in told["pairs"]] == found.times.tolist()
    assert [pair["met"] for pair in told["pairs"]] == found.met.tolist()
    assert 0 < told["met"]["count"] == int(found.met.sum())
    np.testing.assert_allclose(told["distance"]["value"], found.mean_distance)
    assert told["distance"]["kind"] == told["met"]["kind"] == "estimate"
    assert told["contraction"] is None and told["total_variation"] is None
    assert told["pairs"][0]["left"] != told["pairs"][0]["right"]


def test_a_lag_and_an_alpha_add_bounds_and_pictures(glauber, words, tmp_path):
    more = ["--lag", 4, "--alpha", 0.5, "--out", tmp_path / "new" / "pairs.html", "--steps", 900]
    code, out, _ = glauber(*words, *more, "--json")
    told = json.loads(out)
    assert code == 0
    bound = np.array(told["contraction"]["value"])
    steps, start = np.array(told["distance"]["steps"]), told["distance"]["value"][0]
    np.testing.assert_allclose(bound, start * 0.9**steps)  # 1 - (1 - 0.5)/5
    found = told["total_variation"]
    assert found["kind"] == "estimate of an upper bound" and all(found["met"])
    assert found["value"][-1] == 0 < found["high"][-1]
    assert found["mixing_time"]["high"] is None  # six pairs cannot say
    page = (tmp_path / "new" / "pairs.html").read_text()
    assert "How far apart the pairs are" in page and "stationary law" in page
    assert page.count("plotly-graph-div") == 2
    code, out, err = glauber(*words, *more)
    assert code == 0 and "contraction with alpha 0.5 (given): at most" in out
    assert "bound on total variation from a passage drawn at random" in out
    assert "the picture is in" in err


def test_an_alpha_that_is_not_below_one_says_nothing(glauber, words):
    code, out, _ = glauber(*words, "--alpha", 1.0, "--steps", 3)
    assert code == 0 and "alpha 1 (given) says nothing: alpha is not below 1" in out
    assert "not met (censored)" in out
    code, out, _ = glauber(*words, "--measure-alpha", "--how", "gumbel-max", "--steps", 3, "--json")
    told = json.loads(out)["contraction"]
    assert told["alpha"]["kind"] == "lower bound" and told["alpha"]["value"] > 0
    assert told["value"] is None and "about the maximal coupling" in told["says"]


def test_two_given_texts_are_one_pair_many_times(glauber, tiny_folder):
    code, out, _ = glauber(
        "couple", "the cat sat .", "a big dog ran", "--model", tiny_folder, "--pairs", 3,
        "--steps", 5, "--lag", 1, "--temperature", 3, "--json",
    )  # fmt: skip
    told = json.loads(out)
    assert code == 0 and told["lengths"] == [4]
    assert {(pair["left"], pair["right"]) for pair in told["pairs"]} == {
        ("the cat sat.", "a big dog ran")
    }
    found = told["total_variation"]
    assert found["start"] == "the first text"
    assert found["kind"].startswith("lower estimate") == (not all(found["met"]))


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["the cat sat", "a dog"], "have 3 and 2 tokens, but a pair needs equal lengths"),
        (["the cat sat"], "a pair needs two texts, but 1 were given"),
        (["the cat", "a dog", "the bird"], "but 3 were given"),
        (["the cat", "a dog", "--steps", 0], "the budget is 0 steps"),
        (["the cat", "a dog", "--lag", 0], "the lag is 0 steps"),
        (["the cat", "a dog", "--pairs", 0], "the number of pairs is 0"),
        (["the cat", "a dog", "--how", "reflection"], "the coupling is reflection"),
        (["the cat", "a dog", "--epsilon", 1], "epsilon is 1"),
        (["the cat", "a dog", "--alpha", -1], "alpha is -1.0"),
        (["the cat", "a dog", "--length", 0], "the length is 0"),
        (["the cat", "a dog", "--seed", -1], "the seed is -1"),
        (["the cat", "a dog", "--batch-size", 0], "0 pairs together"),
        (["the cat", " "], "empty"),
        (["the cat", "a dog", "--temperature", 0], "temperature"),
        (["the cat sat", "a dog", "--length", 3], "there is 1 text, but a pair needs two"),
        (["the cat", "a dog", "--from", "texts.txt"], "not both"),
        (["--from", "nowhere.txt"], "nowhere.txt cannot be read"),
    ],
)
def test_bad_pairs_end_in_one_sentence(glauber, tiny_folder, words, sentence):
    code, out, err = glauber("couple", *words, "--model", tiny_folder)
    assert code == 2 and out == ""
    assert sentence in err and err.count("\n") == 1


def test_every_text_is_used_before_any_again():
    chosen = passage_pairs(7, 8, seed=1)
    assert chosen.shape == (8, 2) and bool((chosen[:, 0] != chosen[:, 1]).all())
    for part in (chosen[:3], chosen[3:6]):
        assert len(set(part.flatten().tolist())) == 6
    assert not bool((chosen == passage_pairs(7, 8, seed=2)).all())
