"""A log in a folder: other processes, full disks, other formats, and what is removed."""

import errno
import fcntl
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pyarrow.dataset
import pytest

from glauber.foundation import disk
from glauber.foundation.errors import DamagedRun, GlauberError
from glauber.runs.folder_log import FolderLog
from glauber.runs.verify import inspect_log, repair_log
from resealed import reseal
from run_bytes import contents
from synthetic_chains import Chains, save_tokenizer, synthetic_chains

CHAINS = synthetic_chains(3, 40)
BLOCKS = synthetic_chains(2, 40, 3, rejects=True, empty=0.4, seed=1)


def check_log(chains: Chains, folder: Path, steps: int) -> None:
    """A sound log with the first steps of these chains."""
    log = FolderLog(folder)
    assert log.steps == steps and not inspect_log(folder).damages
    for name in log.fields:
        assert log.read(name).tobytes() == chains.events[name][:, :steps].tobytes()
    for step, tokens in log.states():
        assert (tokens == chains.tokens_after()[step]).all()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An unfinished run of two full segments and a tail."""
    with CHAINS.create(tmp_path / "run", segment_steps=16) as log:
        log.append(CHAINS.part(0, 37))
    return tmp_path / "run"


def test_a_reader_next_to_a_writer_sees_the_steps_it_opened(tmp_path: Path) -> None:
    chains = BLOCKS
    with chains.create(tmp_path / "run", segment_steps=16) as log:
        reader = FolderLog(log.folder)
        for first in range(0, 40, 5):
            log.append(chains.part(first, first + 3))
            reader = reader.newest()
            assert reader.steps == first + 3
            log.append(chains.part(first + 3, first + 5))  # replaces the tail that it knows
            for name in reader.fields:
                values = reader.read(name)
                assert values.tobytes() == chains.events[name][:, : first + 3].tobytes()
            assert (reader.tokens() == chains.tokens_after()[first + 3]).all()
            assert (
                reader.segment(first // 16).arrays["site"].shape[1] <= first + 3 - first // 16 * 16
            )
        assert reader.newest().steps == 40 and log.newest() is log


def test_a_run_has_one_writer(run: Path) -> None:
    with FolderLog(run, write=True):
        for open_again in (lambda: FolderLog(run, write=True), lambda: repair_log(run)):
            with pytest.raises(GlauberError, match="another process is writing the run"):
                open_again()
    with pytest.raises(GlauberError, match="not open for writing"):
        FolderLog(run).append(CHAINS.part(37, 40))


def test_pandas_and_pyarrow_read_the_events_of_a_finished_run(tmp_path: Path) -> None:
    chains = BLOCKS
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
        assert log.steps == log.spec.steps
    assert (log.folder / "events/00000001-00000020.parquet").is_file()
    with FolderLog(log.folder, write=True) as log:
        with pytest.raises(GlauberError, match="other settings"):
            log.describe(replace(log.spec, seed=5))
        log.describe(CHAINS.spec)
        assert (log.folder / "tail-00000020.parquet").is_file()
        log.append(CHAINS.part(20, 40))
    check_log(CHAINS, log.folder, 40)
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
            patch.setattr(disk, "flush_to_disk", fail)
            with pytest.raises(GlauberError, match=words):
                log.append(CHAINS.part(37, 40))
        assert contents(run) == before
    with FolderLog(run, write=True) as log:
        log.append(CHAINS.part(37, 40))
    check_log(CHAINS, run, 40)


def test_a_read_only_folder_is_refused_in_a_sentence(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "lock").unlink()
    system_open = os.open

    def read_only(path: object, flags: int, *args: int, **options: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, "Permission denied")
        return system_open(path, flags, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(GlauberError, match="cannot be written: Permission denied"):
        FolderLog(run, write=True)
    check_log(CHAINS, run, 37)


def test_other_formats_are_refused_in_a_sentence(run: Path, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    (earlier / "events.zarr").mkdir(parents=True)
    (earlier / "run.json").write_text('{"format": 4}')
    for refused in (FolderLog, inspect_log, repair_log):
        with pytest.raises(GlauberError, match="earlier version of glauber"):
            refused(earlier)
        with pytest.raises(GlauberError, match="is not a run"):
            refused(tmp_path / "nothing")
    reseal(run, format=6)
    with pytest.raises(GlauberError, match="use a newer glauber"):
        FolderLog(run)
    (run / "run.json").write_text("[" * 100_000)
    with pytest.raises(DamagedRun):
        FolderLog(run)


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
    assert repair_log(run).remains == ("tokenizer/tokenizer.json is not what was committed",)
    assert not repair_log(run, save_tokenizer=lambda folder, spec: save_tokenizer(folder)).remains
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
    disk.sync(tmp_path)
    assert commands == [51]
