"""Gaps and the parallel error against the coupling, as a user asks for them."""

import numpy as np
import pytest

from glauber import ising
from glauber.exact import block_gap
from glauber.exact.blocks.pseudolikelihood import Pseudolikelihood, asymptotics
from glauber.exact.models import Ising, ising_family, ising_theta
from glauber.foundation.errors import GlauberError


def test_mixing_slows_with_dependency():
    found = ising.gap(sites=6, clique=4, couplings=[0.0, 0.1, 0.2, 0.4], blocks=[1, 2, 4]).rows
    for k in (1, 2, 4):
        assert (np.diff([one.gaps[k].value for one in found]) < 0).all()
    assert (np.diff([one.one_pass.at_most for one in found]) > 0).all()
    assert found[0].parallel.total_variation < 1e-12 < found[1].parallel.total_variation
    assert all(one.above_line for one in found)


def test_gap_and_better_masks():
    told = ising.gap(sites=5, clique=3, couplings=[0, 0.2], blocks=[1, 2], search=True).to_dict()
    still = told["couplings"][0]
    assert [gap["value"] for gap in still["gaps"]] == pytest.approx([0.2, 0.4])
    assert still["parallel"]["total_variation"] < 1e-12
    assert told["couplings"][1]["above_line"]
    (gap_1, trace_1, *_) = told["masks"]
    assert gap_1["uniform"] < gap_1["found"]["value"] <= gap_1["best"]["value"] * (1 + 1e-9)
    assert gap_1["found"]["kind"] == "lower bound" and gap_1["best"]["kind"] == "upper bound"
    assert trace_1["uniform"] > trace_1["found"]["value"] >= trace_1["best"]["value"] * (1 - 1e-9)
    assert trace_1["criterion"] == "trace" and trace_1["best"]["kind"] == "lower bound"


def test_gap_of_random_models():
    found = ising.gap(sites=4, random=3, couplings=[0.2])
    assert "random with seed 3" in str(found) and "gap k=4" in str(found)
    assert "coupling J" in found.figure().layout.xaxis.title.text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(blocks=[0]), "k must be from 1 to 10"),
        (dict(sites=40), "1,099,511,627,776 states"),
        (dict(sites=10**9), r"2\^1000000000 states, .* 20 sites would fit"),
        (dict(sites=11, search=True, blocks=[1], couplings=[0.1]), "at most 1,024 states"),
        (dict(couplings=[]), "couplings is empty"),
        (dict(sites=0, random=1), "sites is 0"),
        (dict(random=-1), "random is -1"),
        (dict(couplings=[1e308]), "at most 1e[+]06"),
    ],
)
def test_bad_input_is_one_sentence(given, said):
    with pytest.raises(GlauberError, match=said):
        ising.gap(**given)


def test_masks_that_mix_fastest_are_not_those_that_learn_best():
    """Each search against the other's criterion, recomputed from the weights."""
    found = ising.gap(sites=5, clique=3, field=0.1, couplings=[0.5], blocks=[1], search=True).better
    fastest, learning = found
    model = Ising.clique(5, 3, coupling=0.5, field=0.1)
    family, theta = ising_family(5), ising_theta(model)
    traces = [
        asymptotics(Pseudolikelihood(family, each.best.masks), theta).trace() for each in found
    ]
    gaps = [block_gap(model.probabilities, each.best.masks).value for each in found]
    assert fastest.other == pytest.approx(traces[0]) and learning.other == pytest.approx(gaps[1])
    assert fastest.other > learning.best.uniform > learning.best.value == pytest.approx(traces[1])
    assert fastest.best.uniform < learning.other < fastest.best.value == pytest.approx(gaps[0])
    assert fastest.record()["other"]["criterion"] == "trace"
