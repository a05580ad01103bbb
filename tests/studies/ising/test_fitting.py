"""ising.fit and ising.covariance, as a user asks for them."""

import json

import numpy as np
import pytest

from glauber import ising
from glauber.exact.models import Ising
from glauber.foundation.errors import GlauberError


def test_fit_tells_the_truth_beside_the_estimate():
    told = ising.fit(k=4, samples=50_000).to_dict()
    assert told["names"][4] == "J0,1" and told["truth"][4] == 0.05 and told["kind"] == "estimate"
    assert told["expected_squared_error"] == pytest.approx(5.7299 / 50_000, rel=1e-4)
    apart = abs(np.subtract(told["estimate"], told["truth"])) / told["standard_error"]
    assert apart.max() < 4 and told["distance_to_minimiser"] < 1e-8
    said = str(ising.fit(masks="all", method="lbfgs"))
    assert "squared error" in said and "lbfgs" in said


def test_fit_of_a_file_and_of_an_array(tmp_path):
    model = Ising.random(3, seed=1, strength=0.3)
    file = tmp_path / "spins.csv"
    drawn = model.sample(20_000, seed=2).astype(int)
    file.write_text("\n".join(",".join(map(str, row)) for row in drawn))
    told = ising.fit(data=file, k=2).to_dict()
    assert told["samples"] == 20_000 and told["truth"] is None
    apart = abs(np.array(told["estimate"][:3]) - model.fields) / told["standard_error"][:3]
    assert apart.max() < 4
    assert ising.fit(data=drawn, k=2).to_dict()["estimate"] == told["estimate"]


def test_covariance_of_every_k(tmp_path):
    told = ising.covariance(adaptive=True).to_dict()
    uniform = [row for row in told["rows"] if row["masks"] == "uniform"]
    assert [round(row["trace"], 1) for row in uniform] == [19.7, 10.1, 7.1, 5.7]
    assert all(row["slack"] > -1e-8 and row["bound"] > row["trace"] - 1e-8 for row in told["rows"])
    assert all(row["growth"] > -1e-8 for row in uniform[1:]) and len(told["rows"]) == 8
    assert {row["kind"] for row in told["rows"]} == {"exact"}
    file = tmp_path / "model.json"
    held = {"fields": [0.1, 0.2], "couplings": [[0, 0.3], [0.3, 0]]}
    file.write_text(json.dumps(held))
    found = ising.covariance(file)
    assert "all masks averaged" in str(found)
    again = ising.covariance(Ising.make(**held)).to_dict()
    assert again["rows"] == found.to_dict()["rows"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(k=9), "k = 9 sites, but k must be from 1 to 4"),
        (dict(samples=2), "no finite, unique estimate"),
        (dict(samples=0), "samples is 0"),
        (dict(samples=10**19), "is not possible"),
        (dict(masks="some"), "a number such as 1, or all"),
        (dict(masks=0), "at least 1"),
        (dict(sites=10**9), "1,000,000,000 sites, but 1 to 20,000"),
        (dict(sites=2000), "1,999,000 pairs, and to fit them all .* name those"),
        (dict(sites=20, clique=3, graph="grid"), "a clique or a graph, not both"),
        (dict(sites=20, graph="3x7"), "has 21 sites, but there are 20"),
        (dict(sites=20, graph="no-such-file"), "two sites a line"),
        (dict(sites=20, masks="all", k=2, graph="grid"), "up to 12 sites only"),
        (dict(sites=20, k=12, graph="grid"), "k must be from 1 to 10 with 20 sites"),
        (dict(sites=20, graph="grid", chains=2), "chains is 2"),
        (dict(method="magic"), "newton, lbfgs"),
        (dict(seed=-1), "seed is -1"),
        (dict(clique=7), "a clique has 7 sites"),
        (dict(model="no-such-file.json"), "cannot be read"),
        (dict(model=5), "a file or an Ising"),
        (dict(coupling=float("inf")), "coupling is inf"),
        (dict(k=2.5), "k = 2.5 sites, but"),
        (dict(data=[[1, -1], [1]]), "as many numbers -1 and 1"),
    ],
)
def test_mistakes_end_in_one_sentence(given, said):
    with pytest.raises(GlauberError, match=said):
        ising.fit(**given)


@pytest.mark.parametrize("columns", [20, 25, 70])
def test_data_with_many_columns_are_fitted_or_have_no_estimate(columns):
    rows = np.random.default_rng(columns).choice([-1, 1], (300, columns))
    told = ising.fit(data=rows, graph="chain").to_dict()
    assert len(told["estimate"]) == 2 * columns - 1 and told["masks"] == "tiles"
    with pytest.raises(GlauberError, match="no finite, unique estimate"):
        ising.fit(data=np.ones((3, columns), int))
    with pytest.raises(GlauberError, match="fewer than 3 nothing can be said"):
        ising.fit(data=rows, graph="chain", cluster=150)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"fields": [0, 0], "couplings": [[0, 1], [0, 0]]}', "not symmetric"),
        ('{"fields": [0, 0]}', "is no Ising model"),
        ("[1, 2]", "is no Ising model"),
        ('{"fields": [0, "a"], "couplings": [[0, 1], [1, 0]]}', "not lists of numbers"),
    ],
)
def test_a_bad_model_file(tmp_path, text, said):
    file = tmp_path / "model.json"
    file.write_text(text)
    with pytest.raises(GlauberError, match=said):
        ising.covariance(file)


@pytest.mark.parametrize("text", ["1 -1\n1\n", "1 0\n", "a b\n", ""])
def test_a_bad_data_file(tmp_path, text):
    file = tmp_path / "spins.txt"
    file.write_text(text)
    with pytest.raises(GlauberError, match="-1 and 1"):
        ising.fit(data=file)


def test_a_misspelt_study_or_keyword_is_answered_with_the_nearest():
    with pytest.raises(AttributeError, match="did you mean 'race'"):
        _ = ising.rase
    with pytest.raises(TypeError, match="did you mean 'samples'"):
        ising.fit(sample=3)


def test_two_repetitions_have_no_standard_error():
    few = ising.errors(sites=3, samples=[1000], repetitions=2)
    assert "+-" not in str(few) and few.to_dict()["rows"][0]["standard_error"] == [None]
    assert "+-" in str(ising.errors(sites=3, samples=[1000], repetitions=3))


def test_adaptive_masks_in_fits_and_errors():
    """The errors of 300 repetitions against the exact trace, and the level of the sandwich."""
    curves = ising.errors(
        coupling=0.3, samples=[4000], blocks=[1], repetitions=300, adaptive=True, seed=2
    )
    assert curves.traces[0] == pytest.approx(79.355, abs=1e-3)  # uniform masks: 121.7
    assert (
        abs(curves.mean - curves.prediction) < 3 * curves.standard_error + 0.02 * curves.prediction
    )
    share = float(curves.within_trace[0, 0])
    assert share == pytest.approx(curves.within[0], abs=3 * np.sqrt(0.25 / 300))
    model = Ising.clique(3, 3, coupling=0.2, field=0.1)
    truth = np.array([0.1] * 3 + [0.2] * 3)
    inside = []
    for seed in range(60):  # chosen by a first fit to the same rows
        found = ising.fit(data=model.sample(4000, seed=seed).astype(int), adaptive=True, seed=seed)
        inside.append(abs(found.estimate - truth) <= 1.96 * found.standard_error)
    assert np.mean(inside) == pytest.approx(0.95, abs=0.035)  # 360 intervals
    told = ising.fit(adaptive=True, samples=20_000)
    assert told.masks == "1, adaptive" and told.truth is not None
    plain = ising.fit(samples=20_000)
    assert told.expected_squared_error < plain.expected_squared_error
    for given in (dict(sites=20, graph="chain"), dict(masks="tiles"), dict(graph="chain")):
        with pytest.raises(GlauberError, match="adaptive masks need"):
            ising.fit(adaptive=True, **given)


def test_what_a_sample_costs_stands_next_to_what_it_teaches():
    rows = ising.covariance(coupling=0.05).rows
    assert [row.trace_per_filling for row in rows] == [row.trace * 2**row.k for row in rows]
    assert np.argmin([row.trace_per_filling for row in rows]) == 0  # the smallest masks
    assert rows[-1].divergence == pytest.approx(5.0) and 0.5 < rows[0].within_trace < 0.62
