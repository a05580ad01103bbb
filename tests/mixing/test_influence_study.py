"""influence: the answer of the study, and what it refuses."""

import numpy as np
import pytest

from glauber.conditionals.base import COLDEST
from glauber.conditionals.masked_lm import MaskedLM
from glauber.errors import GlauberError
from glauber.mixing.influence import influence

TEXT = "the cat sat on the mat ."
KINDS = {"exact", "upper bound", "lower bound", "estimate"}


@pytest.fixture(scope="module")
def tiny(tiny_folder):
    return MaskedLM.load(str(tiny_folder), device="cpu")


def test_the_matrix_and_what_follows(tiny):
    found = influence(tiny, TEXT, samples=2, replacements=2, against=[0.5, 2.0], chains=2)
    told = found.to_dict()
    matrix = np.array(told["influence"]["value"])
    assert matrix.shape == (7, 7) and (np.diag(matrix) == 0).all() and matrix.max() <= 1
    assert told["alpha"] == {"value": matrix.sum(axis=0).max(), "kind": "lower bound"}
    assert told["threshold"]["kind"] == told["mixing_time"]["kind"] == "estimate"
    assert [one["temperature"] for one in told["averaged"]] == [0.5, 2]
    assert told["tokens"] == TEXT.split()
    assert list(found.figures()) == ["influence", "averaged"]
    frame = found.frame()
    assert len(frame) == 42
    sums = frame.groupby("site").influence.sum()
    assert sums.max() == pytest.approx(found.alpha, rel=1e-12)  # summed in another order


def test_each_figure_has_its_kind(tiny):
    few = dict(samples=1, replacements=1, chains=1)
    said = str(influence(tiny, TEXT, **few)).splitlines()
    for start in ("alpha", "contraction threshold", "influence met on average"):
        (line,) = (line for line in said if line.startswith(start))
        assert any(f"({kind})" in line for kind in KINDS), line
    hot = str(influence(tiny, TEXT, temperature=1000.0, **few))
    assert "t_mix(0.25): " in hot and "steps (estimate)" in hot


def test_a_cold_temperature(tiny):
    found = influence(tiny, TEXT, temperature=COLDEST, samples=2, replacements=2, chains=1)
    assert np.isfinite(found.total_variation).all() and found.total_variation.max() == 1


@pytest.mark.parametrize(
    "text, more, sentence",
    [
        ("cat", {}, "needs two"),
        (" ", {}, "empty"),
        (TEXT, {"samples": 0}, "samples is 0"),
        (TEXT, {"samples": 10**9}, "ask for less"),
        (TEXT, {"replacements": 10**9}, "ask for less"),
        (TEXT, {"temperature": 0.0}, "temperature is 0.0"),
        (TEXT, {"temperature": 1e-320}, "temperature is 1e-320"),
        (TEXT, {"against": [1.0, -1.0]}, "temperature is -1.0"),
        (TEXT, {"epsilon": 1.5}, "epsilon is 1.5"),
        (TEXT, {"seed": -1}, "seed is -1"),
    ],
)
def test_bad_input_ends_in_one_sentence(tiny, text, more, sentence):
    with pytest.raises(GlauberError, match=sentence):
        influence(tiny, text, **more)
