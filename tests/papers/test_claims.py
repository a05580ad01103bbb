"""Verdicts: whole intervals only, disagreements first, power as a simulation finds it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from glauber.foundation.statistics import mean_over_chains
from glauber.papers.claims import (
    Claim,
    Quantity,
    above,
    at_least,
    at_most,
    below,
    by_verdict,
    near,
    pool_claims,
    power,
    sample_size,
)
from glauber.papers.page import claim_lines, sample_size_text


def claim(value, interval, region, *, n=10, published=None, kind="estimate", effect=None):
    ours = Quantity("a share", value, interval, n=n, kind=kind)
    return Claim("chains come back", "paper A", published, ours, region, effect=effect, seeds=(0,))


@pytest.mark.parametrize(
    ("interval", "region", "word"),
    [
        ((0.1, 0.3), above(0), "agrees"),
        ((-0.1, 0.3), above(0), "cannot tell"),  # not rejected is not agreement
        ((-0.3, -0.1), above(0), "disagrees"),
        ((0.0, 0.3), above(0), "cannot tell"),  # cut at 0, which is not above it
        ((0.0, 0.3), at_least(0), "agrees"),
        ((0.1, 0.3), below(0.2), "cannot tell"),
        ((0.62, 0.67), near(0.644, 0.1), "agrees"),
        ((0.62, 0.80), near(0.644, 0.1), "cannot tell"),
        ((0.75, 0.80), near(0.644, 0.1), "disagrees"),
        ((0.1, None), above(0), "agrees"),
        ((None, 0.1), above(0), "cannot tell"),
        (None, above(0), "cannot tell"),
    ],
)
def test_only_whole_intervals_decide(interval, region, word):
    assert claim(0.2, interval, region).verdict.word == word


def test_two_chains_say_nothing_and_what_is_exact_needs_no_interval():
    assert claim(0.2, (0.1, 0.3), above(0), n=2).verdict.word == "cannot tell"
    assert claim(None, None, above(0)).verdict.reason == "there is no number"
    exact = claim(0.0, None, at_least(0), kind="exact")
    assert exact.verdict.word == "agrees" and exact.verdict.power is None
    assert replace(exact, region=above(0)).verdict.word == "disagrees"
    assert claim(2.0, None, above(1), kind="lower bound").verdict.word == "agrees"
    assert claim(0.5, None, above(1), kind="lower bound").verdict.word == "cannot tell"
    assert claim(0.5, None, above(1), kind="upper bound").verdict.word == "disagrees"


@pytest.mark.parametrize("n", [4, 12])
@pytest.mark.parametrize("region", [above(0), near(0.5, 0.6), at_most(1.0)])
def test_power_is_how_often_a_sample_agrees(n, region):
    """Samples of the normal law with mean 0.4, whose interval is taken at its mean width."""
    rng, trials = np.random.default_rng(0), 20_000
    drawn = rng.normal(0.4, 0.5, (trials, n))
    reach = student.ppf(0.975, n - 1) * drawn.std(axis=1, ddof=1) / np.sqrt(n)
    low, high = drawn.mean(axis=1) - reach, drawn.mean(axis=1) + reach
    seen = np.mean([region.holds(*ends) for ends in zip(low, high, strict=True)])
    half = student.ppf(0.975, n - 1) * 0.5 / np.sqrt(n)
    said = power(0.4, (1.0 - half, 1.0 + half), n, region, 0.5 / np.sqrt(n))
    assert said == pytest.approx(seen, abs=4 * 0.5 / np.sqrt(trials))


def test_power_says_for_which_effect_or_why_there_is_none():
    told = claim(0.1, (-0.1, 0.3), above(0), effect=0.2).verdict
    assert told.power == pytest.approx(0.5, abs=0.1) and told.power_is == "if it were 0.2"
    assert claim(0.1, (-0.1, 0.3), above(0), published=0.2).verdict.power == told.power
    assert "no number" in claim(0.1, (-0.1, 0.3), above(0), published="it grows").verdict.power_is
    assert "no interval" in claim(0.1, None, above(0), effect=0.2).verdict.power_is


@pytest.mark.parametrize("region", [above(0), near(0.05, 0.3)])
def test_a_sample_of_that_size_agrees_in_80_percent(region):
    """Samples of a normal distribution with mean 0.1, from the interval of 50 values."""
    n, trials, deviation = 50, 4000, 1.5
    error = deviation / np.sqrt(n)
    half = student.ppf(0.975, n - 1) * error
    size = sample_size(0.1, (-half, half), n, region, error)
    drawn = np.random.default_rng(0).normal(0.1, deviation, (trials, size))
    reach = student.ppf(0.975, size - 1) * drawn.std(axis=1, ddof=1) / np.sqrt(size)
    low, high = drawn.mean(axis=1) - reach, drawn.mean(axis=1) + reach
    seen = np.mean([region.holds(*ends) for ends in zip(low, high, strict=True)])
    # 0.01: Student's quantile of 50 values is larger than that of as many as are needed
    assert abs(seen - 0.8) < 4 * 0.4 / np.sqrt(trials) + 0.01


def test_only_undecided_claims_have_a_sample_size():
    undecided = claim(0.1, (-0.1, 0.3), above(0), effect=0.2)
    said = undecided.verdict
    assert said.sample_size == 20 and "approximate" in said.sample_size_is
    assert sample_size_text(undecided) == "about 20 chains (here 10)"
    record = undecided.to_dict()
    assert record["sample_size"] == 20 and record["sample_size_is"] == said.sample_size_is
    four_times = replace(undecided, effect=0.1).verdict.sample_size
    assert four_times == pytest.approx(4 * 20, rel=0.15)  # half the effect
    for effect in (0.0, -0.1, 1e-9):
        outside = replace(undecided, effect=effect)
        assert outside.verdict.sample_size is None
        assert sample_size_text(outside) == "none: no sample is large enough for this effect"
    unnamed = replace(undecided, effect=None).verdict
    assert unnamed.sample_size is None and "no smallest effect" in unnamed.sample_size_is
    decided = claim(0.2, (0.1, 0.3), above(0), effect=0.2)
    assert decided.verdict.sample_size is None and sample_size_text(decided) == ""


def test_a_figure_of_statistics_becomes_a_quantity():
    few = Quantity.of("a share", mean_over_chains([0.1, 0.2]))
    assert few.n == 2 and few.ends is None
    told = Claim("much", "paper A", None, few, above(0)).verdict
    assert told.word == "cannot tell" and "two values" in told.reason
    alike = [claim(1.0, None, above(0.2)) for _ in range(5)]
    assert pool_claims(alike).verdict.word == "cannot tell"  # nothing shows how much seeds differ
    bounded = [replace(one, quantity=replace(one.quantity, bounds=(0.0, 1.0))) for one in alike]
    assert pool_claims(bounded).verdict.word == "agrees"


def seeds(values, interval=(0.1, 0.3), region=None):
    single = [claim(value, interval, region or above(0), n=8) for value in values]
    return [replace(one, seeds=(seed,)) for seed, one in enumerate(single)]


def test_four_seeds_have_an_interval_of_their_own():
    values = [0.2, 0.25, 0.15, 0.3]
    whole = pool_claims(seeds(values))
    expected = mean_over_chains(values)
    assert whole.quantity.value == pytest.approx(np.mean(values))
    assert whole.quantity.interval == expected.interval
    assert expected.interval[0] < 0.225 - student.ppf(0.975, 3) * np.std(values, ddof=1) / 2.01
    assert (whole.quantity.n, whole.quantity.unit, whole.seeds) == (4, "seeds", (0, 1, 2, 3))
    assert [one.value for one in whole.quantity.each] == values
    assert whole.verdict.word == "agrees" and "interval over 4 seeds" in whole.verdict.reason
    assert pool_claims(seeds([*values, None])).verdict.word == "cannot tell"  # none is left out


def test_fewer_seeds_each_keep_their_own():
    whole = pool_claims(seeds([0.2, 0.25]))
    assert whole.quantity.interval is None and whole.verdict.word == "agrees"
    assert "2 seeds, each with its own interval: each agrees" in whole.verdict.reason
    mixed = pool_claims([*seeds([0.2]), *seeds([0.1], (-0.1, 0.3))])
    assert mixed.verdict.word == "cannot tell" and "agrees, cannot tell" in mixed.verdict.reason
    exact = [claim(value, None, above(0), kind="exact") for value in (1.0, -1.0, 1.0)]
    assert pool_claims(exact).verdict.word == "disagrees"
    bounds = [claim(value, None, above(1), kind="lower bound") for value in (0.5, 2.0)]
    assert pool_claims(bounds).verdict.word == "agrees"


def test_intervals_over_seeds_keep_their_level():
    rng = np.random.default_rng(1)
    ends = [
        pool_claims(seeds(rng.normal(0.2, 0.1, 5).tolist())).quantity.interval for _ in range(1000)
    ]
    held = np.mean([low < 0.2 < high for low, high in ends])
    assert held > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 1000)


def test_claims_survive_json_and_stand_disagreements_first():
    claims = [
        claim(0.2, (0.1, 0.3), above(0), published=0.25),
        claim(0.2, None, near(0.3, 0.1), published="much"),
        pool_claims(seeds([-0.2, -0.3], (-0.4, -0.1))),
    ]
    for one in claims:
        record = json.loads(json.dumps(one.to_dict(), allow_nan=False))
        assert Claim.from_dict(record) == one
    words = [one.verdict.word for one in by_verdict(claims)]
    assert words == ["disagrees", "cannot tell", "agrees"]
    assert next(iter(claim_lines(claims))).startswith("DISAGREES: chains come back (paper A)")


def test_kept_claims_without_an_upper_bound_are_pooled():
    ours = [
        Quantity("traps", value, (value - 5, value + 5), n=9, bounds=(0.0, np.inf))
        for value in (10.0, 14.0, 12.0, 17.0, 9.0)
    ]
    claims = [
        Claim("17 traps", "paper A", 17, one, near(17, 4), seeds=(k,)) for k, one in enumerate(ours)
    ]
    kept = [Claim.from_dict(json.loads(json.dumps(one.to_dict()))) for one in claims]
    assert kept == claims and pool_claims(kept) == pool_claims(claims)
