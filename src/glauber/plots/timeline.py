"""How does a chain's text read over time? A table in HTML."""

from collections.abc import Iterable
from html import escape

from glauber.runs.timeline import Look, Piece

HEAD = '<tr><th scope="col">step</th><th scope="col">text</th></tr>'


def timeline_table(looks: Iterable[Look]) -> str:
    """An HTML table with a row per look; <mark> holds a changed token, .frozen a held one."""
    rows = "\n".join(_row(look) for look in looks)
    return f'<table class="timeline">\n<thead>{HEAD}</thead>\n<tbody>\n{rows}\n</tbody>\n</table>'


def _row(look: Look) -> str:
    text = "".join(_piece(piece) for piece in look.pieces).strip()
    return f'<tr><th scope="row">{look.step:,}</th><td dir="auto">{text}</td></tr>'


def _piece(piece: Piece) -> str:
    """The token, its space outside of what is marked."""
    bare = piece.text.lstrip(" ")
    space = piece.text[: len(piece.text) - len(bare)]
    if piece.changed:
        return f"{space}<mark>{escape(bare)}</mark>"
    if piece.frozen:
        return f'{space}<span class="frozen">{escape(bare)}</span>'
    return space + escape(bare)
