"""Are the sentences chosen that are like the given ones, and none that is held out?"""

import math

import pytest

from glauber.translation.data import write_pairs
from recipes.similar_sentences import Bigrams, main, similar

LIKE = ["I like the cat.", "I like the dog.", "You like the cat."]


def test_the_law_is_a_law():
    law = Bigrams(LIKE)
    words = [*law.words, "never"]
    # What follows "like": the known words and one that was never seen have at most all the mass.
    alone = {word: (law.words[word] + 0.1) / law.total for word in words}
    after = [(law.pairs["like", w] + 4 * alone[w]) / (law.words["like"] + 4) for w in words]
    assert sum(after) < 1
    assert law.surprise(["i"]) == pytest.approx(
        -(math.log((2 + 4 * 2.1 / law.total) / 7) + math.log((0 + 4 * 3.1 / law.total) / (2 + 4)))
        / 2
    )


def test_the_most_alike_come_first_and_held_out_ones_never(tmp_path):
    candidates = ["You like the dog.", "Quantum fields obey locality.", "I like the cat.", "no end"]
    assert similar(candidates, LIKE, [], 1) == ["You like the dog."]
    assert sorted(similar(candidates, LIKE, ["You like the dog!"], 9)) == [candidates[1]]
    write_pairs(tmp_path / "like.tsv", [(source, "x") for source in LIKE])
    (tmp_path / "text.txt").write_text(" ".join(candidates) + "\n")
    out = tmp_path / "out.txt"
    main([str(tmp_path / "text.txt"), "--like", str(tmp_path / "like.tsv"), "--out", str(out)])
    assert sorted(out.read_text().split("\n")) == sorted([*candidates[:2], ""])
