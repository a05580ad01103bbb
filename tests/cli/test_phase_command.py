"""phase and sweep, as a user types them."""

import json
import shutil

import numpy as np
import pytest

from glauber.runs.run import Run


@pytest.fixture
def phase(glauber, tiny_folder, source, tmp_path):
    """Runs phase on the tiny model: (code, out, err)."""

    def call(*words):
        return glauber(
            "phase", "--model", tiny_folder, "--from", source, "--out", tmp_path / "sweep", *words
        )

    return call


SMALL = ("--lengths", "2,4", "--temperatures", "0.5,4", "--pairs", 3, "--steps", 6)


def test_phase_and_its_folder(glauber, phase, tmp_path):
    code, out, err = phase(*SMALL, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert [(c["length"], c["temperature"]) for c in told["cells"]] == [
        (2, 0.5), (2, 4.0), (4, 0.5), (4, 4.0),
    ]  # fmt: skip
    assert all(len(c["times"]) == 3 and c["budget"] == 6 for c in told["cells"])
    assert all(one["kind"] == "estimate" for one in told["crossovers"])
    assert "plotly" in (tmp_path / "sweep" / "phase.html").read_text().lower()
    status = json.loads(glauber("sweep", "status", tmp_path / "sweep", "--json")[1])
    assert (status["cells"], status["finished"], status["left"]) == (4, 4, [])
    (tmp_path / "sweep" / "cells" / "length-4_temperature-4.json").unlink()
    code, out, _ = glauber("sweep", "status", tmp_path / "sweep")
    assert "3 of 4 cells" in out and "left: length-4_temperature-4" in out
    again = json.loads(glauber("sweep", "resume", tmp_path / "sweep", "--json")[1])
    assert [c["times"] for c in again["cells"]] == [c["times"] for c in told["cells"]]
    code, out, err = phase(*SMALL)  # the same command: nothing is run again
    assert code == 0 and "met, median steps" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lengths", ""), "the grid is empty: no length"),
        (("--temperatures", " , "), "the grid is empty: no temperature"),
        (("--steps", 0), "the budget is 0"),
        (("--sweeps", 0), "the budget is 0"),
        (("--pairs", 0), "the pairs is 0"),
        (("--temperatures", "1,-1"), "positive finite"),
        (("--temperatures", "1,x"), "not a list of temperatures"),
        (("--lengths", "2,2"), "names a length twice"),
        (("--lengths", "900"), "two different texts of 900 tokens"),
        (("--how", "magic"), "must be one of"),
        (("--on", "moon"), "must be one of local, processes, ray"),
        (("--on", "processes", "--workers", 0), "at least one"),
    ],
)
def test_phase_refuses(phase, words, said):
    code, out, err = phase("--lengths", "2", "--temperatures", "1", *words)
    assert code == 2 and out == "" and said in err


def test_status_of_what_is_no_sweep(glauber, tmp_path):
    code, _, err = glauber("sweep", "status", tmp_path)
    assert code == 2 and "is not a sweep" in err


def test_a_sweep_of_runs(glauber, tiny_folder, source, tmp_path):
    """Each cell is a run like any other; one that was cut short is resumed to the same bits."""
    words = (
        "sweep", "sample", "--model", tiny_folder, "--from", source, "--out", tmp_path / "s",
        "--lengths", "2,4", "--temperatures", "0.5,2", "--chains", 3, "--steps", 30,
    )  # fmt: skip
    code, out, err = glauber(*words, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert len(told["cells"]) == 4
    cell = told["cells"][3]
    run = Run(tmp_path / "s" / cell["run"])
    assert (run.spec.temperature, run.spec.length, run.steps) == (2.0, 4, 30)
    assert cell["text"] == run.text(0)
    before = run.read("token")
    shutil.rmtree(run.folder)
    (tmp_path / "s" / "cells" / "length-4_temperature-2.json").unlink()
    again = json.loads(glauber(*words, "--json")[1])
    assert again == told
    np.testing.assert_array_equal(Run(run.folder).read("token"), before)
    code, out, _ = glauber(*words)
    assert code == 0 and "chain 0 ends as" in out


def test_a_sweep_of_no_steps(glauber, tmp_path):
    code, _, err = glauber("sweep", "sample", "--out", tmp_path / "s", "--steps", 0)
    assert code == 2 and "at least 1" in err and not (tmp_path / "s").exists()
