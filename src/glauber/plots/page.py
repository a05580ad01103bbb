"""How do several figures become one HTML file that needs no network?"""

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
"""


def figures_page(title: str, figures: Sequence[go.Figure]) -> str:
    """The HTML of the figures, one below the other; the first carries the drawing code."""
    parts = [
        figure.to_html(
            full_html=False, include_plotlyjs=number == 0, config={"displayModeBar": False}
        )
        for number, figure in enumerate(figures)
    ]
    return HEAD.format(title=escape(title)) + "\n".join(parts) + "\n</html>\n"
