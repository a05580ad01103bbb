"""A stored run that says something else about itself, with digests that fit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from glauber.runs.spec import read_spec, write_spec
from glauber.runs.store import committed_steps, measure, write_commit


def said_otherwise(folder: Path, **entries: Any) -> Path:
    """The run with other entries in its spec."""
    write_spec(folder, replace(read_spec(folder), **entries))
    return committed_to(folder, committed_steps(folder))


def committed_to(folder: Path, steps: int) -> Path:
    """The run with only so many of its steps committed."""
    write_commit(folder, measure(folder, read_spec(folder), steps))
    return folder
