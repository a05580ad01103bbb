"""What a run folder can do to its reader, and what befalls it: foreign code, lost parts, cuts."""

import json
import os
import shutil

import numpy as np
import pytest

import conftest
from glauber.errors import GlauberError
from glauber.runs import spec as spec_module
from glauber.runs import store
from glauber.runs.export import export
from glauber.runs.integrity import sealed
from glauber.runs.run import Run
from glauber.sampling.reopened import model_of
from glauber.sampling.sample import extend, resume, sample
from resealed import said_otherwise

CODE = """
import pathlib, transformers
pathlib.Path(__file__).with_name("ran").write_text("x")
class Config(transformers.BertConfig):
    pass
class Model(transformers.BertForMaskedLM):
    config_class = Config
"""


def test_a_run_cannot_trust_itself(run, tiny_folder):
    """A folder from somebody else that brings its own model with code."""
    inside = shutil.copytree(tiny_folder, run / "model")
    config = json.loads((inside / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "code.Config", "AutoModelForMaskedLM": "code.Model"}
    (inside / "config.json").write_text(json.dumps(config | {"model_type": "own"}))
    (inside / "code.py").write_text(CODE)
    for asks in (True, False):
        said_otherwise(run, model=str(inside), trust_remote_code=asks)
        for reads in (model_of, resume, lambda run: extend(run, steps=60)):
            if reads is resume:
                (run / "finished.json").unlink(missing_ok=True)
                said_otherwise(run, steps=50)
            with pytest.raises(GlauberError, match="trust"):
                reads(run)
    assert not (inside / "ran").exists()


def test_a_run_that_asks_for_trust_says_so(run):
    said_otherwise(run, trust_remote_code=True)
    with pytest.raises(GlauberError, match="asks to run code"):
        extend(run, steps=50)
    assert extend(run, steps=41, trust_remote_code=True).steps == 41


FILES = ["site/c/0/1/0", "token/c/0/0/0", "log_prob_old/c/0/2/0", "entropy/c/0/1/0",
         "changed/c/0/0/0", "tokens/c/1/0/0", "tokens/c/0/0/0", "free/c/0/0"]  # fmt: skip


@pytest.mark.parametrize("lost", FILES)
def test_a_lost_chunk_is_refused_everywhere(lost, run, tmp_path):
    (run / "events.zarr" / lost).unlink()
    name = lost.partition("/")[0]
    for reads in (
        lambda: Run(run).read(name),
        lambda: extend(run, steps=50),
        lambda: export(run, to="text", out=tmp_path / "out"),
    ):
        with pytest.raises(GlauberError, match="damaged"):
            reads()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [("site/c/0/0/0", "site/c/0/1/0"), ("token/c/0/0/0", "token/c/0/1/0"),
     ("tokens/c/1/0/0", "tokens/c/2/0/0"), ("changed/c/0/0/0", "changed/c/0/1/0"),
     ("log_prob_new/c/0/0/0", "entropy/c/0/0/0"), ("site/c/0/2/0", "token/c/0/2/0")],
)  # fmt: skip
def test_swapped_chunks_are_not_continued_from(one, other, run, tmp_path):
    first, second = (run / "events.zarr" / name for name in (one, other))
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    for reads in (
        lambda: extend(run, steps=50),
        lambda: export(run, to="text", out=tmp_path / "out"),
    ):
        with pytest.raises(GlauberError, match="damaged"):
            reads()


def test_a_chunk_without_a_change_need_not_be_there(tiny_folder, tmp_path):
    """Zarr writes no chunk of nothing but False; a replay tells it from a lost one."""
    cold = sample(
        str(tiny_folder), conftest.TEXTS, steps=30, temperature=1e-4, fill="greedy", scan="sweep",
        seed=0, out=tmp_path / "run",
    )  # fmt: skip
    settled = sample(
        str(tiny_folder), [cold.text(0)], steps=3, temperature=1e-4, fill="greedy",
        out=tmp_path / "settled",
    )  # fmt: skip
    settled.verify()
    assert settled.read("changed").shape == (1, 3, 1)


def test_replay_finds_what_each_event_replaced():
    from glauber.runs.replay import replaced, replay

    generator = np.random.default_rng(0)
    start = generator.integers(9, size=(3, 5))
    sites = np.stack([generator.permuted(np.arange(5)[None].repeat(3, 0), axis=1)[:, :2]
                      for _ in range(7)], axis=1)  # fmt: skip
    sites[1, 2, 1] = -1
    new = generator.integers(9, size=sites.shape)
    old, after = replaced(start, sites, new)
    now = start.copy()
    for step in range(7):
        for chain, slot in np.ndindex(3, 2):
            if sites[chain, step, slot] >= 0:
                assert old[chain, step, slot] == now[chain, sites[chain, step, slot]]
        replay(now, sites[:, step : step + 1], new[:, step : step + 1])
    np.testing.assert_array_equal(after, now)


def test_a_commit_is_on_the_disk_before_it_is_said(run, tiny_folder, monkeypatch):
    """A power cut drops what was not synced: chunks come before their mark, then the folder."""
    synced = []
    monkeypatch.setattr(spec_module, "_sync", lambda place: synced.append(place))
    replaced = type(run).replace

    def renamed(self, target):
        synced.append(("renamed", target))
        return replaced(self, target)

    monkeypatch.setattr(type(run), "replace", renamed)
    extend(run, steps=41)
    mark = synced.index(("renamed", run / "committed.json"))
    before, after = synced[:mark], synced[mark + 1 :]
    for name in store.FIELDS:
        for path in (f"{name}/c/0/2/0", f"{name}/zarr.json"):
            chunk = run / "events.zarr" / path
            draft = next(one for one in before if str(one).startswith(f"{chunk.parent}/."))
            renamed = before.index(("renamed", chunk))
            assert before.index(draft) < renamed < before.index(chunk.parent)
    assert after[0] == run


def test_nobody_elses_files_are_deleted(tiny_folder, texts, tmp_path):
    mine = [tmp_path / ".run.draft", tmp_path / "run.draft", tmp_path / "run.partial"]
    for place in mine:
        place.mkdir()
        (place / "letter").write_text("dear")
    run = sample(str(tiny_folder), texts, steps=3, out=tmp_path / "run")
    (run.folder / "notes.partial").write_text("mine")
    extend(run, steps=5)
    assert all((place / "letter").exists() for place in mine)
    assert (run.folder / "notes.partial").exists()
    with pytest.raises(GlauberError, match="lies in the run"):
        sample(str(tiny_folder), texts, steps=3, out=run.folder / "inside")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*(p.name for p in mine), "run"])


@pytest.mark.parametrize(
    "entries",
    [{"temperature": "hot"}, {"temperature": [1.0]}, {"steps": -1}, {"chains": 0}, {"seed": "x"},
     {"frozen": 3}, {"versions": []}, {"temperature": -1.0}],
)  # fmt: skip
def test_a_header_with_wrong_entries_is_one_sentence(entries, run):
    told = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(sealed(told | entries)))
    with pytest.raises(GlauberError, match="damaged"):
        Run(run)


def test_the_mode_of_a_new_folder_is_the_usual_one(run):
    now = os.umask(0o022)
    os.umask(now)
    assert run.stat().st_mode & 0o777 == 0o777 & ~now


@pytest.mark.parametrize("broken", [b"", b"\x8e{", b'{"zarr_format": 3}', b"[]"])
@pytest.mark.parametrize("name", ["site", "tokens"])
def test_a_broken_header_of_an_array_is_one_sentence(name, broken, run):
    (run / "events.zarr" / name / "zarr.json").write_bytes(broken)
    with pytest.raises(GlauberError, match=rf"damaged: .*{name}"):
        Run(run)


def test_weights_that_are_a_folder_are_one_sentence(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    with pytest.raises(GlauberError, match=r"model.safetensors cannot be read"):
        sample(str(folder), conftest.TEXTS, steps=2)
