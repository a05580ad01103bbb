"""python -m website.tutorials: executes the notebooks of examples/ and stores what they show.

Plotly's pictures are kept as PNG, drawn by Chromium (a page with Plotly in it has megabytes), and
the remarks of a run about its own progress are left out.
"""

import base64
import io
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
PLOTLY = "application/vnd.plotly.v1+json"
WIDTH, HEIGHT = 760, 440
KEPT = ("image/png", "text/html", "text/plain")


def executed(path: Path, folder: Path, kernel: Any = None) -> Any:
    """The notebook with fresh outputs; what it writes goes into the folder.

    In a new kernel, or in one that runs already and is emptied.
    """
    notebook = nbformat.read(path, as_version=4)
    before = [] if kernel is None else [f"%reset -f\n%cd -q {folder}"]
    notebook.cells[:0] = map(nbformat.v4.new_code_cell, before)
    where = {"metadata": {"path": folder}}
    client = NotebookClient(notebook, timeout=240, resources=where, km=kernel)
    client.execute()
    if client.kc is not None:  # the kernel stays, its channels do not
        client.kc.stop_channels()
    del notebook.cells[: len(before)]
    return notebook


def kinds(notebook: Any) -> list[list[str]]:
    """What each piece of code shows: "picture", "table" or "text", output by output."""
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[_kind(one) for one in cell.outputs if not _is_remark(one)] for cell in codes]


def _kind(output: Any) -> str:
    data = output.get("data", {})
    if PLOTLY in data or "image/png" in data:
        return "picture"
    return "table" if "text/html" in data else "text"


def _is_remark(output: Any) -> bool:
    """Costs and progress, which are said aside: all that is no picture and no cell's own value."""
    if output.output_type == "display_data":
        return _kind(output) != "picture"
    return output.output_type == "stream" and output.name == "stderr"


def light(notebook: Any, draw: Any) -> Any:
    """The notebook as it is stored: pictures as PNG, no remarks, no times."""
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if not _is_remark(one)]
            for output in cell.outputs:
                _lighten(output, draw)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def _lighten(output: Any, draw: Any) -> None:
    data = output.get("data", {})
    if PLOTLY in data:
        png = base64.b64encode(draw(data[PLOTLY])).decode()
        output["data"] = {"image/png": png, "text/plain": "A figure of Plotly"}
    elif data:
        output["data"] = {kind: data[kind] for kind in KEPT if kind in data}
    if "text/html" in output.get("data", {}):
        html = re.sub(r"<style.*?</style>\s*", "", output["data"]["text/html"], flags=re.S)
        html = re.sub(r"[^\s>]*/glauber-\w+/", "/tmp/glauber-…/", html)  # a new one every time
        output["data"] = {"text/html": html, "text/plain": "A table"}


@contextmanager
def drawing() -> Iterator[Any]:
    """A function from a figure's JSON to a PNG of few colours, drawn in a browser."""
    import plotly
    from playwright.sync_api import sync_playwright

    bundle = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(device_scale_factor=2)
        page.add_script_tag(path=bundle)

        def draw(figure: dict[str, Any]) -> bytes:
            size = {"format": "png", "width": WIDTH, "height": HEIGHT, "scale": 2}
            found = page.evaluate(
                "([figure, size]) => Plotly.toImage(figure, size)",
                [{"data": figure["data"], "layout": figure["layout"]}, size],
            )
            return _few_colours(base64.b64decode(found.partition(",")[2]))

        yield draw
        browser.close()


def _few_colours(png: bytes) -> bytes:
    from PIL import Image

    written = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(64)
    image.save(written, "PNG", optimize=True)
    return written.getvalue()


def main(paths: Iterable[Path]) -> None:
    with drawing() as draw, tempfile.TemporaryDirectory() as folder:
        for path in paths:
            notebook = light(executed(path, Path(folder)), draw)
            for number, cell in enumerate(notebook.cells):
                cell["id"] = f"cell-{number}"
            text = nbformat.writes(notebook).rstrip() + "\n"
            path.write_text(text, encoding="utf-8")
            print(f"{path.name}: {len(text) / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main([Path(one) for one in sys.argv[1:]] or NOTEBOOKS)
