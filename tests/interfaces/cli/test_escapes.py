"""What a text holds never reaches the terminal as a command to it."""

import io
import json
import sys

import pytest

import conftest
import glauber
from glauber.foundation import progress
from glauber.foundation.errors import GlauberError
from glauber.foundation.study import Result
from glauber.foundation.tables import table
from glauber.interfaces.cli import main
from glauber.interfaces.cli.command import show

ESCAPES = "\x1b]0;title\x07\x9b31m[red]cat[/red]"


LINES = "the\u2028cat\u2029sat\x85on\nthe\rmat\vor\x0cthe\x1ctree\ttop"
BLANKS = "a\u00a0cat\u3000and\u2009a dog"


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Told(Result):
    signature = "made"

    def to_dict(self):
        return {"text": ESCAPES}

    def lines(self):
        yield LINES
        yield from table([{"name": "a", "text": LINES}, {"name": "b", "text": BLANKS}])


def test_a_token_never_breaks_a_line():
    """Whatever it contains: separators of lines and paragraphs are spelled out."""
    printed = str(Told())
    assert printed.splitlines() == printed.split("\n")  # no other line break is left
    assert printed.splitlines()[0] == ascii(LINES)[1:-1]
    assert BLANKS in printed and printed.count(r"the\u2028cat") == 2


def test_errors_and_progress_are_one_line(capsys, monkeypatch):
    def failing():
        raise GlauberError(f"there is no {LINES} {'a' * 5000}.")

    monkeypatch.setattr("glauber.interfaces.cli.group.app", failing)
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert said.count("\n") == len(said.splitlines()) == 1 and len(said) < 400
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress.say(LINES)
    assert sys.stderr.getvalue() == ascii(LINES)[1:-1] + "\n"


def test_json_spells_controls_out(capsys):
    show(Told(), silent=True)
    said = capsys.readouterr().out
    assert said.rstrip("\n").isprintable() and json.loads(said) == {"text": ESCAPES}


def test_the_bar_and_the_lines_show_texts_as_they_are(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "SHOWN_AFTER", 0.0)
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    progress.say(ESCAPES)
    with progress.track("steps", 2) as advance:
        advance(to=1, note=ESCAPES)
    said = sys.stderr.getvalue()
    assert said.count(r"\x1b]0;title\x07\x9b31m[red]cat[/red]") >= 2
    assert "\x1b]" not in said and "\x9b" not in said


STARTS = ["the cat sat on the mat .", "is it on or under a tree"] * 2
ODD = {"big": "b\u2028g", "old": "o\nd", "sky": "s\x1b[31my", "new": "n\x85w", "red": "r\rd"}


@pytest.fixture(scope="module")
def odd_run(tmp_path_factory):
    """A run of a model whose vocabulary has line separators and control characters in it."""
    folder = tmp_path_factory.mktemp("odd")
    conftest.make_model("bert").save_pretrained(folder / "model")
    conftest.make_tokenizer().save_pretrained(folder / "model")
    written = json.loads((folder / "model" / "tokenizer.json").read_text())
    known = written["model"]["vocab"]
    written["model"]["vocab"] = {ODD.get(word, word): token for word, token in known.items()}
    (folder / "model" / "tokenizer.json").write_text(json.dumps(written))
    model = glauber.load(str(folder / "model"), device="cpu")
    return glauber.sample(model, STARTS, steps=200, temperature=3.0, out=folder / "run")


STUDIES = {
    "sample": lambda run: run,
    "show": lambda run: glauber.show(run, rows=9),
    "basins": lambda run: glauber.basins(run, embedder="tokens"),
    "traps": lambda run: glauber.traps(run, detector="hamming", shortest=20),
    "rectangles": lambda run: glauber.rectangles(run.spec.model, STARTS[:2], count=5, length=6),
    "generate": lambda run: glauber.generate(run.spec.model, count=3, length=9, temperature=3.0),
}


@pytest.mark.parametrize("name", STUDIES)
def test_no_study_prints_a_broken_line(name, odd_run):
    printed = str(STUDIES[name](odd_run))
    assert printed.splitlines() == printed.split("\n")
    assert all(line.isprintable() for line in printed.splitlines())


def test_the_odd_tokens_are_printed(odd_run):
    printed = str(glauber.show(odd_run, rows=99))
    assert r"b\u2028g" in printed and r"o\nd" in printed and r"s\x1b[31my" in printed
