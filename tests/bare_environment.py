"""An environment with the wheel and what it cannot do without, made from this one by links.

Run by the Python of such an environment, this file answers commands and prints what came of them.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
# No network: whoever asks for it is refused, and is written down.
CLOSED = """
import os, socket
def refuse(*where, **how):
    with open(os.environ["ASKED"], "a") as file:
        print(where, file=file)
    raise OSError("there is no network here")
socket.getaddrinfo = socket.socket.connect = socket.create_connection = refuse
"""


def core_distributions():
    """The packages that pyproject.toml depends on, and theirs in turn."""
    from importlib.metadata import distribution

    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    left, seen, found = [Requirement(one) for one in project["dependencies"]], set(), {}
    while left:
        wanted = left.pop()
        if (wanted.name, frozenset(wanted.extras)) in seen:
            continue
        seen.add((wanted.name, frozenset(wanted.extras)))
        found[wanted.name] = distribution(wanted.name)
        for one in map(Requirement, found[wanted.name].requires or ()):
            asked = ({"extra": extra} for extra in ("", *wanted.extras))
            if one.marker is None or any(map(one.marker.evaluate, asked)):
                left.append(one)
    return found.values()


def bare_environment(folder: Path, wheel: Path) -> Path:
    """The Python of a new environment: the wheel as pip installs it, and links to the core."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for one in core_distributions():
        for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(one.locate_file(top))
    (site / "sitecustomize.py").write_text(CLOSED)
    python = folder / "bin" / "python"
    install = ["install", "-q", "--no-deps", "--no-compile", "--no-index", str(wheel)]
    pip = [sys.executable, "-m", "pip", "--python", python, *install]
    subprocess.run(pip, check=True, env=plain_environment())
    return python


def plain_environment() -> dict[str, str]:
    """Nothing that leads Python elsewhere or says that there is no network."""
    kept = ("PATH", "HOME", "OMP_NUM_THREADS")
    return {name: os.environ[name] for name in kept if name in os.environ}


def answers(python: Path, folder: Path, commands: list[list[str]], *, models: int) -> list[dict]:
    """What each command answers in that folder; those behind the first may load no model."""
    done = subprocess.run(
        [python, __file__, str(models)], input=json.dumps(commands), cwd=folder, text=True,
        capture_output=True, env=plain_environment() | {"ASKED": str(folder / "asked")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def answer(words: list[str]) -> dict:
    """Exit code, what was printed, the seconds and the new names in the folder."""
    from glauber.interfaces.cli import main

    sys.argv = ["glauber", *words]
    out, err = io.StringIO(), io.StringIO()
    before, began, code = set(os.listdir()), time.process_time(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return {
        "words": words, "code": code, "out": out.getvalue(), "err": err.getvalue(),
        "seconds": time.process_time() - began, "new": sorted(set(os.listdir()) - before),
        "network": asked_for(),
    }  # fmt: skip


def asked_for() -> str:
    """What was asked of a network since the last time."""
    path = Path(os.environ["ASKED"])
    found = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    return found


def refuse(*parts: object, **more: object) -> None:
    raise AssertionError("a model is loaded")


if __name__ == "__main__":
    import torch

    with_models, found = int(sys.argv[1]), []
    for number, words in enumerate(json.load(sys.stdin)):
        if number == with_models:
            torch.nn.Module.__init__ = refuse
        found.append(answer(words))
    print(json.dumps(found))
