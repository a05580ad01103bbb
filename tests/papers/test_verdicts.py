"""The page docs/verdicts.md from the stored results of two pieces."""

import json
import re

import pytest

from glauber import paper
from glauber.foundation.errors import GlauberError
from glauber.papers import paper_b
from website.verdicts import page, read


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What `glauber paper all` stores, if the paper had two pieces."""
    at = tmp_path_factory.mktemp("papers") / "site"
    with pytest.MonkeyPatch.context() as patch:
        two = {name: paper_b.PIECES[name] for name in ("B-masks", "B-definition8")}
        patch.setattr(paper_b, "PIECES", two)
        patch.setattr("glauber.papers.paper.MODULES", ("paper_b",))
        paper("all", seeds=3, out=at)
    return at


def test_the_page_has_every_claim_once_disagreements_first(folder):
    text = page([folder])
    stored = json.loads((folder / "index.json").read_text())
    rows = [line for line in text.splitlines() if line.startswith("| B-")]
    assert len(rows) == len(stored["verdicts"]) > 5
    for claim, row in zip(stored["verdicts"], rows, strict=True):  # both in the same order
        assert row.startswith(f"| {claim['piece']} | {claim['sentence'].split('_')[0]}")
    headings = re.findall(r"^### (.+): (\d+)$", text, re.M)
    words = [claim["verdict"] for claim in stored["verdicts"]]
    names = {"disagrees": "Disagree", "cannot tell": "Cannot be told", "agrees": "Agree"}
    assert headings == [
        (name, str(words.count(word))) for word, name in names.items() if word in words
    ]
    assert "    glauber paper all --seeds 3 --out FOLDER\n" in text
    assert f"torch {stored['pieces']['B-masks']['versions']['torch']}" in text


def test_undecided_claims_name_their_sample_size_everywhere(folder):
    verdicts = json.loads((folder / "index.json").read_text())["verdicts"]
    sizes = [claim["sample_size"] for claim in verdicts if claim["verdict"] == "cannot tell"]
    assert sizes and all(size > 4 for size in sizes)  # four trainings did not decide
    assert all(claim["sample_size"] is None for claim in verdicts if claim["verdict"] == "agrees")
    html = (folder / "index.html").read_text()
    for size in sizes:
        assert f"about {size} training seeds (here 4) |" in page([folder])
        assert f"sample size for 80%: about {size} training seeds (here 4)" in html


def test_folders_of_single_pieces_are_a_section_too(folder, tmp_path):
    paper("B-lemma3", out=tmp_path)
    assert list(read(tmp_path)["pieces"]) == ["B-lemma3"]
    text = page([folder, tmp_path])
    assert text.count("## At the small scale") == 2
    assert "    glauber paper B-lemma3 --out FOLDER\n" in text
    assert "p(x\\_1 = 0 \\| x\\_0 = 0, {0}) is 9/13" in text  # no bar that ends the cell


def test_a_folder_without_results_is_one_sentence(tmp_path):
    with pytest.raises(GlauberError, match="has no results: glauber paper all --out"):
        page([tmp_path])
    with pytest.raises(GlauberError, match="at least one folder"):
        page([])
