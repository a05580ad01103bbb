"""Is what is said about scans on a few sites what their chains do?"""

import math

import numpy as np
import pytest
import torch

import glauber
from glauber.exact import Ising, Space, stationary, total_variation, transition_matrix
from glauber.exact.conditionals import tabulate, top_tokens
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.models.base import log_probs
from glauber.models.table import Joint, Table
from glauber.studies.mixing.scan_bias import draws_per_step
from glauber.texts.starts import starts

ISING = Ising.clique(4, 4, coupling=0.05, field=0.2)


@pytest.fixture(scope="module")
def found():
    return glauber.scan_bias(ISING.joint())


def test_the_joint_is_kept_by_all_but_the_naive_scans(found):
    assert found.joint and len(found.scans) == 7
    for one in found.scans:
        far = total_variation(one.distribution, ISING.probabilities)
        assert one.distance == pytest.approx(far, abs=1e-12)
        assert (far > 0.02) == one.name.startswith("naive") and (far < 1e-12) != (far > 0.02)
    assert "naive:confidence          0.1630" in str(found)
    assert found.to_dict()["scans"]["rows"][1]["distance"] == pytest.approx(0.163, abs=1e-4)


def test_conditionals_without_a_joint_law_say_so():
    found = glauber.scan_bias(Table.random(3, 3, seed=2))
    assert not found.joint and "no joint distribution" in str(found)
    assert found.scans[0].distance == 0 < min(one.distance for one in found.scans[1:])


def test_what_a_step_is_worth_is_the_sum_of_its_autocorrelations():
    joint, space = Joint.random(3, 2, seed=4), Space(3, 2)
    matrix = transition_matrix(joint, space)
    law, dense = stationary(matrix), matrix.toarray()
    held = np.eye(3)[space.states().numpy()].reshape(9, -1)
    apart = held - law @ held
    variance = (law[:, None] * apart**2).sum()
    later, total = apart, variance
    for _ in range(400):
        later = dense @ later
        total += 2 * (law[:, None] * apart * later).sum()
    assert draws_per_step(matrix, law, space) == pytest.approx(variance / total, rel=1e-10)
    independent = np.tile(law, (9, 1))
    assert draws_per_step(type(matrix)(independent), law, space) == pytest.approx(1.0)


@pytest.mark.parametrize("measure", ["confidence", "entropy"])
def test_acceptance_and_rows_are_those_of_a_run(found, measure):
    """500 chains that begin in the joint law: shares within five standard errors."""
    exact = next(one for one in found.scans if one.name == f"adaptive:{measure}")
    rows = torch.from_numpy((ISING.sample(500, seed=1) > 0).astype(np.int64))
    texts = ["".join(map(str, row)) for row in rows.tolist()]
    run = glauber.sample(ISING.joint(), texts, steps=20, scan=exact.name, seed=3)
    accepted, changed = run.read("accepted")[:, :, 0], run.read("changed")[:, :, 0]
    proposed = (changed | ~accepted).mean(axis=1)  # by chain, and chains are independent
    assert abs(proposed.mean() - (exact.rows - 1) / 4) < 5 * proposed.std() / math.sqrt(500)
    apart = changed.mean(axis=1) - exact.acceptance * proposed
    assert abs(apart.mean()) < 5 * apart.std() / math.sqrt(500)
    assert run.acceptance == pytest.approx(exact.acceptance, abs=0.03)


def test_a_few_sites_of_a_masked_lm_are_the_models_own(tiny_folder):
    model = glauber.load(str(tiny_folder), dtype="float64")
    conditionals = model.conditionals()
    text = starts(model, ["the cat sat on the mat ."])[0][0]
    columns = [2, 4]
    offered = top_tokens(conditionals, text, columns, 5)
    assert offered[:, 0].tolist() == text[columns].tolist()
    few = tabulate(conditionals, text, columns, offered)
    for state in (7, 13, 24):
        local = few.space.states()[state]
        row = text.clone()
        row[columns] = offered[torch.arange(2), local]
        for slot, column in enumerate(columns):
            asked = torch.tensor([[column]])
            whole = log_probs(conditionals, row[None], asked, temperature=0.7)[0, 0, offered[slot]]
            own = log_probs(few, local[None], torch.tensor([[slot]]), temperature=0.7)[0, 0]
            assert torch.allclose(own, whole.log_softmax(0), rtol=0, atol=1e-9)


def test_what_is_too_much_or_not_there_is_refused(tiny_folder):
    with pytest.raises(GlauberError, match="more than 1,024 states"):
        glauber.scan_bias("no such model", "a text", sites="1,2,3,4", tokens=6)
    with pytest.raises(GlauberError, match="sharpness"):
        glauber.scan_bias("no such model", "a text", sharpness=math.inf)
    with pytest.raises(GlauberError, match="a text is needed"):
        glauber.scan_bias(str(tiny_folder))
    with pytest.raises(GlauberError, match="no site 99"):
        glauber.scan_bias(str(tiny_folder), "the cat sat on the mat .", sites="99", tokens=3)


def test_what_is_called_exact_is_computed_in_float64(tiny_folder):
    """At a low temperature float32 scores move the stationary law by far more than rounding."""
    text = "the cat sat on the mat ."
    found = glauber.scan_bias(str(tiny_folder), text, sites=[1, 2], tokens=3, temperature=0.05)
    precise = glauber.load(str(tiny_folder), device="cpu", dtype="float64")
    row = starts(precise, [text])[0][0]
    offered = top_tokens(precise.conditionals(), row, [2, 3], 3)
    few = tabulate(precise.conditionals(), row, [2, 3], offered)
    law = stationary(transition_matrix(few, few.space, temperature=0.05))
    np.testing.assert_allclose(found.scans[0].distribution, law, rtol=1e-11)
    assert found.to_dict()["dtype"] == "float64" and found.to_dict()["scans"]["kind"] == "exact"


class Single:
    """A rule that computes in float32."""

    vocab_size, length = 2, 2

    def scores(self, tokens, sites):
        return torch.zeros(*sites.shape, 2)


def test_a_rule_in_float32_is_not_called_exact():
    with pytest.warns(GlauberWarning, match="computes in float32"):
        found = glauber.scan_bias(Single())
    assert found.to_dict()["scans"]["kind"] == "estimate"
    assert "estimates from scores in float32" in str(found) and "exact" not in str(found)


def test_a_temperature_at_which_chances_vanish_is_named():
    with pytest.raises(GlauberError, match="temperature so low"):
        glauber.scan_bias(ISING.joint(), temperature=1e-4)
