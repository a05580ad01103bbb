"""The commands and Python lines of the README and the docs, run as a reader would run them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from shown_pages import PAGES, ROOT, VARIED, commands, missing, without_numbers, words


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """One folder for all pages, and what each command printed in it: none is run twice."""
    return tmp_path_factory.mktemp("desk"), {}


@pytest.fixture
def printed(desk, monkeypatch, glauber):
    """What a command prints, or printed before; the run that the pages speak of is there."""
    folder, known = desk
    monkeypatch.chdir(folder)

    def call(command: str) -> str:
        if command not in known:
            code, out, err = glauber(*words(command))
            assert code == 0, f"{command}\n{err}"
            known[command] = out
        return known[command]

    call(commands("README.md")[0][0])
    return call


@pytest.mark.weights
@pytest.mark.filterwarnings("default:.*left out.*:glauber.foundation.errors.GlauberWarning")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_is_printed(page, printed, capsys):
    """Each command, in the order of the pages and in one folder, then the page's Python lines."""
    for command, shown in commands(page):
        out = printed(command)
        assert out.strip(), command
        if words(command)[0] not in VARIED:
            assert missing(shown, out, without_numbers) == [], command
    run_python((ROOT / page).read_text(encoding="utf-8"))


def test_a_line_that_is_not_printed_is_noticed():
    assert missing(["a 1", "…", "c  3"], "a 2\nb\nc 4\n", without_numbers) == []
    assert missing(["c 3", "a 1"], "a 1\nb\nc 3\n") == ["a 1"]
    assert missing(["a 1"], "a 2\n") == ["a 1"]


def test_the_pages_have_many_commands():
    assert sum(len(commands(page)) for page in PAGES) >= 25


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


def test_chains_of_a_rule_of_ones_own_have_the_exact_law(capsys):
    """The last block of the page: what it prints side by side agrees."""
    import numpy as np

    text = (ROOT / "docs" / "how-to" / "own-model.md").read_text(encoding="utf-8")
    run_python(
        "```python\nimport glauber\n```" + "```python\n" + blocks(text, "python")[-1] + "```"
    )
    rows = re.findall(r"\[(.*?)\]", capsys.readouterr().out)
    counted, known = np.array([row.split() for row in rows], float).reshape(3, 2, 3).swapaxes(0, 1)
    # 1,000 chains: a share has a standard error of at most 1 / sqrt(4 * 1000).
    assert np.abs(counted - known).max() < 4 / np.sqrt(4000)


@pytest.mark.weights
def test_the_page_about_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_python((ROOT / "docs" / "python.md").read_text())
    assert names["longer"].steps == 160 and names["ladder"].n_chains == 3
    assert (tmp_path / "answer.html").is_file() and (tmp_path / "run.html").is_file()


def test_the_study_of_the_page_about_studies(tmp_path, monkeypatch, tiny_folder, texts):
    """The file that the page shows is a study, and counts as one counts by hand."""
    import glauber
    from glauber.interfaces.cli.command import spellings

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
    from website.reference import reference

    assert (ROOT / "docs" / "commands.md").read_text() == reference(), "make docs"


def test_the_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", "".join(blocks(text, "bash")), re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target
