"""Figures become pages, or say what a PNG needs."""

import plotly.graph_objects as go
import pytest

from glauber.errors import GlauberError
from glauber.figures.page import write_picture


def test_a_page_holds_every_figure_and_the_script_once(tmp_path):
    figures = [go.Figure(go.Scatter(y=[1, 2])), go.Figure(go.Bar(y=[3]))]
    write_picture(*figures, path=tmp_path / "new" / "p.html")
    page = (tmp_path / "new" / "p.html").read_text()
    assert page.count("plotly-graph-div") == 2 and page.startswith("<!doctype html>")
    alone = tmp_path / "one.html"
    write_picture(figures[0], path=alone)
    assert len(page) < 1.1 * len(alone.read_text())  # the script is by far the largest part


def test_png_files_are_numbered(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(go.Figure, "write_image", lambda self, name, **how: written.append(name))
    write_picture(go.Figure(), go.Figure(), path=tmp_path / "p.png")
    assert [name.name for name in written] == ["p.png", "p-2.png"]


def test_a_png_without_a_browser_is_one_sentence(tmp_path, monkeypatch):
    def fail(self, name, **how):
        raise RuntimeError("no browser\nat all")

    monkeypatch.setattr(go.Figure, "write_image", fail)
    with pytest.raises(GlauberError, match="a PNG needs kaleido"):
        write_picture(go.Figure(), path=tmp_path / "p.png")


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GlauberError, match="cannot be written"):
        write_picture(go.Figure(), path=tmp_path / "file" / "p.html")
