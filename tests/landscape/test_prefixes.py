"""Distinctive words, and the pulls of prefixes on a tiny model."""

import numpy as np
import pytest

from conftest import TEXTS
from glauber.errors import GlauberError
from glauber.landscape.prefixes import NONE, prefix_runs, prefix_study
from glauber.landscape.topics import Scorer
from glauber.landscape.words import PRIOR, distinctive_words, words_of

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


LABELS = ("the", "not the")
READ: list[str] = []


def share(texts):
    READ.extend(texts)
    with_the = [sum(w == "the" for w in text.split()) / max(1, len(text.split())) for text in texts]
    return np.stack([with_the, 1 - np.array(with_the)], axis=1)


def test_a_pull_is_the_difference_to_the_partner(tiny_folder):
    prefixes = ("the red cat", "we will be")
    told = []
    runs = dict(
        prefix_runs(
            str(tiny_folder), prefixes, texts=TEXTS, chains=6, length=5, steps=40, seed=2,
            starting=told.append,
        )
    )  # fmt: skip
    assert told == [NONE, *prefixes] == list(runs)
    READ.clear()
    found = prefix_study(runs, Scorer("share", LABELS, share), every=10)
    assert not any(text.startswith(prefixes) for text in READ)
    assert [pull.prefix for pull in found.pulls] == list(prefixes) and found.n_looks == 2
    for pull in found.pulls:
        run = runs[pull.prefix]
        assert all(run.text(c).startswith(pull.prefix) for c in range(6))
        values = []
        for chain in range(6):
            mine, partner = (
                np.mean([
                    share([r.vocabulary.decode(r.tokens(s)[chain][r.free[chain]])])[0, 0]
                    for s in (30, 40)
                ])
                for r in (run, runs[NONE])
            )  # fmt: skip
            values.append(mine - partner)
        assert pull.pull["the"].value == pytest.approx(np.mean(values))
        reach = (pull.pull["the"].interval[1] - pull.pull["the"].interval[0]) / 2
        assert reach == pytest.approx(2.5706 * np.std(values, ddof=1) / np.sqrt(6), rel=1e-3)


def test_bad_prefixes(tiny_folder):
    with pytest.raises(GlauberError, match="prefix is empty"):
        next(prefix_runs(str(tiny_folder), ["the", " "], steps=1))
    with pytest.raises(GlauberError, match="given twice"):
        next(prefix_runs(str(tiny_folder), ["the", "the"], steps=1))
    made = dict(prefix_runs(str(tiny_folder), ["the"], texts=TEXTS, chains=1, length=4, steps=3))
    with pytest.raises(GlauberError, match="one chain only"):
        prefix_study(made, Scorer("share", LABELS, share))
    with pytest.raises(GlauberError, match="the run without one"):
        prefix_study({"the": made["the"]}, Scorer("share", LABELS, share))
