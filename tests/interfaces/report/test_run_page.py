"""The page of a run says what the run holds, escapes it, and asks nothing of any network."""

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from glauber.foundation.errors import GlauberError
from glauber.interfaces.report import bundle
from glauber.interfaces.report import report as reports
from glauber.interfaces.report.report import MOST, ranges, report, summary
from glauber.runs.folder_log import FolderLog
from glauber.runs.run import Run
from glauber.runs.spec import Spec, signature

WORDS = ["[UNK]", "<b>", "&", '"', "cat", "</script>", "dog", "##s"]
LENGTH = 6
VOID = {"meta", "link", "wbr", "br"}


def make_run(folder: Path, n_chains: int = 2, n_steps: int = 60, model: str = "tiny") -> Run:
    """A run of random events whose first site is frozen."""
    rng = np.random.default_rng(0)
    start = rng.integers(1, len(WORDS), (n_chains, LENGTH))
    free = np.ones((n_chains, LENGTH), bool)
    free[:, 0] = False
    shape = (n_chains, n_steps, 1)
    site, token = rng.integers(1, LENGTH, shape), rng.integers(1, len(WORDS), shape)
    changed, tokens = np.zeros(shape, bool), start.copy()
    for chain, step, slot in np.ndindex(shape):
        place = chain, site[chain, step, slot]
        changed[chain, step, slot] = tokens[place] != token[chain, step, slot]
        tokens[place] = token[chain, step, slot]
    figures = {name: rng.random(shape) for name in ("log_prob_old", "log_prob_new", "entropy")}
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))

    def save_tokenizer(target: Path) -> None:
        target.mkdir()
        backend.save(str(target / "tokenizer.json"))

    spec = Spec(model, "f" * 64, "cpu", "float32", 0, n_steps, n_chains, 0.7)
    with FolderLog.create(folder, spec, start, free, save_tokenizer=save_tokenizer) as log:
        log.append({"site": site, "token": token, "changed": changed, **figures})
    return Run(folder)


class Read(HTMLParser):
    """What a browser would make of the page: its tags, what they ask for, its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.asked: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.asked += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


@pytest.fixture(autouse=True)
def plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page without the parts that need a model: they have their own tests."""
    monkeypatch.setattr(reports, "sections_of", lambda *_: [])


def written(run: Run, out: Path) -> tuple[str, Read]:
    """The page without the code of the player, as text and as read."""
    report(run, out=out)
    text = out.read_text(encoding="utf-8")
    code = bundle.inline("watch.js")
    assert text.count(code) == (1 if run.steps else 0)
    rest = text.replace(code, "")
    return rest, Read(rest)


def test_the_page_asks_nothing_of_any_network(tmp_path: Path) -> None:
    rest, read = written(make_run(tmp_path / "run"), tmp_path / "page.html")
    assert read.asked == ["data:,"]
    assert not re.search(r"https?:|@import|url\(", rest)
    assert "default-src 'none'" in rest


def test_every_tag_is_closed_and_tokens_are_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", model="<b>model</b>")
    monkeypatch.setattr(reports, "seeds_of", lambda _: ["<b>one</b>", "two & three"])
    rest, read = written(run, tmp_path / "page.html")
    assert read.open == []
    assert read.tags["b"] == 0 and "<b>" not in rest
    for told in ("<b>one</b>", "two & three", "<b>model</b>"):
        assert told in read.text
    assert any("<b>" in run.text(chain, step) for chain in (0, 1) for step in (0, 60))


def test_the_page_says_what_the_run_holds(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    rest, read = written(run, tmp_path / "page.html")
    assert signature(run.spec) in read.text
    for chain in (0, 1):
        for step in (0, run.steps):
            assert run.text(chain, step) in read.text
    assert read.tags["details"] == 2 and 'id="plotly"' not in rest  # no picture, no chart code
    assert len(rest) < 60_000
    assert rest.count("<details open>") == 1 and rest.count('class="timeline"') == 2
    assert rest.count('class="frozen"') > 2 * 20 and rest.count("<mark>") > 2 * 20


def test_the_summary_counts_steps_and_what_is_left(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    changed = int(run.read("changed").sum()) / (2 * 60)
    left = [
        sum(run.tokens(60)[chain, i] == run.tokens(0)[chain, i] for i in range(1, LENGTH)) / 5
        for chain in (0, 1)
    ]
    told = summary(run)
    assert "2 chains of the masked language model tiny made 60 steps each" in told
    assert "temperature 0.7" in told
    assert f"{changed:.0%} of the steps changed a token" in told
    assert f"{sum(left) / 2:.0%} of the starting tokens" in told
    assert f"({min(left):.0%} to {max(left):.0%} by chain)" in told


def test_a_run_without_steps_has_a_page_without_a_player(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_chains=1, n_steps=0)
    rest, read = written(run, tmp_path / "page.html")
    assert 'id="player"' not in rest and read.tags["figure"] == 0
    assert "1 chain of the masked language model tiny made 0 steps at" in read.text


def test_of_many_chains_the_first_are_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_chains=MOST + 3, n_steps=2)
    _, read = written(run, tmp_path / "page.html")
    assert read.tags["details"] == MOST
    assert read.text.count(f"The first {MOST} of {MOST + 3} chains.") == 2  # player and texts


def test_an_older_page_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    out = tmp_path / "new" / "page.html"
    run = make_run(tmp_path / "run")
    report(run, out=out)
    first = out.read_text(encoding="utf-8")
    report(run, out=out)
    assert out.read_text(encoding="utf-8") == first and first.startswith("<!doctype html>")
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]


def test_what_is_not_ours_is_never_overwritten(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    before = (run.folder / "run.json").read_bytes()
    for place in (run.folder / "run.json", run.folder / "page.html"):
        with pytest.raises(GlauberError, match="lies in the run"):
            report(run, out=place)
    assert (run.folder / "run.json").read_bytes() == before
    mine = tmp_path / "mine.html"
    mine.write_text("a page of somebody", encoding="utf-8")
    with pytest.raises(GlauberError, match="was not written by glauber"):
        report(run, out=mine)


def test_a_place_that_cannot_be_written_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GlauberError, match="cannot be written"):
        report(make_run(tmp_path / "run"), out=tmp_path / "file" / "page.html")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"scan": "block:3"}, "hides 3 tokens, picked at random, and draws from what"),
        ({"fill": "greedy", "scan": "sweep"}, "each in turn, and takes what the model finds"),
        ({"prefix": "a cat", "frozen": [2]}, "the prefix “a cat” and the site 2 (counted from 0"),
        ({"temperature": [0.3, 2.0]}, "made 1 steps each at temperatures 0.3 to 2."),
        (
            {"frozen": [2, 4]},
            "Never redrawn: the sites 2, 4 (counted from 0, without special tokens).",
        ),
        (
            {"constraints": {"allowed": {"1": ["a"], "2": ["b"]}, "budget": 3}},
            "Kept to: only certain tokens at the sites 1-2; at most 3 changes from each start.",
        ),
    ],
)
def test_the_summary_tells_the_dynamics(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    run = make_run(tmp_path / "run", n_steps=1)
    run.log.spec = replace(run.spec, **changes)
    assert told in summary(run)


def test_an_unfinished_run_says_how_far_it_is(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_steps=3)
    run.log.spec = replace(run.spec, steps=5000)
    assert "made 3 of 5,000 steps each" in summary(run)


def test_sites_are_written_as_ranges() -> None:
    assert ranges([*range(96), 109, 110, 111, 120]) == "0-95, 109-111, 120"
    assert ranges([3]) == "3" and ranges([4, 2]) == "2, 4"
