"""The wheel is whole, works by itself without a network, and names each extra that it lacks."""

import ast
import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import glauber
from bare_environment import answers, bare_environment
from glauber.foundation.extras import EXTRAS, missing, need
from recipes import package
from recipes.resolve import PYTHONS, read_pins

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "glauber"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Work without any extra. The run `first` is what the commands below read.
CORE = [
    "sample --chains 3 --length 8 --steps 60 --seed 0 --out first",
    "show first --rows 4",
    "rectangles --count 4 --length 8",
    "translate|I would like to see the old garden.",
    "report first --out first.html",
    "doctor --quick",
]
# Lack an extra: every command and every option that needs one.
LACKING = {
    "explore first": "explore",
    "explore": "explore",
    "basins first": "basins",
    "basins first --embedder tokens": "basins",
    "topics first": "embeddings",
    "semantic-drift first": "embeddings",
    "semantic-drift first --embedder nobody/nothing": "embeddings",
    "traps first --window 20 --stride 5": "embeddings",
    "prefixes": "embeddings",
    "prefixes --folder kept --words he,she": "embeddings",
    "compare --model bundled:english --model nobody/nothing": "embeddings",
    "report first --out other.html --embedder nobody/nothing": "embeddings",
    "evaluate-translator": "translation",
    "evaluate-translator --frontier": "translation",
    "phase --on ray --out phase": "ray",
    "sweep sample --on ray --out sweep": "ray",
    "paper A-table1 --on ray": "ray",
    "design QVQLVQSGVEVKKPGASVKV --free H3": "proteins",
    "scan-mutations QVQLVQSGVEVKKPGASVKV --positions H3": "proteins",
}
PIECES = {
    "embeddings": "A-fig1 A-fig2 A-fig3-temperatures A-fig3a A-fig3b A-fig4 A-prefixes "
    "A-persistence A-regimes A-table3 A-table4 A-table5 A-traps",
    "translation": "B-ablation B-bleu B-entropy B-remark6 B-table1 B-table2 B-table3",
}
BY_PIECE = {f"paper {one}": extra for extra, named in PIECES.items() for one in named.split()}
LACKING |= BY_PIECE


def words(command: str) -> list[str]:
    first, *texts = command.split("|")
    return [*first.split(), *texts]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    (built,) = package.build(tmp_path_factory.mktemp("wheel"), "--wheel")
    return built


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    return bare_environment(tmp_path_factory.mktemp("bare") / "environment", wheel)


@pytest.fixture(scope="module")
def said(bare, tmp_path_factory):
    """What each command answers in the bare environment, in one process and one folder."""
    folder = tmp_path_factory.mktemp("work")
    asked = [*CORE, *LACKING]
    found = answers(bare, folder, list(map(words, asked)), models=len(CORE))
    return dict(zip(asked, found, strict=True)) | {"folder": folder}


@pytest.mark.weights
def test_the_wheel_holds_the_package_and_nothing_else(wheel, tmp_path):
    assert package.faults(wheel) == []
    broken = tmp_path / "broken.whl"
    with zipfile.ZipFile(broken, "w") as made:
        for name in package.package_files() - {"glauber/py.typed"} | {"tests/test_package.py"}:
            made.writestr(name, "")
    lacks, more = package.faults(broken)
    assert "has no glauber/py.typed" in lacks and "has tests/test_package.py" in more


def test_strangers_in_the_sdist_are_noticed(tmp_path):
    with tarfile.open(tmp_path / "glauber.tar.gz", "w:gz") as made:
        made.add(ROOT / "pyproject.toml", "glauber-0/pyproject.toml")
        made.add(ROOT / "Makefile", "glauber-0/tests/Makefile")
    assert package.strays(tmp_path / "glauber.tar.gz") == ["the sdist has tests/Makefile."]


@pytest.mark.weights
def test_the_script_is_installed(bare):
    done = subprocess.run(
        [bare.parent / "glauber", "--version"], capture_output=True, text=True, env={}
    )
    assert (done.returncode, done.stdout.strip()) == (0, glauber.__version__)
    code = "from glauber.foundation import extras as e; print({x: e.missing(x) for x in e.EXTRAS})"
    done = subprocess.run([bare, "-c", code], capture_output=True, text=True, env={"ASKED": "x"})
    assert ast.literal_eval(done.stdout) == {extra: list(own) for extra, own in EXTRAS.items()}


@pytest.mark.weights
@pytest.mark.parametrize("command", CORE)
def test_the_core_works_without_extras_and_network(command, said):
    assert said[command]["code"] == 0, said[command]["err"]
    assert f"glauber:{glauber.__version__}" in said[command]["out"]
    assert not said[command]["network"]


@pytest.mark.weights
def test_a_report_says_in_the_place_of_a_part_which_extra_it_needs(said):
    page = (said["folder"] / "first.html").read_text(encoding="utf-8")
    parts = dict(re.findall(r'<h2 id="(\w+)">(.*?)</section>', page, re.S))
    topics = "Topics are left out: a sentence embedding needs sentence_transformers and gt_"
    assert topics in parts["about"] and "glauber[embeddings]" in parts["about"]
    assert "There are no basins: " in parts["basins"] and "glauber[basins]" in parts["basins"]
    assert "<figure" in parts["trajectory"] and "glauber[embeddings]" in parts["trajectory"]
    assert "A trap is an episode of at least 20 steps" in parts["traps"]


@pytest.mark.weights
@pytest.mark.parametrize("command", LACKING)
def test_a_missing_extra_is_named_before_anything_is_done(command, said):
    """One sentence with the command that helps; no model is loaded and nothing is written."""
    found = said[command]
    assert found["code"] == 2 and found["out"] == ""
    assert found["err"].count("\n") == 1, found["err"]
    assert f"pip install 'glauber[{LACKING[command]}]'" in found["err"]
    assert found["new"] == [] and found["network"] == "" and found["seconds"] < 3


@pytest.mark.weights
def test_the_harness_names_its_extra_too(bare):
    asked = [bare, "-m", "glauber.interfaces.evaluation", "--tasks", "any"]
    done = subprocess.run(asked, capture_output=True, text=True, env={"ASKED": "x"})
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "needs lm_eval: pip install 'glauber[harness]'" in done.stderr


def test_classifiers_name_every_python_that_is_checked():
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named == [f"{major}.{minor}" for major, minor in PYTHONS]


def test_the_pins_are_not_below_the_lowest_versions():
    pinned = {pin.name: pin.specifier for pin in read_pins(ROOT / "constraints.txt")}
    floors = {one.name: one.specifier for one in map(Requirement, PROJECT["dependencies"])}
    for name in ("torch", "transformers", "numpy", "scipy"):
        (pin,) = pinned[name]
        assert pin.version in floors[name] and "0.1" not in floors[name], name


def test_every_piece_of_the_papers_that_needs_an_extra_is_asked_above():
    from glauber.papers.paper import pieces
    from glauber.papers.work import Request

    def extras(name, **given):
        return pieces()[name].extras(Request(name, "small", 0, Path(), given))

    needed = {f"paper {name}": extras(name) for name in pieces() if extras(name)}
    assert needed == {one: (extra,) for one, extra in BY_PIECE.items()}
    assert extras("A-table5", embedder="tokens") == () == extras("A-table3", scorer="a/model")


def test_only_these_files_import_what_an_extra_brings():
    """A new one calls `foundation.extras.need` before any work, and is asked in `LACKING`."""
    modules = "|".join(module for own in EXTRAS.values() for module in own)
    late = re.compile(rf"^\s*(?:from|import) (?:{modules})\b", re.M)
    sources = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    users = {str(path.relative_to(SOURCE)) for path, text in sources.items() if late.search(text)}
    assert users == {
        "interfaces/evaluation/harness.py",
        "interfaces/explorer/notebook.py",
        "interfaces/explorer/server.py",
        "studies/metastability/clusters.py",
        "studies/metastability/state_model.py",
        "studies/proteins/positions.py",
        "studies/proteins/inverse_folding.py",
        "runs/embedding.py",
        "sampling/sweeps/executors.py",
        "translation/score.py",
    }


def test_the_extras_are_those_of_the_project(monkeypatch):
    listed = PROJECT["optional-dependencies"]
    assert set(EXTRAS) == set(listed) - {"dev", "docs"}
    names = {"scikit-learn": "sklearn"}
    for extra, modules in EXTRAS.items():
        brought = [re.split(r"[=<>\[]", one)[0] for one in listed[extra]]
        assert [names.get(one, one).replace("-", "_") for one in brought] == list(modules)
    page = (ROOT / "docs" / "how-to" / "extras.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == set(EXTRAS)
    monkeypatch.setitem(EXTRAS, "some", ("json", "no_such_one", "nor_this"))
    assert missing("some") == ["no_such_one", "nor_this"]
    need("some", "it", of=["json"])
    with pytest.raises(glauber.GlauberError, match=r"^it needs nor_this: .*\[some\]', or that\.$"):
        need("some", "it", of=["nor_this"], otherwise="that")


def test_the_citation_names_this_version_and_both_papers():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "type"} <= set(cited)
    assert cited["version"] == glauber.__version__ and cited["license"] == PROJECT["license"]
    known = (ROOT / "src/glauber/papers/paper.py").read_text(encoding="utf-8")
    known = " ".join(known.split())
    for paper in cited["references"]:
        assert paper["title"].split(":")[0] in known and len(paper["authors"]) > 5
        assert paper["url"] in PROJECT["urls"].values()
        assert all({"family-names", "given-names"} == set(one) for one in paper["authors"])
