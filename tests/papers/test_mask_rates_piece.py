"""Masks on language: the piece says what the recorded models say."""

import json

import numpy as np
from scipy import stats

import glauber
from glauber.conditionals.weights import PACKAGE


def test_each_step_up_the_ladder_is_a_paired_comparison(tmp_path) -> None:
    made = glauber.paper("B-masks", out=tmp_path / "papers")
    models = json.loads((PACKAGE / "data" / "mask-rates.json").read_text())["models"]
    filled = {(one["masks"], one["seed"]): one["filled"] for one in models}
    apart = [filled["50%", seed] - filled["30%", seed] for seed in range(4)]
    claim = next(one for one in made.claims if one.quantity.name.endswith("50% less 30%"))
    assert np.isclose(claim.quantity.value, np.mean(apart))
    # Skewness widens the interval on one side only, so it holds Student's middle.
    low, high = claim.quantity.interval
    reach = stats.t.ppf(0.975, 3) * stats.sem(apart)
    assert low < np.mean(apart) < high and high - low >= reach


def test_one_token_at_a_time_learns_least(tmp_path) -> None:
    made = glauber.paper("B-masks", out=tmp_path / "papers")
    words = {one.quantity.name.split(", ")[-1]: one.verdict.word for one in made.claims}
    assert words["15% less one token"] == "agrees"
    assert words["80% less 50%"] == "disagrees"
    rows = {row["masks of training"]: row for row in made.rows}
    assert rows["one token"]["nll, 15% hidden"] > rows["15%"]["nll, 15% hidden"]
    assert rows["30%, what the model is unsure of more often"]["seeds"] == 3
