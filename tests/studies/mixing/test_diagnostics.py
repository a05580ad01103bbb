"""Frozen chains are named and get no comfortable number; moving ones agree with closed forms."""

import numpy as np
import pytest

from crafted_run import crafted_run
from glauber.foundation.errors import GlauberError
from glauber.studies.mixing.diagnostics import (
    AGREE,
    CHANCE,
    chance_r_hat,
    diagnose,
    diagnoses,
    longest_run,
)

CHAINS, SITES, STEPS = 4, 5, 400
WORDS = np.arange(7, 47)  # tokens of the tiny vocabulary that are words


def events(seed=0, n_chains=CHAINS, n_steps=STEPS):
    """A start, and events that redraw sites uniformly: (start, sites, tokens)."""
    rng = np.random.default_rng(seed)
    start = rng.choice(WORDS, size=(n_chains, SITES))
    sites = rng.integers(SITES, size=(n_chains, n_steps))
    return start, sites, rng.choice(WORDS, size=(n_chains, n_steps))


def freeze(start, sites, tokens, chain, first=0):
    """Makes a chain write what already stands there, from a step on, in place."""
    now = start[chain].copy()
    for step in range(sites.shape[1]):
        if step >= first:
            tokens[chain, step] = now[sites[chain, step]]
        now[sites[chain, step]] = tokens[chain, step]


def no_figure(found):
    rows = [(row.ess, row.r_hat, row.autocorrelation_time) for row in found.rows]
    return rows == [(None, None, None)] * len(rows) and "no effective" in found.verdict


def test_all_frozen_in_one_state(tmp_path):
    """The log-probabilities go up and down with the site: ArviZ alone would be content."""
    start, sites, tokens = events()
    start[:] = start[0]
    for chain in range(CHAINS):
        freeze(start, sites, tokens, chain)
    noise = -np.random.default_rng(1).exponential(size=sites.shape)
    found = diagnose(crafted_run(tmp_path / "run", start, sites, tokens, noise))
    (alone,) = diagnoses({"log_prob": noise[:, STEPS // 2 :]})
    assert alone.ess > 400 and alone.state == "agreeing"  # the danger is real
    assert no_figure(found) and {row.state for row in found.rows} == {"frozen"}
    assert "all 4 chains are frozen, in one state" in found.verdict


def test_all_frozen_in_different_states(tmp_path):
    start, sites, tokens = events()
    start[1] = start[0]
    for chain in range(CHAINS):
        freeze(start, sites, tokens, chain)
    found = diagnose(crafted_run(tmp_path / "run", start, sites, tokens))
    assert no_figure(found) and found.motions.n_states == 3
    assert "all 4 chains are frozen, in 3 different states" in found.verdict


def test_one_frozen(tmp_path):
    start, sites, tokens = events()
    freeze(start, sites, tokens, 2)
    found = diagnose(crafted_run(tmp_path / "run", start, sites, tokens))
    assert no_figure(found) and found.motions.of("frozen") == [2]
    assert "1 of 4 chains did not move (frozen: chain 2)" in found.verdict


def test_a_single_frozen_chain(tmp_path):
    start, sites, tokens = events(n_chains=1)
    freeze(start, sites, tokens, 0)
    found = diagnose(crafted_run(tmp_path / "run", start, sites, tokens))
    assert no_figure(found) and "the only chain is frozen" in found.verdict


@pytest.mark.parametrize("first", [STEPS // 2 + 10, STEPS * 3 // 4 - 1])
def test_a_chain_that_stops_moving_is_partly_frozen(tmp_path, first):
    """It moves in the window, but not in its last half."""
    start, sites, tokens = events()
    freeze(start, sites, tokens, 1, first)
    found = diagnose(crafted_run(tmp_path / "run", start, sites, tokens))
    assert no_figure(found) and found.motions.chains[1] == "partly frozen"
    assert found.motions.of("moving") == [0, 2, 3] and "partly frozen: chain 1" in found.verdict


def test_a_chain_that_flickers_at_one_site_is_partly_frozen(tmp_path):
    start, sites, tokens = events()
    freeze(start, sites, tokens, 3)
    here = sites[3] == 0
    tokens[3, here] = WORDS[np.arange(here.sum()) % 2]
    found = diagnose(crafted_run(tmp_path / "run", start, sites, tokens))
    assert found.motions.chains[3] == "partly frozen" and no_figure(found)
    assert found.motions.sites_moved[3] == pytest.approx(1 / SITES)


def test_chains_that_move_get_figures(tmp_path):
    """Uniform redraws of n sites forget as (1 - 1/n)^t: autocorrelation time 2n - 1."""
    run = crafted_run(tmp_path / "run", *events(n_steps=6000))
    found = diagnose(run)
    copies = next(row for row in found.rows if row.statistic.startswith("copies"))
    # 4 chains of 3,000 draws: three standard errors of the time are about 0.3 of it.
    assert copies.autocorrelation_time == pytest.approx(2 * SITES - 1, rel=0.35)
    assert copies.ess == pytest.approx(12_000 / (2 * SITES - 1), rel=0.35)
    assert copies.state == "agreeing" and copies.kind == "estimate"
    assert found.motions.summary == "all 4 chains move"


def test_a_slow_series_against_its_closed_form():
    """x' = 0.8 x + noise has autocorrelation time (1 + 0.8) / (1 - 0.8) = 9 draws."""
    rng = np.random.default_rng(2)
    values = np.zeros((4, 5000))
    values[:, 0] = rng.normal(size=4) / 0.6
    for t in range(1, 5000):
        values[:, t] = 0.8 * values[:, t - 1] + rng.normal(size=4)
    (row,) = diagnoses({"x": values}, every=10)
    assert row.autocorrelation_time == pytest.approx(90, rel=0.3)
    assert row.ess == pytest.approx(20_000 / 9, rel=0.3)
    assert (row.state, row.r_hat) == ("agreeing", pytest.approx(1, abs=0.01))


def test_chains_apart_disagree_and_constants_tell_nothing():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(4, 500))
    apart, flat, broken = values.copy(), values.copy(), values.copy()
    apart[0] += 2
    flat[1] = 0.25
    broken[2, 7] = -np.inf
    rows = diagnoses({"apart": apart, "flat": flat, "broken": broken, "few": values[:1, :30]})
    assert [row.state for row in rows] == ["disagreeing", "constant", "not finite", "short"]
    assert rows[0].r_hat > 1.2 and rows[0].ess < 100
    assert rows[1].ess is None and rows[2].ess is None
    jump = np.repeat([[0.0, 1.0]], 4, axis=0).repeat(250, axis=1)  # once, in the middle
    two = rng.permuted(jump, axis=1)  # of two values: their distances from the median are equal
    rows = diagnoses({"jump": jump, "two": two})
    assert [row.state for row in rows] == ["constant", "agreeing"]
    assert rows[1].r_hat == pytest.approx(1, abs=0.01)
    (alone,) = diagnoses({"x": values[:1]})
    assert alone.state == "alone" and alone.r_hat is None


def spin_events(couplings, *, n_chains, n_steps, seed):
    """Heat-bath events of spins +-1 with energy -x J x / 2, half of the chains from all up."""
    rng = np.random.default_rng(seed)
    n_spins = len(couplings)
    spins = np.ones((n_chains, n_spins), int)
    spins[1::2] = -1
    start = spins.copy()
    sites = rng.integers(n_spins, size=(n_chains, n_steps))
    tokens, log_probs = np.empty_like(sites), np.empty(sites.shape)
    chains = np.arange(n_chains)
    for step, (site, uniform) in enumerate(zip(sites.T, rng.random(sites.shape).T, strict=True)):
        up = 1 / (1 + np.exp(-2 * (couplings[site] * spins).sum(axis=1)))
        new = np.where(uniform < up, 1, -1)
        spins[chains, site] = tokens[:, step] = new
        log_probs[:, step] = np.log(np.where(new == 1, up, 1 - up))
    words = {1: WORDS[0], -1: WORDS[1]}
    start, tokens = (np.where(each == 1, words[1], words[-1]) for each in (start, tokens))
    return start, sites, tokens, log_probs


def test_few_draws_are_not_taken_for_chains_that_remember_their_starts(tmp_path):
    """Eight weakly coupled spins on a ring forget their start within 80 steps; 8 seeds.

    Each statistic that varies may be accused in 1% of the runs: of 32, at most 3 (p > 0.999).
    """
    ring = 0.2 * (np.roll(np.eye(8), 1, axis=0) + np.roll(np.eye(8), -1, axis=0))
    rows = []
    for seed in range(8):
        drawn = spin_events(ring, n_chains=8, n_steps=1000, seed=seed)
        result = diagnose(crafted_run(tmp_path / f"run{seed}", *drawn))
        rows += [row for row in result.rows if row.r_hat is not None]
        assert "too few effective draws" in result.verdict
        for row in result.rows:  # 500 steps of each chain count
            slow = row.autocorrelation_time is not None and row.autocorrelation_time > 25
            assert (row.statistic in result.rough) == slow
        assert ("are rough" in str(result)) == bool(result.rough)
    assert sum(row.r_hat > AGREE for row in rows) > 16  # the fixed threshold would accuse these
    assert sum(row.state == "disagreeing" for row in rows) <= 3
    assert all(row.state == "short" for row in rows if AGREE < row.r_hat <= row.chance_r_hat)


def test_chains_in_two_wells_are_still_accused(tmp_path):
    """Sixteen spins that all attract each other, too cold to change sides, from both sides."""
    wells = 0.13 * (1 - np.eye(16))
    for seed in range(4):
        drawn = spin_events(wells, n_chains=8, n_steps=2000, seed=seed)
        result = diagnose(crafted_run(tmp_path / f"run{seed}", *drawn))
        copies = next(row for row in result.rows if row.statistic.startswith("copies"))
        assert copies.state == "disagreeing" and copies.r_hat - 1 > 4 * (copies.chance_r_hat - 1)
        assert "the chains still tell their starts apart" in result.verdict


@pytest.mark.parametrize("n_chains", [2, 4, 8, 30])
def test_stationary_chains_exceed_the_r_hat_of_chance_as_rarely_as_stated(n_chains):
    """x' = 0.9 x + noise, 500 draws: 26 autocorrelation times; 1% of runs plus 4 sigma."""
    rng, n_runs = np.random.default_rng(n_chains), 100
    values = np.empty((n_runs, n_chains, 500))
    values[..., 0] = rng.normal(size=values.shape[:2]) / np.sqrt(1 - 0.9**2)
    for t in range(1, values.shape[2]):
        values[..., t] = 0.9 * values[..., t - 1] + rng.normal(size=values.shape[:2])
    rows = [diagnoses({"x": each})[0] for each in values]
    exceeding = sum(row.r_hat > row.chance_r_hat for row in rows)
    assert exceeding <= n_runs * (1 - CHANCE) + 4 * np.sqrt(n_runs * (1 - CHANCE))
    # R-hat^2 - 1 is about tau / h times chi^2 / (2m - 1): tau = 19 and h = 250 here.
    quantile = {2: 4.279, 4: 2.897, 8: 2.187, 30: 1.538}[n_chains]  # of chi^2 / (2m - 1), 99.5%
    expected = np.sqrt(1 + (19 * quantile - 1) / 250)
    middle = np.median([row.chance_r_hat for row in rows])
    assert middle - 1 == pytest.approx(expected - 1, rel=0.3)


def test_the_r_hat_of_chance_does_not_grow_with_the_distance_between_chains():
    rng = np.random.default_rng(9)
    values = rng.normal(size=(4, 500))
    apart = values + 5 * np.arange(4)[:, None]
    assert chance_r_hat(apart) == pytest.approx(chance_r_hat(values), abs=0.02)


def test_too_short_runs_are_refused(tmp_path):
    start, sites, tokens = events(n_steps=30)
    run = crafted_run(tmp_path / "run", start, sites, tokens)
    with pytest.raises(GlauberError, match="15 steps after the burn-in are too few"):
        diagnose(run)
    assert diagnose(run, burn_in=0).n_steps == 30
    for burn_in in (-1, 31):
        with pytest.raises(GlauberError, match=r"burn.in"):
            diagnose(run, burn_in=burn_in)


def test_longest_run():
    for flags in ([], [0], [1], [1, 1, 0, 1], [0, 1, 1, 1, 0, 1]):
        by_hand = max(map(len, "".join(map(str, flags)).split("0")))
        assert longest_run(np.array(flags, bool)) == by_hand


def conserved(seed=0, n_steps=6000):
    """Ten sites of which six keep one token under a sharp conditional, as in a protein."""
    rng = np.random.default_rng(seed)
    start = np.tile(rng.choice(WORDS, size=10), (CHAINS, 1))
    sites = rng.integers(10, size=(CHAINS, n_steps))
    drawn = rng.choice(WORDS, size=sites.shape)
    tokens = np.where(sites < 6, np.take_along_axis(start, sites, axis=1), drawn)
    return start, sites, tokens, np.where(sites < 6, 0.05, 3.0)


def test_sites_that_the_law_conserves_are_settled_not_frozen(tmp_path):
    start, sites, tokens, entropy = conserved()
    found = diagnose(crafted_run(tmp_path / "run", start, sites, tokens, entropy=entropy))
    assert found.motions.summary == "all 4 chains move"
    assert found.motions.sites_settled == pytest.approx([0.6] * 4)
    assert found.motions.sites_moved == pytest.approx([0.4] * 4)
    distinct = next(row for row in found.rows if row.statistic == "distinct")
    assert distinct.ess > 300 and distinct.r_hat < 1.05 and "not mixed" not in found.verdict
    assert "60% of a chain's sites are settled" in str(found)


def test_sites_that_could_change_or_differ_between_chains_are_frozen(tmp_path):
    """Six sites stand still under a wide conditional, or in another token in each chain."""
    start, sites, tokens, entropy = conserved()
    wide = diagnose(crafted_run(tmp_path / "wide", start, sites, tokens, entropy=entropy + 1))
    assert wide.motions.of("partly frozen") == [0, 1, 2, 3] and no_figure(wide)
    start[1, :6] = WORDS[0] + (start[1, :6] - WORDS[0] + 1) % len(WORDS)
    apart = np.where(sites < 6, np.take_along_axis(start, sites, axis=1), tokens)
    found = diagnose(crafted_run(tmp_path / "apart", start, sites, apart, entropy=entropy))
    assert found.motions.of("partly frozen") == [0, 1, 2, 3]


def test_statistics_of_one_s_own(tmp_path):
    run = crafted_run(tmp_path / "run", *events())
    found = diagnose(run, statistics={"letters": len})
    (row,) = found.rows
    assert row.statistic == "letters"
    due = [len(run.text(2, step)) for step in range(201, 401)]
    np.testing.assert_array_equal(found.values["letters"][2], due)
    assert [row.statistic for row in diagnose(run, statistics="distinct,log_prob").rows] == [
        "distinct",
        "log_prob",
    ]
    for given, why in (("distinkt", "did you mean distinct"), ({"x": 3}, "functions of a text")):
        with pytest.raises(GlauberError, match=why):
            diagnose(run, statistics=given)


def test_chains_of_different_temperatures_are_judged_apart(tmp_path):
    start, sites, tokens = events(n_steps=1000)
    freeze(start, sites, tokens, 2)
    run = crafted_run(tmp_path / "run", start, sites, tokens, temperature=[0.5, 0.5, 0.1, 0.5])
    found = diagnose(run, statistics="distinct")
    assert [(row.statistic, row.state) for row in found.rows] == [
        ("distinct at 0.1", "frozen"),
        ("distinct at 0.5", found.rows[1].state),
    ]
    assert found.rows[1].ess is not None and "frozen: chain 2" in found.verdict


def test_the_answer(tmp_path):
    start, sites, tokens = events()
    freeze(start, sites, tokens, 2)
    crafted_run(tmp_path / "run", start, sites, tokens)
    found = diagnose(tmp_path / "run")
    told = found.to_dict()
    assert told["rows"][0]["ess"] is None and "values" not in told
    assert told["motions"]["chains"] == ["moving", "moving", "frozen", "moving"]
    assert "frozen: chain 2" in str(found)
    first = found.figures()["distinct"]
    assert len(first.data) == CHAINS and first.data[0].x[-1] == STEPS
    crafted_run(tmp_path / "moving", *events())
    said = str(diagnose(tmp_path / "moving"))
    assert "not shown to be mixed" in said and "partly" not in said


def test_a_single_chain_is_spoken_of_as_one(tmp_path):
    found = diagnose(crafted_run(tmp_path / "run", *events(n_chains=1)))
    assert found.motions.summary == "the only chain moves" and "1 chain, " in str(found)
