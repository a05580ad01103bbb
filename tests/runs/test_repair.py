"""The longest sound beginning is kept, and goes on to the bytes of a run that nothing befell."""

import json
import shutil
from pathlib import Path

import pytest

import conftest
import glauber
from glauber.errors import DamagedRun, GlauberError
from glauber.runs import store
from glauber.runs.run import Run
from run_bytes import contents


def garble(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-9] + b"123456789")


CASES = {
    "an event": (["events.zarr/entropy/c/0/1/0"], 16),
    "the first chunk": (["events.zarr/site/c/0/0/0"], 0),
    "two of them": (["events.zarr/token/c/0/2/0", "events.zarr/log_prob_new/c/0/1/0"], 16),
    "a mark": (["events.zarr/tokens/c/1/0/0"], 40),
    "marks": (["events.zarr/tokens/c/1/0/0", "events.zarr/tokens/c/2/0/0"], 40),
    "free sites": (["events.zarr/free/c/0/0"], 40),
    "the spec": (["run.json"], 40),
    "the commit": (["committed.json"], 40),
    "copies": (["run.copy.json", "committed.copy.json"], 40),
    "a header": (["events.zarr/site/zarr.json", "events.zarr/free/zarr.json"], 40),
    "the group": (["events.zarr/zarr.json"], 40),
    "the tokenizer": (["tokenizer/tokenizer.json"], 40),
    "the finish mark": (["finished.json"], 40),
    "many": (["finished.json", "run.json", "events.zarr/zarr.json", "committed.copy.json",
              "events.zarr/tokens/c/1/0/0", "events.zarr/changed/c/0/2/0"], 32),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_repaired_run_goes_on_to_the_same_bytes(case, run, stored):
    files, sound = CASES[case]
    for number, name in enumerate(files):
        (run / name).unlink() if number % 2 else garble(run / name)
    found = glauber.verify(run)
    assert found.sound == sound
    assert {one.what for one in found.damages} == {
        name.split("/")[1] if "/c/" in name else name for name in files
    }
    done = glauber.repair(run)
    assert done.steps == sound and not done.remains and done.exit_code == 0
    assert glauber.verify(run).exit_code == 0
    if sound == 40:
        assert done.finished and contents(run) == contents(stored)
    else:
        assert "glauber resume" in str(done)
        assert contents(glauber.resume(run).folder) == contents(stored)
    assert "nothing was damaged" in str(glauber.repair(run))


def test_a_repair_that_is_killed_is_completed_by_the_next(run, stored, tmp_path, monkeypatch):
    for name in CASES["many"][0]:
        garble(run / name)
    expected = shutil.copytree(run, tmp_path / "expected")
    glauber.repair(expected)
    moments, replaced, unlink = 0, Path.replace, Path.unlink

    def dies_after(n):
        left = iter(range(n))

        def step(work):
            def does(self, *given, **how):
                if next(left, None) is None:
                    raise KeyboardInterrupt
                return work(self, *given, **how)

            return does

        monkeypatch.setattr(Path, "replace", step(replaced))
        return step

    while True:
        killed = shutil.copytree(run, tmp_path / f"killed{moments}")
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", dies_after(moments)(unlink))
            try:
                glauber.repair(killed)
                break
            except KeyboardInterrupt:
                moments += 3
            finally:
                monkeypatch.setattr(Path, "replace", replaced)
        glauber.repair(killed)
        assert contents(killed) == contents(expected)
    assert moments > 20
    assert contents(glauber.resume(expected).folder) == contents(stored)


def test_without_any_commit_a_replay_says_what_is_kept(run, stored):
    for name in ("committed.json", "committed.copy.json"):
        (run / name).write_text("{")
    (run / "events.zarr/changed/c/0/2/0").unlink()
    assert glauber.verify(run).sound == 32
    done = glauber.repair(run)
    assert done.steps == 32 and any("all there was" in one for one in done.done)
    assert contents(glauber.resume(run).folder) == contents(stored)


def test_what_nothing_else_holds_is_said(run):
    (run / "events.zarr/tokens/c/0/0/0").unlink()
    found = glauber.verify(run)
    assert found.sound == 0 and found.damages == (("tokens", 0, 0, "mark"),)
    with pytest.raises(DamagedRun, match="tokens at step 0 are lost"):
        glauber.repair(run)
    for name in ("run.json", "run.copy.json"):
        (run / name).write_text("[]")
    with pytest.raises(DamagedRun, match=r"neither run.json nor run.copy.json"):
        glauber.repair(run)


def test_a_tokenizer_needs_its_model(run, tiny_folder):
    (run / "tokenizer/tokenizer_config.json").unlink()
    with pytest.raises(GlauberError, match="not the model"):
        glauber.repair(run, model="bundled:english")
    assert not glauber.repair(run, model=str(tiny_folder)).remains
    assert Run(run).text(0)


def test_a_spec_of_another_run_is_not_believed(run, stored, tiny_folder, tmp_path):
    """Two sound files of a run with another seed: what lies there is not theirs."""
    other = glauber.sample(str(tiny_folder), conftest.TEXTS, steps=40, seed=4, out=tmp_path / "o")
    before = contents(run)
    for name in ("run.json", "run.copy.json"):
        shutil.copy(other.folder / name, run / name)
    found = glauber.verify(run)
    assert {one.what for one in found.damages} == {"run.json", "run.copy.json"}
    assert found.sound == 40  # the events are whole
    assert "backup" in str(found) and "glauber repair" not in str(found)
    with pytest.raises(GlauberError, match="nothing says how it was made"):
        glauber.repair(run)
    for name in ("run.json", "run.copy.json"):
        (run / name).write_bytes(before[name])
    assert glauber.verify(run).exit_code == 0 and contents(run) == before


@pytest.mark.parametrize("name", ["committed.json", "run.json"])
def test_an_older_file_in_its_place_is_noticed(name, run, tiny_folder, tmp_path):
    """As from a backup: sound in itself, but the run is further."""
    old = (run / name).read_bytes()
    glauber.extend(run, steps=50)
    whole = contents(run)
    (run / name).write_bytes(old)
    found = glauber.verify(run)
    assert [one.what for one in found.damages] == [name] and found.sound == 50
    if name == "committed.json":
        for reads in (Run, lambda run: glauber.extend(run, steps=60)):
            with pytest.raises(DamagedRun, match="older than its copy"):
                reads(run)
    assert glauber.repair(run).steps == 50 and contents(run) == whole


def test_a_copy_beyond_the_plan_is_not_believed(run):
    before = contents(run)
    glauber.extend(run, steps=50)
    further = (run / "committed.copy.json").read_bytes()
    for name, content in before.items():
        (run / name).write_bytes(content)
    (run / "committed.copy.json").write_bytes(further)
    assert [one.what for one in glauber.verify(run).damages] == ["committed.copy.json"]
    with pytest.raises(DamagedRun, match="older than its copy"):
        Run(run)
    assert glauber.repair(run).steps == 40 and Run(run).finished


def test_a_finish_mark_says_the_steps_and_nothing_else(run):
    whole = contents(run)
    shutil.copy(run / "run.json", run / "finished.json")
    assert not Run(run).finished
    assert [one.kind for one in glauber.verify(run).damages] == ["finish"]
    assert glauber.repair(run).finished and contents(run) == whole


def test_events_are_cut_to_what_is_committed(run):
    """Beside a writer arrays are longer than what is committed, and not all of one length."""
    before = Run(run).events().load()
    draft = run / "events.zarr/.zarr.json.1.glauber-draft"
    draft.write_text("{}")
    header = run / "events.zarr/token/zarr.json"
    grown = json.loads(header.read_text())
    grown["shape"][1] += 5
    header.write_text(json.dumps(grown))
    assert Run(run).events().load().identical(before)


def test_a_generation_is_repaired_too(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "chunk_steps", lambda n_chains, n_slots: 16)
    how = {"length": 20, "chains": 3, "seed": 1, "out": tmp_path / "run"}
    made = glauber.generate(str(tiny_folder), **how).run
    assert made.steps > 16 and glauber.verify(made).exit_code == 0
    whole = contents(made.folder)
    garble(made.folder / store.chunk_file("token", 1))
    assert glauber.repair(made).steps == 16
    glauber.generate(str(tiny_folder), **how)
    assert contents(made.folder) == whole


def test_an_earlier_format_is_cut_where_a_replay_contradicts(run, stored):
    """The same run as an earlier version would have written it."""
    spec = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(
        json.dumps({k: v for k, v in spec.items() if k != "digest"} | {"format": 1})
    )
    (run / "committed.json").write_text('{"steps": 40}')
    for name in ("run.copy.json", "committed.copy.json"):
        (run / name).unlink()
    assert Run(run).steps == 40 and not Run(run).commit.of
    shutil.copy(run / "events.zarr/token/c/0/0/0", run / "events.zarr/token/c/0/1/0")
    found = glauber.verify(run)
    assert found.sound == 16 and not found.checksums and found.exit_code == 1
    with pytest.raises(DamagedRun, match="steps 16 to 32"):
        glauber.extend(run, steps=50)
    assert glauber.repair(run).steps == 16
    assert contents(glauber.resume(run).folder) == contents(stored)
