"""What a page is told about a stored run is what the run and its model say."""

import json
import math
import shutil

import numpy as np
import pytest
import torch

import glauber
from conftest import TEXTS
from glauber.foundation.errors import GlauberError
from glauber.interfaces.explorer.models import Models
from glauber.interfaces.explorer.stored import StoredRun
from glauber.runs.folder_log import FolderLog
from glauber.runs.run import Run
from interfaces.explorer.films import numbers, states
from resealed import committed_to

CHUNK = 16


@pytest.fixture(scope="module")
def model(tiny_folder):
    return glauber.load(str(tiny_folder))


@pytest.fixture(scope="module")
def folders(model, tmp_path_factory):
    place = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glauber.runs.log.SEGMENT_EVENTS", 3 * CHUNK)
        glauber.sample(
            model, TEXTS, steps=50, temperature=[0.5, 1.0, 2.0], prefix="a dog .", freeze="1",
            forbid="cat", seed=2, out=place / "chains",
        )  # fmt: skip
        glauber.generate(
            model, length=6, chains=2, temperature=0, prefix="the", out=place / "generation"
        )
    return place


@pytest.fixture
def folder(folders, tmp_path):
    return shutil.copytree(folders / "chains", tmp_path / "run")


def test_what_is_said_of_a_run(folders):
    said = StoredRun(folders / "chains").about()
    json.dumps(said, allow_nan=False)
    assert said["name"] == "chains" and said["kind"] == "chain" and said["finished"]
    assert said["steps"] == said["planned"] == 50 and said["chains"] == 3
    assert said["temperatures"] == [0.5, 1.0, 2.0] and said["damaged"] is None
    run = Run(folders / "chains")
    assert (
        said["length"] == int((run.tokens(0)[1] > 4).sum()) and said["first_site"] == 3
    )  # the prefix is shown
    written = StoredRun(str(folders / "generation")).about()
    assert written["kind"] == "generation" and written["temperatures"] == [0, 0]


def test_the_film_of_a_page_is_the_run(folders):
    stored, run = StoredRun(folders / "chains"), Run(folders / "chains")
    found = stored.film("run", first=13, count=5, every=4, chains=[2, 0])
    assert found["count"] == 5 and found["end"] == 50 and found["chains"] == [2, 0]
    for place, chain in enumerate([2, 0]):
        row = run.tokens(33)[chain]
        assert states(found)[place][0][5].tolist() == row[row > 4].tolist()


def test_a_film_that_would_be_too_large_is_shorter(folders, monkeypatch):
    monkeypatch.setattr("glauber.interfaces.explorer.stored.EVENTS", 30)
    stored = StoredRun(folders / "chains")
    assert stored.film("run", first=0, count=50)["count"] == 10
    assert stored.film("run", first=0, count=50, every=40)["count"] == 1
    for chains in ([], 1, "0", [0, 0], [[0]], [True]):
        with pytest.raises(GlauberError, match="chain"):
            stored.film("run", first=0, count=5, chains=chains)


def test_the_conditional_is_the_models_own(folders, model):
    stored, run = StoredRun(folders / "chains"), Run(folders / "chains")
    for chain, step, site in ((0, 0, 4), (1, 17, 6), (2, 50, 3)):
        found = stored.conditional("run", chain=chain, step=step, site=site, whole=True)
        tokens = torch.from_numpy(run.tokens(step)[chain])
        scores = model.scores(tokens[None], torch.tensor([[1 + site]]))[0, 0].double()
        scores[~model.vocabulary.proposable(forbid=["cat"])] = -torch.inf
        expected = torch.softmax(scores / run.temperatures[chain], dim=0).numpy()
        assert abs(math.fsum(found["probabilities"]) - 1) < 1e-12
        assert np.abs(np.array(found["probabilities"]) - expected).max() < 1e-6
        assert found["probabilities"][model.vocabulary.token("cat")] == 0
        assert found["token"] == int(tokens[1 + site]) and found["site"] == site
        assert found["temperature"] == run.temperatures[chain]
        assert found["frozen"] == (site in (0, 1, 2, 4))
        json.dumps(found, allow_nan=False)
        sure = stored.sure("run", chain=chain, step=step)
        log_prob, entropy = numbers(sure["log_prob"]), numbers(sure["entropy"])
        assert len(log_prob) == len(entropy) == int((tokens > 4).sum())
        assert math.isclose(entropy[site], found["entropy"], abs_tol=1e-5)
        own = expected[tokens[1 + site]]
        assert math.isclose(math.exp(log_prob[site]), own, abs_tol=1e-5) or (
            own == 0 and np.isnan(log_prob[site])
        )


def test_what_was_recorded_is_what_is_said(folders):
    """The redraw of step t + 1 was made from the conditional at step t."""
    stored, run = StoredRun(folders / "chains"), Run(folders / "chains")
    for step in (3, 30):
        site = int(run.read("site")[1, step, 0])
        found = stored.conditional("run", chain=1, step=step, site=site - 1, whole=True)
        drawn = found["probabilities"][int(run.read("token")[1, step, 0])]
        assert math.isclose(math.log(drawn), run.read("log_prob_new")[1, step, 0], abs_tol=1e-4)
        assert math.isclose(found["entropy"], run.read("entropy")[1, step, 0], abs_tol=1e-4)


def test_the_model_of_the_page_is_asked_in_turn(folders, model):
    models = Models.of(model)
    stored = StoredRun(folders / "chains", models=models)
    assert stored.conditional("run", chain=0, step=1, site=3)["n_tokens"] > 10
    assert stored._drawn.conditionals.base is model
    tokens, free, spelled = stored.begin(0, 20)
    assert tokens.min() >= 0 and len(tokens) == len(free) and not free[:4].any()
    assert spelled.decode(tokens) == Run(folders / "chains").text(0, 20)


def test_a_generation_can_be_asked_too(folders):
    stored = StoredRun(folders / "generation")
    found = stored.conditional("run", chain=0, step=0, site=3, whole=True)
    assert found["text"].strip() == "[MASK]" and found["margin"] is None
    assert found["temperature"] == 1 and "temperature 1" in found["note"]
    assert abs(sum(found["probabilities"]) - 1) < 1e-12
    sure = numbers(stored.sure("run", chain=1, step=0)["log_prob"])
    assert np.isnan(sure[1:]).all() and np.isfinite(sure[0])
    assert stored.curves()["series"]["left"]["mean"][-1] == 0


@pytest.mark.int8
def test_a_run_in_int8_is_asked_in_float32(tiny_folder, model, tmp_path):
    coarse = Models.of(str(tiny_folder), dtype="int8")
    run = glauber.sample(
        coarse[str(tiny_folder)], TEXTS[:1], steps=3, dtype="int8", out=tmp_path / "run"
    )
    found = StoredRun(run, models=coarse).conditional("run", 0, 3, 1, whole=True)
    tokens = torch.from_numpy(run.tokens(3))
    scores = model.conditionals().scores(tokens, torch.tensor([[2]]))[0, 0].double()
    assert np.allclose(found["probabilities"], torch.softmax(scores, 0).numpy(), atol=1e-6)
    assert "int8" in found["note"]


def test_the_limits_of_a_run_hold_for_its_conditionals(model, tmp_path):
    how = dict(steps=3, allow="1:cat|dog", max_changes=2, out=tmp_path / "run")
    stored = StoredRun(glauber.sample(model, ["the cat sat"], **how))
    found = stored.conditional("run", 0, 3, 1)
    assert {one["text"].strip() for one in found["top"]} == {"cat", "dog"}
    assert found["n_tokens"] == 2 and "budget" in found["note"]
    assert stored.conditional("run", 0, 3, 2)["n_tokens"] > 2


@pytest.mark.parametrize(
    "asked", [dict(chain=3), dict(step=51), dict(step=-1), dict(site=99), dict(site=-1)]
)
def test_what_is_not_there_is_refused(folders, asked):
    stored = StoredRun(folders / "chains")
    with pytest.raises(GlauberError):
        stored.conditional("run", **({"chain": 0, "step": 0, "site": 0} | asked))


def test_a_run_that_grows_is_read_again(folder):
    whole = Run(folder)
    events = {name: whole.read(name) for name in whole.fields}
    rows = dict(whole.states())
    committed_to(folder, 20)
    stored = StoredRun(folder)
    assert stored.about()["steps"] == 20 and not stored.about()["finished"]
    assert stored.about()["planned"] == 50
    before = stored.film("run", first=0, count=100)
    curve = stored.curves(points=10)
    assert before["count"] == before["end"] == 20 and curve["steps"][-1] == 20
    with FolderLog(folder, write=True) as log:
        for first, last in ((20, 33), (33, 50)):
            log.append({name: values[:, first:last] for name, values in events.items()})
            assert stored.film("run", first=10, count=100)["end"] == last
            assert stored.about()["steps"] == last and stored.about()["finished"] == (last == 50)
    assert stored.about()["finished"] and stored.about()["damaged"] is None
    found = stored.film("run", first=0, count=100)
    assert found["count"] == 50
    for frame in (20, 25, 50):
        row = rows[frame][1]
        assert states(found)[1][0][frame].tolist() == row[row > 4].tolist()
    assert stored.curves(points=10)["steps"][-1] == 50


def test_a_damaged_segment_is_reported_and_the_others_are_shown(folder):
    stored = StoredRun(folder)
    stored.film("run", first=0, count=CHUNK)
    file = folder / "events" / "00000001.parquet"
    kept = file.read_bytes()
    file.write_bytes(kept[:-3])
    with pytest.raises(GlauberError, match="damaged"):
        stored.film("run", first=CHUNK, count=4)
    assert "damaged" in stored.about()["damaged"]
    assert stored.film("run", first=3, count=5)["count"] == 5  # it was read before
    assert stored.film("run", first=3 * CHUNK + 1, count=1, chains=[0])["count"] == 1
    with pytest.raises(GlauberError, match="damaged"):
        stored.conditional("run", chain=0, step=20, site=3)
    file.write_bytes(kept)
    assert stored.about()["damaged"] is None
    assert stored.film("run", first=CHUNK, count=4)["count"] == 4
    (folder / "events" / "00000002.parquet").unlink()
    assert "missing" in stored.about()["damaged"]  # before it is read


def test_a_run_that_is_deleted_stays_as_far_as_it_was_read(folder):
    stored = StoredRun(folder)
    before = stored.film("run", first=2, count=10)
    shutil.rmtree(folder)
    said = stored.about()
    assert "not there any more" in said["damaged"] and said["finished"] and said["steps"] == 50
    assert stored.film("run", first=2, count=10) == before
    with pytest.raises(GlauberError):
        stored.film("run", first=40, count=5)


def test_another_run_in_the_same_folder_is_read_anew(folder, folders):
    stored = StoredRun(folder)
    stored.film("run", first=0, count=3)
    shutil.rmtree(folder)
    shutil.copytree(folders / "generation", folder)
    said = stored.about()
    assert said["kind"] == "generation" and said["damaged"] is None
    assert len(stored.film("run", first=0, count=3)["chains"]) == 2
