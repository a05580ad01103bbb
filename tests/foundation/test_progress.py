"""Progress shows where somebody looks, and work of days is refused."""

import io
import sys
from types import SimpleNamespace

import pytest

from glauber.foundation import progress
from glauber.foundation.errors import GlauberError


def test_a_notebook_without_widgets_gets_a_bar_of_letters(monkeypatch):
    """And no warning, which would be an error here."""
    for name in [name for name in sys.modules if name.split(".")[0] == "tqdm"]:
        monkeypatch.delitem(sys.modules, name)
    shell = SimpleNamespace(kernel=object(), config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr(progress, "SHOWN_AFTER", 0.0)
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.track("pairs", 4) as advance:
        advance(1)
        advance(to=3, note="2 met")
    shown = sys.stderr.getvalue()
    assert "pairs" in shown and "3/4" in shown and "2 met" in shown


def test_short_work_and_programs_see_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.track("pairs", 4) as advance:
        advance(4)
    with progress.quiet():
        progress.say("hello")
    shown = sys.stderr.getvalue()
    monkeypatch.setattr(progress, "SHOWN_AFTER", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # a file or a pipe
    progress.say("hello")
    with progress.track("pairs", 4) as advance:
        advance(4)
    assert shown.strip() == sys.stderr.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_work_of_days_is_refused_unless_it_is_allowed(monkeypatch):
    monkeypatch.setattr(progress, "JUDGED_AFTER", 0.0)
    with pytest.raises(GlauberError, match="hours"), progress.track("steps", 1e15) as advance:
        advance(1e-6)
    with progress.allow_long(), progress.track("steps", 1e15) as advance:
        advance(1e-6)
