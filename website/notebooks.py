"""How does an executed notebook read as a page? Its cells and stored outputs, as Markdown."""

import base64
import json
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any


def cells(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text(encoding="utf-8"))["cells"])


def spelled(path: Path) -> str:
    """The page: text, code, and under each piece of code what it printed and drew."""
    parts = []
    for number, cell in enumerate(cells(path)):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif source:
            parts.append(f"```python\n{source}\n```")
            parts += [_output(one, _picture(path, number)) for one in cell["outputs"]]
    return "\n\n".join(part for part in parts if part) + "\n"


def pictures(path: Path) -> dict[str, bytes]:
    """The pictures of a notebook's outputs, by file name."""
    return {
        _picture(path, number): base64.b64decode("".join(output["data"]["image/png"]))
        for number, cell in enumerate(cells(path))
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    }


def _picture(path: Path, number: int) -> str:
    return f"{path.stem}-{number}.png"


def _output(output: dict[str, Any], picture: str) -> str:
    """One output: a picture, a table or text, whichever tells most."""
    data = output.get("data", {})
    if "image/png" in data:
        return f"![A picture of the result]({picture})"
    if "text/html" in data:
        return "\n".join(_html("".join(data["text/html"])))
    text = "".join(output.get("text", data.get("text/plain", "")))
    return "\n".join(_html(f"<pre>{escape(text.rstrip())}</pre>")) if text.strip() else ""


def _html(text: str) -> Iterator[str]:
    """Tables in a frame that scrolls; a block of HTML in Markdown must not have blank lines."""
    text = re.sub(r"<style.*?</style>", "", text, flags=re.S)
    text = re.sub(r"<table[^>]*>", "<table>", text)
    text = re.sub(r"(<table.*?</table>)", r'<div class="wide">\1</div>', text, flags=re.S)
    yield '<div class="output">'
    yield from (line or "&nbsp;" for line in text.splitlines())
    yield "</div>"
