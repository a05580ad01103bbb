"""Damage is noticed by every reader, and a repair keeps the longest sound prefix of a run."""

import json
import os
import shutil
from pathlib import Path

import pandas
import pytest
import typer

import conftest
import glauber
from glauber.foundation.errors import DamagedRun, GlauberError
from glauber.interfaces.cli.command import command
from glauber.runs import folder_log
from glauber.runs.export import export
from glauber.runs.folder_log import FolderLog
from glauber.runs.run import Run
from glauber.sampling.reopened import model_of
from resealed import committed_to, digest, record_of, reseal, said_otherwise
from run_bytes import contents, values

TAIL = "events/00000002-00000040.parquet"
MIDDLE, STATE = "events/00000001.parquet", "states/00000001.parquet"
FILES = {  # of the stored run, and the steps of each
    "start.parquet": (0, 0),
    "events/00000000.parquet": (0, 16),
    STATE: (16, 16),
    MIDDLE: (16, 32),
    "states/00000002.parquet": (32, 32),
    TAIL: (32, 40),
}


def garble(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(60) + content[64:])


@pytest.fixture(scope="module")
def other(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with another seed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_log, "default_segment_steps", lambda n_chains, n_slots: 16)
        out = tmp_path_factory.mktemp("other") / "run"
        return glauber.sample(str(tiny_folder), conftest.TEXTS, steps=40, seed=4, out=out).folder


def test_digests_are_of_the_committed_files(run):
    record = record_of(run)
    files = {name: digest(content) for name, content in contents(run).items()}
    del files["run.json"]
    assert record["files"] == files and {*FILES} < {*files}
    assert record["format"] == 5 and (record["steps"], record["segment_steps"]) == (40, 16)
    assert record.pop("digest") == digest(json.dumps(record, sort_keys=True).encode())
    assert len(pandas.read_parquet(run / "events")) == 5 * 40


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["another value", "lost", "torn", "empty", "foreign"])
def test_each_damage_is_named_with_its_steps(name, how, run, other, tmp_path, capsys):
    file = run / name
    if how == "lost":
        file.unlink()
    elif how == "another value":
        garble(file)
    else:
        foreign = (other / name).read_bytes()
        file.write_bytes({"torn": file.read_bytes()[:-5], "empty": b"", "foreign": foreign}[how])
    verified = glauber.verify(run)
    reason = "is missing" if how == "lost" else "is not what was committed"
    first, last = FILES[name]
    assert verified.damages == ((name, reason, first, last),) and verified.exit_code == 1
    # A lost state is made again by replay; nothing else contains the start.
    assert verified.sound == (0 if name == "start.parquet" else 40 if first == last else first)
    opened = Run(run)
    reads = [
        lambda: opened.verify(),
        lambda: glauber.resume(run),
        lambda: glauber.extend(run, steps=50),
        lambda: export(run, to="text", out=tmp_path / "out"),
        lambda: list(opened.states()),
    ]
    if first < last:
        reads += [lambda: opened.read("entropy"), lambda: opened.read("site", 31, 33)]
    for read in reads[: 7 if first == 16 else 6]:
        with pytest.raises(DamagedRun, match=f"{name}.*glauber repair"):
            read()
    if first:  # what comes before is read all the same
        assert opened.read("entropy", 0, first).shape == (5, first, 1)
        assert opened.tokens(first - 1).shape == opened.free.shape
    assert not (tmp_path / "out").exists()
    with pytest.raises(typer.Exit) as ended:
        command(glauber.verify)(run=str(run), out=None, yes=False, json=True)
    assert ended.value.exit_code == 1
    assert json.loads(capsys.readouterr().out)["sound"] == verified.sound


@pytest.mark.parametrize("name", ["tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"])
def test_a_damaged_tokenizer_is_not_read(name, run):
    garble(run / name)
    verified = glauber.verify(run)
    assert [item.name for item in verified.damages] == [name] and verified.sound == 40
    for read in (lambda: Run(run).text(0), lambda: Run(run).model_vocabulary):
        with pytest.raises(DamagedRun, match=name):
            read()


def test_a_foreign_file_in_a_tokenizer_without_its_own_json_is_refused(run):
    manifest = folder_log.Manifest.read(run)
    del manifest.files["tokenizer/tokenizer.json"]
    folder_log.write_manifest(run, manifest)
    assert [item.reason for item in glauber.verify(run).damages] == ["is not part of the run"]
    with pytest.raises(DamagedRun, match="not part of the run"):
        Run(run).text(0)


@pytest.mark.parametrize("kind", ["events", "states"])
def test_swapped_files_are_not_continued_from(kind, run, tmp_path):
    first, second = sorted((run / kind).iterdir())[:2]
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    for read in (
        lambda: glauber.extend(run, steps=50),
        lambda: export(run, to="text", out=tmp_path / "out"),
    ):
        with pytest.raises(DamagedRun, match="is not what was committed"):
            read()


def test_what_happens_to_an_opened_run_is_noticed(run):
    opened = Run(run)
    opened.read("site"), opened.tokens(20)
    garble(run / MIDDLE)
    for read in (lambda: opened.newest().verify(), lambda: Run(run).read("token", 20, 22)):
        with pytest.raises(DamagedRun, match=MIDDLE):
            read()


# ---- repair

CASES = {
    "the first events": (["events/00000000.parquet"], 0),
    "events": ([MIDDLE], 16),
    "two of them": ([TAIL, MIDDLE], 16),
    "the last": ([TAIL], 32),
    "a state": ([STATE], 40),
    "states": ([STATE, "states/00000002.parquet"], 40),
    "the manifest": (["run.json"], 40),
    "the tokenizer": (["tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"], 40),
    "a manifest and a state": (["run.json", "states/00000002.parquet"], 40),
    "many": (["run.json", TAIL, STATE, "tokenizer/tokenizer.json"], 32),
}


@pytest.mark.parametrize("case", CASES)
def test_a_repaired_run_continues_to_the_same_bytes(case, run, stored):
    files, sound = CASES[case]
    for number, name in enumerate(files):
        (run / name).unlink() if number % 2 else garble(run / name)
    verified = glauber.verify(run)
    assert verified.sound == sound
    named = {item.name for item in verified.damages}
    # Without the manifest nothing says that there were more steps.
    assert named == {*files} - ({TAIL} if "run.json" in files else set())
    repaired = glauber.repair(run)
    assert repaired.steps == sound and not repaired.remains and repaired.exit_code == 0
    assert glauber.verify(run).exit_code == 0
    if sound == 40:
        assert repaired.finished and contents(run) == contents(stored)
    else:
        assert "glauber resume" in str(repaired)
        assert contents(glauber.resume(run).folder) == contents(stored)
    assert "nothing was damaged" in str(glauber.repair(run))


def test_a_repair_that_is_cut_short_is_completed_by_the_next(run, stored, tmp_path, monkeypatch):
    for name in CASES["many"][0]:
        garble(run / name)
    repaired = shutil.copytree(run, tmp_path / "repaired")
    glauber.repair(repaired)

    def interrupted(operation, left):
        def operate(*args, **options):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return operation(*args, **options)

        return operate

    operations = 0
    while True:
        copy = shutil.copytree(run, tmp_path / f"after {operations}")
        with monkeypatch.context() as patch:
            left = iter(range(operations))
            for owner, name in ((os, "replace"), (os, "fsync"), (Path, "unlink")):
                patch.setattr(owner, name, interrupted(getattr(owner, name), left))
            try:
                glauber.repair(copy)
                break
            except KeyboardInterrupt:
                operations += 1
        glauber.repair(copy)
        assert contents(copy) == contents(repaired)
    assert operations > 8
    assert contents(glauber.resume(repaired).folder) == contents(stored)


def test_a_lost_start_is_refused_in_a_sentence(run):
    (run / "start.parquet").unlink()
    before = contents(run)
    assert glauber.verify(run).sound == 0
    with pytest.raises(DamagedRun, match=r"start.parquet is lost, and nothing else contains"):
        glauber.repair(run)
    (run / "run.json").write_text("[]")
    assert "from a backup" in str(glauber.verify(run))
    with pytest.raises(DamagedRun, match=r"run.json and start.parquet are lost"):
        glauber.repair(run)
    assert contents(run) == before | {"run.json": b"[]"}


def test_a_tokenizer_needs_its_model(run, tiny_folder):
    (run / "tokenizer/tokenizer_config.json").unlink()
    with pytest.raises(DamagedRun, match="tokenizer_config"):
        Run(run).text(0)
    remains = glauber.repair(run, model="bundled:english").remains
    assert len(remains) == 1 and "not the model" in remains[0]
    assert not glauber.repair(run, model=str(tiny_folder)).remains
    assert Run(run).text(0)


def test_the_manifest_of_another_run_is_replaced(run, stored, other):
    shutil.copy(other / "run.json", run / "run.json")
    with pytest.raises(DamagedRun):
        Run(run).read("site")
    verified = glauber.verify(run)
    assert [item.name for item in verified.damages] == ["run.json"] and verified.sound == 40
    assert glauber.repair(run).steps == 40 and contents(run) == contents(stored)


@pytest.mark.parametrize("steps", [40, 27])
def test_an_older_manifest_loses_no_steps(steps, stored, tmp_path):
    """As from a backup: sound in itself, but the files are those of a longer run."""
    run = shutil.copytree(stored, tmp_path / "run")
    if steps < 40:
        committed_to(run, steps)
    older = (run / "run.json").read_bytes()
    longer = values(glauber.extend(run, steps=50).folder)
    (run / "run.json").write_bytes(older)
    verified = glauber.verify(run)
    assert "run.json" in [item.name for item in verified.damages] and verified.sound == 50
    for read in (lambda: Run(run).read("site"), lambda: glauber.extend(run, steps=60)):
        with pytest.raises(DamagedRun):
            read()
    assert glauber.repair(run).steps == 50 and values(run) == longer


def test_a_generation_is_repaired_too(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(folder_log, "default_segment_steps", lambda n_chains, n_slots: 16)
    options = {"length": 20, "chains": 3, "seed": 1, "out": tmp_path / "run"}
    run = glauber.generate(str(tiny_folder), **options).run
    assert run.steps > 16 and glauber.verify(run).exit_code == 0
    complete = contents(run.folder)
    garble(next((run.folder / "events").glob("00000001-*")))
    assert glauber.repair(run).steps == 16
    glauber.generate(str(tiny_folder), **options)
    assert contents(run.folder) == complete


# ---- what is not a run, or somebody else's


def test_not_a_run_is_one_sentence(tmp_path):
    for study in (glauber.verify, glauber.repair, Run, glauber.resume):
        with pytest.raises(GlauberError, match="is not a run"):
            study(tmp_path)
        with pytest.raises(GlauberError, match="is not a run"):
            study(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "entries",
    [{"temperature": "hot"}, {"temperature": [1.0]}, {"steps": -1}, {"chains": 0}, {"seed": "x"},
     {"frozen": 3}, {"versions": []}, {"temperature": -1.0}],
)  # fmt: skip
def test_a_spec_with_wrong_entries_is_one_sentence(entries, run):
    reseal(run, spec=record_of(run)["spec"] | entries)
    with pytest.raises(DamagedRun, match=r"run.json cannot be read"):
        Run(run)


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
    for trusting in (True, False):
        said_otherwise(run, model=str(inside), trust_remote_code=trusting)
        for open_model in (model_of, lambda run: glauber.extend(run, steps=60)):
            with pytest.raises(GlauberError, match="trust"):
                open_model(run)
    committed_to(run, 36)
    with pytest.raises(GlauberError, match="trust"):
        glauber.resume(run)
    assert not (inside / "ran").exists()


def test_a_run_that_asks_for_trust_says_so(run):
    said_otherwise(run, trust_remote_code=True)
    with pytest.raises(GlauberError, match="asks to run code"):
        glauber.extend(run, steps=50)


def test_nobody_elses_files_are_deleted(tiny_folder, texts, tmp_path):
    mine = [tmp_path / ".run.draft", tmp_path / "run.draft", tmp_path / "run.partial"]
    for folder in mine:
        folder.mkdir()
        (folder / "letter").write_text("dear")
    run = glauber.sample(str(tiny_folder), texts, steps=3, out=tmp_path / "run")
    (run.folder / "notes.partial").write_text("mine")
    glauber.extend(run, steps=5)
    assert all((folder / "letter").exists() for folder in mine)
    assert (run.folder / "notes.partial").exists()
    with pytest.raises(GlauberError, match="is inside the run"):
        glauber.sample(str(tiny_folder), texts, steps=3, out=run.folder / "inside")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*(p.name for p in mine), "run"])


def test_the_mode_of_a_new_folder_is_the_usual_one(run):
    now = os.umask(0o022)
    os.umask(now)
    assert run.stat().st_mode & 0o777 == 0o777 & ~now


def test_weights_that_are_a_folder_are_one_sentence(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    with pytest.raises(GlauberError, match=r"model.safetensors cannot be read"):
        glauber.sample(str(folder), conftest.TEXTS, steps=2)


def test_verify_next_to_a_writer_reports_no_damage(run):
    complete = Run(run)
    events = {name: complete.read(name) for name in complete.fields}
    before = Run(committed_to(run, 20))
    with FolderLog(run, write=True) as log:
        for first, last in ((20, 27), (27, 32), (32, 40)):
            log.append({name: array[:, first:last] for name, array in events.items()})
            assert glauber.verify(run).exit_code == 0
            for name in before.fields:
                assert before.read(name).tobytes() == events[name][:, :20].tobytes()
    assert Run(run).steps == 40
