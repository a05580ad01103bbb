"""The commands and Python lines of the README and the docs, run as a reader would run them."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def commands() -> list[str]:
    lines = [line for block in blocks(README, "bash") for line in block.splitlines()]
    return [line for line in lines if line.startswith("glauber ")]


@pytest.mark.weights
def test_the_commands_of_the_readme(tmp_path, monkeypatch, glauber):
    """Each command of the README, in the README's order and in one folder."""
    monkeypatch.chdir(tmp_path)
    assert len(commands()) >= 15
    for command in commands():
        code, out, err = glauber(*shlex.split(command)[1:])
        assert code == 0, f"{command}\n{err}"
        assert out.strip(), command
    assert (tmp_path / "first.html").stat().st_size > 100_000
    assert len((tmp_path / "first.jsonl").read_text().splitlines()) == 4 * 301


@pytest.mark.parametrize("start", [["glauber"], ["python", "-m", "glauber"]])
def test_the_command_is_there(start):
    """As a shell finds it: the script of the package, and the module."""
    program = Path(sys.executable).parent / start[0]
    done = subprocess.run([program, *start[1:], "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "How fast is the start forgotten?" in done.stdout


def run_python(text: str) -> dict:
    """Everything that the page's Python defines."""
    names: dict = {}
    for block in blocks(text, "python"):
        exec(compile(block, "page", "exec"), names)
    return names


@pytest.mark.weights
def test_the_python_of_the_readme(tmp_path, monkeypatch, capsys):
    """Its run has the text that it prints, and its two averages agree with the exact law."""
    import numpy as np

    from glauber.exact import Space, stationary, transition_matrix

    monkeypatch.chdir(tmp_path)
    names = run_python(README)
    said = capsys.readouterr().out
    assert "rectangles lie above the noise floor" in said
    law, run = names["law"], names["run"]
    exact = np.asarray(stationary(transition_matrix(law, Space(3, 3)))).reshape(3, 3, 3)
    means = [(exact.sum(axis=tuple(set(range(3)) - {i})) * np.arange(3)).sum() for i in range(3)]
    # 1,000 chains: a mean of values in 0 to 2 has a standard error of at most 1 / sqrt(1000).
    assert np.abs(run.tokens().mean(axis=0) - means).max() < 4 / np.sqrt(1000)


@pytest.mark.weights
def test_the_page_about_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_python((ROOT / "docs" / "python.md").read_text())
    assert names["longer"].steps == 160 and names["ladder"].n_chains == 3
    assert (tmp_path / "answer.html").is_file() and (tmp_path / "run.html").is_file()


def test_the_study_of_the_page_about_studies(tmp_path, monkeypatch, tiny_folder, texts):
    """The file that the page shows is a study, and counts as one counts by hand."""
    import glauber
    from glauber.cli.command import spellings

    (block,) = blocks((ROOT / "docs" / "adding-a-study.md").read_text(), "python")
    (tmp_path / "repeats_of_the_page.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    from repeats_of_the_page import repeats

    run = glauber.sample(str(tiny_folder), texts[:2], chains=2, steps=20, length=5, seed=0)
    found = repeats(run, every=10)
    rows = [run.tokens(step).tolist() for step in (0, 10, 20)]
    shares = [[sum(a == b for a, b in zip(r, r[1:])) / 6 for r in chains] for chains in rows]  # noqa: B905, RUF007
    assert found.shares.T.tolist() == shares
    assert set(spellings(repeats)) == {"run", "every"} and len(found.frame()) == 6
    assert found.to_dict()["mean"]["kind"] == "estimate" and found.figure().data


def test_the_list_of_commands_is_current():
    from glauber.cli.reference import reference

    assert (ROOT / "docs" / "commands.md").read_text() == reference(), "make docs"


def test_the_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", "".join(blocks(README, "bash")), re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target
