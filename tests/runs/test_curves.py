"""The curves of a run are the plain means over its events and states."""

import json
import shutil

import numpy as np
import pytest

import glauber
from glauber.runs import folder_log
from glauber.runs.curves import curves, window_of
from glauber.runs.export import survival
from glauber.runs.run import Run
from resealed import committed_to
from table_chains import LAW

HEAT = [9.0, 0.01, 1.0]


@pytest.fixture(scope="module")
def runs(tiny_folder, tmp_path_factory):
    place, model = tmp_path_factory.mktemp("curves"), glauber.load(str(tiny_folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_log, "default_segment_steps", lambda n_chains, n_slots: 16)
        chains = [
            glauber.sample(
                LAW, ["0120"], steps=70, scan=scan, temperature=HEAT, out=place / scan[:5]
            )
            for scan in ("uniform", "block:3")
        ]
        written = glauber.generate(
            model, length=8, chains=3, passes=8, remask="cap:0.3", out=place / "generation"
        )
    return {"one site": chains[0], "blocks": chains[1], "generation": written.run}


@pytest.mark.parametrize("kind", ["one site", "blocks"])
def test_curves_are_plain_means(runs, kind):
    run = runs[kind]
    found = curves(run, points=9)
    window = window_of(run.steps)
    assert found.steps[0] == 0 and found.steps[-1] == run.steps and len(found.steps) == 9
    assert np.allclose(found.left, survival(run)[:, found.steps])
    changed, entropy = run.read("changed").any(axis=2), run.read("entropy").mean(axis=2)
    for place, step in enumerate(found.steps):
        part = slice(step - window, step)
        if step < window:
            assert np.isnan(found.changed[:, place]).all()
            assert np.isnan(found.entropy[:, place]).all()
        else:
            assert np.allclose(found.changed[:, place], changed[:, part].mean(axis=1))
            assert np.allclose(found.entropy[:, place], entropy[:, part].mean(axis=1), atol=1e-6)
    assert found.changed[0, -1] > found.changed[1, -1]  # hot and cold


def test_a_page_gets_the_mean_and_a_few_chains(runs, monkeypatch):
    found = curves(runs["one site"], points=30)
    said = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert said["series"]["changed"]["mean"][0] is None
    assert np.allclose(said["series"]["left"]["mean"], found.left.mean(axis=0), atol=1e-4)
    assert len(said["series"]["left"]["chains"]) == 3
    assert set(said["names"]) == set(said["series"])
    monkeypatch.setattr("glauber.runs.curves.MOST", 2)
    assert found.to_dict()["series"]["left"]["chains"] == []


def test_a_generation_says_what_is_hidden(runs):
    run = runs["generation"]
    found = curves(run, points=10**4)
    hidden = [(tokens == 4).sum(axis=1) / 8 for _, tokens in run.states()]
    assert np.allclose(found.left, np.array(hidden).T)
    filled = (run.read("site") >= 0) & (run.read("token") != 4)
    expected = np.where(filled, run.read("entropy"), 0).sum(axis=(1, 2)) / filled.sum(axis=(1, 2))
    assert np.allclose(found.entropy[:, -1], expected, atol=1e-6)
    assert "hidden" in found.names["left"] and "Passes" in found.names["changed"]
    assert found.to_dict()["notes"][0].endswith("passes.")


def test_a_run_without_steps_has_one_point(runs, tmp_path):

    folder = shutil.copytree(runs["one site"].folder, tmp_path / "run")
    committed_to(folder, 0)
    found = curves(Run(folder))
    assert found.steps.tolist() == [0] and (found.left == 1).all() and np.isnan(found.changed).all()
    json.dumps(found.to_dict(), allow_nan=False)
