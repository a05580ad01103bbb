"""Are the finite laws what they say they are? Everything is compared with plain loops."""

import itertools
import math

import pytest
import torch

from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD, Clamped, Restricted
from glauber.models.table import Joint, Table


def brute_force(joint, tokens, sites, site):
    """P(token at site | visible tokens), by adding up the weights of all states that fit."""
    vocab_size, length = joint.vocab_size, joint.length
    totals = [0.0] * vocab_size
    for state in itertools.product(range(vocab_size), repeat=length):
        if all(state[i] == tokens[i] for i in range(length) if i not in sites):
            totals[state[site]] += math.exp(joint.log_weights[state].item())
    return [total / sum(totals) for total in totals]


@pytest.mark.parametrize("sites", [(2,), (3, 0), (1, 3, 2), (0, 1, 2, 3)])
def test_joint_conditionals_are_those_of_the_enumerated_law(sites):
    joint = Joint.random(3, 4, seed=1)
    tokens = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 0], [1, 0, 1, 2]])
    answer = joint.scores(tokens, torch.tensor([sites] * 3)).exp()
    assert answer.shape == (3, len(sites), 3) and answer.dtype == torch.float64
    for row, slot in itertools.product(range(3), range(len(sites))):
        expected = brute_force(joint, tokens[row].tolist(), sites, sites[slot])
        assert answer[row, slot].tolist() == pytest.approx(expected, abs=1e-14)


def test_joint_probabilities_are_the_weights_in_lexicographic_order():
    joint = Joint(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64).log())
    assert joint.probabilities().tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=1e-15)
    assert (joint.vocab_size, joint.length) == (2, 2)


def test_table_looks_up_the_entry_of_the_context():
    table = Table.random(3, 3, seed=2)
    tokens = torch.tensor([[0, 1, 2], [2, 0, 1]])
    answer = table.scores(tokens, torch.tensor([[2, 0], [0, 1]]))
    assert torch.equal(answer[0, 0], table.entries[2, 3, 1, 3])
    assert torch.equal(answer[0, 1], table.entries[0, 3, 1, 3])
    assert torch.equal(answer[1, 0], table.entries[0, 3, 3, 1])
    assert torch.equal(answer[1, 1], table.entries[1, 3, 3, 1])


def test_random_table_fits_no_joint_law():
    # The rectangle of two sites and two tokens at each: zero for every joint law, not for these.
    def rectangle(conditionals):
        def step(site, other):
            tokens = torch.tensor([[other, other]])
            scores = conditionals.scores(tokens, torch.tensor([[site]]))[0, 0]
            return scores[1] - scores[0]

        return abs(step(0, 0) + step(1, 1) - step(1, 0) - step(0, 1)).item()

    assert rectangle(Joint.random(2, 2, seed=3)) < 1e-14
    assert rectangle(Table.random(2, 2, seed=3)) > 0.1


@pytest.mark.parametrize("kind", [Joint, Table])
def test_hidden_tokens_do_not_matter(kind):
    conditionals = kind.random(3, 4, seed=4)
    tokens = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 0]])
    sites = torch.tensor([[1, 3], [0, 2]])
    for stand_in in (0, 2, PAD, 99):
        changed = tokens.scatter(1, sites, stand_in)
        assert torch.equal(conditionals.scores(tokens, sites), conditionals.scores(changed, sites))


@pytest.mark.parametrize("kind", [Joint, Table])
def test_no_site_hides_nothing(kind):
    conditionals = kind.random(3, 4, seed=5)
    tokens = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 0]])
    padded = conditionals.scores(tokens, torch.tensor([[PAD, 3], [2, PAD]]))
    alone = conditionals.scores(tokens, torch.tensor([[3], [2]]))
    assert torch.allclose(padded[0, 1], alone[0, 0], atol=1e-14, rtol=0)
    assert torch.allclose(padded[1, 0], alone[1, 0], atol=1e-14, rtol=0)
    assert bool(torch.isfinite(padded).all())


@pytest.mark.parametrize("kind", [Joint, Table])
def test_candidates_are_a_choice_of_the_whole_answer(kind):
    conditionals = kind.random(4, 3, seed=6)
    tokens, sites = torch.tensor([[0, 1, 2], [3, 3, 0]]), torch.tensor([[0, 1], [2, 0]])
    candidates = torch.tensor([[[3, 0], [1, 1]], [[2, 3], [0, 2]]])
    answer = conditionals.scores(tokens, sites, candidates)
    assert torch.equal(answer, conditionals.scores(tokens, sites).gather(2, candidates))


@pytest.mark.parametrize("kind", [Joint, Table])
def test_restricting_in_place_leaves_the_law_itself_alone(kind):
    conditionals = kind.random(3, 2, seed=7)
    tokens, sites = torch.tensor([[0, 1]]), torch.tensor([[1]])
    before = conditionals.scores(tokens, sites)
    limited = Restricted(conditionals, torch.tensor([True, False, True])).scores(tokens, sites)
    assert limited[0, 0, 1] == -torch.inf
    assert torch.equal(conditionals.scores(tokens, sites), before)


def test_clamped_joint_is_the_conditional_law_of_its_free_sites():
    joint = Joint.random(3, 4, seed=8)
    clamped = Clamped(joint, torch.tensor([PAD, 2, PAD, 0]))
    answer = clamped.scores(torch.tensor([[1, 2], [0, 0]]), torch.tensor([[1, 0], [0, 1]])).exp()
    for row, slot, site in [(0, 0, 2), (0, 1, 0), (1, 0, 0), (1, 1, 2)]:
        expected = brute_force(joint, [None, 2, None, 0], (0, 2), site)
        assert answer[row, slot].tolist() == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("kind", [Joint, Table])
def test_random_laws_depend_on_seed_and_strength_alone(kind):
    def tensor(**settings):
        law = kind.random(3, 3, **settings)
        return law.log_weights if kind is Joint else law.entries

    assert torch.equal(tensor(seed=9), tensor(seed=9))
    assert not torch.equal(tensor(seed=9), tensor(seed=10))
    assert torch.equal(tensor(seed=9, strength=2.0), 2 * tensor(seed=9))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Joint(torch.zeros(2, 3)),
        lambda: Joint(torch.tensor(0.0)),
        lambda: Joint(torch.tensor([0.0, -torch.inf])),
        lambda: Table(torch.zeros(2, 4, 4, 4)),
        lambda: Table(torch.zeros(3, 4, 4, 3)),
        lambda: Table(torch.zeros(3)),
    ],
)
def test_a_law_of_a_wrong_shape_is_refused(make):
    with pytest.raises(GlauberError):
        make()


@pytest.mark.parametrize("kind", [Joint, Table])
@pytest.mark.parametrize(
    ("tokens", "sites"),
    [
        ([[0, 1]], [[0]]),  # too short
        ([[0, 1, 2]], [[3]]),  # no such site
        ([[0, 1, 2]], [[0], [1]]),  # more rows of sites than of tokens
        ([[0, 3, 2]], [[0]]),  # a visible token outside the vocabulary
        ([[0, PAD, 2]], [[0]]),  # a shorter row: these laws fix the length
    ],
)
def test_a_question_of_a_wrong_shape_is_refused(kind, tokens, sites):
    with pytest.raises(GlauberError):
        kind.random(3, 3).scores(torch.tensor(tokens), torch.tensor(sites))
