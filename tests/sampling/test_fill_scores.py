"""Fills are ranked by what enumeration gives: probabilities of whole texts, of any length."""

import itertools
import json

import numpy as np
import pytest
import torch

import glauber
from glauber.models.base import PAD
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint

LETTERS = "abcd"
FIRST = np.array([0.4, 0.3, 0.2, 0.1])
# After a comes mostly a; b and c follow each other almost surely, once they are reached.
NEXT = np.array(
    [
        [0.70, 0.08, 0.02, 0.20],
        [0.04, 0.01, 0.94, 0.01],
        [0.05, 0.93, 0.01, 0.01],
        [0.40, 0.20, 0.20, 0.20],
    ]
)


def log_prob(text):
    """Of a text among those of its length."""
    path = [LETTERS.index(letter) for letter in text]
    return float(np.log(FIRST[path[0]]) + np.log(NEXT[path[:-1], path[1:]]).sum())


class Markov:
    """The conditionals of a Markov chain over texts of any length, by enumeration."""

    vocab_size, name, vocabulary = 4, "markov", tuple(LETTERS)

    def scores(self, tokens, sites):
        return torch.stack([self._row(*row) for row in zip(tokens, sites, strict=True)])

    def _row(self, tokens, sites):
        length = int((tokens != PAD).sum())
        hidden = sorted({*sites.tolist()} - {PAD})
        fills = np.array(list(itertools.product(range(4), repeat=len(hidden))))
        states = np.repeat(tokens[None, :length].numpy(), len(fills), axis=0)
        states[:, hidden] = fills
        weights = FIRST[states[:, 0]] * NEXT[states[:, :-1], states[:, 1:]].prod(axis=1)
        laws = [
            np.bincount(states[:, max(site, 0)], weights, minlength=4) for site in sites.tolist()
        ]
        return torch.from_numpy(np.log(laws))


@pytest.mark.parametrize("blanks", ["a[MASK:1-4]a", "[MASK:0-1]a[MASK:1-2]", "c[MASK:1-3]a"])
def test_lengths_are_ranked_by_the_probabilities_of_the_whole_texts(blanks):
    found = glauber.infill(Markov(), blanks, temperature=0)
    frame = found.frame()
    wanted = [log_prob(text) for text in frame["text"]]
    assert len(frame) > 2 and wanted == sorted(wanted, reverse=True)
    np.testing.assert_allclose(frame["score"].diff()[1:], np.diff(wanted), atol=1e-9)
    # Over all lengths tried, the probabilities of the lengths add up to one.
    assert np.exp(frame["length_log_prob"]).sum() == pytest.approx(1)
    assert found.to_dict()["kinds"]["score"] == "estimate"


def test_a_short_fill_beats_a_long_predictable_one():
    """By means a token the cycle of b and c would win, though it is the least likely text."""
    found = glauber.infill(Markov(), "a[MASK:1-4]b", temperature=0, order="left-to-right")
    assert found.texts[found.ranking[0]] == max(found.texts, key=log_prob)
    assert len(found.texts[found.ranking[0]]) == 3


JOINT = Joint.random(3, 4, seed=5, strength=2.0)


@pytest.mark.parametrize(
    "how", [{"correct": 2}, {"remask": "rescale:0.5", "passes": 5}, {"order": "drawn"}, {}]
)
def test_fills_of_a_joint_law_are_ranked_by_it_however_they_were_made(how):
    found = glauber.infill(JOINT, "1[MASK:3]", temperature=1.0, chains=40, **how)
    law = JOINT.probabilities().view(3, -1)[1].log()
    law = law - law.logsumexp(0)
    filled = found.written.tokens[:, 1:] @ np.array([9, 3, 1])
    np.testing.assert_allclose(found.blanks.scores.fill, law.numpy()[filled], atol=1e-9)
    frame = found.frame()
    wanted = [float(law[int(text[1:], 3)]) for text in frame["text"]]
    assert wanted == sorted(wanted, reverse=True) and len(set(wanted)) > 5
    assert (frame["length_log_prob"] == 0).all()
    # The path has a log-probability where each token was drawn once; then it is the same.
    if how:
        assert np.isnan(found.log_probs).all()
    else:
        np.testing.assert_allclose(found.log_probs, found.blanks.scores.fill, atol=1e-6)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"correct": 1}, "correction sweeps redraw tokens"),
        ({"remask": "conf"}, "placed tokens are hidden again"),
        ({"order": "drawn"}, "the order depends on the tokens drawn"),
    ],
)
def test_a_path_without_log_probability_says_why(how, reason):
    found = glauber.generate(JOINT, length=4, chains=3, **how)
    said = json.loads(json.dumps(found.to_dict()))
    assert said["log_prob"] == f"none, because {reason}"
    assert all(row["log_prob"] is None for row in said["rows"])
    assert f"log-probability of the path: none, because {reason}" in str(found)
    assert "exact" not in str(found)
    cold = glauber.generate(JOINT, length=4, chains=1, temperature=0, order="drawn")
    assert np.isfinite(cold.log_probs).all()


def test_special_tokens_of_the_context_are_given(tiny_folder):
    """Tokens that are never drawn have no log-probability: they stay visible."""
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    found = glauber.infill(model, ["the [MASK:1-2] sat .", "[MASK] cat"], chains=2, temperature=1.0)
    assert np.isfinite(found.blanks.scores.total).all()
    frame = found.frame()
    assert (frame[frame["number"] == 2]["length_log_prob"] == 0).all()
    np.testing.assert_allclose(frame["score"], frame["fill_log_prob"] + frame["length_log_prob"])
