"""How was a run made? The readable header of a run's folder, `run.json`."""

import json
import os
import platform
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from glauber.errors import GlauberError

FORMAT = 1
HEADER = "run.json"


@dataclass(frozen=True)
class Spec:
    """Everything that decides a trajectory, apart from the starting tokens."""

    model: str
    fingerprint: str
    device: str
    dtype: str
    seed: int
    steps: int
    chains: int
    temperature: float
    scan: str = "uniform"
    within: str = "sequential"
    fill: str = "inverse-cdf"
    length: int | None = None
    prefix: str = ""
    frozen: list[int] = field(default_factory=list)
    special_tokens: bool = False
    trust_remote_code: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT


def versions() -> dict[str, str]:
    """The versions that the bits of a trajectory may depend on."""
    names = ("torch", "transformers", "tokenizers")
    found = {"glauber": _own_version(), "python": platform.python_version()}
    return found | {name: version(name) for name in names} | {"machine": platform.machine()}


def _own_version() -> str:
    from glauber import __version__

    return __version__


def write_spec(folder: Path, spec: Spec) -> None:
    """Writes `run.json` in one stroke."""
    write_json(folder / HEADER, asdict(spec))


def read_spec(folder: Path) -> Spec:
    """The spec of a run's folder; refuses damaged and newer ones."""
    if not (folder / HEADER).is_file():
        raise GlauberError(f"{folder} is not a run: it has no {HEADER}.")
    try:
        found = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        number = int(found["format"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise GlauberError(f"the run {folder} is damaged: {HEADER} cannot be read.") from error
    if number > FORMAT:
        raise GlauberError(
            f"the run {folder} has format {number}, but this version of glauber reads up to "
            f"{FORMAT}: use a newer glauber."
        )
    try:
        return Spec(**{f.name: found[f.name] for f in fields(Spec) if f.name in found})
    except TypeError as error:
        raise GlauberError(f"the run {folder} is damaged: {HEADER} lacks entries.") from error


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file in one stroke: a reader sees the old file or the new one."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
