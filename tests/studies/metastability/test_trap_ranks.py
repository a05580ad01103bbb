"""Ranks of durations that recur and are cut off, on traps whose true order is known."""

import numpy as np
import pytest
from scipy.stats import binom, kendalltau, spearmanr

from glauber.studies.metastability.traps import trap_ranks


def drawn(n_families, rng, slope):
    """Durations, whether they ended, two gaps and the family of traps that come back often."""
    family = np.repeat(np.arange(n_families), rng.geometric(0.2, size=n_families))
    mean = rng.normal(size=n_families)
    least = 0.6 * mean + 0.8 * rng.normal(size=n_families)
    own = 1.2 * rng.normal(size=n_families)  # what the gap does not tell of a text
    lasts = np.exp(slope * mean + own)[family] * rng.exponential(size=len(family))
    cut = rng.exponential(3.0, size=len(family))
    return np.minimum(lasts, cut), lasts <= cut, [mean[family], least[family]], family


def ranks(durations, ended, gaps, family):
    return trap_ranks(durations, ended, gaps, text=family, family=family)


def test_without_recurrence_and_cuts_it_is_kendalls():
    rng = np.random.default_rng(0)
    lasts, mean, least = rng.normal(size=(3, 12))
    found = ranks(lasts, np.ones(12, bool), [mean, least], np.arange(12))
    assert found.by_mean_gap.value == pytest.approx(kendalltau(lasts, mean).statistic)
    assert found.by_min_gap.value == pytest.approx(kendalltau(lasts, least).statistic)
    assert found.by_mean_gap.n_pairs == 66


def test_a_duration_that_was_cut_off_is_only_longer_than_shorter_ones():
    gaps = np.array([1.0, 2.0, 3.0, 4.0])
    found = ranks([10, 20, 15, 30], [True, True, False, True], [gaps, -gaps], np.arange(4))
    # 15 or more: after 10, but its place among 20 and 30 is unknown. Five pairs less those two.
    assert found.by_mean_gap.n_pairs == 4 and found.by_mean_gap.value == 1
    assert found.by_min_gap.value == -1 and found.difference.value == 2
    assert -1 <= found.by_mean_gap.interval[0] < found.by_mean_gap.interval[1] == 1
    assert trap_ranks([1, 2], [True] * 2, [gaps, gaps], text=[0, 1], family=[0, 1]) is None
    assert ranks([10] * 4, [True] * 4, [gaps, gaps], np.arange(4)) is None


def test_two_chains_give_no_interval():
    durations, ended, gaps, family = drawn(10, np.random.default_rng(3), 1.0)
    for n_chains, known in ((2, False), (3, True)):
        found = trap_ranks(
            durations, ended, gaps, text=family, family=family, chain=family % n_chains
        )
        assert (found.difference.interval is not None) == known
        assert ("three chains" in found.by_mean_gap.reason) == (not known)
        assert known or found.better is None


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_intervals_over_families_keep_their_level(slope):
    """Of 95% intervals so few as are let pass here come once in a thousand times."""
    exact = np.mean([values(ranks(*drawn(80, np.random.default_rng(k), slope))) for k in range(40)],
                    axis=0)  # fmt: skip
    rng, held, naive, trials = np.random.default_rng(7), np.zeros(3), 0, 150
    for _ in range(trials):
        durations, ended, gaps, family = drawn(10, rng, slope)
        found = ranks(durations, ended, gaps, family)
        each = (found.by_mean_gap, found.by_min_gap, found.difference)
        ends = np.array([one.interval for one in each])
        held += (ends[:, 0] <= exact) & (exact <= ends[:, 1])
        naive += spearmanr(durations, gaps[0]).pvalue < 0.05
    assert (held > binom.ppf(0.001, trials, 0.95)).all()
    if slope == 0:  # taken as independent, traps that come back are false news too often
        assert naive > binom.ppf(0.999, trials, 0.05)


def values(found):
    return [found.by_mean_gap.value, found.by_min_gap.value, found.difference.value]
