"""Figures become pages, or say what a PNG needs."""

import base64
import gzip
import json
import os
import re
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs, get_plotlyjs_version

import glauber
from glauber.errors import GlauberError
from glauber.figures.page import CARTESIAN, check_place, write_picture
from glauber.figures.style import DARK, plot_rows


def test_a_page_holds_every_figure_and_the_script_once(tmp_path):
    figures = [go.Figure(go.Scatter(y=[1, 2])), go.Figure(go.Bar(y=[3]))]
    write_picture(*figures, path=tmp_path / "new" / "p.html")
    page = (tmp_path / "new" / "p.html").read_text()
    assert page.count('class="picture"') == 2 and page.startswith("<!doctype html>")
    alone = tmp_path / "one.html"
    write_picture(figures[0], path=alone)
    assert len(page) < 1.1 * len(alone.read_text())  # the script is by far the largest part


def script_of(page):
    packed = re.search(r'<script id="plotly"[^>]*>(.*?)</script>', page, re.S)[1]
    return gzip.decompress(base64.b64decode(packed)).decode()


def test_a_page_carries_only_the_chart_code_that_it_uses(tmp_path):
    write_picture(go.Figure(go.Scatter(y=[1, 2])), path=tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert f"(cartesian - minified) v{get_plotlyjs_version()}\n" in script_of(page)[:100]
    assert len(page) < 0.7e6
    write_picture(go.Figure(go.Scatter3d(x=[1], y=[1], z=[1])), path=tmp_path / "p.html")
    assert script_of((tmp_path / "p.html").read_text()) == get_plotlyjs()


def test_every_trace_that_we_draw_is_in_the_small_build():
    """A figure's `add_…` is the only way in which our code makes a trace."""
    found = set()
    for path in Path(glauber.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\bpx\.|add_traces?\(|\bgo\.(?!Figure\b|Table\b)[A-Z]", text), path
        found |= set(re.findall(r"\.add_([a-z0-9]+)\(", text))
    traces = found & {one.lower() for one in dir(go)} - {"annotation"}
    assert traces == {"scatter", "bar", "heatmap", "table"} and traces - {"table"} <= CARTESIAN


def test_every_colour_by_name_has_one_for_the_dark():
    """Colours as numbers a page makes light by itself; it knows no names but these."""
    for path in (Path(glauber.__file__).parent / "figures").glob("*.py"):
        named = re.findall(r'color\w*(?:=|": )"([a-z]+)"', path.read_text(encoding="utf-8"))
        assert set(named) <= set(DARK), path


def test_a_table_needs_no_code(tmp_path):
    rows = [{"model": "<i>a</i>", "steps": 3}, {"model": "b", "steps": None}]
    write_picture(plot_rows("Rows", "of <b>two</b>", rows), path=tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert 'id="plotly"' not in page and len(page) < 20_000
    assert "<caption>Rows: of two</caption>" in page
    assert '<td dir="auto">&lt;i&gt;a&lt;/i&gt;</td><td dir="auto">3</td>' in page


def test_data_cannot_leave_its_place(tmp_path):
    """A name with markup in it stays data: JSON gives it back, and no tag begins."""
    name = "</script><script>alert(1)</script><!--"
    write_picture(go.Figure(go.Scatter(y=[1], name=name)), path=tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert "alert(1)</script>" not in page
    data = re.search(r'data-figure="figure-1">(.*?)</script>', page, re.S)[1]
    assert json.loads(data)["data"][0]["name"] == name


def test_png_files_are_numbered(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(go.Figure, "write_image", lambda self, name, **how: written.append(name))
    write_picture(go.Figure(), go.Figure(), path=tmp_path / "p.png")
    assert [name.name for name in written] == ["p.png", "p-2.png"]


def test_a_png_without_a_browser_is_one_sentence(tmp_path, monkeypatch):
    def fail(self, name, **how):
        raise RuntimeError("no browser\nat all")

    monkeypatch.setattr(go.Figure, "write_image", fail)
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(GlauberError, match="a PNG needs kaleido: pip install"):
        write_picture(go.Figure(), path=tmp_path / "p.png")
    there = types.ModuleType("kaleido")
    there.__spec__ = ModuleSpec("kaleido", None)
    monkeypatch.setitem(sys.modules, "kaleido", there)
    with pytest.raises(GlauberError, match=r"\(no browser\): it needs a Chrome"):
        write_picture(go.Figure(), path=tmp_path / "p.png")


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GlauberError, match="cannot be written"):
        write_picture(go.Figure(), path=tmp_path / "file" / "p.html")


def test_files_of_others_are_not_overwritten(tmp_path):
    from glauber import paper

    found = paper("list")
    for name in ("mine.html", "mine.json", "mine.csv"):
        (tmp_path / name).write_text('{"mine": 1}')
        with pytest.raises(GlauberError, match="was not written by glauber"):
            found.write(tmp_path / name)
        assert (tmp_path / name).read_text() == '{"mine": 1}'
    page = found.write(tmp_path / "ours.html")
    assert found.write(page) == page  # our own page may be made again


def test_a_device_or_a_pipe_is_never_written_over(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("no\0name.html")):
        with pytest.raises(GlauberError):
            check_place(place)
    assert (tmp_path / "pipe").is_fifo()
