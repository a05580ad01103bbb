"""Runs that were made by glauber 0.1 open, and go on to what that version made of them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import glauber

ROOT = Path(__file__).parents[2]  # the runs name their model from here
BEFORE = Path(__file__).parent / "before"
STEPS = {"plain": 60, "blocks": 36}


@pytest.mark.parametrize("name", STEPS)
def test_an_old_run_is_resumed_and_extended(name, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    folder = tmp_path / name
    shutil.copytree(BEFORE / name, folder)
    run = glauber.Run(folder)
    assert not run.finished and 0 < run.steps < STEPS[name]
    assert run.text(0, 0) and run.spec.versions["glauber"] == "0.1.0"
    assert glauber.resume(run).finished
    whole = glauber.extend(run, steps=STEPS[name])
    with np.load(BEFORE / "whole.npz") as expected:
        for field in ("site", "token"):
            np.testing.assert_array_equal(whole.read(field), expected[f"{name}_{field}"])
        np.testing.assert_array_equal(whole.tokens(), expected[f"{name}_tokens"])
        for field in ("log_prob_old", "log_prob_new", "entropy"):
            was = expected[f"{name}_{field}"]
            np.testing.assert_allclose(whole.read(field), was, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", STEPS)
def test_a_run_of_an_earlier_format_gets_digests(name, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    folder = shutil.copytree(BEFORE / name, tmp_path / name)
    found = glauber.verify(folder)
    assert found.exit_code == 0 and not found.checksums and found.format == 1
    assert "no checksums" in str(found)
    glauber.export(folder, to="text", out=tmp_path / "texts")
    steps = glauber.repair(folder).steps
    assert steps == found.steps and glauber.verify(folder).checksums
    assert json.loads((folder / "run.json").read_text())["format"] == 4
    whole = glauber.extend(folder, steps=STEPS[name])
    with np.load(BEFORE / "whole.npz") as expected:
        for field in ("site", "token"):
            np.testing.assert_array_equal(whole.read(field), expected[f"{name}_{field}"])
    assert glauber.verify(folder).exit_code == 0
