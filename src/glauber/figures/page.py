"""How does an answer become a file? A page that needs no network, a picture, JSON or CSV."""

import json
import os
from html import escape
from pathlib import Path

import plotly.graph_objects as go

from glauber.errors import GlauberError
from glauber.result import Result, visible

WIDTH, SHARPNESS = 1000, 2  # of a PNG: pixels across, and how many of them for each
MARK = '<meta name="generator" content="glauber">'  # pages of ours may be written again
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;color:#1f2328;max-width:1000px;margin:24px auto;"
    "padding:0 16px}pre{white-space:pre-wrap;font-size:13px;background:#f6f8fa;padding:12px}"
)


def write_result(result: Result, path: Path) -> Path:
    """Writes a result to a page (.html), pictures (.png), .json, .csv, or a new folder of all."""
    check_place(path)
    figures = result.figures()
    told = json.dumps(result.to_dict(), indent=1, ensure_ascii=False) + "\n"
    match path.suffix.lower():
        case ".html":
            write_text(path, _page(tuple(figures.values()), str(result)))
        case ".png":
            write_picture(*figures.values(), path=path)
        case ".json":
            write_text(path, told)
        case ".csv":
            write_text(path, result.frame().to_csv(index=False))
        case _:
            write_text(path / "result.json", told)
            write_text(path / "result.csv", result.frame().to_csv(index=False))
            write_text(path / "result.txt", str(result) + "\n")
            for name, figure in figures.items():
                write_picture(figure, path=path / f"{name}.html")
    return path


def check_place(path: Path) -> None:
    """Refuses a place that cannot be written, lies in a run, or holds what is not ours."""
    try:
        whole = path.absolute()
        inside = next((one for one in (whole, *whole.parents) if (one / "run.json").exists()), None)
        if inside is not None:
            raise GlauberError(f"{path} lies in the run {inside}: nothing else is written there.")
        if whole.is_dir() and (path.suffix or any(whole.iterdir())):
            raise GlauberError(f"the folder {path} exists already; give another name.")
        if whole.is_file() and not _ours(whole):
            raise GlauberError(f"{path} exists already and was not written by glauber.")
        above = next(one for one in whole.parents if one.exists())
        if not above.is_dir() or not os.access(above, os.W_OK):
            raise GlauberError(f"{path} cannot be written: {above} is not a writable folder.")
    except OSError as error:
        raise GlauberError(f"{path} cannot be written: {error.strerror or error}.") from error


def _ours(path: Path) -> bool:
    """Whether a file may be written again: our pages, and data that a name asked for."""
    if path.suffix.lower() in (".json", ".csv", ".png"):
        return True
    with path.open("rb") as file:
        return MARK.encode() in file.read(512)


def write_text(path: Path, text: str) -> None:
    """Writes a file and the folders above it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise GlauberError(f"{path} cannot be written: {error.strerror or error}.") from error


def write_picture(*figures: go.Figure, path: Path) -> None:
    """Writes figures as one page that needs no network; to a name with .png, as PNG.

    Of several figures a PNG file each: name.png, name-2.png, …
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".png":
            _write_png(figures, path)
        else:
            path.write_text(_page(figures), encoding="utf-8")
    except OSError as error:
        raise GlauberError(f"{path} cannot be written: {error.strerror or error}.") from error


def _page(figures: tuple[go.Figure, ...], said: str = "") -> str:
    parts = [
        figure.to_html(
            full_html=False,
            include_plotlyjs=number == 0,
            config={"displaylogo": False, "responsive": True},
        )
        for number, figure in enumerate(figures)
    ]
    head = f'<meta charset="utf-8">{MARK}<meta name="viewport" content="width=device-width">'
    words = f"<pre>{escape(visible(said))}</pre>" if said else ""
    body = f"{''.join(parts)}{words}"
    return (
        f"<!doctype html><html><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>"
    )


def _write_png(figures: tuple[go.Figure, ...], path: Path) -> None:
    for number, figure in enumerate(figures, 1):
        name = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        try:
            figure.write_image(name, width=WIDTH, height=figure.layout.height, scale=SHARPNESS)
        except (ImportError, ValueError, RuntimeError) as error:
            raise GlauberError(
                "a PNG needs kaleido and a Chrome or Chromium: pip install 'glauber[png]', or "
                "write to a name with .html."
            ) from error
