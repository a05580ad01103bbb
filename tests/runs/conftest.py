"""A stored run that tests may damage."""

import shutil
from pathlib import Path

import pytest

import glauber
from conftest import TEXTS
from glauber.runs import folder_log


@pytest.fixture(scope="session")
def stored(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three segments, the last of which is half full."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_log, "default_segment_steps", lambda n_chains, n_slots: 16)
        out = tmp_path_factory.mktemp("stored") / "run"
        return glauber.sample(str(tiny_folder), TEXTS, steps=40, seed=3, out=out).folder


@pytest.fixture
def run(stored: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(stored, tmp_path / "run")
