"""Where does a library that we compare with live? In an environment of its own, made once."""

import subprocess
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
TORCH = next(
    line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch")
)


def environment(name: str, *installs: list[str]) -> Path:
    """The Python of .cache/bench-NAME, with the given packages, one `pip install` after another."""
    home = ROOT / ".cache" / f"bench-{name}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        venv.create(home, with_pip=True, clear=True)
        for packages in installs:
            subprocess.run([python, "-m", "pip", "install", "-qq", *packages], check=True)
        (home / "ready").touch()
    return python
