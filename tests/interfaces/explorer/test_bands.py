"""Bands under the time line are what the studies find, looked for in the background."""

import shutil
import threading

import pytest
import torch

import glauber
from conftest import TEXTS
from glauber.foundation.errors import GlauberError
from glauber.interfaces.explorer.models import Models, Turns
from glauber.interfaces.explorer.stored import InTurns, StoredRun
from glauber.runs.run import Run
from glauber.studies.metastability.basins import basins
from resealed import committed_to
from table_chains import LAW
from waiting import SECONDS

STARTS = ["0000", "1111", "2222", "0120"]


@pytest.fixture(scope="module")
def rule():
    return glauber.load(LAW)


@pytest.fixture(scope="module")
def folder(rule, tmp_path_factory):
    out = tmp_path_factory.mktemp("bands") / "run"
    return glauber.sample(rule, STARTS, steps=600, temperature=0.6, seed=5, out=out).folder


def searched(stored, kind):
    assert stored.bands(kind)["state"] in ("working", "done", "none", "failed")
    found = stored.found.wait(kind)
    assert stored.bands(kind) == found
    return found


def test_traps_are_those_of_the_study(folder, rule):
    stored = StoredRun(folder, models=Models.of(rule))
    found = searched(stored, "traps")
    rolling = glauber.traps(folder, detector="rolling", model=rule).catalogues[0]
    expected = rolling
    if not rolling.traps:
        expected = glauber.traps(folder, detector="hamming", shortest=60, model=rule).catalogues[0]
    assert found["state"] == "done" and len(found["bands"]) == len(expected.traps) > 0
    for band, trap in zip(found["bands"], expected.traps, strict=True):
        said = (band["chain"], band["first"], band["last"], band["text"])
        assert said == (trap.chain, trap.first, trap.last, trap.text)
        assert band["first"] <= band["at"] <= band["last"]
        assert Run(folder).text(band["chain"], band["at"]) == band["text"]
    assert "A trap is" in found["note"]


def test_basins_are_those_of_the_study(rule, tmp_path):
    run = glauber.sample(rule, STARTS, steps=600, temperature=1.2, seed=5, out=tmp_path / "run")
    found = searched(StoredRun(run), "basins")
    expected = basins(run, every=3)
    steps = expected.snapshots.steps.tolist()
    assert found["state"] == "done" and found["bands"]
    for chain in range(run.n_chains):
        mine = [band for band in found["bands"] if band["chain"] == chain]
        for place, step in enumerate(steps):
            label = int(expected.basin_of[chain, place])
            over = [band["name"] for band in mine if band["first"] <= step <= band["last"]]
            assert over == ([] if label < 0 else [f"basin {label}"])


def test_topics_of_what_is_no_language_are_left_out(folder, rule):
    found = searched(StoredRun(folder, models=Models.of(rule)), "topics")
    assert found["state"] == "none" and "topics" in found["why"].lower()


def test_a_search_that_fails_is_one_sentence_and_the_rest_goes_on(folder):
    stored = StoredRun(folder)  # nobody gave its model
    found = searched(stored, "traps")
    assert found["state"] == "failed" and found["why"].endswith(".")
    assert stored.film("run", first=0, count=3)["count"] == 3


def test_what_cannot_be_looked_for_is_said(tiny_folder, tmp_path):
    model = glauber.load(str(tiny_folder))
    swept = glauber.sample(model, TEXTS[:1], steps=3, scan="sweep", out=tmp_path / "sweep")
    assert searched(StoredRun(swept), "traps")["state"] == "none"
    begun = StoredRun(swept)
    committed_to(swept.folder, 0)
    assert begun.about()["steps"] == 0 and begun.bands("basins")["state"] == "none"
    written = glauber.generate(model, length=4, chains=2, out=tmp_path / "generation").run
    assert StoredRun(written).bands("traps")["state"] == "none"
    with pytest.raises(GlauberError, match="kind"):
        begun.bands("moods")


def test_a_long_path_is_not_held(folder, rule, monkeypatch):
    monkeypatch.setattr("glauber.interfaces.explorer.stored.PATHS", 10)
    found = searched(StoredRun(folder, models=Models.of(rule)), "traps")
    assert found["state"] == "failed" and "glauber traps" in found["why"]


def test_a_run_that_grew_is_looked_through_again(folder, rule, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "run")
    committed_to(copy, 320)
    stored = StoredRun(copy, models=Models.of(rule))
    first = searched(stored, "traps")
    committed_to(copy, 330, folder)
    assert stored.bands("traps") == first  # hardly longer
    committed_to(copy, 600, folder)
    said = stored.bands("traps")
    assert said["state"] == "done" or said["bands"] == first["bands"]  # meanwhile
    whole = StoredRun(folder, models=Models.of(rule))
    assert searched(stored, "traps") == searched(whole, "traps")


def test_the_model_is_asked_in_turns(rule):
    turns = Turns()
    law = InTurns(rule, turns)
    tokens = torch.tensor([[0, 1, 2, 0]] * 9)
    sites = (torch.arange(9) % 4)[:, None]
    assert torch.equal(law.scores(tokens, sites), rule.scores(tokens, sites))
    asked = torch.tensor([[[2, 0]]] * 9)
    assert torch.equal(law.scores(tokens, sites, asked), rule.scores(tokens, sites, asked))
    done = threading.Event()
    other = threading.Thread(target=lambda: (law.scores(tokens, sites), done.set()))
    with turns:
        other.start()
        assert not done.is_set()
    other.join(SECONDS)
    assert done.is_set()
    with pytest.raises(GlauberError, match="stopped"):
        InTurns(rule, turns, lambda: True).scores(tokens, sites)
