"""Figures become pages, or say what a PNG needs."""

import base64
import gzip
import json
import os
import re
from pathlib import Path

import pandas
import plotly.graph_objects as go
import pytest
from matplotlib.text import Text
from plotly.offline import get_plotlyjs, get_plotlyjs_version

import glauber
from glauber import paper
from glauber.foundation.errors import GlauberError
from glauber.interfaces.plots.chart import BLUE, DARK, Chart, plot_rows
from glauber.interfaces.report.page import CARTESIAN, check_place, write_picture


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
    for path in (Path(glauber.__file__).parent / "interfaces").rglob("*.py"):
        named = re.findall(r'color\w*(?:=|": )"([a-z]+)"', path.read_text(encoding="utf-8"))
        assert set(named) - {"none", "face"} <= set(DARK), path


def test_a_table_needs_no_code(tmp_path):
    rows = [{"model": "<i>a</i>", "steps": 3}, {"model": "b", "steps": None}]
    write_picture(plot_rows("Rows", "of <b>two</b>", rows), path=tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert 'id="plotly"' not in page and len(page) < 20_000
    assert "<caption>Rows: of &lt;b&gt;two&lt;/b&gt;</caption>" in page
    assert '<td dir="auto">&lt;i&gt;a&lt;/i&gt;</td><td dir="auto">3</td>' in page


def test_data_cannot_leave_its_place(tmp_path):
    """A name with markup in it stays data: JSON gives it back, and no tag begins."""
    name = "</script><script>alert(1)</script><!--"
    write_picture(go.Figure(go.Scatter(y=[1], name=name)), path=tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert "alert(1)</script>" not in page
    data = re.search(r'data-figure="figure-1">(.*?)</script>', page, re.S)[1]
    assert json.loads(data)["data"][0]["name"] == name


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_pictures_are_numbered_and_written_again(tmp_path, suffix, start):
    figures = [go.Figure(go.Scatter(y=[1, 2])), go.Figure(go.Bar(y=[3]))]
    path = tmp_path / f"p.{suffix}"
    write_picture(*figures, path=path)
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"p-2.{suffix}", f"p.{suffix}"]
    content = path.read_bytes()
    assert content.startswith(start) and content != (tmp_path / f"p-2.{suffix}").read_bytes()
    check_place(path)  # of ours, so that it may be written again
    write_picture(*figures, path=path)
    assert path.read_bytes() == content
    path.write_bytes(start)
    with pytest.raises(GlauberError, match="was not written by glauber"):
        check_place(path)


def test_a_pgf_needs_tex_and_escapes_every_text(tmp_path, monkeypatch):
    figure = Chart("50% of {a_b} & $c^2$", "#1\\~", x=dict(tickformat=".0%"), y={})
    figure.columns(["x_y", "z&w"], [1, 2], "100%", color=BLUE)
    texts = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig",
        lambda self, file, **_: texts.extend(one.get_text() for one in self.findobj(Text)),
    )
    monkeypatch.setattr("shutil.which", lambda name: name == "pdflatex" or None)
    write_picture(figure, path=tmp_path / "p.pgf")
    assert r"50\% of \{a\_b\} \& \$c\textasciicircum{}2\$" in texts
    assert r"\#1\textbackslash{}\textasciitilde{}" in texts and {r"x\_y", r"z\&w"} <= set(texts)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(GlauberError, match="a PGF needs a TeX installation"):
        write_picture(figure, path=tmp_path / "p.pgf")


def test_tables_are_written_for_papers_and_programs(tmp_path):
    found = paper("list")
    rows = found.frame().to_dict("records")
    lines = found.write(tmp_path / "t.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    assert pandas.read_parquet(found.write(tmp_path / "t.parquet")).to_dict("records") == rows
    first, *tex = found.write(tmp_path / "t.tex").read_text().splitlines()
    assert first == f"% {found.signature}" and tex[0].startswith(r"\begin{tabular}")
    assert sum(line.endswith(r"\\") for line in tex) == len(rows) + 1
    for name in ("t.docx", "t.pickle"):
        with pytest.raises(GlauberError, match=r"is no format of an answer: use \.html, \.pdf"):
            found.write(tmp_path / name)
    with pytest.raises(GlauberError, match="contains no sequences"):
        found.write(tmp_path / "t.fasta")
    assert (found.write(tmp_path / "version-0.5") / "result.csv").exists()  # a folder's name


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GlauberError, match="cannot be written"):
        write_picture(go.Figure(), path=tmp_path / "file" / "p.html")


def test_files_of_others_are_not_overwritten(tmp_path):
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
