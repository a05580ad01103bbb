"""Rectangles against closed forms and brute force."""

import itertools
import math

import pytest
import torch

from glauber.compatibility.rectangle_test import evaluate as rectangles
from glauber.conditionals.base import PAD, Restricted, Tempered, log_probs
from glauber.conditionals.table import Joint, Table
from glauber.errors import GlauberError


def every_rectangle(vocab_size: int, length: int):
    """tokens, sites and values of all rectangles with a' != a and b' != b."""
    found = []
    for tokens in itertools.product(range(vocab_size), repeat=length):
        for i, j in itertools.permutations(range(length), 2):
            for a, b in itertools.product(range(vocab_size), repeat=2):
                if a != tokens[i] and b != tokens[j]:
                    found.append((tokens, (i, j), (a, b)))
    return tuple(torch.tensor(column) for column in zip(*found, strict=True))


def by_hand_table() -> Table:
    """Two sites, two tokens; probability of token 1: .8 and .5 at site 0, .25 and .9 at site 1."""
    entries = torch.zeros(2, 3, 3, 2, dtype=torch.float64)
    # The context's own site is 2 (hidden); the other one is the token that is seen.
    entries[0, 2, 0] = torch.tensor([0.2, 0.8]).double().log()
    entries[0, 2, 1] = torch.tensor([0.5, 0.5]).double().log()
    entries[1, 0, 2] = torch.tensor([0.75, 0.25]).double().log()
    entries[1, 1, 2] = torch.tensor([0.1, 0.9]).double().log()
    return Table(entries)


ONE = torch.tensor([[0, 0]]), torch.tensor([[0, 1]]), torch.tensor([[1, 1]])


@pytest.mark.parametrize(("vocab_size", "length"), [(2, 2), (3, 3), (2, 4)])
@pytest.mark.parametrize("strength", [1.0, 10.0])
def test_every_rectangle_of_a_joint_law_closes(vocab_size, length, strength):
    for seed in range(5):
        law = Joint.random(vocab_size, length, seed=seed, strength=strength)
        found = rectangles(law, *every_rectangle(vocab_size, length))
        assert float(found.delta.max()) < 1e-12
        assert float(found.log_ratios.abs().max()) > strength / 10  # edges that cancel


def test_a_table_by_hand_has_its_closed_form():
    """Odds 4 and 9 one way, 1/3 and 1 the other way: log(36) - log(1/3) = log(108)."""
    found = rectangles(by_hand_table(), *ONE)
    expected = torch.tensor([[4.0, 9.0, 1 / 3, 1.0]]).double().log()
    torch.testing.assert_close(found.log_ratios, expected)
    assert float(found.delta) == pytest.approx(math.log(108), abs=1e-6)
    torch.testing.assert_close(found.influence, torch.tensor([[0.3, 0.65]]).double())


def test_the_other_rectangles_of_that_table_are_the_same_loop():
    """A 2 x 2 table has one loop: from whichever corner, in whichever order."""
    found = rectangles(by_hand_table(), *every_rectangle(2, 2))
    assert len(found) == 8
    torch.testing.assert_close(found.delta, torch.full((8,), math.log(108)).double())


def test_against_brute_force_on_a_random_table():
    law = Table.random(3, 3, seed=4)
    tokens, sites, values = every_rectangle(3, 3)
    found = rectangles(law, tokens, sites, values)

    def log_prob(row, site, new):
        laws = log_probs(law, torch.tensor([row]), torch.tensor([[site]]))[0, 0]
        return float(laws[new])

    for which in range(0, len(tokens), 37):
        x, (i, j), (a, b) = (t[which].tolist() for t in (tokens, sites, values))
        with_a, with_b = list(x), list(x)
        with_a[i], with_b[j] = a, b
        total = log_prob(x, i, a) - log_prob(x, i, x[i])
        total += log_prob(with_a, j, b) - log_prob(with_a, j, x[j])
        total -= log_prob(x, j, b) - log_prob(x, j, x[j])
        total -= log_prob(with_b, i, a) - log_prob(with_b, i, x[i])
        assert float(found.delta[which]) == pytest.approx(abs(total), abs=1e-12)
        tv = sum(
            abs(math.exp(log_prob(x, i, v)) - math.exp(log_prob(with_b, i, v))) for v in range(3)
        )
        assert float(found.influence[which, 0]) == pytest.approx(tv / 2, abs=1e-12)
        both = list(with_a)
        both[j] = b
        assert found.corners[which].tolist() == [x, with_a, with_b, both]


def test_delta_falls_with_temperature_and_ignores_the_allowed_vocabulary():
    law = Table.random(4, 3, seed=1)
    question = torch.tensor([[0, 1, 2]]), torch.tensor([[0, 2]]), torch.tensor([[1, 0]])
    plain = rectangles(law, *question).delta
    torch.testing.assert_close(rectangles(Tempered(law, 2.5), *question).delta, plain / 2.5)
    allowed = torch.tensor([True, True, True, False])
    torch.testing.assert_close(rectangles(Restricted(law, allowed), *question).delta, plain)


def test_asking_for_two_tokens_only_gives_the_same_deltas():
    law = Table.random(3, 3, seed=2)
    question = every_rectangle(3, 3)
    brief = rectangles(law, *question, influence=False)
    assert brief.influence is None
    assert torch.equal(brief.delta, rectangles(law, *question).delta)


@pytest.mark.parametrize(
    ("tokens", "sites", "values", "said"),
    [
        ([[0, 1]], [[0, 2]], [[1, 0]], r"sites \(0, 2\) of rectangle 0 lie outside its text"),
        ([[0, 1]], [[-1, 1]], [[1, 0]], "lie outside its text"),
        ([[0, 1, PAD]], [[0, 2]], [[1, 0]], "sites 0 to 1"),
        ([[0, PAD]], [[0, 1]], [[1, 0]], "only one token"),
        ([[0, 1]], [[1, 1]], [[1, 0]], "the same site"),
        ([[0, 1]], [[0, 1]], [[2, 0]], "outside the vocabulary"),
        ([[0, 1]], [[0]], [[1, 0]], "two sites and two replacements"),
    ],
)
def test_refusals(tokens, sites, values, said):
    question = (torch.tensor(t) for t in (tokens, sites, values))
    with pytest.raises(GlauberError, match=said):
        rectangles(by_hand_table(), *question)


def test_a_forbidden_current_token_is_refused():
    law = Restricted(by_hand_table(), torch.tensor([False, True]))
    with pytest.raises(GlauberError, match="probability 0"):
        rectangles(law, *ONE)
