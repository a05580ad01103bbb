"""What a text holds never reaches the terminal as a command to it."""

import io
import json

from rich.console import Console

from glauber import progress
from glauber.cli.command import show
from glauber.result import Result

ESCAPES = "\x1b]0;title\x07\x9b31m[red]cat[/red]"


class Told(Result):
    signature = "made"

    def to_dict(self):
        return {"text": ESCAPES}


def test_json_spells_controls_out(capsys):
    show(Told(), silent=True)
    said = capsys.readouterr().out
    assert said.rstrip("\n").isprintable() and json.loads(said) == {"text": ESCAPES}


def test_the_bar_and_the_lines_show_texts_as_they_are(monkeypatch):
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=200, color_system=None)
    monkeypatch.setattr(progress, "_console", lambda: console)
    monkeypatch.setattr(progress, "SHOWN_AFTER", 0.0)
    progress.say(ESCAPES)
    with progress.track("steps", 2) as advance:
        advance(to=1, note=ESCAPES)
    said = written.getvalue()
    assert said.count(r"\x1b]0;title\x07\x9b31m[red]cat[/red]") >= 2
    assert "\x1b]" not in said and "\x9b" not in said
