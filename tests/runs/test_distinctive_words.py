"""Words that tell two groups of chains apart, by hand and on groups of known laws."""

import numpy as np
import pytest

from glauber.foundation.errors import GlauberError
from glauber.runs.distinctive_words import PRIOR, distinctive, distinctive_words, words_of

WORDS = [f"{a}{b}" for a in "bcdfghjklm" for b in "aeiou"]


def group(rng, n_chains, weights):
    return [
        [" ".join(rng.choice(WORDS, 20, p=weights)) for _ in range(10)] for _ in range(n_chains)
    ]


def test_words_are_counted_in_small_letters():
    assert words_of(["It's 3 Dogs, it's", "DOGS"]) == {"it's": 2, "dogs": 2}


def test_the_log_odds_by_hand():
    first, second = [["a a b"], ["a b b"]], [["b b a"], ["b b b"]]
    found = {one.word: one for one in distinctive_words(first, second, fewest=1)}
    prior = PRIOR * np.array([4, 8]) / 12  # a, b
    one = np.log((3 + prior[0]) / (3 + prior[1]))
    other = np.log((1 + prior[0]) / (5 + prior[1]))
    assert found["a"].log_odds == pytest.approx(one - other)
    assert found["a"].log_odds == pytest.approx(-found["b"].log_odds)
    assert found["a"].counts == (3, 1) and found["a"].chains == (2, 1)
    assert found["a"].standard_error >= np.sqrt(1 / (3 + prior[0]) + 1 / (1 + prior[0]))


def test_a_word_used_more_is_found_and_others_are_not():
    rng = np.random.default_rng(0)
    even = np.full(len(WORDS), 1 / len(WORDS))
    tilted = even.copy()
    tilted[7] *= 3
    found = distinctive_words(group(rng, 20, tilted / tilted.sum()), group(rng, 20, even))
    assert found[0].word == WORDS[7] and found[0].sure
    assert sum(one.sure for one in found) == 1
    false = 0
    for _ in range(20):
        same = distinctive_words(group(rng, 20, even), group(rng, 20, even))
        false += any(one.sure for one in same)
    assert false <= 4  # at 5% each: more than 4 of 20 has a chance of 0.3%


def test_one_chain_that_repeats_a_word_is_no_evidence():
    """A word a thousand times in one chain, once in another: many words, one witness."""
    rng = np.random.default_rng(1)
    even = np.full(len(WORDS), 1 / len(WORDS))
    first, second = group(rng, 12, even), group(rng, 12, even)
    first[0] = ["stuck " * 20] * 10
    first[1][0] += " stuck"
    found = {one.word: one for one in distinctive_words(first, second)}
    naive = np.sqrt(1 / 201 + 1 / (PRIOR * 201 / 4801))
    assert found["stuck"].standard_error > 1.5 * naive and not found["stuck"].sure


def test_few_words():
    assert distinctive_words([["a"], ["b"]], [["c"], ["d"]]) == []
    assert distinctive_words([["a a"] * 9, ["a"]], [["a"], ["a"]]) == []
    with pytest.raises(GlauberError, match="one chain only"):
        distinctive_words([["a"]], [["b"], ["c"]])


def test_both_directions_mirror_each_other():
    rng = np.random.default_rng(2)
    even = np.full(len(WORDS), 1 / len(WORDS))
    first, second = group(rng, 6, even), group(rng, 6, even)
    one = {w.word: w.log_odds for w in distinctive_words(first, second)}
    other = {w.word: w.log_odds for w in distinctive_words(second, first)}
    assert one.keys() == other.keys()
    assert all(one[word] == pytest.approx(-other[word]) for word in one)


def test_bags_are_compared_by_the_same_log_odds():
    first, second = [["a a b c"], ["a b b c"]], [["b b a c"], ["b b b c"]]
    bags = [words_of([text for chain in group for text in chain]) for group in (first, second)]
    chosen = distinctive(*bags, 5)
    odds = {w.word: w.log_odds for w in distinctive_words(first, second, fewest=1)}
    assert set(chosen) == {word for word, one in odds.items() if one > 0} and chosen[0] == "a"
