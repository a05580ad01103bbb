"""What the docs name is there: files, commands and flags, pieces of the papers, functions."""

import inspect
import re
import shutil
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "glauber"
# commands.md is made from the commands; adding-a-study.md names one that its reader makes.
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    if path.name not in ("commands.md", "adding-a-study.md")
)
MAPPED = ["docs/papers.md", "docs/architecture.md", "README.md"]


def cells(page: str) -> list[str]:
    """The page in pieces that belong together: cells of tables, other lines."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    return [cell for line in lines for cell in (line.split("|") if line[:1] == "|" else [line])]


def spans(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def missing_files(cell: str) -> list[str]:
    """Names may be relative to the room of a file named before them in the same cell."""
    rooms, missing = [ROOT, PACKAGE], []
    for name in re.findall(r"[\w/-]+\.py\b", " ".join(spans(cell))):
        found = [room / name for room in rooms if (room / name).is_file()]
        if found:
            rooms.append(found[-1].parent)
        else:
            missing.append(name)
    return missing


@pytest.mark.parametrize("page", MAPPED)
def test_every_file_named_exists(page):
    assert [name for cell in cells(page) for name in missing_files(cell)] == []


def test_a_wrong_file_is_noticed():
    assert missing_files("`studies/mixing/couple.py`, `phase.py`, `other.py`") == ["other.py"]
    assert missing_files("`pairs.py`") == ["pairs.py"]


def commands(page: str) -> list[str]:
    """Each command line: code spans, and lines of code blocks without their remarks."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = re.findall(r"^(?:    |\$ )*(glauber .*)$", text, re.M)
    inline = [span for span in spans(text.replace("```", "")) if span.startswith("glauber ")]
    return [line.split("#")[0].replace("`", " ") for line in lines] + inline


@cache
def options(name: str) -> set[str] | None:
    """The flags of a command, such as `couple` or `ising fit`; None where there is none."""
    from glauber.interfaces.cli.group import app

    found = app
    for part in name.split():
        found = found.get_command(None, part) if hasattr(found, "get_command") else None
        if found is None:
            return None
    own = {flag for one in found.params for flag in [*one.opts, *one.secondary_opts]}
    return own | {"--help", "--version", "--install-completion"}


def faults(line: str) -> list[str]:
    words = re.sub(r'"[^"]*"' + r"|'[^']*'", "TEXT", line).split()[1:]
    if not words or words[0].startswith("-") or words[0].isupper():
        return []
    name = " ".join(words[:2]) if words[0] in ("ising", "sweep") else words[0]
    name = " ".join(part for part in name.split() if not part.startswith("-"))
    known = options(name)
    if known is None:
        return [f"no command: {line}"]
    flags = [word.split("=")[0] for word in words if word.startswith("--")]
    return [f"no {flag}: {line}" for flag in flags if flag not in known]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_named_has_its_flags(page):
    assert [fault for line in commands(page) for fault in faults(line)] == []


def test_a_wrong_command_is_noticed():
    assert faults("glauber couple --pairs 3") == [] and faults("glauber cuple")
    assert faults("glauber ising fit --k 2") == [] and faults("glauber couple --pears 3")


def test_every_flag_alone_belongs_to_a_command():
    from glauber.interfaces.cli.group import app

    every = set().union(*(options(name) for name in app.list_commands(None)))
    named = {span.split()[0] for span in spans((ROOT / "docs/papers.md").read_text())}
    assert {name for name in named if name.startswith("--")} - every == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_piece_of_the_papers_named_is_there(page):
    from glauber.papers.paper import pieces

    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"(?:glauber paper |`)([AB]-[a-z][\w-]*(?:\.\d+)?)", text)
    assert set(named) - {*pieces(), "list"} == set()


def test_every_function_named_beside_an_idea_exists():
    """Names in docs/papers.md that are called, or that stand in brackets behind a file."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    called = [span.split("(")[0] for span in spans(text) if re.match(r"[\w.]+\(", span)]
    bracketed = [span for group in re.findall(r"\.py` \(([^)]*)\)", text) for span in spans(group)]
    names = {part for name in called + bracketed for part in name.split(".")} - {"glauber"}
    there = set(re.findall(r"(?:def|class) (\w+)", source))
    assert names - there == set()


def test_links_to_files_of_the_repository_lead_to_their_pages():
    from website.repository import links, moved, site_path

    assert moved("docs/runs.md", "../src/glauber/models/english/README.md") == (
        "repository/src/glauber/models/english/README.md"
    )
    assert moved("docs/how-to/mixed.md", "../../examples/3-hot-and-cold.ipynb") == (
        "../tutorials/3-hot-and-cold.md"
    )
    assert moved("CHANGELOG.md", "docs/runs.md") == "../runs.md"
    assert moved("README.md", "docs/decisions") == "../decisions/README.md"
    assert moved("docs/runs.md", "../no/such/file.py") == "../no/such/file.py"
    assert site_path("bench/exact.py") == "repository/bench/exact.py.md"
    text = "[a](x.md#y) `[b](x.md)`\n\n    [c](x.md)\n\n```\n[d](x.md)\n```\n[e](https://f.g)"
    assert links(text, str.upper) == text.replace("[a](x.md", "[a](X.MD")


BROKEN = ["docs/no.md", "docs/b.md#nowhere", "src/no.py", "docs/b.md#There"]


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A small repository with the site's settings: says whether its site is sound."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    for name in ("docs", "src", "examples"):
        (tmp_path / name).mkdir()
    shutil.copytree(ROOT / "website", tmp_path / "website")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copy(ROOT / "examples" / "1-first-chain.ipynb", tmp_path / "examples" / "one.ipynb")
    (tmp_path / "src" / "there.py").write_text("x = 1\n")
    (tmp_path / "docs" / "b.md").write_text("# B\n\n## There\n")

    def sound(page: str, readme: str, nav: list[str]) -> bool:
        (tmp_path / "docs" / "a.md").write_text(f"# A\n\n{page}\n")
        (tmp_path / "README.md").write_text(f"# R\n\n{readme}\n")
        config = load_config(
            str(tmp_path / "mkdocs.yml"), strict=True, nav=[*nav, "tutorials/one.md"],
            theme={"name": "mkdocs"}, plugins=[], hooks=["website/repository.py"],
            extra={}, extra_css=[],
        )  # fmt: skip
        try:
            build(config)
        except Abort:
            return False
        return True

    return sound


def test_a_broken_link_and_a_page_without_a_place_are_noticed(small):
    both = ["a.md", "b.md"]
    fine = "[a](../src/there.py) [b](../examples/one.ipynb) [c](b.md#there) [d](../src)"
    assert small(fine, fine.replace("../", "").replace("(b", "(docs/b"), both)
    assert not small(fine, "", ["a.md"])
    for link in BROKEN:
        assert not small(f"[a](../{link})", "", both), link
        assert not small("", f"[a]({link})", both), link


def test_a_parameter_shows_its_type_and_its_help(tmp_path):
    """Also one whose type has a name, and one whose help is put together."""
    pkg = loaded(
        tmp_path,
        """
        from typing import Annotated
        Seed = Annotated[int, "The same seed gives the same answer."]
        ORDERS = ("a", "b")

        def study(run: Annotated[str | None, "A run."], seed: Seed = 0,
                  order: Annotated[str, f"Of {', '.join(ORDERS)}."] = "a") -> "Answer":
            "Do it."

        class Answer:
            "What was done."
            seed: int
            found: float  # in nats
            other: int
            def tell(self): ...
        """,
    )
    text, table = pkg["study"].docstring.parsed
    rows = [(row.name, str(row.annotation), row.description) for row in table.value]
    assert text.value == "Do it."
    assert rows == [
        ("run", "str | None", "A run."),
        ("seed", "int", "The same seed gives the same answer."),
        ("order", "str", "Of a, b."),
    ]
    fields = [(row.name, row.description) for row in pkg["Answer"].docstring.parsed[1].value]
    assert fields == [("seed", "The same seed gives the same answer."), ("found", "in nats")]
    from website.descriptions import help_of_results, undocumented

    bare = undocumented(pkg, pkg["Answer"], help_of_results(pkg))
    assert bare == ["glauber.Answer.other", "glauber.Answer.tell"]


def test_a_docstring_reads_as_it_is_laid_out():
    from website.descriptions import markdown

    laid_out = "Of it.\n\nkind   what\n       it is\nseed   (2**N,) `a * b`\n\n    x * y"
    assert markdown(laid_out) == (
        "Of it.\n\n- `kind`: what\n       it is\n- `seed`: (2\\*\\*N,) `a * b`\n\n    x * y"
    )


def test_names_in_prose_lead_to_the_command_and_the_function():
    from website.names import linked

    kept = "# `glauber couple`\n\n[by `glauber show`](x.md) `glauber zzz`\n\n    `glauber couple`\n"
    assert linked(kept, "how-to/a.md") == kept
    assert linked("`glauber couple --pairs 3`, `glauber.Run(at)` `docs/runs.md`", "a/b.md") == (
        "[`glauber couple --pairs 3`](../commands.md#glauber-couple), "
        "[`glauber.Run(at)`](../api/others.md#glauber.runs.run.Run) [`docs/runs.md`](../runs.md)"
    )


def loaded(folder: Path, source: str) -> Any:
    """A package of that name and source, as the site reads it."""
    import griffe

    from website.descriptions import Descriptions

    (folder / "glauber").mkdir()
    (folder / "glauber" / "__init__.py").write_text(textwrap.dedent(source))
    with_help = griffe.load_extensions(Descriptions())
    return griffe.load("glauber", search_paths=[folder], extensions=with_help)


def test_every_public_name_has_a_place_and_a_word():
    import glauber
    from website.api import pages, public, silent

    shown = {path.split(".")[-1] for path in public()}
    assert set(glauber.__all__) - set(glauber.ROOMS) <= shown
    assert {f"api/{room}.md" for room in glauber.ROOMS} <= set(pages())
    assert silent() == []


def test_every_argument_of_a_chart_is_documented():
    """In docs/adding-a-study.md, where somebody who draws an answer looks."""
    from glauber.interfaces.plots.chart import Chart

    page = (ROOT / "docs" / "adding-a-study.md").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", " ".join(spans(page.replace("```", "")))))
    marks = [name for name in vars(Chart) if not name.startswith("_") and name != "next_color"]
    asked = {
        f"{name}: {parameter.name}"
        for name in ["__init__", *marks]
        for parameter in inspect.signature(getattr(Chart, name)).parameters.values()
        if parameter.name not in ("self", *words) and parameter.kind is not parameter.VAR_KEYWORD
    }
    assert set(marks) <= words and asked == set()
