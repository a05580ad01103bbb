"""Progress shows where somebody looks, and work of days is refused."""

import io
import sys

import pytest

from glauber import progress
from glauber.errors import GlauberError


class Notebook:
    is_terminal, is_jupyter = False, True


def test_a_notebook_without_widgets_gets_a_bar_of_letters(monkeypatch):
    monkeypatch.setattr(progress, "_console", Notebook)
    monkeypatch.setattr(progress, "SHOWN_AFTER", 0.0)
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.track("pairs", 4) as advance:
        advance(1)
        advance(to=3, note="2 met")
    shown = sys.stderr.getvalue()
    assert "pairs" in shown and "3/4" in shown and "2 met" in shown


def test_work_of_days_is_refused_unless_it_is_allowed(monkeypatch):
    monkeypatch.setattr(progress, "JUDGED_AFTER", 0.0)
    with pytest.raises(GlauberError, match="hours"), progress.track("steps", 1e15) as advance:
        advance(1e-6)
    with progress.allow_long(), progress.track("steps", 1e15) as advance:
        advance(1e-6)
