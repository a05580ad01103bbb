"""What a run says of its own content, worked out again, and what happens when it is not so."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import typer
import zarr

import conftest
import glauber
from crafted_run import crafted_run
from glauber.cli.command import command
from glauber.errors import DamagedRun, GlauberError
from glauber.runs import store
from glauber.runs.run import Run
from glauber.runs.writer import Writer
from resealed import committed_to


def of(content):
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def of_json(value):
    return of(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


def told(folder, name="committed.json"):
    return json.loads((folder / name).read_text())


def edit(folder, name, where, value):
    """Another value in a chunk that is whole for zarr."""
    zarr.open_group(folder / "events.zarr", mode="r+", use_consolidated=False)[name][where] = value


def test_digests_are_of_the_committed_values(run):
    commit = told(run)
    group = zarr.open_group(run / "events.zarr", mode="r")
    types = {"site": "<i4", "token": "<i4", "changed": "?"}
    assert list(commit["digests"]) == list(store.FIELDS)
    for name, listed in commit["digests"].items():
        values = group[name][:]  # (chains, steps, slots)
        by_step = [np.stack([values[:, t] for t in range(a, b)]) for a, b in SPANS]
        raw = [one.astype(types.get(name, "<f4")).tobytes() for one in by_step]
        assert listed == [of(one) for one in raw]
    assert commit["tokens"] == [of(one.astype("<i4").tobytes()) for one in group["tokens"][:]]
    assert commit["free"] == of(group["free"][:].tobytes()) and commit["every"] == 16
    for name in ("run.json", "committed.json"):
        entries = told(run, name)
        assert entries.pop("digest") == of_json(entries)
        assert (run / name).read_bytes() == (run / name.replace(".", ".copy.")).read_bytes()
    spec = told(run, "run.json")
    for name in ("steps", "versions", "device", "format", "digest"):
        del spec[name]
    assert commit["of"] == of_json(spec) and told(run, "run.json")["format"] == 4


SPANS = ((0, 16), (16, 32), (32, 40))


def test_files_are_digested_without_their_shapes(run):
    def shapeless(value):
        if isinstance(value, dict):
            return {name: shapeless(one) for name, one in value.items() if name != "shape"}
        return [shapeless(one) for one in value] if isinstance(value, list) else value

    found = {}
    for path in [*(run / "tokenizer").iterdir(), *(run / "events.zarr").rglob("zarr.json")]:
        content = path.read_bytes()
        same = of_json(shapeless(json.loads(content))) if path.name == "zarr.json" else of(content)
        found[path.relative_to(run).as_posix()] = same
    assert told(run)["files"] == found and len(found) >= 11


@pytest.mark.parametrize("name", ["entropy", "site", "changed"])
@pytest.mark.parametrize("how", ["another value", "lost", "torn", "foreign"])
def test_each_damage_is_named_with_its_steps(name, how, run, capsys):
    file = run / store.chunk_file(name, 1)
    if how == "another value":
        was = Run(run).read(name)[1, 20, 0]
        edit(run, name, (1, 20, 0), not was if name == "changed" else was + 1)
    elif how == "lost":
        file.unlink()
    elif how == "torn":
        file.write_bytes(file.read_bytes()[:-5])
    else:
        file.write_bytes((run / store.chunk_file(name, 0)).read_bytes())
    found = glauber.verify(run)
    assert found.damages == ((name, 16, 32, "events"),) and found.sound == 16
    assert found.to_dict()["damages"][0]["first"] == 16 and found.frame().shape == (1, 4)
    opened = Run(run)
    said = rf"{name} of steps 16 to 32; steps 0 to 16 are sound: `glauber repair"
    for read in (lambda: opened.read(name), lambda: opened.read(name, 31, 33), opened.events):
        with pytest.raises(DamagedRun, match=said):
            read()
    assert opened.read(name, 0, 16).shape == (5, 16, 1)
    assert opened.read(name, 3, 9).shape == (5, 6, 1)
    assert opened.read("token").shape == (5, 40, 1)
    with pytest.raises(typer.Exit) as ended:
        command(glauber.verify)(run=str(run), out=None, yes=False, json=True)
    assert ended.value.exit_code == 1
    assert json.loads(capsys.readouterr().out)["sound"] == 16


@pytest.mark.parametrize(
    ("name", "kind"),
    [("run.json", "spec"), ("committed.json", "commit"), ("run.copy.json", "copy"),
     ("committed.copy.json", "copy"), ("tokenizer/tokenizer.json", "tokenizer"),
     ("events.zarr/token/zarr.json", "header"), ("events.zarr/zarr.json", "header"),
     ("finished.json", "finish")],
)  # fmt: skip
def test_small_files_are_watched_too(name, kind, run):
    content = (run / name).read_text()
    digit = next(i for i in range(len(content) - 2, 0, -1) if content[i].isdigit())
    other = str((int(content[digit]) + 1) % 10)
    (run / name).write_text(content[:digit] + other + content[digit + 1 :])
    found = glauber.verify(run)
    assert [(one.what, one.kind) for one in found.damages] == [(name, kind)]
    assert found.sound == 40 and found.exit_code == 1
    if kind == "finish":
        assert not Run(run).finished
    elif kind != "copy":
        with pytest.raises(DamagedRun, match="damaged"):
            Run(run).text(0)


def test_a_shape_that_lies_is_noticed(run):
    for place in ("events.zarr/site/zarr.json", "events.zarr/zarr.json"):
        file = run / place
        kept = file.read_text()
        header = json.loads(kept)
        inner = header.get("consolidated_metadata", {"metadata": {"site": header}})
        inner["metadata"]["site"]["shape"][1] = 20
        file.write_text(json.dumps(header))
        with pytest.raises(DamagedRun, match="another shape"):
            Run(run)
        assert [one.what for one in glauber.verify(run).damages] == [place]
        file.write_text(kept)
    assert glauber.verify(run).exit_code == 0


def test_parts_of_two_runs_are_told_apart(run, tiny_folder, tmp_path):
    other = glauber.sample(str(tiny_folder), conftest.TEXTS, steps=40, seed=4, out=tmp_path / "b")
    shutil.copy(other.folder / "run.json", run / "run.json")
    with pytest.raises(DamagedRun, match=r"run.json and committed.json are not of one run"):
        Run(run)
    assert [one.what for one in glauber.verify(run).damages] == ["run.json"]


def test_a_reader_of_a_run_that_grows_sees_no_damage(run):
    whole = Run(run)
    events = {name: whole.read(name) for name in whole.fields}
    states = dict(whole.states())
    (run / "finished.json").unlink()
    before = Run(committed_to(run, 20))
    with Writer(run) as writer:  # cuts what lies beyond the commit, then makes the chunk longer
        middle = Run(run)
        for first, last in ((20, 27), (27, 32), (32, 40)):
            marks = {last: states[last]} if last % 16 == 0 else {}
            writer.append({name: one[:, first:last] for name, one in events.items()}, marks)
            glauber.verify(run)
            for name in before.fields:
                np.testing.assert_array_equal(before.read(name), events[name][:, :20])
    middle.verify()
    np.testing.assert_array_equal(middle.tokens(), states[20])
    assert glauber.verify(run).exit_code == 0 and Run(run).steps == 40


def test_what_happens_to_an_opened_run_is_noticed(run):
    opened = Run(run)
    opened.read("site"), opened.tokens(20), opened.free
    (run / store.chunk_file("site", 1)).unlink()  # zarr would read it as empty
    (run / store.chunk_file("token", 1)).write_bytes(b"")
    for name in ("site", "token"):
        with pytest.raises(DamagedRun, match=f"{name} of steps 16 to 32; steps 0 to 16 are sound"):
            opened.read(name, 20, 22)


def test_what_is_empty_is_not_taken_for_lost(tmp_path, monkeypatch):
    """Chunks of nothing but NaN or False are not written, whatever bits the NaN had."""
    monkeypatch.setattr(store, "chunk_steps", lambda n_chains, n_slots: 16)
    odd = np.full((1, 20), -1, np.int32).view(np.float32)  # a NaN that numpy does not write
    run = crafted_run(tmp_path / "run", [[7, 8]], np.zeros((1, 20), int), np.full((1, 20), 7),
                      entropy=odd)  # fmt: skip
    assert not (run.folder / store.chunk_file("changed", 0)).exists()
    assert not (run.folder / store.chunk_file("entropy", 1)).exists()
    assert glauber.verify(run).exit_code == 0 and np.isnan(run.read("entropy")).all()
    run.check_files()


def test_a_writer_refuses_what_it_would_go_on_from(run, stored):
    (run / "finished.json").unlink()
    committed_to(run, 36)
    edit(run, "log_prob_old", (0, 34, 0), -3.0)
    for write in (lambda: Writer(run), lambda: glauber.resume(run)):
        with pytest.raises(DamagedRun, match="log_prob_old of steps 32 to 36"):
            write()


def test_not_a_run_is_one_sentence(tmp_path):
    for asks in (glauber.verify, glauber.repair):
        with pytest.raises(GlauberError, match="is not a run"):
            asks(tmp_path)
    assert list(tmp_path.iterdir()) == []
