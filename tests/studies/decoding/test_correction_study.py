"""What correction buys: exact laws by hand, and chains against what enumeration says of them."""

import numpy as np
import pytest
import torch

import glauber
from glauber.exact.space import Space
from glauber.exact.unmasking import Procedure, correction_matrix, exact_law
from glauber.foundation.errors import GlauberError
from glauber.models.base import log_probs
from glauber.models.table import Joint, Table
from glauber.studies.decoding.correction import few_tokens

TEXT = "021"
SPACE = Space(3, 3)
NOTHING, FREE = torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.bool)


def study(rule, **given):
    return glauber.correction(rule, TEXT, sites="0-2", **({"chains": 1500} | given))


def by_number(found):
    return {(row.passes, row.sweeps): row for row in found.rows}


@pytest.fixture(scope="module", params=["joint", "table"])
def measured(request):
    rule = {"joint": Joint, "table": Table}[request.param].random(3, 3, seed=5)
    return rule, study(rule, passes=(1, 3), correct=(0, 1, 3))


def test_a_joint_law_is_what_both_one_by_one_and_the_sweeps_give():
    rule = Joint.random(3, 3, seed=5)
    found = study(rule, passes=(1, 3), correct=(0, 1, 3), chains=3)
    law = rule.probabilities().numpy().reshape(3, 3, 3)
    product = np.einsum(
        "i,j,k->ijk", law.sum(axis=(1, 2)), law.sum(axis=(0, 2)), law.sum(axis=(0, 1))
    )
    rows = by_number(found)
    expected = pytest.approx(np.abs(law - product).sum() / 2)
    assert rows[1, 0].from_one_by_one.value == expected == rows[1, 0].from_limit.value
    falling = [rows[1, sweeps].from_one_by_one.value for sweeps in (0, 1, 3)]
    assert falling == sorted(falling, reverse=True) and falling[-1] < 0.1 * falling[0]
    assert max(rows[3, sweeps].from_one_by_one.value for sweeps in (0, 1, 3)) < 1e-12
    assert found.exact.apart < 1e-9 and abs(found.exact.production) < 1e-9
    assert found.exact.mass == pytest.approx(np.ones(3))
    assert [row.cost for row in found.rows] == [1, 4, 10, 3, 6, 12]


def test_chains_revise_and_sit_in_traps_as_often_as_enumeration_says(measured):
    rule, found = measured
    how = Procedure("confidence", "linear", 1, correct=1)
    matrix = correction_matrix(rule, NOTHING, FREE, how)
    states = SPACE.states()
    apart = (states[:, None] != states[None]).double().mean(dim=2).numpy()
    scores = torch.stack(
        [rule.scores(states, torch.full((27, 1), site))[:, 0] for site in range(3)], dim=1
    )
    trap = (scores.argmax(dim=2) == states).all(dim=1).numpy()
    begun = exact_law(rule, NOTHING, FREE, Procedure("confidence", "linear", 1))
    for sweeps in (0, 1, 3):
        row, power = by_number(found)[1, sweeps], np.linalg.matrix_power(matrix, sweeps)
        revised = float((begun[:, None] * power * apart).sum())
        share = float((begun @ power) @ trap)
        assert row.revised.value == pytest.approx(revised, abs=4 * 0.5 / np.sqrt(1500))
        assert row.traps.value == pytest.approx(share, abs=4 * 0.5 / np.sqrt(1500))


def test_for_a_joint_law_a_sweep_produces_what_the_texts_gain_in_likelihood():
    rule = Joint.random(3, 3, seed=5)
    row = by_number(study(rule, passes=(1,), correct=(0, 1)))[1, 1]
    begun = exact_law(rule, NOTHING, FREE, Procedure("confidence", "linear", 1))
    after = begun @ correction_matrix(rule, NOTHING, FREE, Procedure(correct=1))
    gain = float((after - begun) @ rule.probabilities().log().numpy()) / 3
    assert row.production.value == pytest.approx(gain, abs=4 * row.production.standard_error)
    assert row.production.standard_error < gain / 4  # the comparison can fail


def test_a_few_tokens_have_the_conditionals_of_the_model(tiny_folder):
    model = glauber.load(str(tiny_folder), device="cpu")
    conditionals = model.conditionals()
    tokens, _ = model.vocabulary.encode(["the cat sat on the mat"])
    hidden = torch.tensor([1, 3, 6])
    rule, mass = few_tokens(conditionals, tokens[0], hidden, 2, 1.0)
    whole = log_probs(conditionals, tokens, hidden[None])[0]
    offered = whole.topk(2, dim=1).indices
    assert mass == pytest.approx(whole.exp().topk(2, dim=1).values.sum(dim=1).numpy())
    filled = tokens.clone()
    filled[0, 3] = offered[1, 1]
    theirs = conditionals.scores(filled, torch.tensor([[1, 6]]))[0].double()
    theirs = theirs.gather(1, offered[[0, 2]]).log_softmax(dim=1)
    ours = rule.scores(torch.tensor([[0, 1, 0]]), torch.tensor([[0, 2]]))[0].log_softmax(dim=1)
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_blocks_cost_less_and_too_many_fillings_have_no_exact_distance():
    found = study(Table.random(3, 3), passes=(3,), correct=(2,), correct_block=2, chains=3)
    (row,) = found.rows
    assert row.cost == 3 + 2 * 2 and row.production is None and row.from_limit is not None
    many = glauber.correction(Table.random(4, 6), "012301", hide=6, passes=(2,), chains=3)
    assert many.exact is None and "no exact distances" in str(many)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sites": "1,3"}, "its tokens are 0 to 2"),
        ({"sites": "", "hide": 4}, "4 tokens cannot be hidden: the text has 3"),
        ({"passes": (1, 4)}, "4 passes are more than the 3 hidden tokens"),
        ({"correct": ()}, "correct is empty"),
        ({"correct": (-1,)}, "correct is -1"),
        ({"order": "best"}, "best"),
        ({"chains": 0}, "chains is 0"),
    ],
)
def test_bad_input_is_one_sentence(given, said):
    with pytest.raises(GlauberError, match=said) as raised:
        glauber.correction(Table.random(3, 3), TEXT, **({"sites": "0-2"} | given))
    assert "\n" not in str(raised.value)
