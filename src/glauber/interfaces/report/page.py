"""Results become files: pages that need no network, pictures for a paper, tables and JSON."""

import base64
import gzip
import io
import json
import os
import re
import secrets
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup

from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json
from glauber.foundation.study import Result, plain, visible
from glauber.foundation.tables import csv_text
from glauber.interfaces.plots.chart import CREATOR, DARK, HEIGHT
from glauber.interfaces.report.bundle import WEB

PLOTLY = WEB / "vendor" / "plotly-cartesian.js.gz"
CARTESIAN = frozenset({"bar", "box", "contour", "heatmap", "histogram", "scatter"})  # it draws
MARK = '<meta name="generator" content="glauber">'  # pages of ours may be written again
PICTURES = (".pdf", ".pgf", ".png", ".svg")
TABLES = (".csv", ".jsonl", ".parquet", ".tex")
SEQUENCES = (".fasta", ".fa", ".gz")  # of results that contain sequences


def write_result(result: Result, path: Path) -> Path:
    """Writes a result to the kind of file that the name asks for, or to a new folder.

    A page (.html), pictures (.pdf, .svg, .png, .pgf), a table (.csv, .tex, .jsonl, .parquet),
    everything as .json; a folder gets the page of each picture, the table, the text and the JSON.
    """
    check_place(path)
    suffix = path.suffix.lower()
    if suffix in SEQUENCES:
        raise GlauberError(f"{path}: this answer contains no sequences to write as {suffix}.")
    figures = {} if suffix in TABLES else result.figures()
    record = json.dumps(result.record(), indent=1, ensure_ascii=False) + "\n"
    if suffix == ".html":
        write_text(path, page("result.html", figures=figures, text=str(result)))
    elif suffix in PICTURES:
        write_picture(*figures.values(), path=path)
    elif suffix == ".json":
        write_text(path, record)
    elif suffix in TABLES:
        _write_table(result, path, suffix)
    else:
        write_text(path / "result.json", record)
        write_text(path / "result.csv", csv_text(result.frame()))
        write_text(path / "result.txt", str(result) + "\n")
        for name, figure in figures.items():
            write_picture(figure, path=path / f"{name}.html")
    return path


def _write_table(result: Result, path: Path, suffix: str) -> None:
    """The frame of a result, in full precision but for LaTeX."""
    frame = result.frame()
    if suffix == ".csv":
        return write_text(path, csv_text(frame))
    if suffix == ".jsonl":
        rows = (json.dumps(plain(row), ensure_ascii=False) for row in frame.to_dict("records"))
        return write_text(path, "".join(f"{row}\n" for row in rows))
    if suffix == ".tex":
        table = frame.to_latex(index=False, escape=True, float_format="{:.4g}".format)
        return write_text(path, f"% {visible(result.signature)}\n{table}")
    buffer = io.BytesIO()
    try:
        frame.to_parquet(buffer, index=False)
    except (ValueError, TypeError) as error:  # pyarrow's errors among them
        raise GlauberError(
            f"{path} cannot be written: a column has values of several types; write .jsonl."
        ) from error
    write_bytes(path, buffer.getvalue())


def check_place(path: Path) -> None:
    """Refuses a place that cannot be written, lies in a run, or holds what is not ours."""
    known = (".html", *PICTURES, ".json", *TABLES)
    is_name = re.fullmatch(r"\.[A-Za-z]\w*", path.suffix) and not path.is_dir()
    if is_name and path.suffix.lower() not in (*known, *SEQUENCES):
        raise GlauberError(
            f"{path.suffix} is no format of an answer: use {', '.join(known)}, or a folder's name."
        )
    try:
        absolute = path.absolute()
        if "\0" in str(path):
            raise ValueError("no name has a null character in it")
        inside = next(
            (folder for folder in (absolute, *absolute.parents) if (folder / "run.json").exists()),
            None,
        )
        if inside is not None:
            raise GlauberError(f"{path} lies in the run {inside}: nothing else is written there.")
        if absolute.is_dir() and (path.suffix or any(absolute.iterdir())):
            raise GlauberError(f"the folder {path} exists already; give another name.")
        if absolute.exists() and not (absolute.is_file() or absolute.is_dir()):
            raise GlauberError(f"{path} is no file: a device or a pipe is not written over.")
        if absolute.is_file() and not _ours(absolute):
            raise GlauberError(f"{path} exists already and was not written by glauber.")
        above = next(folder for folder in absolute.parents if folder.exists())
        if not above.is_dir() or not os.access(above, os.W_OK):
            raise GlauberError(f"{path} cannot be written: {above} is not a writable folder.")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GlauberError(f"{path} cannot be written: {reason}.") from error


def _ours(path: Path) -> bool:
    """Whether a file may be written again: pages, pictures and JSON that say they are ours."""
    if path.suffix.lower() == ".json":
        try:
            return "glauber:" in parse_json(path.read_text(encoding="utf-8"))["signature"]
        except (ValueError, KeyError, TypeError):
            return False
    if path.suffix.lower() in PICTURES:
        return CREATOR.encode() in path.read_bytes()
    with path.open("rb") as file:
        return MARK.encode() in file.read(512)


def write_text(path: Path, text: str) -> None:
    """Writes a file atomically, and the folders above it: a reader sees the old or the new."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file atomically, and the folders above it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".glauber-{secrets.token_hex(8)}")  # no other file's name
        try:
            partial.write_bytes(content)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise GlauberError(f"{path} cannot be written: {error.strerror or error}.") from error


def write_picture(*figures: go.Figure, path: Path) -> None:
    """Writes figures as one page that needs no network, or as .pdf, .svg, .png or .pgf.

    Of several figures a picture each: name.png, name-2.png, …
    """
    if path.suffix.lower() not in PICTURES:
        numbered = {f"figure-{number}": figure for number, figure in enumerate(figures, 1)}
        return write_text(path, page("result.html", figures=numbered))
    from glauber.interfaces.plots.matplotlib_backend import picture

    for number, figure in enumerate(figures, 1):
        name = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        write_bytes(name, picture(figure, path.suffix.lower()[1:]))


class FigureWriter:
    """Puts figures into a page; remembers their traces, for the code that draws them."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.any = False

    def __call__(self, name: str, figure: go.Figure) -> Markup:
        """The place of a figure and its data, which no browser takes for markup."""
        if figure.data and all(trace.type == "table" for trace in figure.data):
            return Markup("").join(_table(figure, trace) for trace in figure.data)
        self.any = True
        self.kinds |= {trace.type for trace in figure.data}
        data = figure.to_json().replace("<", "\\u003c")
        height = int(figure.layout.height or HEIGHT)
        return Markup(
            '<div class="picture" id="{}" style="min-height: {}px"></div>'
            '<script type="application/json" data-figure="{}">{}</script>'
        ).format(name, height, name, Markup(data))

    @property
    def plotly(self) -> str:
        """The smallest of Plotly's builds that draws every figure."""
        return packed_plotly(every_trace=not self.kinds <= CARTESIAN)


def _table(figure: go.Figure, trace: go.Table) -> Markup:
    """A figure that is a table, as one: it needs no code."""
    title = Markup(str(figure.layout.title.text or "").replace("<br>", ": ")).striptags()
    head, columns = trace.header.values or (), trace.cells.values or ()
    return Markup('<div class="scroll"><table class="rows">{}{}{}</table></div>').format(
        Markup("<caption>{}</caption>").format(title) if title else "",
        Markup("<thead>{}</thead>").format(_row("th", head)),
        Markup("").join(_row("td", row) for row in zip(*columns, strict=True)),
    )


def _row(tag: str, values: Iterable[object]) -> Markup:
    cell = Markup(f'<{tag} dir="auto">{{}}</{tag}>')
    return Markup("<tr>{}</tr>").format(Markup("").join(cell.format(value) for value in values))


def page(template: str, *, title: str = "glauber", text: str = "", **variables: Any) -> str:
    """A page that asks nothing of any network; what is put into it is escaped."""
    return str(
        _environment()
        .get_template(template)
        .render(title=title, text=visible(text), drawn=FigureWriter(), dark=DARK, **variables)
    )


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@lru_cache(maxsize=2)
def packed_plotly(*, every_trace: bool = False) -> str:
    """Plotly's code, compressed, as letters that a page can hold.

    The build for scatter, bar and heat map has 0.7 MB; the whole of Plotly has 1.9 MB.
    """
    from plotly.offline import get_plotlyjs

    packed = (
        gzip.compress(get_plotlyjs().encode(), compresslevel=9, mtime=0)
        if every_trace
        else PLOTLY.read_bytes()
    )
    return base64.b64encode(packed).decode("ascii")
