"""Every byte of a stored run, to compare runs that must be the same."""

from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run except the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
