"""Paper B's pieces at their own scale: they take seconds."""

import json

import numpy as np
import pytest

from glauber import paper


@pytest.mark.parametrize("name", ["B-fig1", "B-fig2"])
def test_figures_1_and_2(name, tmp_path):
    made = paper(name)
    one = [row for row in made.rows if row["masks per sample"] == 1]
    assert [row["k"] for row in one] == [1, 2, 3, 4]
    scaled = [np.mean(np.multiply(row["mean squared error"], row["n"])) for row in one]
    assert scaled == sorted(scaled, reverse=True)  # larger k, lower error
    assert not any(sum(row["without an estimate"]) for row in made.rows)
    assert list(made.figures()) == ["one-mask", "all-masks"]
    made.write(tmp_path / "made.json")
    assert json.loads((tmp_path / "made.json").read_text())["rows"][0]["kind"] == "estimate"


def test_theorem_1():
    rows = [row for row in paper("B-theorem1").rows if row["J"] == 0.05]
    assert [round(row["trace, one mask"], 1) for row in rows] == [19.7, 10.1, 7.1, 5.7]
    grows = [row["smallest eigenvalue of the next Hessian less this"] for row in rows]
    assert min(grows[:3]) > -1e-8 and grows[3] is None


def test_theorem_2():
    made = paper("B-theorem2")
    assert {row["masks"] for row in made.rows} == {"uniform", "adaptive"}
    assert all(row["smallest eigenvalue of H - I/C"] > -1e-8 for row in made.rows)
    assert all(row["trace of the covariance"] <= row["bound on the trace"] + 1e-8
               for row in made.rows)  # fmt: skip


def test_theorem_4_is_vacuous_as_written():
    made = paper("B-theorem4")
    for row in made.rows:
        assert row["as_written"] > row["loss_term"] > 1
        assert row["true total variation"] <= row["bound by the population's excess"] < 1
    assert len(made.pictures) == 2


def test_lemma_3():
    rows = paper("B-lemma3").rows
    assert [(row["given K"], row["not given K"]) for row in rows] == [
        ("9/17", "3/5"),
        ("6/7", "3/4"),
    ]
    assert [row["mean over mask events (Lemma 4)"] for row in rows] == ["3/5", "3/4"]


def test_figure_3():
    made = paper("B-fig3")
    assert len(made.rows) == 55 and list(made.figures()) == ["race", "budget"]
    assert max(row["log10 of the mean steps"] for row in made.rows) > 20


def test_corollary_3():
    first = paper("B-corollary3").rows[0]
    assert first["|C| of the corollary"] == 25 and first["smallest |C| that separates"] == 2
    assert first["N-Gibbs not there after one step"] < first["delta"]
