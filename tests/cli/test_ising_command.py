"""ising fit and ising covariance, as a user types them."""

import json

import numpy as np
import pytest

from glauber.exact.ising import Ising


def test_fit_tells_the_truth_beside_the_estimate(glauber):
    code, out, err = glauber("ising", "fit", "--k", 4, "--samples", 50_000, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["names"][4] == "J0,1" and told["truth"][4] == 0.05 and told["kind"] == "estimate"
    assert told["expected_squared_error"] == pytest.approx(5.7299 / 50_000, rel=1e-4)
    apart = abs(np.subtract(told["estimate"], told["truth"])) / told["standard_error"]
    assert apart.max() < 4 and told["distance_to_minimiser"] < 1e-8
    code, out, _ = glauber("ising", "fit", "--masks", "all", "--method", "lbfgs")
    assert code == 0 and "squared error" in out and "lbfgs" in out


def test_fit_of_a_file(glauber, tmp_path):
    model = Ising.random(3, seed=1, strength=0.3)
    file = tmp_path / "spins.csv"
    drawn = model.sample(20_000, seed=2).astype(int)
    file.write_text("\n".join(",".join(map(str, row)) for row in drawn))
    told = json.loads(glauber("ising", "fit", "--data", file, "--k", 2, "--json")[1])
    assert told["samples"] == 20_000 and "truth" not in told
    apart = abs(np.array(told["estimate"][:3]) - model.fields) / told["standard_error"][:3]
    assert apart.max() < 4


def test_covariance_of_every_k(glauber, tmp_path):
    told = json.loads(glauber("ising", "covariance", "--adaptive", "--json")[1])
    uniform = [row for row in told["rows"] if row["masks"] == "uniform"]
    assert [round(row["trace"], 1) for row in uniform] == [19.7, 10.1, 7.1, 5.7]
    assert all(row["slack"] > -1e-8 and row["bound"] > row["trace"] - 1e-8 for row in told["rows"])
    assert all(row["growth"] > -1e-8 for row in uniform[1:]) and len(told["rows"]) == 8
    assert {row["kind"] for row in told["rows"]} == {"exact"}
    file = tmp_path / "model.json"
    file.write_text(json.dumps({"fields": [0.1, 0.2], "couplings": [[0, 0.3], [0.3, 0]]}))
    code, out, _ = glauber("ising", "covariance", "--model", file)
    assert code == 0 and "all masks averaged" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fit", "--k", 9), "k is 9, but it must be between 1 and the 4 sites."),
        (("fit", "--samples", 2), "no finite, unique estimate"),
        (("fit", "--masks", "some"), "a number such as 1, or all"),
        (("fit", "--sites", 20), "19 sites would fit"),
        (("fit", "--method", "magic"), "newton or lbfgs"),
        (("covariance", "--sites", 50), "sites would fit"),
        (("covariance", "--clique", 7), "a clique has 7 sites"),
        (("covariance", "--model", "no-such-file.json"), "cannot be read"),
    ],
)
def test_mistakes_end_in_one_sentence(glauber, words, said):
    code, out, err = glauber("ising", *words)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"fields": [0, 0], "couplings": [[0, 1], [0, 0]]}', "not symmetric"),
        ('{"fields": [0, 0]}', "is no Ising model"),
        ("[1, 2]", "is no Ising model"),
        ('{"fields": [0, "a"], "couplings": [[0, 1], [1, 0]]}', "not lists of numbers"),
    ],
)
def test_a_bad_model_file(glauber, tmp_path, text, said):
    file = tmp_path / "model.json"
    file.write_text(text)
    code, _, err = glauber("ising", "covariance", "--model", file)
    assert code == 2 and said in err


@pytest.mark.parametrize("text", ["1 -1\n1\n", "1 0\n", "a b\n", ""])
def test_a_bad_data_file(glauber, tmp_path, text):
    file = tmp_path / "spins.txt"
    file.write_text(text)
    code, _, err = glauber("ising", "fit", "--data", file)
    assert code == 2 and "-1 and 1" in err
