"""A log in a folder: damage, kills, power cuts, other processes, symbolic links, full disks."""

import errno
import fcntl
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pyarrow.dataset
import pytest

from bench.torture import logs
from bench.torture.logs import KINDS, SUBJECTS, contents, save_tokenizer, synthetic_chains
from glauber.errors import DamagedRun, GlauberError
from glauber.runs import folder_log
from glauber.runs.folder_log import FolderLog
from glauber.runs.log_repair import inspect_log, repair_log

ROOT = Path(__file__).parents[2]
CHAINS = synthetic_chains(3, 40)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An unfinished run of two full segments and a tail."""
    with CHAINS.create(tmp_path / "run", segment_steps=16) as log:
        log.append(CHAINS.part(0, 37))
    return tmp_path / "run"


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_noticed_and_repaired(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_log, "flush_to_disk", lambda handle: None)  # plays no part here
    draw = random.Random(7)
    for steps in (7, 32, 37, 40):
        for chains in SUBJECTS.values():
            assert not logs.damage_trial(chains, tmp_path / "trial", kind, steps, draw)["failed"]


def test_readers_that_compare_nothing_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_log, "digest", lambda content: "")
    monkeypatch.setattr(folder_log, "flush_to_disk", lambda handle: None)
    draw = random.Random(0)
    trials = [logs.damage_trial(CHAINS, tmp_path / "trial", "foreign", 37, draw) for _ in range(6)]
    assert any(counts["failed"] for counts in trials)


def test_a_power_cut_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    assert logs.power(tmp_path / "trial", count=40) == 0


@pytest.mark.parametrize("writer", logs.BROKEN)
def test_power_cuts_reveal_a_broken_writer(writer: str, tmp_path: Path) -> None:
    with logs.BROKEN[writer]():
        assert logs.power(tmp_path / "trial", count=24) > 0


@pytest.mark.parametrize("options", [(), ("--broken", "manifest-first")], ids=["sound", "broken"])
def test_kills_leave_a_run_that_continues_to_the_same_bytes(options: tuple[str, ...]) -> None:
    path = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "bench.torture.logs", "kills", "--count", "8", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode != 0) == bool(options), done.stdout + done.stderr
    assert (" 0 failed" in done.stdout) != bool(options) and "8 trials" in done.stdout


def test_a_reader_next_to_a_writer_sees_the_steps_it_opened(tmp_path: Path) -> None:
    chains = SUBJECTS["blocks"]
    with chains.create(tmp_path / "run", segment_steps=16) as log:
        reader = FolderLog(log.folder)
        for first in range(0, 40, 5):
            log.append(chains.part(first, first + 3))
            assert reader.refresh() and reader.steps == first + 3
            log.append(chains.part(first + 3, first + 5))  # replaces the tail that it knows
            for name in reader.fields:
                values = reader.read(name)
                assert values.tobytes() == chains.events[name][:, : first + 3].tobytes()
            assert (reader.tokens() == chains.tokens_after()[first + 3]).all()
        assert reader.refresh() and not reader.refresh()


def test_a_run_has_one_writer(run: Path) -> None:
    with FolderLog(run, write=True):
        for open_again in (lambda: FolderLog(run, write=True), lambda: repair_log(run)):
            with pytest.raises(GlauberError, match="another process is writing the run"):
                open_again()
    with pytest.raises(GlauberError, match="not open for writing"):
        FolderLog(run).append(CHAINS.part(37, 40))


def test_pandas_and_pyarrow_read_the_events_of_a_finished_run(tmp_path: Path) -> None:
    chains = SUBJECTS["blocks"]
    with chains.create(tmp_path / "run", segment_steps=16) as log:
        log.append(chains.part(0, 40))
    frame = pandas.read_parquet(tmp_path / "run" / "events")
    step, chain, slot = np.nonzero(chains.events["site"].transpose(1, 0, 2) >= 0)
    frame = frame.sort_values(["step", "chain", "slot"])
    assert (frame["step"] == step + 1).all() and (frame["chain"] == chain).all()
    for name in log.fields:
        assert (frame[name].to_numpy() == chains.events[name][chain, step, slot]).all()
    assert pyarrow.dataset.dataset(tmp_path / "run" / "events").count_rows() == len(step)


def test_a_finished_run_is_extended_to_the_bytes_of_a_longer_one(tmp_path: Path) -> None:
    short = replace(CHAINS, spec=replace(CHAINS.spec, steps=20))
    with short.create(tmp_path / "run", segment_steps=16) as log:
        log.append(CHAINS.part(0, 20))
        assert log.finished
    assert (log.folder / "events/00000001-00000020.parquet").is_file()
    with FolderLog(log.folder, write=True) as log:
        with pytest.raises(GlauberError, match="other settings"):
            log.describe(replace(log.spec, seed=5))
        log.describe(CHAINS.spec)
        assert (log.folder / "tail-00000020.parquet").is_file()
        log.append(CHAINS.part(20, 40))
    assert not logs.wrong_values(CHAINS, log.folder)
    assert len(pandas.read_parquet(log.folder / "events")) == 3 * 40


def test_a_full_disk_ends_in_a_sentence_and_loses_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(run)
    for code, words in ((errno.ENOSPC, "the disk is full"), (errno.EROFS, "cannot be written")):
        log = FolderLog(run, write=True)

        def fail(handle: int, code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch:
            patch.setattr(folder_log, "flush_to_disk", fail)
            with pytest.raises(GlauberError, match=words):
                log.append(CHAINS.part(37, 40))
        assert contents(run) == before
    assert not logs.unfinished(CHAINS, run, 37)


def test_a_read_only_folder_is_refused_in_a_sentence(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "lock").unlink()
    system_open = os.open

    def read_only(path: object, flags: int, *args: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, "Permission denied")
        return system_open(path, flags, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(GlauberError, match="cannot be written: Permission denied"):
        FolderLog(run, write=True)
    assert not logs.wrong_values(CHAINS, run)


def test_other_formats_are_refused_in_a_sentence(run: Path, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    (earlier / "events.zarr").mkdir(parents=True)
    (earlier / "run.json").write_text('{"format": 4}')
    for refused in (FolderLog, inspect_log, repair_log):
        with pytest.raises(GlauberError, match="earlier version of glauber"):
            refused(earlier)
        with pytest.raises(GlauberError, match="is not a run"):
            refused(tmp_path / "nothing")
    record = json.loads((run / "run.json").read_bytes()) | {"format": 6}
    del record["digest"]
    record["digest"] = folder_log.digest(json.dumps(record, sort_keys=True).encode())
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(GlauberError, match="use a newer glauber"):
        FolderLog(run)
    (run / "run.json").write_text("[" * 100_000)
    with pytest.raises(DamagedRun):
        FolderLog(run)


LINKS = [
    "lock", "run.json", "start.parquet", "events", "events/00000000.parquet", "states",
    "states/00000001.parquet", "tail-00000037.parquet", "tail-00000099.parquet", "tokenizer",
    "tokenizer/tokenizer.json", "events/.x.glauber-draft",
]  # fmt: skip


@pytest.mark.parametrize("name", LINKS)
def test_a_run_with_a_symbolic_link_is_never_written(name: str, run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = outside / Path(name).name
    if (run / name).exists():
        (run / name).rename(target)
    else:
        target.write_bytes(b"something else")
    (outside / "00000009.parquet").write_bytes(b"a name that a writer removes")
    (run / name).symlink_to(target)
    before = contents(outside)
    for write in (lambda: FolderLog(run, write=True), lambda: repair_log(run)):
        with pytest.raises(GlauberError, match="is a symbolic link"):
            write()
    assert contents(outside) == before


def test_only_drafts_and_segments_are_removed(run: Path) -> None:
    leftovers = ["tail-00000003.parquet", "events/00000007.parquet", "events/.x.glauber-draft"]
    others = ["notes.txt", "events/notes.parquet", "tail-1.parquet", "tokenizer/00000001.parquet"]
    for name in (*leftovers, *others):
        (run / name).write_bytes(b"")
    FolderLog(run, write=True).close()
    assert not any((run / name).exists() for name in leftovers)
    assert all((run / name).exists() for name in others)


def test_a_lost_tokenizer_remains_unless_it_can_be_written(run: Path) -> None:
    (run / "tokenizer" / "tokenizer.json").write_text("{}")
    with pytest.raises(DamagedRun, match=r"tokenizer\.json is not what was committed"):
        FolderLog(run).tokenizer()
    assert [item.name for item in repair_log(run).remains] == ["tokenizer/tokenizer.json"]
    assert not repair_log(run, save_tokenizer=save_tokenizer).remains
    assert FolderLog(run).tokenizer() == run / "tokenizer"


def test_a_new_run_appears_complete_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(GlauberError, match="cannot be made: No space left"):
        CHAINS.create(tmp_path / "run", save_tokenizer=fail)
    assert not list(tmp_path.iterdir())
    CHAINS.create(tmp_path / "run").close()
    with pytest.raises(GlauberError, match="exists already"):
        CHAINS.create(tmp_path / "run")


def test_macos_flushes_the_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[int] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda handle, command: commands.append(command))
    folder_log.sync(tmp_path)
    assert commands == [51]
