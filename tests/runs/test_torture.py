"""Small versions of bench.torture, which tries hundreds: damage, kills and power cuts."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.torture.damage import made, trial
from bench.torture.power import power
from bench.torture.subjects import SUBJECTS
from glauber.runs import spec
from glauber.runs.integrity import Checked

ROOT = Path(__file__).parents[2]
READERS = ("entropy", "spec", "tokens", "print", "show", "events", "jsonl")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return made(SUBJECTS["table"], tmp_path_factory.mktemp("torture"), READERS)


@pytest.mark.parametrize(
    ("kind", "which"),
    [("flip", "whole"), ("lose", "stopped"), ("edit", "whole"), ("stale", "stopped")],
)
def test_damage_is_noticed_and_repaired(kind, which, runs):
    found = trial(runs, which, kind, random.Random(1))
    assert not found.failures, f"{found.what}: {found.failures}"


def test_readers_that_compare_nothing_are_found_out(runs, monkeypatch):
    monkeypatch.setattr(Checked, "_compare", lambda *_: None)
    tried = [trial(runs, "whole", "foreign", random.Random(seed)) for seed in range(2)]
    assert any("shows something else" in why for found in tried for why in found.failures)


def test_a_power_cut_loses_nothing_that_was_committed(tmp_path):
    assert power(tmp_path, count=2, names=("extend", "repair, a chunk")) == 0


def test_without_a_sync_a_power_cut_loses_it(tmp_path, monkeypatch):
    monkeypatch.setattr(spec, "sync", lambda *_: None)
    assert power(tmp_path, count=2, names=("extend",)) > 0


def test_kills_leave_no_trace():
    """Before a file operation or by the clock, once or more; then it goes on to the same bytes."""
    names = ("sample, constrained", "generate")  # a repair that is killed: test_repair
    only = [word for name in names for word in ("--only", name)]
    path = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "bench.torture", "kills", "--count", "6", "--seed", "2", *only],
        cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"3 trials, (\d+) kills \(", done.stdout)
    assert len(found) == len(names) and sum(map(int, found)) >= 4  # some end before the clock
