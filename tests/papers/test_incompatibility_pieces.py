"""Table 1 with its control and Eq. 4.1 of paper A on a tiny model."""

import pytest

import glauber
from conftest import TEXTS
from glauber import paper
from glauber.papers import rectangles as pieces

SAME = [TEXTS[1], TEXTS[4], TEXTS[0]]


@pytest.fixture(autouse=True)
def tiny_scale(monkeypatch, tiny_folder):
    monkeypatch.setattr(pieces, "COUNT", 40)
    monkeypatch.setattr(pieces, "LENGTH", 5)
    sizes = {"model": str(tiny_folder), "count": 4, "temperature": 1.0, "chains": 3, "steps": 60}
    monkeypatch.setitem(pieces.PROBES, "small", sizes)
    monkeypatch.setattr(pieces, "FREE", ((2, 3), (3, 2)))


def test_table_1_has_a_control_that_closes(tiny_folder):
    made = paper("A-table1", SAME, model=str(tiny_folder))
    row, control = made.rows
    found = glauber.rectangles(str(tiny_folder), SAME, count=40, length=5)
    assert row["mean"] == pytest.approx(found.delta.mean(), abs=1e-5) and row["mean"] > 0.1
    assert control["mean"] < 1e-6 and "nothing else" in control["checks"]
    incompatible, closes = made.claims
    assert (incompatible.verdict.word, closes.verdict.word) == ("agrees", "agrees")
    assert closes.quantity.kind == "exact" and "read from left to right" in closes.quantity.name


def test_figures_5_and_6_count_passages(tiny_folder):
    (rule,) = paper("A-fig5", SAME, model=str(tiny_folder)).claims
    assert rule.quantity.unit == "passages" and rule.quantity.n == 3
    (grows,) = paper("A-fig6", SAME, model=str(tiny_folder)).claims
    found = glauber.rectangles(str(tiny_folder), SAME, count=40, length=5).summary()
    assert grows.quantity.value == pytest.approx(found["influence_rank_correlation"], abs=1e-4)
    assert grows.quantity.interval == pytest.approx(found["influence_rank_interval"], abs=1e-3)


def test_equation_4_1(tiny_folder):
    made = paper("A-eq4.1", TEXTS[:3] + TEXTS[4:])
    assert [row["free sites"] for row in made.rows] == [2, 3]
    found = glauber.single_mask(
        str(tiny_folder), TEXTS[:3] + TEXTS[4:], count=4, length=5, sites=2, top=3, chains=3,
        steps=60,
    )  # fmt: skip
    value, *ends = made.rows[0]["mean |difference of log-ratios|"]
    mean = found.over_texts("difference")
    assert value == pytest.approx(mean.value) and ends == pytest.approx(list(mean.interval))
    assert made.claims[0].quantity.value == pytest.approx(mean.value)
    assert list(made.figures()) == ["2-sites", "3-sites"]
