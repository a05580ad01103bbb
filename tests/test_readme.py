"""The README's commands and Python lines, run as a reader would run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


@pytest.mark.weights
def test_the_commands_of_the_readme(tmp_path):
    commands = [
        line
        for block in blocks("bash")
        for line in block.splitlines()
        if line.startswith("glauber ")
    ]
    assert len(commands) >= 5
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in commands:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"


@pytest.mark.weights
def test_the_python_of_the_readme(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_the_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", "".join(blocks("bash")), re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target
