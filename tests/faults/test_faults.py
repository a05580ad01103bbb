"""Short fault trials: damage, kills, power cuts, readers next to a writer."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults import interruptions
from tests.faults.damage import KINDS, trial
from tests.faults.subjects import SUBJECTS, small_parts

from glauber.runs import folder_log

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_noticed_and_repaired(kind, tmp_path):
    draw = random.Random(kind)
    for name, steps in (("blocks", 27), ("extended", 40)):
        with small_parts():
            assert not trial(SUBJECTS[name], tmp_path / "trial", kind, steps, draw)[1]


def test_readers_that_compare_nothing_are_detected(tmp_path, monkeypatch):
    with small_parts():
        for steps in (27, 20):
            SUBJECTS["blocks"].stopped(steps), SUBJECTS["blocks"].other.stopped(steps)
        monkeypatch.setattr(folder_log, "digest", lambda content: "")
        draw, wrong = random.Random(0), []
        for _ in range(4):
            try:
                wrong += trial(SUBJECTS["blocks"], tmp_path / "trial", "foreign", 27, draw)[1]
            except Exception as error:
                wrong.append(str(error))
    assert wrong


@pytest.fixture
def one_kind_of_run(monkeypatch):
    monkeypatch.setattr(interruptions, "SUBJECTS", {"extended": SUBJECTS["extended"]})


def test_a_power_cut_loses_nothing_that_was_committed(tmp_path, one_kind_of_run):
    assert interruptions.power(tmp_path / "trial", count=8, seed=1) == 0


@pytest.mark.parametrize("writer", interruptions.BROKEN_WRITERS)
def test_power_cuts_reveal_a_broken_writer(writer, tmp_path, one_kind_of_run):
    _ = SUBJECTS["extended"].complete
    with interruptions.BROKEN_WRITERS[writer]():
        assert interruptions.power(tmp_path / "trial", count=8, seed=1) > 0


@pytest.mark.parametrize(
    ("count", "options"), [(6, ()), (16, ("--broken", "manifest-first"))], ids=["sound", "broken"]
)
def test_kills_leave_a_run_that_continues_to_the_same_bytes(count, options):
    path = os.pathsep.join([str(ROOT), *sys.path])
    command = [sys.executable, "-m", "tests.faults", "kills", "--count", str(count), *options]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert (done.returncode != 0) == bool(options), done.stdout + done.stderr
    assert (" 0 failed" in done.stdout) != bool(options) and f"{count} trials" in done.stdout


def test_readers_next_to_a_writer(tmp_path, one_kind_of_run):
    assert interruptions.readers(tmp_path / "trial", count=20, seed=0) == 0
