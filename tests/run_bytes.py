"""What a stored run contains, to compare runs that must be the same."""

from pathlib import Path
from typing import Any

from glauber.runs.run import Run


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run except the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def values(folder: Path) -> dict[str, Any]:
    """Everything but the footers, which say how many steps were planned when they were written."""
    run = Run(folder)
    arrays = {name: run.read(name) for name in run.fields} | {"free": run.free}
    arrays |= {f"tokens after {step}": tokens for step, tokens in run.states()}
    names = {name for name in contents(folder) if name != "run.json"}
    bits = {name: (str(a.dtype), a.shape, a.tobytes()) for name, a in arrays.items()}
    return bits | {"spec": run.spec, "names": names, "signature": run.signature}
