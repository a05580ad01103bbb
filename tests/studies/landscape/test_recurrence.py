"""The recurrence table and its episodes, by hand and by brute force."""

from itertools import pairwise, permutations, product

import numpy as np
import pytest

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import median_time
from glauber.sampling.sample import sample
from glauber.studies.landscape import recurrence as module
from glauber.studies.landscape.recurrence import (
    episodes,
    exchangeable_p_values,
    label_rows,
    recurrence,
    seeds_of,
)
from glauber.studies.landscape.scorers import TopicScores, agreement
from glauber.texts.starts import passages

# Scores of `a` among two labels (baseline 0.5) at looks 10 steps apart.
A = np.array(
    [
        [0.1, 0.6, 0.7, 0.2, 0.9],  # up twice: once for two looks, once still there
        [0.2, 0.2, 0.5, 0.4, 0.3],  # never above: 0.5 is the baseline itself
        [0.8, 0.3, 0.3, 0.6, 0.1],  # began above, left, came back after two looks, left
    ]
)


def scores(values, name="by hand"):
    both = np.stack([values, 1 - values], axis=2)
    return TopicScores(np.arange(values.shape[1]) * 10, both, ("a", "b"), name, 10)


def test_the_table_by_hand():
    found = recurrence(scores(A), "a", seeds=["b", "b", "a"])
    first, second, everyone = found.rows
    assert [row.seed for row in found.rows] == ["b", "a", "all"]
    assert (found.baseline, found.n_steps, found.every) == (0.5, 40, 10)
    assert (first.crossed, second.crossed, everyone.crossed) == (1, 1, 2)
    assert first.tracked_start.value == pytest.approx(0.15)
    assert first.tracked_end.value == pytest.approx(0.6)
    assert first.rise.value == pytest.approx(0.45)
    assert first.seed_start.value == pytest.approx(0.85)
    assert second.seed_start.value == pytest.approx(0.8) and second.tracked_start.interval is None
    assert everyone.seed_start is None and everyone.crossings.value == pytest.approx(1)
    assert everyone.peak == 0.9 and everyone.peak_at == (0, 40)
    assert everyone.mean_peak.value == pytest.approx((0.9 + 0.5 + 0.8) / 3)
    # Above, once entered: 20 steps, then one cut short after 10, and 10 steps.
    assert everyone.dwell.value == 20
    # Away, once left: 10 in the first chain, 20 and one cut short after 10 in the third.
    assert everyone.away.value == 20
    low, high = everyone.crossed_interval
    assert low < 2 / 3 < high


def test_episodes_against_a_walk_along_each_row():
    above = np.random.default_rng(0).random((40, 30)) < 0.4
    found = episodes(above, 7)
    expected = []
    for chain, row in enumerate(above):
        length = None  # not entered while looking
        for before, now in pairwise(row):
            if now and not before:
                length = 0
            length = length + 7 if now and length is not None else length
            if before and not now:
                if length is not None:
                    expected.append((length, True, chain))
                length = None
        if row[-1] and length is not None:
            expected.append((length, False, chain))
    assert list(zip(found.steps, found.ended, found.chain, strict=True)) == expected


def test_the_median_and_its_interval():
    """Geometric episodes: the interval holds the median and shrinks with the number of chains."""
    rng = np.random.default_rng(1)
    widths = []
    for n_chains in (20, 320):
        above = np.zeros((n_chains, 400), bool)
        for row in above:
            now = False
            for look in range(1, 400):
                now = rng.random() < (0.9 if now else 0.2)
                row[look] = now
        found = episodes(above, 1)
        middle = found.median()
        assert middle.value == median_time(found.steps, found.ended).value
        assert middle.interval[0] <= 7 <= middle.interval[1]  # 0.9^7 < 1/2 < 0.9^6
        widths.append(middle.interval[1] - middle.interval[0])
    assert widths[1] <= widths[0]
    none = episodes(np.zeros((3, 5), bool), 1)
    assert none.median().value is None
    cut = episodes(np.array([[False, True, True]] * 3), 1).median()
    assert cut.value is None and cut.interval == (None, None)


def walks(rng, n_chains, n_snapshots, enter, leave):
    """Scores of independent labels, each entered and left at its own rate; below at first."""
    above = np.zeros((n_chains, n_snapshots, len(enter)), bool)
    for k in range(1, n_snapshots):
        up, down = (rng.random((n_chains, len(enter))) < rate for rate in (enter, leave))
        above[:, k] = np.where(above[:, k - 1], ~down, up)
    values = np.where(above, 0.9, 0.01)  # the baseline of four labels is 0.25
    labels = tuple("abcdefghi"[: len(enter)])
    return TopicScores(np.arange(n_snapshots) * 10, values, labels, "by hand", 10)


@pytest.mark.parametrize("n_chains", [2, 4, 8, 12])
def test_labels_that_are_alike_are_not_called_special(n_chains, monkeypatch):
    """Nine exchangeable labels: in 400 runs at most 5% + 4 sigma may name one (38)."""
    monkeypatch.setattr(module, "ORDERS", 199)
    rng, wrong = np.random.default_rng(5), 0
    for _ in range(400):
        crossed = rng.random((n_chains, 9)) < 0.3
        p_values = exchangeable_p_values(crossed, np.ones_like(crossed), orders=199)
        wrong += bool((p_values <= 0.05).any())
    assert wrong <= 38
    rows = label_rows(walks(rng, n_chains, 8, [0.15] * 9, [0.5] * 9))
    assert all(row.special == "not told from the others" for row in rows)


def test_one_clear_label_among_nine_is_found_with_eight_chains(monkeypatch):
    """Crossed by 4 chains in 5 where the others are crossed by 1 in 5: told in most runs."""
    monkeypatch.setattr(module, "ORDERS", 199)
    rng, told, others = np.random.default_rng(6), 0, 0
    for _ in range(40):
        first, *rest = label_rows(walks(rng, 8, 9, [0.18] + [0.027] * 8, [0.5] * 9))
        told += first.special == "more than the others"
        others += any(row.special == "more than the others" for row in rest)
    assert told >= 16  # of 40: 67% are expected, less 3.5 sigma
    assert others <= 7  # 5% plus 3.5 sigma


def test_the_p_values_are_those_of_all_swaps_of_labels():
    """Four chains and three labels, one of which began above in the last chain, by enumeration."""
    crossed = np.array([[1, 0, 0], [1, 0, 1], [1, 0, 0], [1, 0, 0]], bool)
    below = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 0]], bool)

    def swaps(row, eligible):
        places = np.flatnonzero(eligible)
        for order in permutations(places):
            swapped = row.copy()
            swapped[places] = row[list(order)]
            yield swapped

    def differences(rows):
        """The sum over chains of a label less the mean of the others, (labels,)."""
        total = np.zeros(3)
        for row, eligible in zip(rows, below, strict=True):
            for label in np.flatnonzero(eligible):
                others = [row[other] for other in np.flatnonzero(eligible) if other != label]
                total[label] += row[label] - np.mean(others)
        return total

    chains = (list(swaps(*each)) for each in zip(crossed, below, strict=True))
    every = np.array([differences(rows) for rows in product(*chains)])
    deviations = np.abs(every) / every.std(axis=0)
    observed = np.abs(differences(crossed)) / every.std(axis=0)
    expected = (deviations.max(axis=1)[:, None] >= observed - 1e-9).mean(axis=0)
    p_values = exchangeable_p_values(crossed, below, orders=9999)
    np.testing.assert_allclose(p_values, expected, atol=4 * 0.5 / np.sqrt(9999))


def test_a_label_that_is_entered_more_often_is_found_both_ways():
    rng = np.random.default_rng(6)
    found = recurrence(walks(rng, 40, 12, [0.5, 0.1, 0.1, 0.1], [0.5] * 4), "a")
    first, *others = found.labels
    assert first.special == "more than the others" and first.against_others_p <= 0.01
    assert all(row.special != "more than the others" for row in others)
    rare = label_rows(walks(rng, 40, 12, [0.4, 0.4, 0.4, 0.02], [0.5] * 4))[3]
    assert rare.special == "less than the others"
    crossed = [row.crossed / 40 for row in found.labels]
    assert [row.share.value for row in found.labels] == crossed  # all began below
    assert first.against_others.value == pytest.approx(crossed[0] - np.mean(crossed[1:]))
    assert "more than the others" in str("\n".join(found.lines()))


def test_chains_that_began_above_are_left_out_of_the_comparison():
    found = recurrence(scores(A), "a")  # the third chain began above `a`, the others above `b`
    row = found.of("a")
    assert (row.crossed, row.n_chains, row.began_below) == (2, 3, 2)
    assert row.share.value == 0.5
    assert row.against_others.reason == "no chain gave a value"  # `b` began above there


def test_random_order_tells_persistence_from_chance():
    """Sticky chains cross less often than their snapshots mixed, and stay; without memory not."""
    rng = np.random.default_rng(7)
    sticky = label_rows(walks(rng, 30, 30, [0.03] * 4, [0.03] * 4))
    for row in sticky:
        assert row.random_order_p < 0.05 and row.share.value < row.random_order
        assert row.stays.interval[0] > row.stays_random
    free = label_rows(walks(rng, 30, 10, [0.1] * 4, [0.9] * 4))  # above with chance 0.1 each time
    assert all(row.random_order_p > 0.05 for row in free)
    for row in free:
        assert row.stays.interval[0] <= row.stays_random <= row.stays.interval[1]
        assert row.random_order == pytest.approx(1 - 0.9**9, abs=0.15)


@pytest.mark.parametrize("n_chains", [2, 8])
def test_few_chains_say_so(n_chains):
    found = recurrence(walks(np.random.default_rng(1), n_chains, 12, [0.3] * 4, [0.3] * 4), "a")
    assert "\n".join(found.lines())
    for row in found.labels:
        assert (row.against_others.interval is None) == (n_chains == 2)


def test_bad_input():
    with pytest.raises(GlauberError, match="one chain only"):
        recurrence(scores(A[:1]), "a")
    with pytest.raises(GlauberError, match="2 seed topics for 3 chains"):
        recurrence(scores(A), "a", seeds=["a", "b"])
    with pytest.raises(GlauberError, match="not among the labels"):
        recurrence(scores(A), "c")


def test_two_scorers_side_by_side():
    same = agreement(scores(A), scores(A, "again"), "a")
    assert same.same_label == 1 and same.rank_correlation == pytest.approx(1)
    other = agreement(scores(A), scores(1 - A, "against"), "a")
    assert other.rank_correlation == pytest.approx(-1) and other.same_label < 0.2
    assert agreement(scores(A), scores(np.full_like(A, 0.3)), "a").rank_correlation is None
    with pytest.raises(GlauberError, match="same labels and snapshots"):
        agreement(scores(A), scores(A[:, :3]), "a")


@pytest.mark.weights
def test_bundled_starts_are_known_again(texts):
    run = sample("bundled:english", steps=0, chains=5, length=12, prefix="They said that")
    assert seeds_of(run) == [topic for topic, _ in passages()[:5]]
    assert seeds_of(sample("bundled:english", [texts[0]], steps=0)) is None
