"""Are the models and data of the package as they were released? By their SHA-256."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
SUMS = PACKAGE / "data" / "SHA256SUMS"  # as sha256sum writes it


def bundled() -> Iterator[tuple[str, str, str]]:
    """Each folder of models or data: its name, what is said of it, and failed if it is damaged."""
    expected = {name: told for told, name in map(str.split, SUMS.read_text().splitlines())}
    for folder in sorted({str(Path(name).parent) for name in expected}):
        named = {name: sum_ for name, sum_ in expected.items() if str(Path(name).parent) == folder}
        wrong = [_wrong(name) for name, sum_ in named.items() if checksum(PACKAGE / name) != sum_]
        told = "damaged, install glauber again: " + ", ".join(wrong)
        state = "failed" if wrong else ""
        yield Path(folder).name, told if wrong else f"{len(named)} files as released", state


def _wrong(name: str) -> str:
    return f"{Path(name).name} {'differs' if (PACKAGE / name).is_file() else 'is missing'}"


def checksum(path: Path) -> str:
    """SHA-256 of a file; nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def carried() -> list[Path]:
    """The files whose checksums `data/SHA256SUMS` lists: models and data, without their words."""
    every = [*PACKAGE.glob("models/*/*"), *PACKAGE.glob("data/*")]
    return sorted(one for one in every if one.suffix != ".md" and one != SUMS)
